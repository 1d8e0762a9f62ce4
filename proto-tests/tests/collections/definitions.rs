//! Commands on a collection itself answer as on a plain collection, or are refused: each runs on both, and
//! the replies are compared.

mod clustered;
mod drop;
mod listing;
mod options;
mod rename;
mod rights;
mod statistics;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::replies::without_uuids;
use proto_tests::{Mongod, Proxy, ProxyOptions, database_name, mongod, raw};

const NOT_SUPPORTED: i32 = 115;
/// Fields that differ between servers.
const OF_THE_MOMENT: &[&str] = &[
    "$clusterTime",
    "operationTime",
    "electionId",
    "opTime",
    "localTime",
    "host",
    "uuid",
    "millis",
    // mongod 7.0 has it in the error of a duplicate `_id` in a clustered collection, always without a field.
    "foundValue",
    // A concurrent `validate` names files.
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

/// The collections that are shaped, of any database: `items` and `others` alike, `short` in pages of three,
/// `stored` and `dropped` without unique `_id`s.
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

[[bucket]]
namespace = \"*.stored\"
key = \"k\"
item_ids = \"stored\"

[[bucket]]
namespace = \"*.dropped\"
key = \"k\"
item_ids = \"dropped\"
";

/// The same collections, plain on mongod itself and shaped through a proxy.
struct Comparison {
    plain: raw::Connection,
    shaped: raw::Connection,
    /// A second proxy before the same databases.
    second: raw::Connection,
    stored: raw::Connection,
    database: String,
    _proxies: [Proxy; 2],
}

impl Comparison {
    fn start(mongod: &Mongod) -> Result<Self> {
        let options = ProxyOptions::new(&mongod.uri()).config(SHAPES);
        let proxies = [Proxy::start(&options)?, Proxy::start(&options)?];
        Ok(Self {
            plain: raw::Connection::open(mongod.address())?,
            shaped: raw::Connection::open(proxies[0].address())?,
            second: raw::Connection::open(proxies[1].address())?,
            stored: raw::Connection::open(mongod.address())?,
            database: database_name(),
            _proxies: proxies,
        })
    }

    /// With items in `items` on either side.
    fn filled(mongod: &Mongod) -> Result<Self> {
        let mut comparison = Self::start(mongod)?;
        comparison.insert("items", 25)?;
        Ok(comparison)
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
        let [plain, shaped] = self.names();
        let complete = |database: &str| {
            let mut command = command(database);
            if !command.contains_key("$db") {
                command.insert("$db", database);
            }
            command
        };
        Ok([
            neutral(&self.plain.command(&complete(&plain))?, &plain),
            neutral(&self.shaped.command(&complete(&shaped))?, &shaped),
        ])
    }

    /// Both sides must answer alike.
    fn same(&mut self, command: impl Fn(&str) -> Document) -> Result<()> {
        let [plain, shaped] = self.run(&command)?;
        ensure!(
            plain == shaped,
            "{}\n  plain:  {plain}\n  shaped: {shaped}",
            command("<db>")
        );
        Ok(())
    }

    /// Both sides must answer alike; an error's message may name the plan.
    fn same_read(&mut self, command: &Document) -> Result<()> {
        let [mut plain, mut shaped] = self.run(|_| command.clone())?;
        for reply in [&mut plain, &mut shaped] {
            reply.remove("errmsg");
        }
        ensure!(plain == shaped, "{command}\n  plain:  {plain}\n  shaped: {shaped}");
        Ok(())
    }

    /// Does something with the second proxy in the place of the first.
    fn through_second(&mut self, run: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        std::mem::swap(&mut self.shaped, &mut self.second);
        let done = run(self);
        std::mem::swap(&mut self.shaped, &mut self.second);
        done.context("through the second")
    }

    /// Both sides must fail with this code. The messages may name the stored layout.
    fn same_code(&mut self, code: i32, command: impl Fn(&str) -> Document) -> Result<()> {
        let [plain, shaped] = self.run(&command)?;
        let has = |reply: &Document| reply.get_i32("code").ok() == Some(code);
        ensure!(
            has(&plain) && has(&shaped) && plain.get("codeName") == shaped.get("codeName"),
            "{}\n  plain:  {plain}\n  shaped: {shaped}",
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

    /// The names of a listing's documents on either side, in any order, in batches of this size. Both sides
    /// have as many documents in the first batch.
    fn listed(&mut self, options: &Document, batch_size: Option<i32>) -> Result<()> {
        let names = self.names();
        let mut command = doc! { "listCollections": 1 };
        command.extend(options.clone());
        if let Some(size) = batch_size {
            command.insert("cursor", doc! { "batchSize": size });
        }
        let mut found = Vec::new();
        let mut first_batches = Vec::new();
        for (connection, database) in [&mut self.plain, &mut self.shaped].into_iter().zip(&names) {
            command.insert("$db", database);
            let opened = connection.command_ok(&command)?;
            first_batches.push(opened.get_document("cursor")?.get_array("firstBatch")?.len());
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
            first_batches[0] == first_batches[1],
            "{command}: {first_batches:?} documents"
        );
        ensure!(
            found[0] == found[1],
            "{command}\n  plain:  {:?}\n  shaped: {:?}",
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
        Bson::String(text) => neutral_text(text, database).into(),
        Bson::Document(document) => neutral(document, database).into(),
        Bson::Array(values) => {
            let values = values.iter().map(|value| neutral_value(value, database));
            values.collect::<Vec<_>>().into()
        }
        other => other.clone(),
    }
}

/// A message without the names of databases, without UUIDs, and without the [`foundValue`](OF_THE_MOMENT) of a
/// duplicate.
fn neutral_text(text: &str, database: &str) -> String {
    without_uuids(text)
        .replace(database, "<db>")
        .replace(" found value: {}", "")
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

/// The same for the statistics of a database, whose totals have other names.
fn without_sizes_of_database(reply: &Document) -> Document {
    let mut reply = without_sizes(reply);
    for size in ["dataSize", "indexSize", "fsUsedSize"] {
        reply.remove(size);
    }
    reply
}

fn servers() -> [&'static Mongod; 2] {
    [mongod::shared(), mongod::shared_replica_set()]
}
