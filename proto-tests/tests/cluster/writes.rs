//! Batches that are split between shards.

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::cluster::Kind;

use crate::beside::{Beside, COLLECTION, item};

#[test]
fn duplicates_in_a_batch_have_the_clients_indexes() -> Result<()> {
    for is_ordered in [true, false] {
        let mut beside = Beside::open()?;
        let ids = [0, 1, 2, 3, 8, 9, 10, 11, 1, 4, 5, 0, 6, 7];
        let items: Vec<Document> = ids.into_iter().map(item).collect();
        let insert = doc! { "insert": COLLECTION, "documents": items, "ordered": is_ordered };
        let reply = beside.alike(&insert)?;
        let errors = reply.get_array("writeErrors")?.len();
        ensure!(errors == if is_ordered { 1 } else { 2 }, "{reply}");
        beside.check()?;
        let stored = beside.stored()?;
        ensure!(stored.iter().all(|shard| !shard.is_empty()), "{stored:?}");
    }
    Ok(())
}

#[test]
fn a_hashed_key_distributes_documents() -> Result<()> {
    let mut beside = Beside::open()?;
    let other = "hashed";
    let namespace = format!("{}.{other}", beside.database);
    beside
        .cluster
        .shard_collection(&namespace, &doc! { "_id": 1 }, Kind::Hashed)?;
    let items: Vec<Document> = (0..40).map(item).collect();
    beside.alike(&doc! { "insert": other, "documents": items })?;
    let found = beside.alike_documents(&doc! { "find": other, "sort": { "_id": 1 } })?;
    ensure!(found.len() == 40, "{found:?}");
    let stored = beside.stored_in(other)?;
    ensure!(stored.iter().all(|shard| !shard.is_empty()), "{stored:?}");
    Ok(())
}

fn update(filter: Document, change: Document) -> Document {
    doc! { "q": filter, "u": change }
}

#[test]
fn updates_and_deletes_by_key_by_id_and_of_many() -> Result<()> {
    let mut beside = Beside::with_items(60)?;
    let mut many = update(doc! { "n": { "$gte": 10 } }, doc! { "$inc": { "m": 1 } });
    many.insert("multi", true);
    let mut upsert = update(doc! { "_id": 100, "k": 3 }, doc! { "$set": { "n": 1 } });
    upsert.insert("upsert", true);
    let updates = vec![
        update(doc! { "k": 3, "_id": 3 }, doc! { "$set": { "n": 77 } }),
        update(doc! { "_id": 5 }, doc! { "$set": { "n": 78 } }),
        update(doc! { "_id": 5000 }, doc! { "$set": { "n": 78 } }),
        many,
        upsert,
        update(doc! { "k": 4_i64, "_id": 4 }, doc! { "k": 4, "replaced": true }),
    ];
    beside.alike(&doc! { "update": COLLECTION, "updates": updates })?;
    beside.check()?;
    let deletes = vec![
        doc! { "q": { "k": 3, "_id": 3 }, "limit": 1 },
        doc! { "q": { "_id": 6 }, "limit": 1 },
        doc! { "q": { "k": { "$in": [7, 8] } }, "limit": 0 },
        doc! { "q": { "n": { "$lt": 5 } }, "limit": 0 },
    ];
    beside.alike(&doc! { "delete": COLLECTION, "deletes": deletes })?;
    let change = doc! { "$set": { "found": true } };
    let modify = doc! { "findAndModify": COLLECTION, "query": { "k": 9, "_id": 9 }, "update": change, "new": true };
    beside.alike(&modify)?;
    beside.check()?;
    Ok(())
}

#[test]
fn errors_and_upserts_of_updates_have_the_clients_indexes() -> Result<()> {
    for is_ordered in [true, false] {
        let mut beside = Beside::with_items(20)?;
        let mut statements = Vec::new();
        for id in 20..24 {
            let mut upsert = update(doc! { "_id": id, "k": id }, doc! { "$set": { "n": id } });
            upsert.insert("upsert", true);
            statements.push(upsert);
            // A number cannot be pushed to.
            statements.push(update(doc! { "_id": id - 20 }, doc! { "$push": { "n": 1 } }));
        }
        let command = doc! { "update": COLLECTION, "updates": statements, "ordered": is_ordered };
        let reply = beside.alike(&command)?;
        let indexes: Vec<Option<&Bson>> = reply
            .get_array("writeErrors")?
            .iter()
            .map(|error| error.as_document().and_then(|error| error.get("index")))
            .collect();
        ensure!(indexes.len() == if is_ordered { 1 } else { 4 }, "{indexes:?}");
        beside.check()?;
    }
    Ok(())
}
