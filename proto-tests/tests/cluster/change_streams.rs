//! Change streams of a plain collection through a router, and of a shaped one through a proxy before it. Both
//! collections are sharded by the same key.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::cluster::{self, SLOTS};
use proto_tests::raw::Connection;
use proto_tests::sessions::Transaction;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{ItemIds, Shape};

/// The shard key and the key of the shape.
const KEY: &str = "k";
const NO_SUCH_TRANSACTION: i32 = 251;
/// The `_id` of the last item that is inserted.
const LAST: i64 = 999;
/// The longest time in which a stream returns the last event.
const LIMIT: Duration = Duration::from_secs(20);

fn item(number: i64) -> Document {
    doc! { "_id": number, KEY: number % 7, "date": DateTime::from_millis(number * 1000), "n": number }
}

fn set(id: i64, change: Document) -> Document {
    doc! { "q": { "_id": id, KEY: id % 7 }, "u": { "$set": change } }
}

/// Two collections with images.
fn sides(item_ids: ItemIds) -> Result<Sides> {
    let cluster = cluster::shared();
    let shape = Shape {
        max_items: 3,
        time: Some("date".to_owned()),
        items_change: true,
        change_streams: true,
        item_ids,
        ..Shape::new(&[KEY])
    };
    let mut sides = Sides::at(shape, (cluster.uri(), cluster.router_addresses()[0]))?;
    let images = doc! { "enabled": true };
    let create = doc! { "create": COLLECTION, "changeStreamPreAndPostImages": images, "$db": sides.plain_database() };
    sides.plain.command_ok(&create)?;
    Ok(sides)
}

fn sharded() -> Result<Sides> {
    let mut sides = sides(ItemIds::UniqueInKey)?;
    for database in [sides.plain_database(), sides.shaped_database()] {
        let namespace = format!("{database}.{COLLECTION}");
        let shard = doc! { "shardCollection": namespace, "key": { KEY: 1 }, "$db": "admin" };
        sides.shaped.command_ok(&shard)?;
    }
    sides.alike(&doc! { "insert": COLLECTION, "documents": [item(0)] })?;
    Ok(sides)
}

/// A stream of one side.
struct Stream {
    database: String,
    cursor: i64,
    events: Vec<Document>,
}

impl Stream {
    fn open(connection: &mut Connection, database: String, options: Document) -> Result<Self> {
        let pipeline = [doc! { "$changeStream": options }];
        let command = doc! { "aggregate": COLLECTION, "pipeline": pipeline.to_vec(), "cursor": {}, "$db": &database };
        let reply = connection.command_ok(&command)?;
        let mut stream = Self {
            database,
            cursor: 0,
            events: Vec::new(),
        };
        stream.take(&reply, "firstBatch")?;
        Ok(stream)
    }

    fn take(&mut self, reply: &Document, batch: &str) -> Result<()> {
        let cursor = reply.get_document("cursor")?;
        self.cursor = cursor.get_i64("id")?;
        let events = cursor.get_array(batch)?.iter();
        self.events.extend(events.filter_map(Bson::as_document).cloned());
        Ok(())
    }

    /// Reads up to the event of the [last](LAST) item.
    fn finish(mut self, connection: &mut Connection) -> Result<Vec<Document>> {
        let deadline = Instant::now() + LIMIT;
        let is_last = |event: &Document| {
            event
                .get_document("documentKey")
                .is_ok_and(|key| key.get("_id") == Some(&LAST.into()))
        };
        while !self.events.last().is_some_and(is_last) {
            ensure!(
                Instant::now() < deadline,
                "the last event is missing: {:?}",
                self.events
            );
            let more =
                doc! { "getMore": self.cursor, "collection": COLLECTION, "maxTimeMS": 100, "$db": &self.database };
            let reply = connection.command_ok(&more)?;
            self.take(&reply, "nextBatch")?;
        }
        let kill = doc! { "killCursors": COLLECTION, "cursors": [self.cursor], "$db": &self.database };
        connection.command_ok(&kill)?;
        Ok(self.events)
    }
}

/// The streams of both sides.
struct Streams {
    plain: Stream,
    shaped: Stream,
}

impl Streams {
    fn open(sides: &mut Sides, options: &Document) -> Result<Self> {
        let (plain, shaped) = (sides.plain_database(), sides.shaped_database());
        Ok(Self {
            plain: Stream::open(&mut sides.plain, plain, options.clone())?,
            shaped: Stream::open(&mut sides.shaped, shaped, options.clone())?,
        })
    }

    /// Fails unless both streams have the same events of each document. Returns those of the shaped
    /// collection.
    fn finish(self, sides: &mut Sides) -> Result<Vec<Document>> {
        sides.alike(&doc! { "insert": COLLECTION, "documents": [item(LAST)] })?;
        let expected = by_document(&self.plain.finish(&mut sides.plain)?)?;
        let events = self.shaped.finish(&mut sides.shaped)?;
        let found = by_document(&events)?;
        for (key, expected) in &expected {
            let found = found.get(key).map(Vec::as_slice).unwrap_or_default();
            ensure!(found == expected, "{key}\n  plain:  {expected:?}\n  shaped: {found:?}");
        }
        ensure!(found.len() == expected.len(), "{found:?}");
        Ok(events)
    }
}

/// The events of each document, without times, tokens and names. The order of several documents of one
/// command is that of the shards.
fn by_document(events: &[Document]) -> Result<BTreeMap<String, Vec<Document>>> {
    let mut sorted: BTreeMap<String, Vec<Document>> = BTreeMap::new();
    for event in events {
        let mut event = event.clone();
        let is_in_transaction = event.remove("txnNumber").is_some() && event.remove("lsid").is_some();
        event.insert("in a transaction", is_in_transaction);
        for name in ["_id", "clusterTime", "wallTime", "ns"] {
            event.remove(name).with_context(|| format!("no {name} in {event}"))?;
        }
        sorted
            .entry(event.get_document("documentKey")?.to_string())
            .or_default()
            .push(event);
    }
    Ok(sorted)
}

/// Writes of all kinds, on both shards.
fn write(sides: &mut Sides) -> Result<()> {
    let items: Vec<Document> = (1..30).map(item).collect();
    let later = DateTime::from_millis(100_000);
    let many = |filter: Document, change: Document| doc! { "q": filter, "u": change, "multi": true };
    let like_an_operator = doc! { "$id": 1 };
    let found = doc! { "_id": { "$eq": &like_an_operator }, KEY: 3 };
    for command in [
        doc! { "insert": COLLECTION, "documents": items },
        doc! { "insert": COLLECTION, "documents": [{ "_id": like_an_operator, KEY: 3, "n": 1 }] },
        doc! { "update": COLLECTION, "updates": [{ "q": found, "u": { "$inc": { "n": 1 } } }] },
        doc! { "update": COLLECTION, "updates": [set(4, doc! { "n": 40 }), set(5, doc! { "n": 50 })] },
        doc! { "update": COLLECTION, "updates": [many(doc! { "n": { "$gte": 20 } }, doc! { "$inc": { "n": 1 } })] },
        doc! { "update": COLLECTION, "updates": [set(6, doc! { "date": later })] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 8, KEY: 1 }, "u": { "_id": 8, KEY: 1, "n": 0 } }] },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 9, KEY: 2 }, "update": { "$unset": { "n": 1 } } },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 10, KEY: 3 }, "limit": 1 }, { "q": { KEY: 4 }, "limit": 0 }] },
    ] {
        sides.alike(&command)?;
    }
    Ok(())
}

/// Moves the pages of some keys to another shard.
fn move_ranges(sides: &Sides) -> Result<()> {
    let cluster = cluster::shared();
    let namespace = format!("{}.{COLLECTION}", sides.shaped_database());
    for slot in (0..SLOTS).step_by(3) {
        let owner = cluster.owner_of(&namespace, slot)?;
        cluster.move_slot(&namespace, slot, 1 - owner)?;
    }
    Ok(())
}

/// In one transaction, gives items of several keys times that belong to other pages of the key.
fn move_items_in_a_transaction(sides: &mut Sides) -> Result<()> {
    let earlier = |id: i64| set(id, doc! { "date": DateTime::from_millis(id * 10) });
    let command = doc! { "update": COLLECTION, "updates": [earlier(22), earlier(23), earlier(26), earlier(27)] };
    for reply in sides.in_transaction("moves", &command)? {
        ensure!(reply.get_i32("nModified")? == 4, "{reply}");
    }
    Ok(())
}

#[test]
fn a_stream_of_a_sharded_collection_has_the_events_of_a_plain_one() -> Result<()> {
    for options in [
        doc! {},
        doc! { "fullDocument": "updateLookup" },
        doc! { "fullDocument": "required", "fullDocumentBeforeChange": "required" },
    ] {
        let mut sides = sharded()?;
        let streams = Streams::open(&mut sides, &options)?;
        write(&mut sides)?;
        move_ranges(&sides)?;
        move_items_in_a_transaction(&mut sides)?;
        let events = streams.finish(&mut sides).with_context(|| options.to_string())?;
        let key = events.first().context("no event")?.get_document("documentKey")?;
        ensure!(key.keys().eq([KEY, "_id"]), "{key}");
        sides.check()?;
    }
    Ok(())
}

#[test]
fn a_stream_is_resumed_through_another_proxy() -> Result<()> {
    let mut sides = sharded()?;
    let streams = Streams::open(&mut sides, &doc! {})?;
    write(&mut sides)?;
    move_items_in_a_transaction(&mut sides)?;
    move_ranges(&sides)?;
    let events = streams.finish(&mut sides)?;
    let another_router = format!("mongodb://{}/", cluster::shared().router_addresses()[1]);
    let proxy = sides.another_proxy_to(&another_router)?;
    let mut connection = Connection::open(proxy.address())?;
    for (number, event) in events.iter().enumerate().take(events.len() - 1) {
        let position = doc! { "resumeAfter": event.get_document("_id")? };
        let resumed = Stream::open(&mut connection, sides.shaped_database(), position)?;
        let found = resumed.finish(&mut connection)?;
        ensure!(found == events[number + 1..], "behind event {number}: {found:?}");
    }
    Ok(())
}

#[test]
fn a_stream_of_a_collection_that_is_not_sharded_has_the_events_of_a_plain_one() -> Result<()> {
    let mut sides = sides(ItemIds::Unique)?;
    sides.alike(&doc! { "insert": COLLECTION, "documents": [item(0)] })?;
    let streams = Streams::open(&mut sides, &doc! { "fullDocument": "updateLookup" })?;
    write(&mut sides)?;
    move_items_in_a_transaction(&mut sides)?;
    let events = streams.finish(&mut sides)?;
    let key = events.first().context("no event")?.get_document("documentKey")?;
    ensure!(key.keys().eq(["_id"]), "{key}");
    sides.check()
}

#[test]
fn the_current_version_is_that_of_the_key() -> Result<()> {
    let mut sides = sharded()?;
    let twins = [doc! { "_id": 50, KEY: 1, "n": 1 }, doc! { "_id": 50, KEY: 2, "n": 2 }];
    for twin in twins {
        let insert = doc! { "insert": COLLECTION, "documents": [twin], "$db": sides.shaped_database() };
        ensure!(sides.shaped.command_ok(&insert)?.get_i32("n")? == 1);
    }
    let options = doc! { "fullDocument": "updateLookup" };
    let database = sides.shaped_database();
    let stream = Stream::open(&mut sides.shaped, database, options)?;
    for key in [2, 1] {
        let update = doc! { "q": { "_id": 50, KEY: key }, "u": { "$inc": { "n": 10 } } };
        let update = doc! { "update": COLLECTION, "updates": [update], "$db": sides.shaped_database() };
        ensure!(sides.shaped.command_ok(&update)?.get_i32("nModified")? == 1);
    }
    sides.alike(&doc! { "insert": COLLECTION, "documents": [item(LAST)] })?;
    let events = stream.finish(&mut sides.shaped)?;
    let current = events
        .iter()
        .take(2)
        .map(|event| event.get_document("fullDocument")?.get_i32("n").map_err(Into::into));
    ensure!(current.collect::<Result<Vec<i32>>>()? == [12, 11], "{events:?}");
    Ok(())
}

/// The events of two shards would be in any order: an arrival before the departure.
#[test]
fn a_change_of_the_key_is_refused() -> Result<()> {
    for is_sharded in [false, true] {
        let mut sides = if is_sharded {
            sharded()?
        } else {
            sides(ItemIds::Unique)?
        };
        sides.alike(&doc! { "insert": COLLECTION, "documents": [item(1), item(2)] })?;
        let database = sides.shaped_database();
        for update in [
            set(1, doc! { KEY: 5 }),
            doc! { "q": { KEY: 1 }, "u": { "$set": { KEY: 5 } }, "multi": true },
        ] {
            let command = doc! { "update": COLLECTION, "updates": [update] };
            let mut transaction = Transaction::new(&format!("{database}{command}"), &database);
            let reply = transaction.run(&mut sides.shaped, &command)?;
            ensure!(reply.to_string().contains("with `change_streams = true`"), "{reply}");
            let end = transaction.end(&mut sides.shaped, "abortTransaction")?;
            // The refusal has aborted it, as any error does.
            ensure!(end.get_i32("code")? == NO_SUCH_TRANSACTION, "{end}");
        }
        sides.check()?;
    }
    Ok(())
}
