//! Positions, stages and descriptions of change streams, compared with those of a plain collection. The random
//! commands are in the differential tests.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::Shape;
use proto_tests::raw::Connection;
use proto_tests::sides::{COLLECTION, Sides};

/// One of the two collections.
struct Reader<'a> {
    connection: &'a mut Connection,
    database: String,
}

/// A reply of a stream.
struct Batch {
    cursor: i64,
    token: Document,
    /// The operation and the `_id` of each event.
    events: Vec<(String, i32)>,
    /// The token of each event.
    tokens: Vec<Document>,
    /// The `updateDescription` of each update.
    descriptions: Vec<Document>,
}

impl Batch {
    fn of(reply: &Document) -> Result<Self> {
        let cursor = reply.get_document("cursor").with_context(|| reply.to_string())?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        let mut read = Self {
            cursor: cursor.get_i64("id")?,
            token: cursor.get_document("postBatchResumeToken")?.clone(),
            events: Vec::new(),
            tokens: Vec::new(),
            descriptions: Vec::new(),
        };
        for event in batch.iter().filter_map(Bson::as_document) {
            let id = event.get_document("documentKey")?.get_i32("_id")?;
            read.events.push((event.get_str("operationType")?.to_owned(), id));
            read.tokens.push(event.get_document("_id")?.clone());
            read.descriptions
                .extend(event.get_document("updateDescription").ok().cloned());
        }
        Ok(read)
    }
}

impl Reader<'_> {
    fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        self.connection.command(&command)
    }

    /// Opens a stream with these options.
    fn open(&mut self, options: Document, batch_size: i32) -> Result<Batch> {
        let command = watch(vec![doc! { "$changeStream": options }], batch_size);
        Batch::of(&self.run(command)?)
    }

    /// Reads so many events behind a reply.
    fn read(&mut self, mut batch: Batch, events: usize) -> Result<Batch> {
        for _ in 0..20 {
            if batch.events.len() >= events {
                break;
            }
            let more = doc! { "getMore": batch.cursor, "collection": COLLECTION, "maxTimeMS": 1000 };
            let next = Batch::of(&self.run(more)?)?;
            batch.cursor = next.cursor;
            batch.token = next.token;
            batch.events.extend(next.events);
            batch.tokens.extend(next.tokens);
            batch.descriptions.extend(next.descriptions);
        }
        Ok(batch)
    }

    /// The events behind a token.
    fn behind(&mut self, token: &Document, events: usize) -> Result<Vec<(String, i32)>> {
        let opened = self.open(doc! { "resumeAfter": token }, 100)?;
        Ok(self.read(opened, events)?.events)
    }
}

fn watch(stages: Vec<Document>, batch_size: i32) -> Document {
    doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": { "batchSize": batch_size } }
}

fn sides() -> Result<Sides> {
    let sides = Sides::open(Shape {
        time: Some("date".to_owned()),
        max_items: 5,
        change_streams: true,
        ..Shape::new(&["k"])
    });
    let mut sides = sides?;
    // A stream on a missing collection has another beginning.
    sides.alike(&insert(&[0]))?;
    Ok(sides)
}

fn readers(sides: &mut Sides) -> [Reader<'_>; 2] {
    let (plain, shaped) = (sides.plain_database(), sides.shaped_database());
    [
        Reader {
            connection: &mut sides.plain,
            database: plain,
        },
        Reader {
            connection: &mut sides.shaped,
            database: shaped,
        },
    ]
}

/// The documents have one key, which no earlier command had.
fn insert(ids: &[i32]) -> Document {
    let key = ids.first().copied();
    let document = |id: &i32| doc! { "_id": *id, "k": key, "date": DateTime::from_millis(i64::from(*id)) };
    let documents: Vec<Document> = ids.iter().map(document).collect();
    doc! { "insert": COLLECTION, "documents": documents }
}

/// Moves a document to another page.
fn move_to(id: i32, key: i32) -> Document {
    let change = doc! { "$set": { "k": key } };
    doc! { "update": COLLECTION, "updates": [{ "q": { "_id": id }, "u": change }] }
}

fn events(operation: &str, ids: &[i32]) -> Vec<(String, i32)> {
    ids.iter().map(|id| (operation.to_owned(), *id)).collect()
}

/// The positions before the next command.
fn positions(sides: &mut Sides) -> Result<Vec<Document>> {
    let token = |mut reader: Reader<'_>| -> Result<Document> { Ok(reader.open(doc! {}, 100)?.token) };
    readers(sides).into_iter().map(token).collect()
}

/// The events of the items of one page have one time.
#[test]
fn the_token_of_an_empty_batch_is_that_of_the_last_event() -> Result<()> {
    let mut sides = sides()?;
    let begun = positions(&mut sides)?;
    sides.alike(&insert(&[1, 2, 3]))?;
    for (mut reader, begun) in readers(&mut sides).into_iter().zip(begun) {
        let opened = reader.open(doc! { "resumeAfter": begun }, 100)?;
        let all = reader.read(opened, 3)?;
        ensure!(all.events == events("insert", &[1, 2, 3]), "{:?}", all.events);
        for (token, rest) in all.tokens.iter().zip([&[2, 3][..], &[3]]) {
            let empty = reader.open(doc! { "resumeAfter": token }, 0)?;
            ensure!(empty.events.is_empty(), "{:?}", empty.events);
            let found = reader.behind(&empty.token, rest.len())?;
            ensure!(
                found == events("insert", rest),
                "{} {token}: {found:?}",
                reader.database
            );
        }
    }
    Ok(())
}

/// mongod's reply ends between the two events of a move.
#[test]
fn a_batch_before_a_move_has_the_token_of_its_last_event() -> Result<()> {
    let mut sides = sides()?;
    let begun = positions(&mut sides)?;
    sides.alike(&insert(&[1, 2]))?;
    sides.alike(&move_to(1, 50))?;
    for (mut reader, begun) in readers(&mut sides).into_iter().zip(begun) {
        let batch = reader.open(doc! { "resumeAfter": begun }, 2)?;
        ensure!(batch.events == events("insert", &[1, 2]), "{:?}", batch.events);
        let found = reader.behind(&batch.token, 1)?;
        ensure!(
            found == events("update", &[1]),
            "{} {}: {found:?}",
            reader.database,
            batch.token
        );
    }
    Ok(())
}

/// mongod's first reply ends there, and no token is known.
#[test]
fn a_stream_that_begins_with_a_move_has_a_token() -> Result<()> {
    let mut sides = sides()?;
    sides.alike(&insert(&[1, 2]))?;
    let ping = sides.plain.command_ok(&doc! { "ping": 1, "$db": "admin" })?;
    let mut time = ping.get_timestamp("operationTime")?;
    time.increment += 1;
    sides.alike(&move_to(1, 50))?;
    sides.alike(&insert(&[3]))?;
    for mut reader in readers(&mut sides) {
        let opened = reader.open(doc! { "startAtOperationTime": time }, 1)?;
        let batch = reader.read(opened, 1)?;
        ensure!(batch.events == events("update", &[1]), "{:?}", batch.events);
        let found = reader.behind(&batch.token, 1)?;
        ensure!(found == events("insert", &[3]), "{} {found:?}", reader.database);
    }
    Ok(())
}

/// Servers before 6.0.9 do not know the stage. It must be the last one.
#[test]
fn a_stream_that_splits_large_events_has_the_others() -> Result<()> {
    let mut sides = sides()?;
    let split = || doc! { "$changeStreamSplitLargeEvent": {} };
    let project = || doc! { "$project": { "fullDocument": 0 } };
    let pipelines = [vec![split()], vec![project(), split()], vec![split(), project()]];
    for (id, stages) in (1..).zip(pipelines) {
        let mut all = vec![doc! { "$changeStream": {} }];
        all.extend(stages);
        let command = watch(all, 100);
        let opened = readers(&mut sides).map(|mut reader| reader.run(command.clone()));
        let [plain, shaped] = opened;
        let (plain, shaped) = (plain?, shaped?);
        if let Ok(code) = plain.get_i32("code") {
            ensure!(
                shaped.get_i32("code").ok() == Some(code),
                "{command}\n  plain:  {plain}\n  shaped: {shaped}"
            );
            continue;
        }
        sides.alike(&insert(&[id]))?;
        for (mut reader, opened) in readers(&mut sides).into_iter().zip([plain, shaped]) {
            let batch = reader.read(Batch::of(&opened)?, 1)?;
            ensure!(batch.events == events("insert", &[id]), "{command}: {:?}", batch.events);
        }
    }
    Ok(())
}

/// The proxy computes an item that moves to another page, and describes its change.
#[test]
fn the_update_of_a_moved_item_is_described_as_in_place() -> Result<()> {
    let mut sides = sides()?;
    let changes = [
        doc! { "$set": { "k": { "a": 1 } } },
        doc! { "$set": { "k": { "a": 1.5 }, "nested.a": 2 } },
        doc! { "$set": { "k": { "a": 1.0, "b": 2 }, "nested": { "a": 3, "b": 1 }, "list": [1, 5, 3] } },
        doc! { "$set": { "k.a": 7, "list.1": 6, "nested.c": 3 } },
        doc! { "$set": { "k": 1 }, "$pull": { "list": 1 } },
        doc! { "$set": { "k": 2 }, "$push": { "list": 9 } },
        doc! { "$set": { "k": 3 }, "$push": { "list": { "$each": [8], "$position": 0 } } },
        doc! { "$set": { "k": 4 }, "$pop": { "list": 1 } },
        doc! { "$set": { "k": 5 }, "$addToSet": { "list": { "$each": [8, 10] } } },
        doc! { "$set": { "k": 6 }, "$pullAll": { "list": [10] } },
        doc! { "$set": { "k": 7, "list": [] }, "$rename": { "nested": "other" } },
        doc! { "$set": { "k": 8, "nested": { "a": 1 } } },
        doc! { "$set": { "k": 9 }, "$rename": { "nested": "other" } },
    ];
    let item =
        doc! { "_id": 1, "k": 0, "date": DateTime::from_millis(1), "list": [1, 2, 3], "nested": { "a": 1, "b": 1 } };
    sides.alike(&doc! { "insert": COLLECTION, "documents": [item] })?;
    let begun = positions(&mut sides)?;
    for change in &changes {
        sides.alike(&doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 1 }, "u": change }] })?;
    }
    let mut described = Vec::new();
    for (mut reader, begun) in readers(&mut sides).into_iter().zip(begun) {
        let opened = reader.open(doc! { "resumeAfter": begun }, 100)?;
        described.push(reader.read(opened, changes.len())?.descriptions);
    }
    let [plain, shaped] = &described[..] else {
        unreachable!()
    };
    ensure!(plain.len() == changes.len(), "{plain:?}");
    for ((change, plain), shaped) in changes.iter().zip(plain).zip(shaped) {
        ensure!(plain == shaped, "{change}\n  plain:  {plain}\n  shaped: {shaped}");
    }
    Ok(())
}
