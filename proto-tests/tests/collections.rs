//! Commands about a collection answer as on a naive one, or are refused: each is run on both and the replies are compared.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::{Mongod, Proxy, ProxyOptions, database_name, mongod, raw};

const NOT_SUPPORTED: i32 = 115;
/// What no two servers tell alike.
const OF_THE_MOMENT: &[&str] = &[
    "$clusterTime",
    "operationTime",
    "electionId",
    "opTime",
    "localTime",
    "host",
    "uuid",
    "millis",
    // A `validate` that was in somebody's way names files.
    "warnings",
];
/// Sizes are of what is stored.
const SIZES: &[&str] = &[
    "size",
    "avgObjSize",
    "storageSize",
    "freeStorageSize",
    "totalIndexSize",
    "totalSize",
    "wiredTiger",
    "bytesFreed",
];

/// The collections that are shaped, of any database: `items` and `others` alike, `short` in pages of three.
const SHAPES: &str = "
[[bucket]]
namespace = \"*.items\"
key = \"k\"
time = \"at\"

[[bucket]]
namespace = \"*.others\"
key = \"k\"
time = \"at\"

[[bucket]]
namespace = \"*.short\"
key = \"k\"
time = \"at\"
max_items = 3
";

/// The same collections, naive on mongod itself and shaped through a proxy.
struct Both {
    naive: raw::Connection,
    shaped: raw::Connection,
    /// A second proxy before the same databases.
    second: raw::Connection,
    stored: raw::Connection,
    database: String,
    _proxies: [Proxy; 2],
}

impl Both {
    fn start(mongod: &Mongod) -> Result<Self> {
        let options = ProxyOptions::new(&mongod.uri()).config(SHAPES);
        let proxies = [Proxy::start(&options)?, Proxy::start(&options)?];
        Ok(Self {
            naive: raw::Connection::open(mongod.address())?,
            shaped: raw::Connection::open(proxies[0].address())?,
            second: raw::Connection::open(proxies[1].address())?,
            stored: raw::Connection::open(mongod.address())?,
            database: database_name(),
            _proxies: proxies,
        })
    }

    /// With items in `items` on either side.
    fn filled(mongod: &Mongod) -> Result<Self> {
        let mut both = Self::start(mongod)?;
        both.insert("items", 25)?;
        Ok(both)
    }

    fn names(&self) -> [String; 2] {
        ["n", "s"].map(|side| format!("{}_{side}", self.database))
    }

    /// The database whose collections are shaped.
    fn shaped_database(&self) -> String {
        format!("{}_s", self.database)
    }

    fn insert(&mut self, collection: &str, items: i32) -> Result<()> {
        let documents: Vec<_> = (0..items)
            .map(|number| {
                let at = bson::DateTime::from_millis(i64::from(number) * 1_000);
                doc! { "_id": number, "k": number % 2, "at": at, "parent": number / 2 }
            })
            .collect();
        self.same(|_| doc! { "insert": collection, "documents": &documents })
    }

    /// Runs what a database's name makes a command of on either side.
    fn run(&mut self, command: impl Fn(&str) -> Document) -> Result<[Document; 2]> {
        let [naive, shaped] = self.names();
        let complete = |database: &str| {
            let mut command = command(database);
            if !command.contains_key("$db") {
                command.insert("$db", database);
            }
            command
        };
        Ok([
            neutral(&self.naive.command(&complete(&naive))?, &naive),
            neutral(&self.shaped.command(&complete(&shaped))?, &shaped),
        ])
    }

    /// Both sides must answer alike.
    fn same(&mut self, command: impl Fn(&str) -> Document) -> Result<()> {
        let [naive, shaped] = self.run(&command)?;
        ensure!(
            naive == shaped,
            "{}\n  naive:  {naive}\n  shaped: {shaped}",
            command("<db>")
        );
        Ok(())
    }

    /// Both sides must answer alike; an error's message may name the plan.
    fn same_read(&mut self, command: &Document) -> Result<()> {
        let [mut naive, mut shaped] = self.run(|_| command.clone())?;
        for reply in [&mut naive, &mut shaped] {
            reply.remove("errmsg");
        }
        ensure!(naive == shaped, "{command}\n  naive:  {naive}\n  shaped: {shaped}");
        Ok(())
    }

    /// Both sides must fail with this code; the messages may tell how a collection is stored.
    fn same_code(&mut self, code: i32, command: impl Fn(&str) -> Document) -> Result<()> {
        let [naive, shaped] = self.run(&command)?;
        let has = |reply: &Document| reply.get_i32("code").ok() == Some(code);
        ensure!(
            has(&naive) && has(&shaped) && naive.get("codeName") == shaped.get("codeName"),
            "{}\n  naive:  {naive}\n  shaped: {shaped}",
            command("<db>")
        );
        Ok(())
    }

    /// The shaped side must refuse it and have changed nothing.
    fn refused(&mut self, code: i32, command: impl Fn(&str) -> Document) -> Result<()> {
        let before = self.state()?;
        let database = self.shaped_database();
        let mut command = command(&database);
        if !command.contains_key("$db") {
            command.insert("$db", database);
        }
        let reply = self.shaped.command(&command)?;
        ensure!(
            reply.get_i32("code").ok() == Some(code),
            "{command}\nis answered {reply}"
        );
        ensure!(self.state()? == before, "{command}\nchanged something");
        Ok(())
    }

    /// All that is stored in the shaped database.
    fn state(&mut self) -> Result<Vec<Document>> {
        let database = self.shaped_database();
        let mut listed = self.stored.all(&doc! { "listCollections": 1, "$db": &database })?;
        listed.sort_by_key(|collection| collection.get_str("name").unwrap_or_default().to_owned());
        let mut state = listed.clone();
        for collection in listed {
            if collection.get_str("type")? == "collection" {
                let name = collection.get_str("name")?;
                let find = doc! { "find": name, "sort": { "_id": 1 }, "$db": &database };
                state.extend(self.stored.all(&find)?);
                state.extend(self.stored.all(&doc! { "listIndexes": name, "$db": &database })?);
            }
        }
        Ok(state)
    }

    /// The names of a listing's documents on either side, in any order, in batches of this size.
    fn listed(&mut self, options: &Document, batch_size: Option<i32>) -> Result<()> {
        let names = self.names();
        let mut command = doc! { "listCollections": 1 };
        command.extend(options.clone());
        if let Some(size) = batch_size {
            command.insert("cursor", doc! { "batchSize": size });
        }
        let mut found = Vec::new();
        for (connection, database) in [&mut self.naive, &mut self.shaped].into_iter().zip(&names) {
            command.insert("$db", database);
            let mut documents: Vec<_> = connection
                .all(&command)?
                .iter()
                .map(|document| neutral(document, database))
                .collect();
            documents.sort_by_key(|document| document.get_str("name").unwrap_or_default().to_owned());
            // What a view on a shaped collection stores unpacks it.
            for document in documents
                .iter_mut()
                .filter(|document| document.get_str("type").is_ok_and(|kind| kind == "view"))
            {
                document.remove("options");
            }
            found.push(documents);
        }
        ensure!(
            found[0] == found[1],
            "{command}\n  naive:  {:?}\n  shaped: {:?}",
            found[0],
            found[1]
        );
        Ok(())
    }

    /// What is stored under that name in the shaped database.
    fn is_stored(&mut self, name: &str) -> Result<bool> {
        let list = doc! { "listCollections": 1, "filter": { "name": name }, "$db": self.shaped_database() };
        Ok(!self.stored.all(&list)?.is_empty())
    }

    /// A pipeline for which the proxy makes the view of items.
    fn needs_view(&mut self, on: &str, from: &str) -> Result<()> {
        self.same(|_| doc! { "aggregate": on, "pipeline": [graph(from), { "$sort": { "_id": 1 } }, { "$project": { "_id": 1, "n": { "$size": "$found" } } }], "cursor": {} })
    }
}

fn graph(from: &str) -> Document {
    doc! { "$graphLookup": {
        "from": from, "startWith": "$_id", "connectFromField": "_id", "connectToField": "parent", "as": "found",
    } }
}

/// A reply without what is of the moment, and without the database's name.
fn neutral(reply: &Document, database: &str) -> Document {
    let fields = reply.iter().filter(|(name, _)| !OF_THE_MOMENT.contains(&name.as_str()));
    fields
        .map(|(name, value)| (name.clone(), neutral_value(value, database)))
        .collect()
}

fn neutral_value(value: &Bson, database: &str) -> Bson {
    match value {
        Bson::String(text) => text.replace(database, "<db>").into(),
        Bson::Document(document) => neutral(document, database).into(),
        Bson::Array(values) => {
            let values = values.iter().map(|value| neutral_value(value, database));
            values.collect::<Vec<_>>().into()
        }
        other => other.clone(),
    }
}

/// Without sizes, at any depth.
fn without_sizes(reply: &Document) -> Document {
    let fields = reply.iter().filter(|(name, _)| !SIZES.contains(&name.as_str()));
    fields
        .map(|(name, value)| {
            let value = match value {
                // Only which they are.
                Bson::Document(sizes) if ["indexSizes", "indexDetails"].contains(&name.as_str()) => {
                    sizes.keys().cloned().collect::<Vec<_>>().into()
                }
                Bson::Document(document) => without_sizes(document).into(),
                other => other.clone(),
            };
            (name.clone(), value)
        })
        .collect()
}

fn servers() -> [&'static Mongod; 2] {
    [mongod::shared(), mongod::shared_replica_set()]
}

#[test]
fn a_listing_shows_what_the_application_has_made() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::filled(mongod)?;
        both.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
        both.same(|_| doc! { "insert": "plain.mongoshape_items", "documents": [{ "_id": 1 }] })?;
        let listings = [
            doc! {},
            doc! { "nameOnly": true },
            doc! { "nameOnly": true, "authorizedCollections": true },
            doc! { "filter": {} },
            doc! { "filter": Bson::Null },
            doc! { "filter": { "name": "items" } },
            doc! { "filter": { "name": "items.mongoshape_items" }, "nameOnly": true },
            doc! { "filter": { "name": "system.views" } },
            doc! { "filter": { "name": { "$regex": "items" } } },
            doc! { "filter": { "type": "view" }, "nameOnly": true },
            doc! { "filter": { "$or": [{ "type": "view" }, { "name": "plain" }] } },
            doc! { "filter": { "options.capped": { "$exists": false } } },
        ];
        let check = |both: &mut Both| -> Result<()> {
            for listing in &listings {
                for size in [None, Some(0), Some(1), Some(2), Some(100)] {
                    both.listed(listing, size)?;
                }
            }
            Ok(())
        };
        check(&mut both)?;
        both.needs_view("plain", "items")?;
        ensure!(both.is_stored("items.mongoshape_items")?);
        check(&mut both).context("with the view of items")?;
        both.same(|_| doc! { "create": "seen", "viewOn": "items", "pipeline": [] })?;
        check(&mut both).context("with a view of the application's")?;
        let mistakes = [
            doc! { "filter": 5 },
            doc! { "filter": { "$nonsense": 1 } },
            doc! { "nameOnly": "yes" },
            doc! { "nonsense": 1 },
            doc! { "cursor": 5 },
            doc! { "cursor": { "batchSize": -1 } },
        ];
        for mistake in mistakes {
            both.same(|_| {
                let mut command = doc! { "listCollections": 1 };
                command.extend(mistake.clone());
                command
            })?;
        }
    }
    Ok(())
}

#[test]
fn a_view_of_the_applications_own_under_that_name_is_shown() -> Result<()> {
    let mut both = Both::filled(mongod::shared())?;
    both.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
    both.same(|_| doc! { "create": "items.mongoshape_items", "viewOn": "plain", "pipeline": [] })?;
    both.listed(&doc! {}, None)?;
    both.listed(&doc! { "nameOnly": true }, Some(1))?;
    both.listed(
        &doc! { "filter": { "name": "items.mongoshape_items" }, "nameOnly": true },
        None,
    )
}

#[test]
fn a_drop_takes_the_view_of_items_along() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::filled(mongod)?;
        both.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
        both.needs_view("plain", "items")?;
        both.same(|_| doc! { "drop": "items" })?;
        ensure!(!both.is_stored("items.mongoshape_items")?);
        both.needs_view("plain", "items")?;
        both.same(|_| doc! { "drop": "items" })?;
        both.same(|_| doc! { "drop": "never_there" })?;
        both.same(|_| doc! { "drop": "short", "nonsense": 1 })?;
        both.listed(&doc! {}, None)?;
    }
    Ok(())
}

#[test]
fn a_view_that_reads_items_reads_them_after_a_drop_too() -> Result<()> {
    let mut both = Both::filled(mongod::shared())?;
    both.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }, { "_id": 2 }] })?;
    both.same(|_| doc! { "create": "seen", "viewOn": "plain", "pipeline": [graph("items")] })?;
    both.same(|_| doc! { "drop": "items" })?;
    ensure!(both.is_stored("items.mongoshape_items")?);
    let read = |_: &str| doc! { "aggregate": "seen", "pipeline": [{ "$project": { "n": { "$size": "$found" } } }], "cursor": {} };
    both.same(read)?;
    both.insert("items", 12)?;
    both.same(read)?;
    both.same(|_| doc! { "drop": "seen" })?;
    both.same(|_| doc! { "drop": "items" })?;
    ensure!(!both.is_stored("items.mongoshape_items")?);
    both.listed(&doc! { "filter": { "name": { "$ne": "system.views" } } }, None)
}

/// Who drops the view of items and who makes a view that needs it may do so at once, through two proxies.
#[test]
fn a_view_made_while_its_collection_is_dropped_reads_what_comes_later() -> Result<()> {
    let mut both = Both::filled(mongod::shared())?;
    both.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }, { "_id": 2 }] })?;
    let database = both.shaped_database();
    let create = doc! { "create": "seen", "viewOn": "plain", "pipeline": [graph("items")], "$db": &database };
    let drop = doc! { "drop": "items", "$db": &database };
    for round in 0..60 {
        both.needs_view("plain", "items")?;
        let (creating, dropping) = (&mut both.shaped, &mut both.second);
        let [created, dropped] = thread::scope(|scope| {
            let creating = scope.spawn(|| creating.command(&create));
            let dropping = scope.spawn(|| {
                thread::sleep(Duration::from_micros(round * 100));
                dropping.command(&drop)
            });
            [creating.join(), dropping.join()].map(|ended| ended.expect("no panic"))
        });
        for reply in [created?, dropped?] {
            ensure!(reply.get_f64("ok")? > 0.5, "{reply}");
        }
        ensure!(both.is_stored("items.mongoshape_items")?, "round {round}");
        both.shaped.command_ok(&doc! { "drop": "seen", "$db": &database })?;
        both.naive
            .command_ok(&doc! { "drop": "items", "$db": &both.names()[0] })?;
        both.insert("items", 3)?;
    }
    Ok(())
}

/// Reads of all kinds, which must find the same on either side.
fn reads() -> Vec<Document> {
    vec![
        doc! { "find": "items", "filter": { "k": 1 }, "sort": { "at": 1 }, "limit": 3 },
        doc! { "find": "items", "filter": { "k": 1 }, "hint": "_id_", "sort": { "at": 1 } },
        doc! { "find": "items", "filter": { "k": 1 }, "hint": "nope" },
        doc! { "count": "items" },
        doc! { "count": "items", "query": { "k": 1 }, "hint": "nope" },
        doc! { "distinct": "items", "key": "k" },
        doc! { "aggregate": "items", "pipeline": [{ "$group": { "_id": Bson::Null, "n": { "$sum": 1 } } }], "cursor": {} },
    ]
}

#[test]
fn a_database_is_dropped_with_all_that_is_known_of_it() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::filled(mongod)?;
        let [_, database] = both.names();
        // Both proxies have found it ready, and have written one of its keys.
        let insert = |id: i32| doc! { "insert": "items", "documents": [{ "_id": id, "k": 1, "at": bson::DateTime::from_millis(i64::from(id) * 1_000) }] };
        let through_second = |both: &mut Both, command: &Document| -> Result<()> {
            std::mem::swap(&mut both.shaped, &mut both.second);
            let done = both.same_read(command);
            std::mem::swap(&mut both.shaped, &mut both.second);
            done
        };
        through_second(&mut both, &insert(1_000))?;
        for drop in ["dropDatabase", "drop"] {
            let value: Bson = if drop == "drop" { "items".into() } else { 1.into() };
            both.same(|_| doc! { drop: value.clone() })?;
            for read in reads() {
                both.same_read(&read).context("through the first")?;
                through_second(&mut both, &read).context("through the second")?;
            }
            through_second(&mut both, &doc! { "create": "items" })?;
            let indexes = both.stored.all(&doc! { "listIndexes": "items", "$db": &database })?;
            ensure!(indexes.len() == 5 + 1, "{indexes:?}");
            both.same(|_| doc! { drop: value.clone() })?;
            through_second(&mut both, &insert(1))?;
            both.same(|_| insert(2))?;
            both.same(|_| insert(1))?;
            for read in reads() {
                both.same_read(&read).context("through the first")?;
                through_second(&mut both, &read).context("through the second")?;
            }
        }
    }
    Ok(())
}

#[test]
fn options_of_a_new_collection_hold_or_are_refused() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::start(mongod)?;
        let possible = [
            doc! {},
            doc! { "capped": false },
            doc! { "collation": { "locale": "simple" } },
            doc! { "storageEngine": { "wiredTiger": { "configString": "block_compressor=zlib" } } },
            doc! { "indexOptionDefaults": { "storageEngine": { "wiredTiger": { "configString": "" } } } },
            doc! { "idIndex": { "key": { "_id": 1 }, "name": "_id_" } },
            doc! { "validationLevel": "moderate", "validationAction": "warn" },
            doc! { "changeStreamPreAndPostImages": { "enabled": false } },
            doc! { "comment": "why", "writeConcern": { "w": 1 } },
        ];
        let with = |options: &Document| {
            let mut command = doc! { "create": "items" };
            command.extend(options.clone());
            command
        };
        for options in &possible {
            both.same(|_| with(options))?;
            both.listed(&doc! {}, None)?;
            // It is there now, alike or not.
            both.same(|_| with(options))?;
            both.same(|_| doc! { "create": "items" })?;
            both.same(|_| doc! { "create": "items", "validationLevel": "strict" })?;
            both.insert("items", 3)?;
            both.same(|_| doc! { "find": "items", "filter": { "k": 1 } })?;
            both.same(|_| doc! { "drop": "items" })?;
        }
        let mistakes = [
            doc! { "size": 4096 },
            doc! { "max": 4 },
            doc! { "nonsense": 1 },
            doc! { "collation": {} },
            doc! { "collation": { "locale": "simple", "strength": 1 } },
            doc! { "validationLevel": "nonsense" },
            doc! { "storageEngine": { "nonsense": {} } },
            doc! { "changeStreamPreAndPostImages": {} },
            doc! { "idIndex": { "key": { "x": 1 }, "name": "x" } },
        ];
        for options in &mistakes {
            both.same(|_| with(options))?;
        }
        for (options, code) in [
            (doc! { "expireAfterSeconds": 10 }, 72),
            (doc! { "capped": true }, 72),
            (doc! { "capped": "yes" }, 14),
            (doc! { "collation": 1 }, 14),
        ] {
            both.same_code(code, |_| with(&options))?;
        }
        let impossible = [
            doc! { "capped": true, "size": 4096 },
            doc! { "collation": { "locale": "de" } },
            doc! { "validator": { "k": 1 } },
            doc! { "validator": {} },
            doc! { "timeseries": { "timeField": "at" } },
            doc! { "clusteredIndex": { "key": { "_id": 1 }, "unique": true } },
            doc! { "viewOn": "plain", "pipeline": [] },
            doc! { "viewOn": "others" },
            doc! { "changeStreamPreAndPostImages": { "enabled": true } },
            doc! { "autoIndexId": false },
            doc! { "encryptedFields": { "fields": [] } },
        ];
        both.insert("others", 3)?;
        for options in &impossible {
            both.refused(72, |_| with(options))?;
        }
    }
    Ok(())
}

#[test]
fn a_collection_is_renamed_to_where_it_is_stored_alike() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::filled(mongod)?;
        let rename = |from: &'static str, to: &'static str, more: Document| {
            move |database: &str| {
                let mut command =
                    doc! { "renameCollection": format!("{database}.{from}"), "to": format!("{database}{to}") };
                command.extend(more.clone());
                command.insert("$db", "admin");
                command
            }
        };
        let contents = |both: &mut Both| -> Result<()> {
            for collection in ["items", "others"] {
                both.same(|_| doc! { "find": collection, "sort": { "_id": 1 } })?;
                both.same(
                    |_| doc! { "find": collection, "filter": { "k": 1 }, "sort": { "at": 1 }, "skip": 5, "limit": 10 },
                )?;
            }
            both.listed(&doc! {}, None)
        };
        both.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
        both.needs_view("plain", "items")?;
        // The second proxy has found it ready under its old name.
        both.second
            .command_ok(&doc! { "count": "items", "$db": both.shaped_database() })?;
        both.same(rename("items", ".others", doc! {}))?;
        ensure!(!both.is_stored("items.mongoshape_items")?);
        contents(&mut both)?;
        both.needs_view("plain", "others")?;
        both.insert("items", 5)?;
        both.same(rename("items", ".others", doc! {}))?;
        both.same(rename("items", ".others", doc! { "dropTarget": false }))?;
        both.same(rename("items", ".others", doc! { "dropTarget": true }))?;
        contents(&mut both)?;
        both.needs_view("plain", "others")?;
        // It goes on as it is, and the name that is free is a new collection's.
        both.same(|_| doc! { "insert": "others", "documents": [{ "_id": 1, "k": 0 }, { "_id": 77, "k": 0 }] })?;
        both.insert("items", 4)?;
        contents(&mut both)?;
        let another = rename("others", "_2.items", doc! {});
        both.same(another)?;
        both.same(|database| doc! { "find": "items", "sort": { "_id": 1 }, "$db": format!("{database}_2") })?;
        both.same(|database| doc! { "insert": "items", "documents": [{ "_id": 77, "k": 0 }, { "_id": 78, "k": 0 }], "$db": format!("{database}_2") })?;
        both.same(|database| doc! { "find": "items", "sort": { "_id": 1 }, "$db": format!("{database}_2") })?;
        contents(&mut both)?;
        for mistake in [
            rename("nope", ".other", doc! {}),
            rename("others", ".items", doc! {}),
            rename("items", ".items", doc! {}),
            rename("items", ".others", doc! { "nonsense": 1 }),
            rename("items", ".others", doc! { "dropTarget": "yes" }),
            rename("items", "", doc! {}),
        ] {
            both.same(mistake)?;
        }
        both.same(
            |database| doc! { "renameCollection": format!("{database}.items"), "to": format!("{database}.others") },
        )?;
        both.same(|database| doc! { "renameCollection": format!("{database}.items"), "$db": "admin" })?;
        both.same(rename("plain", ".still_plain", doc! {}))?;
        for refused in [
            rename("items", ".short", doc! {}),
            rename("items", ".plain", doc! {}),
            rename("items", ".still_plain", doc! { "dropTarget": true }),
            rename("still_plain", ".items", doc! { "dropTarget": true }),
            rename("still_plain", ".short", doc! {}),
        ] {
            both.refused(NOT_SUPPORTED, refused)?;
        }
        let database = both.shaped_database();
        // No buckets: under a name that a proxy has found ready they would be taken for some.
        both.stored
            .command_ok(&doc! { "insert": "others", "documents": [{ "_id": 1 }], "$db": &database })?;
        both.refused(72, rename("others", ".items", doc! { "dropTarget": true }))?;
    }
    Ok(())
}

#[test]
fn options_are_changed_where_they_mean_nothing_for_buckets() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::filled(mongod)?;
        let with = |options: &Document| {
            let mut command = doc! { "collMod": "items" };
            command.extend(options.clone());
            command
        };
        let same = [
            doc! {},
            doc! { "validationLevel": "moderate" },
            doc! { "validationAction": "warn", "comment": "why", "writeConcern": { "w": 1 } },
            doc! { "validationLevel": "nonsense" },
            doc! { "changeStreamPreAndPostImages": { "enabled": false } },
            doc! { "changeStreamPreAndPostImages": {} },
            doc! { "cappedSize": 8192 },
            doc! { "cappedMax": 5 },
            doc! { "nonsense": 1 },
        ];
        for options in &same {
            both.same(|_| with(options))?;
            both.listed(&doc! {}, None)?;
        }
        both.same(|_| doc! { "collMod": "others" })?;
        both.same(|_| doc! { "collMod": "others", "validationLevel": "off" })?;
        let refused = [
            doc! { "index": { "name": "mongoshape_page", "hidden": true } },
            doc! { "index": { "keyPattern": { "at": 1 }, "expireAfterSeconds": 5 } },
            doc! { "validator": { "k": 1 } },
            doc! { "viewOn": "plain", "pipeline": [] },
            doc! { "pipeline": [] },
            doc! { "changeStreamPreAndPostImages": { "enabled": true } },
            doc! { "expireAfterSeconds": 5 },
        ];
        for options in &refused {
            both.refused(NOT_SUPPORTED, |_| with(options))?;
        }
    }
    Ok(())
}

#[test]
fn statistics_are_told_in_items() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::filled(mongod)?;
        let commands = [
            doc! { "collStats": "items" },
            doc! { "collStats": "items", "scale": 1024 },
            doc! { "collstats": "items", "scale": 2.5 },
            doc! { "collStats": "items", "scale": 0 },
            doc! { "collStats": "items", "scale": "x" },
            doc! { "collStats": "items", "nonsense": 1 },
            doc! { "collStats": "others" },
            doc! { "collStats": "others", "scale": 10 },
            doc! { "validate": "items" },
            doc! { "validate": "items", "full": true },
            doc! { "validate": "others" },
            doc! { "validate": "items", "background": true, "full": true },
            doc! { "compact": "items", "force": true },
            doc! { "compact": "others", "force": true },
            doc! { "planCacheClear": "items" },
            doc! { "planCacheClear": "others" },
        ];
        for command in commands {
            let [naive, shaped] = both.run(|_| command.clone())?;
            ensure!(
                without_sizes(&naive) == without_sizes(&shaped),
                "{command}\n  naive:  {naive}\n  shaped: {shaped}"
            );
        }
        let data_sizes = [
            doc! {},
            doc! { "estimate": true },
            doc! { "keyPattern": {}, "min": {}, "max": {} },
            doc! { "nonsense": 1 },
        ];
        for options in data_sizes {
            for collection in ["items", "others"] {
                let [naive, shaped] = both.run(|database| {
                    let mut command = doc! { "dataSize": format!("{database}.{collection}") };
                    command.extend(options.clone());
                    command
                })?;
                ensure!(
                    without_sizes(&naive) == without_sizes(&shaped),
                    "dataSize {options}\n  naive:  {naive}\n  shaped: {shaped}"
                );
            }
        }
        both.same(|_| doc! { "dataSize": "items" })?;
        let refused = [
            doc! { "validate": "items", "repair": true },
            doc! { "validate": "items", "nonsense": 1 },
            doc! { "validate": "items", "metadata": true },
            doc! { "planCacheClear": "items", "query": { "k": 1 } },
            doc! { "planCacheClear": "items", "nonsense": 1 },
            doc! { "reIndex": "items" },
            doc! { "convertToCapped": "items", "size": 4096 },
            doc! { "setIndexCommitQuorum": "items", "indexNames": ["x"], "commitQuorum": 1 },
            doc! { "analyze": "items" },
            doc! { "planCacheListFilters": "items" },
        ];
        for command in refused {
            both.refused(NOT_SUPPORTED, |_| command.clone())?;
        }
        both.refused(NOT_SUPPORTED, |database| doc! { "dataSize": format!("{database}.items"), "keyPattern": { "_id": 1 }, "min": { "_id": 1 }, "max": { "_id": 5 } })?;
        both.refused(
            NOT_SUPPORTED,
            |database| doc! { "dataSize": format!("{database}.items"), "$db": "admin" },
        )?;
    }
    Ok(())
}

#[test]
fn a_database_is_counted_in_items() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::start(mongod)?;
        let check = |both: &mut Both| -> Result<()> {
            for options in [
                doc! {},
                doc! { "scale": 1024 },
                doc! { "nonsense": 1 },
                doc! { "scale": 0 },
            ] {
                let [naive, shaped] = both.run(|_| {
                    let mut command = doc! { "dbStats": 1 };
                    command.extend(options.clone());
                    command
                })?;
                let told = |reply: &Document| {
                    let mut reply = without_sizes(reply);
                    for size in ["dataSize", "indexSize", "fsUsedSize"] {
                        reply.remove(size);
                    }
                    reply
                };
                ensure!(
                    told(&naive) == told(&shaped),
                    "{options}\n  naive:  {naive}\n  shaped: {shaped}"
                );
            }
            Ok(())
        };
        check(&mut both)?;
        both.insert("items", 25)?;
        both.insert("short", 10)?;
        both.insert("plain", 3)?;
        check(&mut both)?;
        both.needs_view("plain", "items")?;
        check(&mut both).context("with the view of items")?;
        both.same(|_| doc! { "create": "seen", "viewOn": "items", "pipeline": [] })?;
        check(&mut both).context("with a view of the application's")?;
        both.same(|_| doc! { "drop": "items" })?;
        check(&mut both).context("after a drop")?;
    }
    Ok(())
}

/// Sizes are what is stored, and agree with each other.
#[test]
fn sizes_agree_with_each_other() -> Result<()> {
    let mut both = Both::filled(mongod::shared())?;
    let number = |document: &Document, name: &str| -> Result<i64> {
        let value = document.get(name).with_context(|| format!("no {name} in {document}"))?;
        value
            .as_i64()
            .or_else(|| value.as_i32().map(i64::from))
            .context("no number")
    };
    let [_, statistics] = both.run(|_| doc! { "collStats": "items" })?;
    let sizes = statistics.get_document("indexSizes")?;
    assert_eq!(number(sizes, "_id_")?, number(&statistics, "totalIndexSize")?);
    assert_eq!(number(&statistics, "avgObjSize")?, number(&statistics, "size")? / 25);
    let [_, scaled] = both.run(|_| doc! { "collStats": "items", "scale": 1024 })?;
    assert_eq!(scaled.get("avgObjSize"), statistics.get("avgObjSize"));
    assert_eq!(number(&scaled, "size")?, number(&statistics, "size")? / 1024);
    Ok(())
}

#[test]
fn a_pipeline_may_begin_with_statistics() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::filled(mongod)?;
        both.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
        let stages = [
            bson!({}),
            bson!({ "count": {} }),
            bson!({ "storageStats": {} }),
            bson!({ "storageStats": { "scale": 1024 } }),
            bson!({ "count": {}, "storageStats": {} }),
            bson!({ "storageStats": { "scale": 0 } }),
            bson!({ "nonsense": {} }),
            bson!(5),
        ];
        let behind = [
            bson!([]),
            bson!([{ "$project": { "n": "$count", "stored": "$storageStats.count", "indexes": "$storageStats.nindexes" } }]),
            bson!([{ "$group": { "_id": Bson::Null, "n": { "$sum": "$count" } } }]),
            bson!([{ "$lookup": { "from": "items", "pipeline": [{ "$count": "n" }], "as": "counted" } }]),
            bson!([{ "$nonsense": 1 }]),
        ];
        for collection in ["items", "others"] {
            for stage in &stages {
                for behind in &behind {
                    let mut pipeline = vec![bson!({ "$collStats": stage.clone() })];
                    pipeline.extend(behind.as_array().context("stages")?.clone());
                    let command = doc! { "aggregate": collection, "pipeline": pipeline, "cursor": {} };
                    let [naive, shaped] = both.run(|_| command.clone())?;
                    let batch = |reply: &Document| -> Option<Vec<Document>> {
                        let batch = reply.get_document("cursor").ok()?.get_array("firstBatch").ok()?;
                        Some(batch.iter().filter_map(Bson::as_document).map(without_sizes).collect())
                    };
                    ensure!(
                        batch(&naive) == batch(&shaped) && naive.get("code") == shaped.get("code"),
                        "{command}\n  naive:  {naive}\n  shaped: {shaped}"
                    );
                }
            }
        }
        for stage in [
            doc! { "latencyStats": {} },
            doc! { "queryExecStats": {} },
            doc! { "count": {}, "latencyStats": { "histograms": true } },
        ] {
            both.refused(
                NOT_SUPPORTED,
                |_| doc! { "aggregate": "items", "pipeline": [{ "$collStats": stage.clone() }], "cursor": {} },
            )?;
        }
        both.refused(NOT_SUPPORTED, |_| doc! { "aggregate": "plain", "pipeline": [{ "$unionWith": { "coll": "items", "pipeline": [{ "$collStats": {} }] } }], "cursor": {} })?;
        both.refused(
            NOT_SUPPORTED,
            |_| doc! { "create": "seen", "viewOn": "items", "pipeline": [{ "$collStats": {} }] },
        )?;
    }
    Ok(())
}
