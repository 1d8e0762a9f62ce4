//! The `_id`s of a clustered collection.

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::mongod;

use super::{filled, indexes};
use crate::definitions::servers;

#[test]
fn duplicate_id_has_mongods_error() -> Result<()> {
    for mongod in servers() {
        for index in indexes() {
            let mut comparison = filled(mongod, &index)?;
            for documents in [
                vec![doc! { "_id": 7, "k": 1 }],
                vec![doc! { "_id": 7.0, "k": 9 }],
                vec![doc! { "_id": "new", "k": 9 }, doc! { "_id": "new", "k": 8 }],
                vec![doc! { "_id": { "a": [1, 2] }, "k": 9 }, doc! { "_id": 3, "k": 8 }],
                vec![doc! { "_id": Bson::Null, "k": 9 }, doc! { "k": 8, "_id": Bson::Null }],
            ] {
                for ordered in [true, false] {
                    comparison.same(|_| doc! { "insert": "items", "documents": &documents, "ordered": ordered })?;
                }
            }
            for update in [
                doc! { "q": { "_id": 7, "k": 5 }, "u": { "$set": { "a": 1 } }, "upsert": true },
                doc! { "q": { "_id": "made" }, "u": { "k": 1, "a": 1 }, "upsert": true },
                doc! { "q": { "_id": 7 }, "u": { "$set": { "_id": 8 } } },
                doc! { "q": { "k": 1 }, "u": { "$inc": { "a": 1 } }, "multi": true },
                doc! { "q": { "_id": { "$gt": 3, "$lt": 9 } }, "u": [{ "$set": { "b": "$_id" } }], "multi": true },
            ] {
                comparison.same(|_| doc! { "update": "items", "updates": [&update] })?;
            }
            comparison
                .same(|_| doc! { "delete": "items", "deletes": [{ "q": { "_id": { "$gte": 20 } }, "limit": 0 }] })?;
            comparison.same(|_| doc! { "findAndModify": "items", "query": { "_id": 2 }, "remove": true })?;
            comparison.same(|_| doc! { "find": "items", "sort": { "_id": 1 } })?;
            comparison
                .same(|_| doc! { "aggregate": "items", "pipeline": [{ "$sort": { "_id": -1 } }], "cursor": {} })?;
            comparison.same(|_| doc! { "count": "items" })?;
        }
    }
    Ok(())
}

/// mongod takes 8 MiB of an `_id` in a form of its own, which may be twice as long.
#[test]
fn an_id_that_may_be_too_long_is_refused() -> Result<()> {
    let mut comparison = filled(mongod::shared(), &indexes()[0])?;
    let long = |bytes: usize| doc! { "_id": "x".repeat(bytes), "k": 1 };
    let insert = |documents: &[Document]| doc! { "insert": "items", "documents": documents };
    comparison.same(|_| insert(&[long((4 << 20) - 100)]))?;
    let before = comparison.state()?;
    for mut command in [
        insert(&[long(4 << 20)]),
        doc! { "insert": "items", "documents": [long(9 << 20), doc! { "_id": "behind", "k": 1 }] },
    ] {
        command.insert("$db", comparison.shaped_database());
        let reply = comparison.shaped.command(&command)?;
        let errors = reply.get_array("writeErrors")?;
        ensure!(reply.get_i32("n")? == 0 && errors.len() == 1, "{reply}");
    }
    ensure!(comparison.state()? == before, "something was stored");
    // One that is not clustered takes it.
    comparison.same(|_| doc! { "insert": "others", "documents": [long(9 << 20)] })?;
    Ok(())
}
