//! A cursor that is open while the collection is packed.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::shaped::{COLLECTION, Shaped};

use super::compact;

const ITEMS: i32 = 300;
const BATCH: i32 = 20;
/// The error of a cursor whose collection is gone: `QueryPlanKilled`.
const KILLED: i32 = 175;

fn at(second: i32) -> DateTime {
    DateTime::from_millis(1_700_000_000_000 + i64::from(second) * 1000)
}

/// Reads batches until one fails. Returns the `_id`s, and the code of the error.
fn read(connection: &mut Connection, shaped: &Shaped, mut reply: Document) -> Result<(Vec<i32>, Option<i32>)> {
    let mut ids = Vec::new();
    loop {
        let Ok(cursor) = reply.get_document("cursor") else {
            return Ok((ids, reply.get_i32("code").ok()));
        };
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        let items = batch.iter().filter_map(Bson::as_document);
        ids.extend(items.filter_map(|item| item.get_i32("_id").ok()));
        let id = cursor.get_i64("id")?;
        if id == 0 {
            return Ok((ids, None));
        }
        let more = doc! { "getMore": id, "collection": COLLECTION, "batchSize": BATCH, "$db": &shaped.database };
        reply = connection.command(&more)?;
    }
}

#[test]
fn a_cursor_of_a_range_does_not_go_on_in_the_packed_copy() -> Result<()> {
    let shaped = Shaped::start("time = \"at\"\nmax_items = 10")?;
    let mut application = shaped.application()?;
    for filter in [
        doc! { "k": 1, "at": { "$gte": at(0), "$lt": at(ITEMS) } },
        doc! { "k": 1, "at": { "$gte": at(0) } },
    ] {
        let items: Vec<Document> = (0..ITEMS).map(|id| doc! { "_id": id, "k": 1, "at": at(id) }).collect();
        application.command_ok(&shaped.insert(&items))?;
        let odd = doc! { "q": { "_id": { "$mod": [2, 1] } }, "limit": 0 };
        application.command_ok(&doc! { "delete": COLLECTION, "deletes": [odd], "$db": &shaped.database })?;
        let find = doc! {
            "find": COLLECTION, "filter": filter, "sort": { "at": 1 }, "batchSize": BATCH, "$db": &shaped.database,
        };
        let opened = application.command_ok(&find)?;
        let packed = compact(&shaped.proxy)?;
        ensure!(packed.contains("packed: "), "{packed}");
        let (ids, code) = read(&mut application, &shaped, opened)?;
        let even: Vec<i32> = (0..ITEMS).step_by(2).collect();
        ensure!(code == Some(KILLED) && even.starts_with(&ids), "{code:?}: {ids:?}");
        let again = application.command_ok(&find)?;
        ensure!(read(&mut application, &shaped, again)? == (even, None));
        application.command_ok(&doc! { "drop": COLLECTION, "$db": &shaped.database })?;
    }
    Ok(())
}
