//! Write concerns: their errors and cluster times in replies to writes that mongod evaluates in a scratch
//! collection, and unacknowledged writes.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, Timestamp, bson, doc};
use proto_tests::Outlier;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{replies, sessions};

/// The compared fields of replies.
const COMPARED: [&str; 6] = ["n", "nModified", "upserted", "value", "lastErrorObject", "ok"];

fn numbers(length: i32) -> Vec<i32> {
    (0..length).collect()
}

/// The code of the error of the write concern.
fn concern_error(reply: &Document) -> Option<i32> {
    reply.get_document("writeConcernError").ok()?.get_i32("code").ok()
}

/// When the last document was inserted into a collection, or changed.
fn last_change(sides: &mut Sides<Outlier>, database: &str) -> Result<Timestamp> {
    let namespace = format!("{database}.{COLLECTION}");
    let find = doc! {
        "find": "oplog.rs", "filter": { "ns": namespace, "op": { "$in": ["i", "u"] } }, "sort": { "$natural": -1 },
        "limit": 1, "singleBatch": true, "$db": "local",
    };
    let found = sides.plain.all(&find)?;
    Ok(found.first().context("nothing was written")?.get_timestamp("ts")?)
}

/// The commands, without their write concern. `new`: the `_id` of a document that does not exist. A push to an
/// outlier is followed by the change that moves it from the tail to a page.
fn commands(new: i32) -> Vec<Document> {
    let update = |filter: Document, change: Bson| {
        doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change, "upsert": true }] }
    };
    let modify = |filter: Document, change: Document| {
        doc! { "findAndModify": COLLECTION, "query": filter, "update": change, "upsert": true, "new": true }
    };
    let long = doc! { "$set": { "tags": numbers(20) } };
    vec![
        update(doc! { "_id": 9 }, bson!(long.clone())),
        update(
            doc! { "_id": new },
            bson!({ "$push": { "tags": { "$each": numbers(20) } } }),
        ),
        modify(doc! { "_id": 11 }, long),
        // They change nothing.
        update(doc! { "_id": 2 }, bson!({ "$pull": { "tags": "nobody" } })),
        modify(doc! { "_id": 2 }, doc! { "$pull": { "tags": "nobody" } }),
        // They fail.
        update(doc! { "_id": 2 }, bson!({ "$inc": { "tags.0.x": 1 } })),
        update(
            doc! { "_id": 12 },
            bson!([{ "$set": { "tags": { "$divide": [1, 0] } } }]),
        ),
    ]
}

#[test]
fn replies_have_the_write_concern_error_and_the_time_of_the_write() -> Result<()> {
    let mut sides = Sides::open(Outlier::new("tags", (5, 7)))?;
    sides.alike(&doc! { "insert": COLLECTION, "documents": [{ "_id": 2, "tags": numbers(20) }] })?;
    let databases = [sides.plain_database(), sides.shaped_database()];
    for (new, is_retryable) in [(20, false), (21, true)] {
        for (number, mut command) in (1_i64..).zip(commands(new)) {
            command.insert("writeConcern", doc! { "w": 5, "wtimeout": 1 });
            let mut outcomes = Vec::new();
            for (database, is_shaped) in databases.iter().zip([false, true]) {
                command.insert("$db", database);
                if is_retryable {
                    command.extend(doc! { "lsid": sessions::lsid(database), "txnNumber": number });
                }
                let connection = if is_shaped { &mut sides.shaped } else { &mut sides.plain };
                let reply = connection.command(&command)?;
                let (time, written) = (
                    reply.get_timestamp("operationTime")?,
                    last_change(&mut sides, database)?,
                );
                ensure!(time >= written, "{command} was executed at {written}: {reply}");
                let compared = replies::comparable(&reply, &COMPARED, database);
                outcomes.push((compared, replies::first_code(&reply), concern_error(&reply)));
            }
            ensure!(outcomes[0].2.is_some(), "{command}: no error of the write concern");
            ensure!(outcomes[0] == outcomes[1], "{command}: {outcomes:?}");
        }
        sides
            .check()
            .with_context(|| format!("the retryable ones: {is_retryable}"))?;
    }
    Ok(())
}

/// The reply to the client has no errors, and neither has mongod's.
#[test]
fn the_pages_of_a_document_that_is_refused_without_acknowledgement_are_removed() -> Result<()> {
    let mut sides = Sides::open(Outlier::new("tags", (5, 7)))?;
    let insert = |ids: [i32; 2], more: Document| {
        let documents = ids.map(|id| doc! { "_id": id, "tags": numbers(20) });
        let mut insert = doc! { "insert": COLLECTION, "documents": documents.to_vec() };
        insert.extend(more);
        insert
    };
    sides.alike(&insert([1, 2], doc! {}))?;
    sides.alike(&insert([2, 3], doc! { "ordered": false, "writeConcern": { "w": 0 } }))?;
    sides.check()
}
