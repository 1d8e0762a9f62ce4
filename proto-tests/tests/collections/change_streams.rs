//! Change streams beside maintenance, and their refusals. Events are compared with those of a plain collection by
//! the differential tests.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::shaped::COLLECTION;
use proto_tests::{Proxy, ProxyOptions, Shape, database_name, mongod};

const REFUSED: i32 = 115;
const FAILED_TO_PARSE: i32 = 9;

/// A collection with change streams, behind a proxy that deletes expired items every 200 ms.
pub(super) struct Watched {
    pub(super) database: String,
    /// The table of the shape.
    config: String,
    pub(super) proxy: Proxy,
    application: Connection,
    pub(super) direct: Connection,
}

impl Watched {
    pub(super) fn start(change_streams: bool) -> Result<Self> {
        let set = mongod::shared_replica_set();
        let database = database_name();
        let shape = Shape {
            time: Some("date".to_owned()),
            max_items: 3,
            change_streams,
            ..Shape::new(&["k"])
        };
        let config = shape.toml(&format!("{database}.{COLLECTION}"));
        let proxy = Proxy::start(&ProxyOptions::new(&set.uri()).config(&config).expire_every(200))?;
        Ok(Self {
            application: Connection::open(proxy.address())?,
            direct: Connection::open(set.address())?,
            proxy,
            config,
            database,
        })
    }

    /// Another proxy before the collection.
    fn another_proxy(&self) -> Result<Proxy> {
        Proxy::start(&ProxyOptions::new(&mongod::shared_replica_set().uri()).config(&self.config))
    }

    /// Replaces the collection by a copy.
    fn compact(&self) -> Result<()> {
        let compacted = self.proxy.run("compact")?;
        let printed = String::from_utf8_lossy(&compacted.stdout).into_owned();
        ensure!(printed.contains(" pages, previously "), "{printed}");
        Ok(())
    }

    fn delete(&mut self, ids: &[i32]) -> Result<()> {
        let delete = doc! { "q": { "_id": { "$in": ids } }, "limit": 0 };
        self.done(doc! { "delete": COLLECTION, "deletes": [delete] }).map(drop)
    }

    pub(super) fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        self.application.command(&command)
    }

    pub(super) fn done(&mut self, command: Document) -> Result<Document> {
        let reply = self.run(command)?;
        ensure!(
            reply.get_f64("ok")? > 0.0 && !reply.contains_key("writeErrors"),
            "{reply}"
        );
        Ok(reply)
    }

    pub(super) fn insert(&mut self, ids: std::ops::Range<i32>, date: DateTime) -> Result<()> {
        let documents: Vec<Document> = ids.map(|id| doc! { "_id": id, "k": id % 2, "date": date }).collect();
        self.done(doc! { "insert": COLLECTION, "documents": documents })
            .map(drop)
    }

    fn watch(&mut self, options: Document) -> Result<Stream> {
        self.open(COLLECTION.into(), options)
    }

    pub(super) fn open(&mut self, target: Bson, options: Document) -> Result<Stream> {
        self.open_with(watch(target, options), doc! {})
    }

    /// Opens a stream by a command that has these fields, as has every `getMore`.
    fn open_with(&mut self, mut command: Document, generic: Document) -> Result<Stream> {
        let mut stream = Stream {
            of: command.get_str("aggregate").unwrap_or("$cmd.aggregate").to_owned(),
            generic: generic.clone(),
            ..Stream::default()
        };
        command.extend(generic);
        let reply = self.done(command)?;
        stream.take(&reply)?;
        Ok(stream)
    }

    /// Runs a command past the proxy.
    pub(super) fn past(&mut self, mut command: Document) -> Result<()> {
        command.insert("$db", &self.database);
        self.direct.command_ok(&command).map(drop)
    }

    /// Renames a collection past the proxy.
    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let full = |name: &str| format!("{}.{name}", self.database);
        let command = doc! { "renameCollection": full(from), "to": full(to), "$db": "admin" };
        self.direct.command_ok(&command).map(drop)
    }
}

pub(super) fn watch(target: Bson, options: Document) -> Document {
    let stage = doc! { "$changeStream": options };
    doc! { "aggregate": target, "pipeline": [stage], "cursor": {} }
}

#[derive(Default)]
pub(super) struct Stream {
    /// The collection of a `getMore`.
    of: String,
    pub(super) cursor: i64,
    pub(super) token: Document,
    /// The operation and the `_id` of each event.
    pub(super) events: Vec<(String, i32)>,
    /// The current documents of the updates.
    current: Vec<Document>,
    /// Fields that every `getMore` has.
    generic: Document,
}

impl Stream {
    fn take(&mut self, reply: &Document) -> Result<()> {
        let cursor = reply.get_document("cursor").with_context(|| reply.to_string())?;
        self.cursor = cursor.get_i64("id")?;
        self.token = cursor.get_document("postBatchResumeToken")?.clone();
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        for event in batch.iter().filter_map(Bson::as_document) {
            let key = event.get_document("documentKey").ok();
            let id = key.and_then(|key| key.get_i32("_id").ok()).unwrap_or(-1);
            let operation = event.get_str("operationType")?;
            if operation == "update" {
                let current = event.get_document("fullDocument").cloned();
                self.current.push(current.unwrap_or_default());
            }
            self.events.push((operation.to_owned(), id));
        }
        Ok(())
    }

    /// Reads until there are so many events.
    pub(super) fn read(&mut self, watched: &mut Watched, events: usize) -> Result<()> {
        for _ in 0..20 {
            if self.events.len() >= events || self.cursor == 0 {
                break;
            }
            let mut more = doc! { "getMore": self.cursor, "collection": &self.of, "maxTimeMS": 1000 };
            more.extend(self.generic.clone());
            let reply = watched.done(more)?;
            self.take(&reply)?;
        }
        Ok(())
    }

    fn ids(&self, operation: &str) -> Vec<i32> {
        let events = self.events.iter().filter(|(name, _)| name == operation);
        let mut ids: Vec<i32> = events.map(|(_, id)| *id).collect();
        ids.sort_unstable();
        ids
    }
}

/// Another proxy does not know the cursor, and mongod would return events of pages.
#[test]
fn a_stream_of_a_database_ends_on_another_proxy() -> Result<()> {
    let mut watched = Watched::start(true)?;
    watched.insert(0..2, DateTime::now())?;
    let stream = watched.open(1.into(), doc! {})?;
    watched.insert(2..5, DateTime::now())?;
    let other = watched.another_proxy()?;
    let mut connection = Connection::open(other.address())?;
    let more = doc! { "getMore": stream.cursor, "collection": "$cmd.aggregate", "$db": &watched.database };
    let reply = connection.command(&more)?;
    ensure!(reply.get_i32("code")? == 43, "{reply}");
    let with_two = doc! { "$changeStream": {}, "$match": {} };
    let refused = watched.run(doc! { "aggregate": COLLECTION, "pipeline": [with_two], "cursor": {} })?;
    ensure!(refused.get_i32("code")? == 40323, "{refused}");
    let internal = watched.run(watch(COLLECTION.into(), doc! { "showRawUpdateDescription": true }))?;
    ensure!(internal.get_i32("code")? == REFUSED, "{internal}");
    Ok(())
}

/// A changed path may be the name of another field.
#[test]
fn a_path_is_described_beside_a_field_of_its_name() -> Result<()> {
    let mut watched = Watched::start(true)?;
    let item = doc! { "_id": 1, "k": 1, "date": DateTime::now(), "a.b": 1, "a": { "b": 5, "c": 2 } };
    watched.done(doc! { "insert": COLLECTION, "documents": [item] })?;
    let pipeline = vec![
        doc! { "$changeStream": {} },
        doc! { "$match": { "operationType": "update" } },
    ];
    let opened = watched.done(doc! { "aggregate": COLLECTION, "pipeline": pipeline, "cursor": {} })?;
    let cursor = opened.get_document("cursor")?.get_i64("id")?;
    for change in [
        doc! { "$unset": { "a.b": "" }, "$set": { "x": 2 } },
        doc! { "$set": { "a.b": 1, "x": 3 } },
    ] {
        watched.done(doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 1 }, "u": change }] })?;
    }
    let mut described = Vec::new();
    while described.len() < 2 {
        let more = doc! { "getMore": cursor, "collection": COLLECTION, "maxTimeMS": 1000 };
        let reply = watched.done(more)?;
        let events = reply.get_document("cursor")?.get_array("nextBatch")?;
        let events = events.iter().filter_map(Bson::as_document);
        described.extend(events.filter_map(|event| event.get_document("updateDescription").ok().cloned()));
    }
    ensure!(
        described[0].get_array("removedFields")? == &["a.b".into()],
        "{described:?}"
    );
    ensure!(
        described[1].get_document("updatedFields")? == &doc! { "a.b": 1, "x": 3 },
        "{described:?}"
    );
    Ok(())
}

#[test]
fn a_stream_goes_on_over_a_compaction() -> Result<()> {
    let mut watched = Watched::start(true)?;
    let now = DateTime::now();
    let mut stream = watched.watch(doc! {})?;
    watched.insert(0..20, now)?;
    watched.delete(&[0, 3, 6, 9, 12, 15, 18])?;
    stream.read(&mut watched, 27)?;
    let before = stream.token.clone();
    watched.compact()?;
    watched.insert(100..102, now)?;
    stream.read(&mut watched, 29)?;
    assert_eq!(stream.ids("delete"), [0, 3, 6, 9, 12, 15, 18]);
    assert_eq!(stream.ids("insert"), (0..20).chain(100..102).collect::<Vec<_>>());
    assert_eq!(stream.events.len(), 29, "{:?}", stream.events);
    let mut resumed = watched.watch(doc! { "resumeAfter": before })?;
    resumed.read(&mut watched, 2)?;
    assert_eq!(resumed.ids("insert"), [100, 101]);
    assert_eq!(resumed.events.len(), 2, "{:?}", resumed.events);
    Ok(())
}

/// One reply of mongod ends with the first compaction, and the next one with the second.
#[test]
fn a_stream_goes_on_over_two_compactions() -> Result<()> {
    let mut watched = Watched::start(true)?;
    watched.insert(0..20, DateTime::now())?;
    let mut stream = watched.watch(doc! {})?;
    let before = stream.token.clone();
    watched.delete(&[0, 3, 6, 9, 12, 15, 18])?;
    watched.compact()?;
    watched.delete(&[4, 7, 10, 13, 16, 19])?;
    watched.compact()?;
    watched.insert(100..101, DateTime::now())?;
    stream.read(&mut watched, 14)?;
    let mut resumed = watched.watch(doc! { "resumeAfter": before })?;
    resumed.read(&mut watched, 14)?;
    for stream in [stream, resumed] {
        assert_eq!(stream.events.len(), 14, "{:?}", stream.events);
        assert_eq!(stream.ids("insert"), [100], "{:?}", stream.events);
    }
    Ok(())
}

/// The proxy knows the collection from before the compaction when it looks up the current documents.
#[test]
fn current_documents_are_looked_up_over_a_compaction() -> Result<()> {
    for target in [Bson::from(COLLECTION), 1.into()] {
        let mut watched = Watched::start(true)?;
        watched.insert(0..20, DateTime::now())?;
        watched.delete(&[0, 3, 6, 9, 12, 15, 18])?;
        let mut stream = watched.open(target, doc! { "fullDocument": "updateLookup" })?;
        let update = |n: i32| doc! { "q": { "_id": 1 }, "u": { "$set": { "n": n } } };
        watched.done(doc! { "update": COLLECTION, "updates": [update(1)] })?;
        watched.compact()?;
        stream.read(&mut watched, 1)?;
        watched.delete(&[4, 7, 10, 13, 16, 19])?;
        watched.compact()?;
        let another = watched.another_proxy()?;
        let command = doc! { "update": COLLECTION, "updates": [update(2)], "$db": &watched.database };
        Connection::open(another.address())?.command_ok(&command)?;
        stream.read(&mut watched, 8)?;
        assert_eq!(stream.ids("delete"), [4, 7, 10, 13, 16, 19]);
        let current: Vec<i32> = stream
            .current
            .iter()
            .flat_map(|document| document.get_i32("n"))
            .collect();
        assert_eq!(current, [1, 2], "{:?}", stream.events);
        assert_eq!(stream.events.len(), 8, "{:?}", stream.events);
    }
    Ok(())
}

/// The names are those of the documentation.
#[test]
fn maintenance_is_not_in_a_stream_on_the_database() -> Result<()> {
    let mut watched = Watched::start(true)?;
    watched.insert(0..1, DateTime::now())?;
    let mut stream = watched.open(1.into(), doc! {})?;
    let suffixes = [
        "compact",
        "compact_stopped",
        "pack",
        "plain",
        "convert",
        "conversion",
        "kept",
    ];
    for suffix in suffixes {
        let name = format!("{COLLECTION}.mongoshape_{suffix}");
        watched.past(doc! { "insert": &name, "documents": [{ "_id": 100 }] })?;
        watched.past(doc! { "drop": &name })?;
    }
    // A swap that is given up.
    let kept = format!("{COLLECTION}.mongoshape_kept");
    watched.rename(COLLECTION, &kept)?;
    watched.rename(&kept, COLLECTION)?;
    // A collection of the application.
    watched.past(doc! { "insert": "other.mongoshape_kept", "documents": [{ "_id": 1 }] })?;
    watched.insert(2..3, DateTime::now())?;
    stream.read(&mut watched, 2)?;
    assert_eq!(stream.events, [("insert".to_owned(), 1), ("insert".to_owned(), 2)]);
    Ok(())
}

#[test]
fn expired_items_are_deleted_in_the_stream() -> Result<()> {
    let mut watched = Watched::start(true)?;
    let now = DateTime::now();
    watched.insert(0..10, DateTime::from_millis(now.timestamp_millis() - 5_000_000))?;
    watched.insert(10..20, now)?;
    let mut stream = watched.watch(doc! { "fullDocumentBeforeChange": "required" })?;
    let index = doc! { "key": { "date": 1 }, "name": "date_1", "expireAfterSeconds": 3600 };
    watched.done(doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    stream.read(&mut watched, 10)?;
    assert_eq!(stream.ids("delete"), (0..10).collect::<Vec<_>>());
    assert_eq!(stream.events.len(), 10, "{:?}", stream.events);
    Ok(())
}

#[test]
fn tokens_are_refused_where_they_are_not_understood() -> Result<()> {
    let mut watched = Watched::start(true)?;
    watched.insert(0..1, DateTime::now())?;
    let stream = watched.watch(doc! {})?;
    let mut direct = watch(COLLECTION.into(), doc! { "resumeAfter": stream.token.clone() });
    direct.insert("$db", &watched.database);
    let reply = watched.direct.command(&direct)?;
    assert_eq!(reply.get_i32("code")?, FAILED_TO_PARSE, "{reply}");
    for token in ["mongoshape:82", "mongoshape:", "mongoshape:82:0:0"] {
        let resumed = watch(COLLECTION.into(), doc! { "resumeAfter": { "_data": token } });
        let reply = watched.run(resumed)?;
        assert_eq!(reply.get_i32("code")?, FAILED_TO_PARSE, "{reply}");
        ensure!(
            reply.get_str("errmsg")?.contains("was not returned by mongoshape"),
            "{reply}"
        );
    }
    Ok(())
}

#[test]
fn a_stream_without_the_option_is_refused_and_others_are_relayed() -> Result<()> {
    let mut watched = Watched::start(false)?;
    for target in [Bson::from(COLLECTION), Bson::from(1)] {
        let reply = watched.run(watch(target, doc! {}))?;
        assert_eq!(reply.get_i32("code")?, REFUSED, "{reply}");
        ensure!(reply.get_str("errmsg")?.contains("change_streams = true"), "{reply}");
    }
    let reply = watched.done(watch("plain".into(), doc! {}))?;
    let token = reply.get_document("cursor")?.get_document("postBatchResumeToken")?;
    ensure!(!token.get_str("_data")?.contains("mongoshape"), "{reply}");
    Ok(())
}

#[test]
fn setup_and_check_know_the_images() -> Result<()> {
    let mut watched = Watched::start(true)?;
    watched.insert(0..1, DateTime::now())?;
    let without = doc! { "changeStreamPreAndPostImages": { "enabled": false } };
    let mut command = doc! { "collMod": COLLECTION };
    command.extend(without);
    let reply = watched.run(command.clone())?;
    assert_eq!(reply.get_i32("code")?, REFUSED, "{reply}");
    command.insert("$db", &watched.database);
    watched.direct.command_ok(&command)?;
    let text = |output: std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let checked = text(watched.proxy.run("check")?);
    ensure!(checked.contains("stores no pre- and post-images of pages"), "{checked}");
    let set_up = text(watched.proxy.run("setup")?);
    ensure!(set_up.contains("enabled for change streams"), "{set_up}");
    let checked = text(watched.proxy.run("check")?);
    ensure!(!checked.contains("post-images"), "{checked}");
    Ok(())
}

#[test]
fn a_stream_under_the_strict_stable_api() -> Result<()> {
    let mut watched = Watched::start(true)?;
    watched.insert(0..1, DateTime::now())?;
    let strict = doc! { "apiVersion": "1", "apiStrict": true };
    let mut n = 0;
    for target in [Bson::from(COLLECTION), 1.into()] {
        for stages in [vec![], vec![doc! { "$match": { "operationType": "update" } }]] {
            let mut command = watch(target.clone(), doc! { "fullDocument": "updateLookup" });
            let pipeline = command.get_array_mut("pipeline")?;
            pipeline.extend(stages.into_iter().map(Bson::from));
            let mut stream = watched.open_with(command, strict.clone())?;
            n += 1;
            let update = doc! { "q": { "_id": 0 }, "u": { "$set": { "n": n } } };
            watched.done(doc! { "update": COLLECTION, "updates": [update] })?;
            stream.read(&mut watched, 1)?;
            assert_eq!(stream.events, [("update".to_owned(), 0)]);
            assert_eq!(stream.current[0].get_i32("n")?, n);
        }
    }
    let mut of_cluster = watch(1.into(), doc! { "allChangesForCluster": true });
    of_cluster.extend(strict);
    of_cluster.insert("$db", "admin");
    watched.application.command_ok(&of_cluster)?;
    Ok(())
}

#[test]
fn a_stream_with_the_option_that_explains_nothing() -> Result<()> {
    let mut watched = Watched::start(true)?;
    watched.insert(0..1, DateTime::now())?;
    let mut command = watch(COLLECTION.into(), doc! {});
    command.insert("explain", false);
    let mut stream = watched.open_with(command, doc! {})?;
    watched.insert(1..2, DateTime::now())?;
    stream.read(&mut watched, 1)?;
    assert_eq!(stream.events, [("insert".to_owned(), 1)]);
    Ok(())
}

/// `NaN` does not equal itself.
#[test]
fn an_item_with_the_id_nan_is_looked_up() -> Result<()> {
    let mut watched = Watched::start(true)?;
    watched.done(doc! { "insert": COLLECTION, "documents": [{ "_id": f64::NAN, "k": 1 }] })?;
    let reply = watched.done(watch(COLLECTION.into(), doc! { "fullDocument": "updateLookup" }))?;
    let cursor = reply.get_document("cursor")?.get_i64("id")?;
    let update = doc! { "q": { "_id": f64::NAN }, "u": { "$set": { "n": 1 } } };
    watched.done(doc! { "update": COLLECTION, "updates": [update] })?;
    let reply = watched.done(doc! { "getMore": cursor, "collection": COLLECTION, "maxTimeMS": 5000 })?;
    let batch = reply.get_document("cursor")?.get_array("nextBatch")?;
    let event = batch.first().and_then(Bson::as_document).context("no event")?;
    let document = event.get_document("fullDocument").with_context(|| event.to_string())?;
    assert_eq!(document.get_i32("n")?, 1);
    Ok(())
}

/// With both images, its event exceeds 16 MB.
#[test]
fn a_large_plain_document_is_in_a_stream_on_the_database() -> Result<()> {
    let mut watched = Watched::start(true)?;
    watched.past(doc! { "create": "large", "changeStreamPreAndPostImages": { "enabled": true } })?;
    let large = doc! { "_id": 1, "text": "x".repeat(9 << 20) };
    watched.past(doc! { "insert": "large", "documents": [large] })?;
    let options = [
        doc! {},
        doc! { "fullDocument": "updateLookup" },
        doc! { "fullDocument": "whenAvailable" },
        doc! { "fullDocumentBeforeChange": "whenAvailable" },
    ];
    for options in options {
        let mut stream = watched.open(1.into(), options)?;
        let change = doc! { "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } };
        watched.past(doc! { "update": "large", "updates": [change] })?;
        stream.read(&mut watched, 1)?;
        assert_eq!(stream.events, [("update".to_owned(), 1)]);
    }
    Ok(())
}
