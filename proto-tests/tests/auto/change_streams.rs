//! Change streams that contain a collection with an automatic shape.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::{Proxy, ProxyOptions, Shape, mongod};

use super::commands::code;
use super::fixture::{COLLECTION, COPY, CutOver, Fixture, KEPT, RECORD, automatic, item, shape};

/// The fields of an event that are the same for equal changes of two collections.
const COMPARED: [&str; 4] = ["operationType", "documentKey", "fullDocument", "updateDescription"];
const REFUSED: i32 = 115;
const QUERY_PLAN_KILLED: i32 = 175;
const FATAL: i32 = 280;
const CURSOR_NOT_FOUND: i32 = 43;

/// What a stream watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Collection,
    Database,
    Cluster,
}

/// A change stream.
struct Stream {
    connection: Connection,
    scope: Scope,
    /// The watched database.
    database: String,
    cursor: i64,
    events: Vec<Document>,
}

impl Stream {
    fn open(mut connection: Connection, scope: Scope, database: &str) -> Result<Self> {
        let reply = connection.command_ok(&watch(scope, database))?;
        let mut stream = Self {
            connection,
            scope,
            database: database.to_owned(),
            cursor: 0,
            events: Vec::new(),
        };
        stream.take(&reply)?;
        Ok(stream)
    }

    fn take(&mut self, reply: &Document) -> Result<()> {
        let cursor = reply.get_document("cursor")?;
        self.cursor = cursor.get_i64("id")?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        self.events.extend(batch.iter().filter_map(Bson::as_document).cloned());
        Ok(())
    }

    /// The reply to a `getMore`.
    fn more(&mut self) -> Result<Document> {
        let collection = match self.scope {
            Scope::Collection => COLLECTION,
            Scope::Database | Scope::Cluster => "$cmd.aggregate",
        };
        let database = match self.scope {
            Scope::Collection | Scope::Database => self.database.as_str(),
            Scope::Cluster => "admin",
        };
        let more = doc! { "getMore": self.cursor, "collection": collection, "maxTimeMS": 1000, "$db": database };
        self.connection.command(&more)
    }

    /// Reads until there are so many events.
    fn read(&mut self, events: usize) -> Result<()> {
        for _ in 0..20 {
            if self.events.len() >= events || self.cursor == 0 {
                break;
            }
            let reply = self.more()?;
            ensure!(code(&reply).is_none(), "{reply}");
            self.take(&reply)?;
        }
        Ok(())
    }

    fn compared(&self) -> Vec<Document> {
        let of_event = |event: &Document| -> Document {
            let fields = event.iter().filter(|(name, _)| COMPARED.contains(&name.as_str()));
            let mut compared: Document = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
            let collection = event.get_document("ns").ok().and_then(|ns| ns.get_str("coll").ok());
            compared.insert("collection", collection);
            compared
        };
        self.events.iter().map(of_event).collect()
    }

    /// The documents of the events.
    fn keys(&self) -> Vec<&Document> {
        let keys = self.events.iter().map(|event| event.get_document("documentKey"));
        keys.flatten().collect()
    }

    fn operations(&self) -> Vec<&str> {
        let operations = self.events.iter().map(|event| event.get_str("operationType"));
        operations.map(Result::unwrap_or_default).collect()
    }
}

/// The command that opens a stream.
fn watch(scope: Scope, database: &str) -> Document {
    let stream = doc! { "$changeStream": {} };
    match scope {
        Scope::Collection => doc! { "aggregate": COLLECTION, "pipeline": [stream], "cursor": {}, "$db": database },
        Scope::Database => doc! { "aggregate": 1, "pipeline": [stream], "cursor": {}, "$db": database },
        Scope::Cluster => {
            let of_cluster = doc! { "$changeStream": { "allChangesForCluster": true } };
            let own = doc! { "$match": { "ns.db": database } };
            doc! { "aggregate": 1, "pipeline": [of_cluster, own], "cursor": {}, "$db": "admin" }
        }
    }
}

fn with_streams() -> Shape {
    Shape {
        change_streams: true,
        max_items: 5,
        ..shape()
    }
}

fn start() -> Result<Fixture> {
    let set = mongod::shared_replica_set();
    Fixture::with_shape(set, &set.uri(), &with_streams())
}

/// The same commands on a plain collection, and through a proxy.
fn run_both(fixture: &Fixture, commands: Vec<Document>) -> Result<()> {
    let mut direct = fixture.direct()?;
    for mut command in commands {
        let reply = fixture.run(0, command.clone())?;
        ensure!(code(&reply).is_none(), "{command}: {reply}");
        command.insert("$db", plain_database(fixture));
        direct.command_ok(&command)?;
    }
    Ok(())
}

fn plain_database(fixture: &Fixture) -> String {
    format!("{}_n", fixture.database)
}

fn insert(items: Vec<Document>) -> Document {
    doc! { "insert": COLLECTION, "documents": items }
}

/// Two open streams: on the plain collection, and through the proxy that has executed no command yet.
fn open_both(fixture: &Fixture, scope: Scope) -> Result<[Stream; 2]> {
    Ok([
        Stream::open(fixture.direct()?, scope, &plain_database(fixture))?,
        Stream::open(fixture.application(1)?, scope, &fixture.database)?,
    ])
}

/// Fails unless both streams have these many events, and the same ones.
fn compare([plain, shaped]: &mut [Stream; 2], events: usize) -> Result<()> {
    plain.read(events)?;
    shaped.read(events)?;
    let (expected, found) = (plain.compared(), shaped.compared());
    ensure!(
        found == expected && found.len() == events,
        "{:?}\n  plain:  {expected:?}\n  shaped: {found:?}",
        plain.scope
    );
    Ok(())
}

#[test]
fn pages_have_the_events_of_a_plain_collection() -> Result<()> {
    for scope in [Scope::Collection, Scope::Database, Scope::Cluster] {
        let fixture = start()?;
        run_both(&fixture, vec![insert(vec![item(0, 1, 0)])])?;
        ensure!(fixture.has_pages()?, "no pages");
        let mut streams = open_both(&fixture, scope)?;
        let update =
            |id: i32, change: Document| doc! { "update": COLLECTION, "updates": [{ "q": { "_id": id }, "u": change }] };
        let commands = vec![
            insert(vec![item(1, 1, 1), item(2, 1, 2), item(3, 2, 3)]),
            update(1, doc! { "$inc": { "n": 1 } }),
            update(3, doc! { "$set": { "k": 1 } }),
            doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 2 }, "limit": 1 }] },
        ];
        run_both(&fixture, commands)?;
        compare(&mut streams, 6)?;
    }
    Ok(())
}

/// A missing collection becomes one of pages, as the stream expects.
#[test]
fn a_stream_goes_on_when_the_collection_is_created_and_dropped() -> Result<()> {
    let fixture = start()?;
    let mut streams = open_both(&fixture, Scope::Database)?;
    run_both(&fixture, vec![insert(vec![item(1, 1, 1)])])?;
    ensure!(fixture.has_pages()?, "no pages");
    compare(&mut streams, 1)?;
    run_both(&fixture, vec![doc! { "drop": COLLECTION }])?;
    compare(&mut streams, 2)?;
    run_both(&fixture, vec![insert(vec![item(2, 1, 2)])])?;
    compare(&mut streams, 3)
}

#[test]
fn a_stream_on_a_database_or_the_cluster_ends_with_the_layout() -> Result<()> {
    let all = [Scope::Database, Scope::Cluster].map(|scope| [(scope, true), (scope, false)]);
    for (scope, has_pages) in all.into_iter().flatten() {
        let fixture = start()?;
        if has_pages {
            fixture.run(0, insert(vec![item(1, 1, 1)]))?;
        } else {
            fixture.store_plain(&[item(1, 1, 1)])?;
        }
        let mut stream = Stream::open(fixture.application(0)?, scope, &fixture.database)?;
        fixture.convert(Duration::ZERO, CutOver::Done)?;
        fixture.run(0, insert(vec![item(2, 1, 2)]))?;
        let reply = stream.more()?;
        ensure!(code(&reply) == Some(QUERY_PLAN_KILLED), "{reply}");
        let reply = stream.more()?;
        ensure!(code(&reply) == Some(CURSOR_NOT_FOUND), "{reply}");
    }
    Ok(())
}

/// The stream is the first command that the proxy executes.
#[test]
fn a_stream_of_pages_without_change_streams_is_refused() -> Result<()> {
    for scope in [Scope::Collection, Scope::Database, Scope::Cluster] {
        let fixture = Fixture::start(mongod::shared_replica_set())?;
        fixture.run(0, insert(vec![item(1, 1, 1)]))?;
        let reply = fixture.application(1)?.command(&watch(scope, &fixture.database))?;
        ensure!(code(&reply) == Some(REFUSED), "{scope:?}: {reply}");
        ensure!(reply.get_str("errmsg")?.contains("change_streams = true"), "{reply}");
    }
    Ok(())
}

/// The databases of such a shape are not known.
#[test]
fn a_stream_on_the_cluster_is_refused_if_a_shape_is_for_every_database() -> Result<()> {
    let set = mongod::shared_replica_set();
    let config = automatic(&with_streams(), &format!("*.{COLLECTION}"));
    let proxy = Proxy::start(&ProxyOptions::new(&set.uri()).config(&config))?;
    let database = proto_tests::database_name();
    let mut application = Connection::open(proxy.address())?;
    let reply = application.command(&watch(Scope::Cluster, &database))?;
    ensure!(code(&reply) == Some(REFUSED), "{reply}");
    ensure!(reply.get_str("errmsg")?.contains("open one on a database"), "{reply}");
    application.command_ok(&watch(Scope::Database, &database))?;
    Ok(())
}

/// An event that cannot be read is an error, and is not left out.
#[test]
fn a_stream_that_begins_before_a_conversion_fails_at_the_first_change() -> Result<()> {
    for scope in [Scope::Collection, Scope::Database] {
        let fixture = start()?;
        fixture.store_plain(&[])?;
        let opened = fixture.application(0)?.command_ok(&watch(scope, &fixture.database))?;
        let position = opened
            .get_document("cursor")?
            .get_document("postBatchResumeToken")?
            .clone();
        fixture.run(0, insert(vec![item(1, 1, 1)]))?;
        fixture.convert(Duration::ZERO, CutOver::Done)?;
        fixture.run(0, insert(vec![item(2, 1, 2)]))?;
        let mut resumed = watch(scope, &fixture.database);
        resumed.insert("pipeline", vec![doc! { "$changeStream": { "resumeAfter": position } }]);
        let mut application = fixture.application(0)?;
        let mut reply = application.command(&resumed)?;
        if code(&reply).is_none() {
            let (_, collection) = reply
                .get_document("cursor")?
                .get_str("ns")?
                .split_once('.')
                .context("no namespace")?;
            let id = reply.get_document("cursor")?.get_i64("id")?;
            let more = doc! { "getMore": id, "collection": collection, "maxTimeMS": 5000, "$db": &fixture.database };
            reply = application.command(&more)?;
        }
        ensure!(code(&reply) == Some(FATAL), "{scope:?}: {reply}");
    }
    Ok(())
}

/// No command returns the document.
#[test]
fn a_document_beside_the_pages_has_no_event() -> Result<()> {
    for scope in [Scope::Collection, Scope::Database, Scope::Cluster] {
        let fixture = start()?;
        fixture.run(0, insert(vec![item(1, 1, 1)]))?;
        let mut stream = Stream::open(fixture.application(0)?, scope, &fixture.database)?;
        fixture.past(doc! { "insert": COLLECTION, "documents": [item(2, 1, 2)] })?;
        fixture.run(0, insert(vec![item(3, 1, 3)]))?;
        stream.read(1)?;
        assert_eq!(stream.keys(), [&doc! { "_id": 3 }], "{scope:?}");
    }
    Ok(())
}

/// The stream is relayed.
#[test]
fn a_conversion_is_not_in_a_stream_of_plain_documents() -> Result<()> {
    for scope in [Scope::Database, Scope::Cluster] {
        let fixture = start()?;
        fixture.store_plain(&[item(1, 1, 1)])?;
        let mut stream = Stream::open(fixture.application(0)?, scope, &fixture.database)?;
        for beside in [COPY, RECORD, KEPT] {
            fixture.past(doc! { "insert": beside, "documents": [{ "_id": 100 }] })?;
        }
        fixture.past(doc! { "insert": "other", "documents": [{ "_id": 2 }] })?;
        fixture.run(0, insert(vec![item(3, 1, 3)]))?;
        stream.read(2)?;
        assert_eq!(stream.keys(), [&doc! { "_id": 2 }, &doc! { "_id": 3 }], "{scope:?}");
    }
    Ok(())
}

/// The stream was opened in the former layout, and its events are read after the proxy knows the new one.
#[test]
fn a_stream_of_pages_returns_items_up_to_the_rename() -> Result<()> {
    let fixture = start()?;
    fixture.run(0, insert(vec![item(0, 1, 0)]))?;
    let mut stream = Stream::open(fixture.application(0)?, Scope::Collection, &fixture.database)?;
    fixture.run(0, insert((1..4).map(|n| item(n, 1, i64::from(n))).collect()))?;
    fixture.convert(Duration::ZERO, CutOver::Done)?;
    ensure!(fixture.items()?.len() == 4 && !fixture.has_pages()?, "not converted");
    stream.read(5)?;
    assert_eq!(
        stream.operations(),
        ["insert", "insert", "insert", "rename", "invalidate"]
    );
    for (event, id) in stream.events.iter().zip(1..4) {
        assert_eq!(event.get_document("documentKey")?, &doc! { "_id": id }, "{event}");
    }
    Ok(())
}
