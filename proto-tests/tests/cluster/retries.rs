//! Retryable writes that are sent again.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::sessions::lsid;

use crate::beside::{Beside, COLLECTION, item};
use crate::slots::move_all;

#[test]
fn an_insert_that_is_sent_again_after_a_move_stores_nothing() -> Result<()> {
    let mut beside = Beside::open()?;
    let items: Vec<Document> = (0..20).map(item).collect();
    let insert = doc! {
        "insert": COLLECTION, "documents": items, "lsid": lsid(&beside.database), "txnNumber": 1_i64,
    };
    beside.alike(&insert)?;
    // Of a document that is gone only the record of the retry knows.
    let delete = doc! { "q": { "_id": 4 }, "limit": 1 };
    beside.alike(&doc! { "delete": COLLECTION, "deletes": [delete] })?;
    for shard in [1, 0] {
        move_all(&beside, shard)?;
        let reply = beside.alike(&insert)?;
        ensure!(reply.get_i32("n")? == 20, "{reply}");
        ensure!(reply.get_array("retriedStmtIds")?.len() == 20, "{reply}");
        let stored = beside.check()?;
        ensure!(stored.len() == 19, "{stored:?}");
    }
    Ok(())
}

#[test]
fn an_update_that_is_sent_again_after_a_move_changes_nothing() -> Result<()> {
    let mut beside = Beside::with_items(20)?;
    let change = doc! { "$inc": { "n": 1 } };
    let updates = vec![
        doc! { "q": { "_id": 3 }, "u": change.clone() },
        doc! { "q": { "k": 5, "_id": 5 }, "u": change.clone() },
    ];
    let session = lsid(&beside.database);
    let update = doc! { "update": COLLECTION, "updates": updates, "lsid": session.clone(), "txnNumber": 1_i64 };
    let modify = doc! {
        "findAndModify": COLLECTION, "query": { "k": 6, "_id": 6 }, "update": change, "new": true, "lsid": session,
        "txnNumber": 2_i64,
    };
    for command in [update, modify] {
        beside.alike(&command)?;
        for shard in [1, 0] {
            move_all(&beside, shard)?;
            beside.alike(&command)?;
            beside.check()?;
        }
    }
    Ok(())
}
