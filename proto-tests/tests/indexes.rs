//! Index commands on a shaped collection answer as on a naive one, and so do hints; what cannot is refused.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{ProxyOptions, mongod};

const OPTIONS: &str = "time = \"at\"\nmax_items = 3\nrename = { quantity = \"qty\" }";
const NOT_SUPPORTED: i32 = 115;

/// A shaped collection through a proxy, and one of the same name in another database on mongod itself.
struct Both {
    shaped: Shaped,
    direct: Connection,
    application: Connection,
}

/// What must be equal.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    /// All of the reply.
    Whole,
    /// The error's code: its text has ids of the build, or what only one side has.
    Code,
}

impl Both {
    fn start() -> Result<Self> {
        let set = mongod::shared_replica_set();
        let shaped = Shaped::with(OPTIONS, &ProxyOptions::new(&set.uri()))?;
        Ok(Self {
            direct: Connection::open(set.address())?,
            application: shaped.application()?,
            shaped,
        })
    }

    fn filled() -> Result<Self> {
        let mut both = Self::start()?;
        let items: Vec<_> = (0..10)
            .map(|number| doc! { "_id": number, "k": number % 2, "quantity": number, "a": number % 3, "tags": ["x", "y"] })
            .collect();
        both.same(&doc! { "insert": COLLECTION, "documents": items }, Told::Whole)?;
        Ok(both)
    }

    /// The replies, naive and shaped, as far as they can be compared.
    fn run(&mut self, command: &Document) -> Result<[Document; 2]> {
        let database = self.shaped.database.clone();
        let naive = format!("{database}_naive");
        let on = |database: &str| {
            let mut command = command.clone();
            if !command.contains_key("$db") {
                command.insert("$db", database);
            }
            // Retryable writes of one number in one session would be one.
            if let Ok(session) = command.get_document_mut("lsid") {
                *session = lsid(&format!("{session}{database}"));
            }
            command
        };
        let mut replies = [
            self.direct.command(&on(&naive))?,
            self.application.command(&on(&database))?,
        ];
        for reply in &mut replies {
            for field in ["$clusterTime", "operationTime", "electionId", "opTime"] {
                reply.remove(field);
            }
            *reply = comparable(reply, &naive, &database);
        }
        Ok(replies)
    }

    fn same(&mut self, command: &Document, told: Told) -> Result<Document> {
        let [naive, shaped] = self.run(command)?;
        match told {
            Told::Whole => ensure!(naive == shaped, "{command}\nnaive  {naive}\nshaped {shaped}"),
            Told::Code => {
                for field in ["ok", "code", "codeName"] {
                    ensure!(
                        naive.get(field) == shaped.get(field),
                        "{command}\nnaive  {naive}\nshaped {shaped}"
                    );
                }
                let text = shaped.get_str("errmsg").unwrap_or_default();
                ensure!(!text.contains("history") && !text.contains("qty"), "{text}");
            }
        }
        Ok(shaped)
    }

    fn create(&mut self, specs: &[Document], told: Told) -> Result<Document> {
        self.same(&doc! { "createIndexes": COLLECTION, "indexes": specs }, told)
    }

    fn list(&mut self) -> Result<Vec<String>> {
        let list = self.same(&doc! { "listIndexes": COLLECTION }, Told::Whole)?;
        let batch = list.get_document("cursor")?.get_array("firstBatch")?;
        let specs = batch.iter().filter_map(Bson::as_document);
        Ok(specs
            .filter_map(|spec| Some(spec.get_str("name").ok()?.to_owned()))
            .collect())
    }

    /// What mongod holds: the names and keys of all indexes, and whether the collection is there.
    fn stored(&mut self) -> Result<Document> {
        let mut list = self
            .direct
            .command(&doc! { "listIndexes": COLLECTION, "$db": &self.shaped.database })?;
        for field in ["$clusterTime", "operationTime"] {
            list.remove(field);
        }
        Ok(list)
    }

    /// Runs it through the proxy, expects that refusal, and nothing changed.
    fn refused(&mut self, command: &Document, code: i32, reason: &str) -> Result<()> {
        let before = self.stored()?;
        let mut command = command.clone();
        command.insert("$db", &self.shaped.database);
        let reply = self.application.command(&command)?;
        let text = reply.get_str("errmsg").unwrap_or_default();
        ensure!(
            reply.get_i32("code").ok() == Some(code) && text.contains(reason),
            "{command}: {reply}"
        );
        ensure!(self.stored()? == before, "{command} changed something");
        Ok(())
    }
}

/// A reply with the shaped side's database name wherever either stands, and cursor ids that are one or none.
fn comparable(reply: &Document, naive: &str, shaped: &str) -> Document {
    fn value(of: &Bson, naive: &str, shaped: &str) -> Bson {
        match of {
            Bson::String(text) => Bson::String(text.replace(naive, shaped)),
            Bson::Document(document) => Bson::Document(comparable(document, naive, shaped)),
            Bson::Array(values) => Bson::Array(values.iter().map(|of| value(of, naive, shaped)).collect()),
            other => other.clone(),
        }
    }
    let fields = reply.iter().map(|(name, of)| (name.clone(), value(of, naive, shaped)));
    fields.collect()
}

fn spec(key: Document, name: &str) -> Document {
    doc! { "key": key, "name": name }
}

fn with(mut spec: Document, options: Document) -> Document {
    spec.extend(options);
    spec
}

#[test]
fn indexes_are_made_listed_and_dropped_by_the_applications_names() -> Result<()> {
    let mut both = Both::filled()?;
    assert_eq!(both.list()?, ["_id_"]);
    let specs = [
        spec(doc! { "k": 1 }, "k_1"),
        spec(doc! { "k": 1, "at": -1 }, "newest"),
        spec(doc! { "quantity": 1, "a": -1.0 }, "quantity"),
        spec(doc! { "qty": 1_i64 }, "qty_1"),
        spec(doc! { "a.quantity": 2 }, "nested"),
        spec(doc! { "history.count": 1.5 }, "history"),
        spec(doc! { "count": 1, "_id": -1, "control.page": 1 }, "odd"),
        spec(doc! { "tags.0": 1 }, "first tag"),
        with(spec(doc! { "b": 1 }, "b"), doc! { "background": true, "v": 1 }),
        with(
            spec(doc! { "c": 1 }, "c"),
            doc! { "hidden": true, "sparse": false, "unique": false },
        ),
        with(
            spec(doc! { "d": 1 }, "d"),
            doc! { "collation": { "locale": "simple" }, "ns": "x.y", "dropDups": true },
        ),
    ];
    for spec in &specs {
        both.create(std::slice::from_ref(spec), Told::Whole)?;
        both.list()?;
    }
    // All are there, and one more.
    both.create(&specs, Told::Whole)?;
    both.create(&[specs[0].clone(), spec(doc! { "e": 1 }, "e")], Told::Whole)?;
    both.create(&[spec(doc! { "f": 1 }, "f"), spec(doc! { "g": 1 }, "g")], Told::Whole)?;
    assert_eq!(both.list()?.len(), 15);
    let stored = both.stored()?.to_string();
    ensure!(
        stored.contains("history.qty") && stored.contains("history.a.quantity"),
        "{stored}"
    );
    for dropped in [
        bson!("k_1"),
        bson!(["newest", "qty_1"]),
        bson!({ "quantity": 1.0, "a": -1 }),
        bson!([]),
        bson!(["c"]),
        bson!("*"),
        bson!("*"),
        bson!(["*"]),
    ] {
        both.same(&doc! { "dropIndexes": COLLECTION, "index": dropped }, Told::Whole)?;
        both.list()?;
    }
    both.create(&specs[..1], Told::Whole)?;
    both.same(&doc! { "deleteIndexes": COLLECTION, "index": "k_1" }, Told::Whole)?;
    assert_eq!(both.list()?, ["_id_"]);
    let own = both.shaped.indexes();
    ensure!(
        both.stored()?.to_string().matches("mongoshape_").count() == 5,
        "{own:?}"
    );
    both.create(&specs[..3], Told::Whole)?;
    both.same(&doc! { "drop": COLLECTION }, Told::Whole)?;
    Ok(())
}

#[test]
fn the_index_on_id_is_there_from_the_beginning() -> Result<()> {
    let mut both = Both::filled()?;
    for specs in [
        vec![spec(doc! { "_id": 1 }, "_id_")],
        vec![spec(doc! { "_id": 1.0 }, "other")],
        vec![spec(doc! { "_id": 1 }, "_id_"), spec(doc! { "a": 1 }, "a")],
        vec![with(spec(doc! { "_id": 1 }, "_id_"), doc! { "unique": true })],
        vec![with(spec(doc! { "_id": 1 }, "_id_"), doc! { "hidden": true })],
        vec![spec(doc! { "_id": -1 }, "x")],
        vec![spec(doc! { "a": 1 }, "_id_")],
        vec![spec(doc! { "_id": 2 }, "two")],
        vec![spec(doc! { "_id.x": 1 }, "x")],
    ] {
        both.create(&specs, Told::Whole)?;
        both.list()?;
    }
    for dropped in [
        bson!("_id_"),
        bson!({ "_id": 1 }),
        bson!({ "_id": 1.0 }),
        bson!({ "_id": -1 }),
        bson!(["_id_"]),
        bson!(["a", "_id_"]),
        bson!(["_id_", "nope"]),
        bson!(["nope", "_id_"]),
    ] {
        both.same(&doc! { "dropIndexes": COLLECTION, "index": dropped }, Told::Whole)?;
    }
    Ok(())
}

#[test]
fn an_index_makes_its_collection() -> Result<()> {
    for specs in [
        vec![spec(doc! { "quantity": 1 }, "q")],
        vec![spec(doc! { "_id": 1 }, "_id_")],
        vec![spec(doc! { "_id": 1 }, "_id_"), spec(doc! { "a": 1 }, "a")],
        vec![spec(doc! { "a": 1 }, "a"), spec(doc! { "b": 1 }, "b")],
        vec![spec(doc! { "y": 1 }, "y"), spec(doc! { "y": 1 }, "y")],
        vec![spec(doc! { "y": 1 }, "y1"), spec(doc! { "y": 1 }, "y2")],
        vec![spec(doc! { "y": 1 }, "y"), spec(doc! { "z": 1 }, "y")],
        vec![spec(doc! { "y": "foo" }, "y")],
    ] {
        let mut both = Both::start()?;
        both.create(&specs, Told::Whole)?;
        both.same(&doc! { "listIndexes": COLLECTION }, Told::Whole)?;
        let item = doc! { "_id": 1, "k": 1, "quantity": 2 };
        both.same(&doc! { "insert": COLLECTION, "documents": [item] }, Told::Whole)?;
        both.list()?;
        let stored = both.stored()?.to_string();
        ensure!(stored.matches("\"mongoshape_").count() == 5, "{stored}");
    }
    let mut both = Both::start()?;
    for quorum in [bson!("nope"), bson!(9)] {
        let create =
            doc! { "createIndexes": COLLECTION, "indexes": [spec(doc! { "a": 1 }, "a")], "commitQuorum": quorum };
        both.same(&create, Told::Whole)?;
        both.same(&doc! { "listIndexes": COLLECTION }, Told::Whole)?;
    }
    // A collection that was made beside the proxy.
    both.direct
        .command_ok(&doc! { "create": COLLECTION, "$db": &both.shaped.database })?;
    both.direct
        .command_ok(&doc! { "create": COLLECTION, "$db": format!("{}_naive", both.shaped.database) })?;
    both.create(&[spec(doc! { "a": 1 }, "a")], Told::Whole)?;
    both.list()?;
    Ok(())
}

#[test]
fn a_missing_collection_has_no_indexes() -> Result<()> {
    let mut both = Both::start()?;
    for command in [
        doc! { "listIndexes": COLLECTION },
        doc! { "listIndexes": COLLECTION, "cursor": { "batchSize": 1 } },
        doc! { "dropIndexes": COLLECTION, "index": "x" },
        doc! { "dropIndexes": COLLECTION, "index": "_id_" },
        doc! { "dropIndexes": COLLECTION, "index": "*" },
        doc! { "dropIndexes": COLLECTION, "index": { "a": 1 } },
        doc! { "dropIndexes": COLLECTION, "index": 1 },
        doc! { "dropIndexes": COLLECTION },
        doc! { "find": COLLECTION, "hint": "x" },
    ] {
        both.same(&command, Told::Whole)?;
    }
    let stored = both.stored()?;
    ensure!(stored.get_i32("code").ok() == Some(26), "{stored}");
    Ok(())
}

#[test]
fn mistakes_are_answered_by_mongod() -> Result<()> {
    let mut both = Both::filled()?;
    both.create(
        &[spec(doc! { "a": 1 }, "a"), spec(doc! { "quantity": 1 }, "q")],
        Told::Whole,
    )?;
    let mut wrong: Vec<Document> = [
        bson!(1),
        bson!(null),
        bson!([]),
        bson!([1]),
        bson!({}),
        bson!([{}]),
        bson!([{ "name": "x" }]),
        bson!([{ "key": { "x": 1 } }]),
        bson!([{ "key": { "x": 1 }, "name": "" }]),
        bson!([{ "key": { "x": 1 }, "name": "*" }]),
        bson!([{ "key": { "x": 1 }, "name": 1 }]),
        bson!([{ "key": 1, "name": "x" }]),
        bson!([{ "key": {}, "name": "x" }]),
        bson!([{ "key": { "quantity": 1 }, "name": "x", "zip": 1 }]),
        bson!([{ "key": { "quantity": 1 }, "name": "x", "v": 3 }]),
        bson!([{ "key": { "quantity": 1 }, "name": "x", "sparse": "x" }]),
        bson!([{ "key": { "quantity": 1 }, "name": "x", "hidden": 1 }]),
        bson!([{ "key": { "quantity": 1 }, "name": "x", "collation": {} }]),
        bson!([{ "key": { "quantity": 1 }, "name": "x", "weights": { "x": 1 } }]),
        bson!([{ "key": { "quantity": 1 }, "name": "x" }, { "key": { "x": "foo" }, "name": "y" }]),
        bson!([{ "key": { "a": -1 }, "name": "a" }]),
        bson!([{ "key": { "quantity": -1 }, "name": "a" }]),
        bson!([{ "key": { "b": 1.5, "c": -1 }, "name": "q", "background": true, "v": 1 }]),
        bson!([{ "key": { "quantity": 1 }, "name": "a" }]),
        bson!([{ "key": { "quantity": 1 }, "name": "other" }]),
        bson!([{ "key": { "new": 1 }, "name": "new" }, { "key": { "a": 1 }, "name": "other" }]),
    ]
    .into_iter()
    .map(|indexes| doc! { "createIndexes": COLLECTION, "indexes": indexes })
    .collect();
    for value in [
        bson!(0),
        bson!(0.0),
        bson!(f64::NAN),
        bson!(true),
        bson!(null),
        bson!(""),
        bson!("foo"),
        bson!({}),
        bson!([]),
    ] {
        wrong.push(doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { "x": value }, "name": "x" }] });
    }
    for path in ["", ".", "x.", ".x", "x..y", "$x", "x.$y", "x.$**.y"] {
        wrong.push(doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { path: 1 }, "name": "x" }] });
    }
    wrong.extend([
        doc! { "createIndexes": COLLECTION },
        doc! { "createIndexes": COLLECTION, "indexes": [spec(doc! { "x": 1 }, "x")], "zip": 1 },
        doc! { "createIndexes": COLLECTION, "indexes": [spec(doc! { "x": 1 }, "x")], "commitQuorum": "nope" },
        doc! { "createIndexes": COLLECTION, "indexes": [spec(doc! { "x": 1 }, "x")], "readConcern": { "level": "majority" } },
    ]);
    for index in [
        bson!("nope"),
        bson!(""),
        bson!("mongoshape_page"),
        bson!(1),
        bson!(null),
        bson!(["a", "a"]),
        bson!(["a", "nope"]),
        bson!(["a", "*"]),
        bson!([1]),
        bson!(["a", 1]),
        bson!([["a"]]),
        bson!([{}]),
        bson!({}),
        bson!({ "a": -1 }),
        bson!({ "a": true }),
        bson!({ "a": "x" }),
        bson!({ "quantity": 2, "b.c": -1.5 }),
        bson!({ "qty": 1 }),
        bson!({ "history.qty": 1 }),
        bson!({ "control.page": 1 }),
    ] {
        wrong.push(doc! { "dropIndexes": COLLECTION, "index": index });
    }
    wrong.extend([
        doc! { "dropIndexes": COLLECTION },
        doc! { "deleteIndexes": COLLECTION },
        doc! { "dropIndexes": COLLECTION, "index": "a", "zip": 1 },
        doc! { "dropIndexes": COLLECTION, "index": "nope", "zip": 1 },
        doc! { "dropIndexes": COLLECTION, "index": "_id_", "collectionUUID": 1 },
    ]);
    let before = both.stored()?;
    for command in &wrong {
        let reply = both.same(command, Told::Whole)?;
        ensure!(reply.get_i32("code").is_ok(), "{command} was no mistake: {reply}");
        ensure!(both.stored()? == before, "{command} changed something");
    }
    // The same twice in one command: the text has the build's ids where the collection is there.
    for specs in [
        [spec(doc! { "y": 1 }, "y"), spec(doc! { "y": 1 }, "y")],
        [spec(doc! { "y": 1 }, "y1"), spec(doc! { "y": 1 }, "y2")],
        [spec(doc! { "y": 1 }, "y"), spec(doc! { "z": 1 }, "y")],
    ] {
        both.create(&specs, Told::Code)?;
    }
    both.list()?;
    Ok(())
}

#[test]
fn batches_of_indexes_are_as_large_as_asked_for() -> Result<()> {
    let mut both = Both::filled()?;
    let specs: Vec<_> = ["a", "b", "quantity", "d"]
        .into_iter()
        .map(|field| spec(doc! { field: 1 }, field))
        .collect();
    both.create(&specs, Told::Whole)?;
    for cursor in [
        bson!({}),
        bson!({ "batchSize": 0 }),
        bson!({ "batchSize": 1 }),
        bson!({ "batchSize": 1.5 }),
        bson!({ "batchSize": 4_i64 }),
        bson!({ "batchSize": 5 }),
        bson!({ "batchSize": 6 }),
        bson!({ "batchSize": null }),
        bson!(null),
        bson!(1),
        bson!({ "batchSize": -1 }),
        bson!({ "batchSize": "x" }),
        bson!({ "zip": 1 }),
        bson!({ "batchSize": 1, "zip": 1 }),
    ] {
        for size in [None, Some(0), Some(1), Some(2), Some(100)] {
            batches(&mut both, &doc! { "listIndexes": COLLECTION, "cursor": &cursor }, size)?;
        }
    }
    for extra in [
        doc! { "zip": 1 },
        doc! { "includeBuildUUIDs": true },
        doc! { "includeBuildUUIDs": "x" },
        doc! { "includeIndexBuildInfo": true },
        doc! { "writeConcern": { "w": 1 } },
        doc! { "readConcern": { "level": "majority" } },
        doc! { "comment": "x", "maxTimeMS": 10_000 },
        doc! { "apiVersion": "1", "apiStrict": true },
        doc! { "apiVersion": "1", "apiStrict": true, "includeBuildUUIDs": true },
    ] {
        both.same(&with(doc! { "listIndexes": COLLECTION }, extra), Told::Whole)?;
    }
    // A cursor that is left, in somebody else's session, and killed.
    let list = doc! { "listIndexes": COLLECTION, "cursor": { "batchSize": 1 } };
    for misuse in [
        doc! { "lsid": lsid("other") },
        doc! { "maxTimeMS": 1000 },
        doc! { "batchSize": -1 },
        doc! { "collection": "else" },
    ] {
        let [naive, shaped] = both.run(&list)?;
        let answer = |connection: &mut Connection, opened: &Document, database: &str| -> Result<[Document; 3]> {
            let id = opened.get_document("cursor")?.get_i64("id")?;
            let more = |extra: &Document| {
                let mut more = doc! { "getMore": id, "collection": COLLECTION, "$db": database };
                more.extend(extra.clone());
                more
            };
            let wrong = connection.command(&more(&misuse))?;
            let rest = connection.command(&more(&doc! { "batchSize": 1 }))?;
            let killed = connection.command(&doc! { "killCursors": COLLECTION, "cursors": [id], "$db": database })?;
            Ok([wrong, rest, killed])
        };
        let database = both.shaped.database.clone();
        let naive = answer(&mut both.direct, &naive, &format!("{database}_naive"))?;
        let shaped = answer(&mut both.application, &shaped, &database)?;
        // A getMore on another collection does not come to the proxy's cursors: it is relayed, and mongod knows of none.
        let first = usize::from(misuse.contains_key("collection"));
        for (naive, shaped) in naive.iter().zip(&shaped).skip(first) {
            assert_eq!(naive.get("code"), shaped.get("code"), "{misuse}: {naive} {shaped}");
        }
        let count = |reply: &Document| reply.get_array("cursorsKilled").map_or(0, Vec::len);
        assert_eq!(count(&naive[2]), count(&shaped[2]), "{misuse}");
    }
    Ok(())
}

/// Reads to the end on both sides, and compares each batch.
fn batches(both: &mut Both, list: &Document, size: Option<i32>) -> Result<()> {
    let mut replies = both.run(list)?;
    loop {
        let mut ids = [0, 0];
        for (id, reply) in ids.iter_mut().zip(&mut replies) {
            if let Ok(cursor) = reply.get_document_mut("cursor") {
                *id = cursor.get_i64("id")?;
                cursor.insert("id", i64::from(*id != 0));
            }
        }
        ensure!(
            replies[0] == replies[1],
            "{list} {size:?}\n{}\n{}",
            replies[0],
            replies[1]
        );
        if ids[0] == 0 {
            return Ok(());
        }
        let database = both.shaped.database.clone();
        let more = |id: i64, database: &str| {
            let mut more = doc! { "getMore": id, "collection": COLLECTION, "$db": database };
            more.extend(size.map(|size| ("batchSize".to_owned(), size.into())));
            more
        };
        let naive = format!("{database}_naive");
        replies = [
            both.direct.command(&more(ids[0], &naive))?,
            both.application.command(&more(ids[1], &database))?,
        ];
        for reply in &mut replies {
            reply.remove("$clusterTime");
            reply.remove("operationTime");
            *reply = comparable(reply, &naive, &database);
        }
    }
}

#[test]
fn what_would_be_of_pages_and_not_of_items_is_refused() -> Result<()> {
    for filled in [true, false] {
        let mut both = if filled { Both::filled()? } else { Both::start()? };
        for (key, options, reason) in [
            (doc! { "a": 1 }, doc! { "unique": true }, "unique"),
            (doc! { "a": 1 }, doc! { "sparse": true }, "sparse"),
            (
                doc! { "at": 1 },
                doc! { "expireAfterSeconds": 60 },
                "expireAfterSeconds",
            ),
            (
                doc! { "a": 1 },
                doc! { "partialFilterExpression": { "a": 1 } },
                "partial",
            ),
            (doc! { "a": 1 }, doc! { "collation": { "locale": "de" } }, "collation"),
            (
                doc! { "a": 1 },
                doc! { "storageEngine": { "wiredTiger": {} } },
                "storageEngine",
            ),
            (doc! { "a": "text" }, doc! {}, "a text index"),
            (doc! { "a": "2d" }, doc! {}, "a 2d index"),
            (doc! { "a": "2dsphere" }, doc! {}, "a 2dsphere index"),
            (doc! { "a": "hashed" }, doc! {}, "a hashed index"),
            (doc! { "k": "hashed" }, doc! {}, "a hashed index"),
            (doc! { "$**": 1 }, doc! {}, "a wildcard index"),
            (doc! { "a.$**": 1 }, doc! {}, "a wildcard index"),
            (doc! { "0": 1 }, doc! {}, "a number for a name"),
        ] {
            let specs = [spec(doc! { "fine": 1 }, "fine"), with(spec(key, "x"), options)];
            let create = doc! { "createIndexes": COLLECTION, "indexes": specs.to_vec() };
            both.refused(&create, NOT_SUPPORTED, reason)?;
        }
        let own = doc! { "createIndexes": COLLECTION, "indexes": [spec(doc! { "a": 1 }, "mongoshape_a")] };
        both.refused(&own, 67, "mongoshape_a")?;
    }
    let mut both = Both::filled()?;
    let in_transaction =
        doc! { "lsid": lsid("one"), "txnNumber": 1_i64, "autocommit": false, "startTransaction": true };
    let create = doc! { "createIndexes": COLLECTION, "indexes": [spec(doc! { "a": 1 }, "a")] };
    both.refused(&with(create, in_transaction.clone()), NOT_SUPPORTED, "in a transaction")?;
    for command in [
        doc! { "listIndexes": COLLECTION },
        doc! { "dropIndexes": COLLECTION, "index": "*" },
    ] {
        both.same(&with(command, in_transaction.clone()), Told::Whole)?;
    }
    both.refused(
        &doc! { "aggregate": COLLECTION, "pipeline": [{ "$indexStats": {} }], "cursor": {} },
        NOT_SUPPORTED,
        "$indexStats",
    )
}

#[test]
fn indexes_that_were_made_beside_the_proxy_are_out_of_reach() -> Result<()> {
    let mut both = Both::filled()?;
    let beside = [
        spec(doc! { "control.bytes": 1 }, "bytes"),
        with(
            spec(doc! { "history.a": 1 }, "unique"),
            doc! { "unique": false, "sparse": true },
        ),
        spec(doc! { "k": 1, "history.qty": -1 }, "seen"),
    ];
    both.direct
        .command_ok(&doc! { "createIndexes": COLLECTION, "indexes": beside.to_vec(), "$db": &both.shaped.database })?;
    let naive = format!("{}_naive", both.shaped.database);
    let seen = spec(doc! { "k": 1, "quantity": -1 }, "seen");
    both.direct
        .command_ok(&doc! { "createIndexes": COLLECTION, "indexes": [&seen], "$db": naive })?;
    assert_eq!(both.list()?, ["_id_", "seen"]);
    both.create(&[seen], Told::Whole)?;
    let taken = doc! { "createIndexes": COLLECTION, "indexes": [spec(doc! { "x": 1 }, "bytes")] };
    both.refused(&taken, 86, "bytes")?;
    both.same(&doc! { "dropIndexes": COLLECTION, "index": "bytes" }, Told::Whole)?;
    both.same(&doc! { "dropIndexes": COLLECTION, "index": "*" }, Told::Whole)?;
    let stored = both.stored()?.to_string();
    ensure!(stored.contains("control.bytes") && !stored.contains("seen"), "{stored}");
    Ok(())
}

#[test]
fn hints_are_taken_by_the_applications_names() -> Result<()> {
    let mut both = Both::filled()?;
    let hidden = with(spec(doc! { "h": 1 }, "h"), doc! { "hidden": true });
    both.create(&[spec(doc! { "quantity": 1, "a": -1 }, "q"), hidden], Told::Whole)?;
    let hints = [
        bson!("q"),
        bson!("_id_"),
        bson!("nope"),
        bson!("h"),
        bson!("mongoshape_page"),
        bson!(""),
        bson!({ "quantity": 1, "a": -1 }),
        bson!({ "quantity": 1.0, "a": -1_i64 }),
        bson!({ "quantity": 1 }),
        bson!({ "a": -1, "quantity": 1 }),
        bson!({ "h": 1 }),
        bson!({ "_id": 1 }),
        bson!({ "_id": -1 }),
        bson!({ "history.qty": 1, "history.a": -1 }),
        bson!({ "history._id": 1 }),
        bson!({ "k": 1, "control.page": 1 }),
        bson!({}),
        bson!(1),
        bson!({ "$hint": "q" }),
        bson!({ "$natural": 1 }),
    ];
    for hint in &hints {
        for filter in [doc! {}, doc! { "k": 1 }, doc! { "quantity": { "$gt": 3 } }] {
            let commands = [
                doc! { "find": COLLECTION, "filter": &filter, "hint": hint, "sort": { "_id": 1 } },
                doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": &filter }, { "$sort": { "_id": 1 } }], "cursor": {}, "hint": hint },
                doc! { "count": COLLECTION, "query": &filter, "hint": hint },
                doc! { "distinct": COLLECTION, "key": "a", "query": &filter, "hint": hint },
            ];
            for command in commands {
                let [naive, shaped] = both.run(&command)?;
                let outcome = |reply: &Document| -> Result<(Option<Bson>, Vec<Bson>)> {
                    let batch = reply
                        .get_document("cursor")
                        .ok()
                        .map(|cursor| cursor.get_array("firstBatch"));
                    let items = batch.transpose()?.cloned().unwrap_or_default();
                    let ids = items
                        .iter()
                        .filter_map(|item| item.as_document()?.get("_id").cloned())
                        .collect();
                    Ok((reply.get("code").or(reply.get("n")).cloned(), ids))
                };
                let (naive, shaped) = (outcome(&naive)?, outcome(&shaped)?);
                ensure!(naive == shaped, "{command}\n{naive:?}\n{shaped:?}");
            }
            for explained in [
                doc! { "find": COLLECTION, "hint": hint },
                doc! { "count": COLLECTION, "hint": hint },
            ] {
                let [naive, shaped] = both.run(&doc! { "explain": explained.clone() })?;
                assert_eq!(naive.get("code"), shaped.get("code"), "{explained}");
            }
        }
    }
    // Made and dropped by another proxy.
    let options = ProxyOptions::new(&mongod::shared_replica_set().uri());
    let config = format!(
        "[[bucket]]\nnamespace = \"{}.{COLLECTION}\"\nkey = \"k\"\n{OPTIONS}",
        both.shaped.database
    );
    let other = proto_tests::Proxy::start(&options.config(&config))?;
    let mut other = Connection::open(other.address())?;
    let hinted = doc! { "find": COLLECTION, "hint": "late", "$db": &both.shaped.database };
    ensure!(both.application.command(&hinted)?.get_i32("code").ok() == Some(2));
    let late =
        doc! { "createIndexes": COLLECTION, "indexes": [spec(doc! { "b": 1 }, "late")], "$db": &both.shaped.database };
    other.command_ok(&late)?;
    both.application.command_ok(&hinted)?;
    other.command_ok(&doc! { "dropIndexes": COLLECTION, "index": "late", "$db": &both.shaped.database })?;
    ensure!(both.application.command(&hinted)?.get_i32("code").ok() == Some(2));
    Ok(())
}

#[test]
fn documents_that_an_index_cannot_have_are_refused_one_by_one() -> Result<()> {
    for ordered in [true, false] {
        for retryable in [false, true] {
            let mut both = Both::start()?;
            both.create(
                &[
                    spec(doc! { "quantity": 1, "b.c": 1 }, "qb"),
                    spec(doc! { "n.0": 1 }, "n0"),
                ],
                Told::Whole,
            )?;
            let bad = |id: i32| doc! { "_id": id, "k": 1, "quantity": [1, 2], "b": { "c": [1, 2] } };
            let odd = |id: i32| doc! { "_id": id, "k": 2, "n": [{ "0": 1 }] };
            let good = |id: i32| doc! { "_id": id, "k": id % 2, "quantity": [id], "b": { "c": id } };
            for (number, documents) in (1_i64..).zip([
                vec![good(1), good(2), bad(3), good(5), good(6), odd(7), good(8)],
                vec![bad(11)],
                vec![bad(21), good(22), good(23), good(24), good(25), good(27)],
                vec![
                    good(31),
                    doc! { "_id": 32, "k": 1, "quantity": [], "b": [{ "c": 1 }] },
                    good(33),
                ],
                vec![odd(41), good(42), odd(43)],
            ]) {
                let mut insert = doc! { "insert": COLLECTION, "documents": documents, "ordered": ordered };
                if retryable {
                    insert.extend(
                        doc! { "lsid": lsid(&format!("{}{ordered}", both.shaped.database)), "txnNumber": number },
                    );
                }
                both.same(&insert, Told::Whole)?;
                let [naive, shaped] =
                    both.run(&doc! { "find": COLLECTION, "sort": { "_id": 1 }, "projection": { "_id": 1 } })?;
                assert_eq!(naive, shaped, "{insert}");
            }
        }
    }
    // Where they are there already.
    let mut both = Both::start()?;
    let there = doc! { "_id": 1, "k": 1, "quantity": [1], "b": [2], "n": [{ "0": 1 }] };
    both.same(&doc! { "insert": COLLECTION, "documents": [there] }, Told::Whole)?;
    both.create(&[spec(doc! { "quantity": 1, "b": 1 }, "qb")], Told::Code)?;
    both.create(&[spec(doc! { "n.0": 1 }, "n")], Told::Code)?;
    both.create(&[spec(doc! { "k": 1, "b": 1 }, "kb")], Told::Whole)?;
    both.list()?;
    Ok(())
}

#[test]
fn reads_are_the_same_with_indexes() -> Result<()> {
    let mut both = Both::start()?;
    let values = [
        bson!(null),
        bson!(1),
        bson!([]),
        bson!([1, null]),
        bson!({ "b": 1 }),
        bson!({ "b": null }),
        bson!({}),
        bson!("x"),
        bson!([[1]]),
        bson!([{ "b": 1 }, { "b": 2 }]),
    ];
    let mut items: Vec<Document> = (0..)
        .zip(&values)
        .map(|(id, value)| doc! { "_id": id, "k": id % 2, "quantity": value })
        .collect();
    items.push(doc! { "_id": 100, "k": 1 });
    both.same(&doc! { "insert": COLLECTION, "documents": items }, Told::Whole)?;
    both.create(
        &[
            spec(doc! { "quantity": 1 }, "q"),
            spec(doc! { "quantity.b": -1, "k": 1 }, "b"),
            spec(doc! { "k": 1, "quantity": 1 }, "kq"),
        ],
        Told::Whole,
    )?;
    let mut conditions: Vec<Bson> = values.to_vec();
    conditions.extend([
        bson!({ "$exists": false }),
        bson!({ "$exists": true }),
        bson!({ "$ne": 1 }),
        bson!({ "$ne": null }),
        bson!({ "$in": [null, 1] }),
        bson!({ "$lte": null }),
        bson!({ "$gte": null }),
        bson!({ "$gt": 0 }),
        bson!({ "$not": { "$gt": 0 } }),
        bson!({ "$size": 0 }),
        bson!({ "$type": "null" }),
        bson!({ "$elemMatch": { "$eq": 1 } }),
        bson!({ "$all": [1] }),
        bson!({ "$nin": [1, null] }),
    ]);
    for condition in &conditions {
        for path in ["quantity", "quantity.b", "quantity.0"] {
            for filter in [
                doc! { path: condition },
                doc! { "k": 1, path: condition },
                doc! { "$or": [{ path: condition }, { "k": 0 }] },
            ] {
                let find =
                    doc! { "find": COLLECTION, "filter": &filter, "sort": { "_id": 1 }, "projection": { "_id": 1 } };
                both.same(&find, Told::Whole).context("a read")?;
            }
        }
    }
    Ok(())
}
