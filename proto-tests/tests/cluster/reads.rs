//! Reads that several shards answer.

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};

use crate::beside::{Beside, COLLECTION};

#[test]
fn sorted_finds_are_merged() -> Result<()> {
    let mut beside = Beside::with_items(200)?;
    let sorts = [
        doc! { "_id": 1 },
        doc! { "n": 1, "_id": -1 },
        doc! { "city": -1, "n": 1, "_id": 1 },
    ];
    for sort in sorts {
        for (skip, limit) in [(0, 0), (5, 0), (0, 7), (13, 20), (195, 20), (300, 5)] {
            let mut find = doc! { "find": COLLECTION, "sort": sort.clone(), "skip": skip, "limit": limit };
            beside.alike_documents(&find)?;
            find.insert("batchSize", 3);
            find.insert("projection", doc! { "n": 1 });
            beside.alike_documents(&find)?;
        }
        let filter = doc! { "k": { "$in": [1, 2, 5.0] }, "n": { "$gt": 3 } };
        beside.alike_documents(&doc! { "find": COLLECTION, "filter": filter, "sort": sort })?;
    }
    Ok(())
}

#[test]
fn batches_have_the_demanded_size() -> Result<()> {
    let mut beside = Beside::with_items(30)?;
    let reply = beside.run(&doc! { "find": COLLECTION, "sort": { "_id": 1 }, "batchSize": 4 })?;
    let cursor = reply.get_document("cursor")?;
    ensure!(cursor.get_array("firstBatch")?.len() == 4, "{reply}");
    let id = cursor.get_i64("id")?;
    let more = doc! { "getMore": id, "collection": COLLECTION, "batchSize": 6 };
    let reply = beside.run(&more)?;
    let batch = reply.get_document("cursor")?.get_array("nextBatch")?.clone();
    let first = batch.first().and_then(Bson::as_document).cloned().unwrap_or_default();
    ensure!(batch.len() == 6 && first.get_i32("_id")? == 4, "{reply}");
    let killed = beside.run(&doc! { "killCursors": COLLECTION, "cursors": [id] })?;
    ensure!(killed.get_array("cursorsKilled")? == &vec![Bson::Int64(id)], "{killed}");
    let gone = beside.run(&more)?;
    ensure!(gone.get_i32("code")? == 43, "{gone}");
    Ok(())
}

#[test]
fn aggregations_are_split() -> Result<()> {
    let mut beside = Beside::with_items(120)?;
    let matched = doc! { "$match": { "n": { "$gte": 5 } } };
    let group = doc! { "$group": { "_id": "$city", "sum": { "$sum": "$n" }, "text": { "$min": "$$ROOT" } } };
    let by_id = doc! { "$sort": { "_id": 1 } };
    let pipelines = [
        vec![matched.clone(), group.clone(), by_id.clone()],
        vec![doc! { "$match": { "k": 3 } }, group, by_id.clone()],
        vec![
            by_id.clone(),
            doc! { "$skip": 3 },
            doc! { "$limit": 5 },
            doc! { "$set": { "price": { "$literal": "$5" } } },
        ],
        vec![doc! { "$set": { "price": { "$literal": "$5" } } }, by_id],
        vec![matched, doc! { "$count": "count" }],
    ];
    for pipeline in pipelines {
        let command = doc! { "aggregate": COLLECTION, "pipeline": pipeline, "cursor": { "batchSize": 2 } };
        beside.alike_documents(&command)?;
    }
    Ok(())
}

#[test]
fn counts_and_distinct_values_are_summed() -> Result<()> {
    let mut beside = Beside::with_items(90)?;
    for query in [
        doc! {},
        doc! { "k": 2 },
        doc! { "n": { "$lt": 9 } },
        doc! { "k": { "$in": [] } },
    ] {
        for (skip, limit) in [(0, 0), (3, 0), (2, 4)] {
            let count = doc! { "count": COLLECTION, "query": query.clone(), "skip": skip, "limit": limit };
            beside.alike(&count)?;
        }
        for key in ["k", "n", "city"] {
            let distinct = beside.here(&doc! { "distinct": COLLECTION, "key": key, "query": query.clone() });
            let mut replies = [
                beside.router.command_ok(&distinct)?,
                beside.plain.command_ok(&distinct)?,
            ];
            replies.iter_mut().for_each(sort_values);
            let [routed, plain] = replies.map(|reply| reply.get("values").cloned());
            ensure!(routed == plain, "{distinct}\n  {routed:?}\n  {plain:?}");
        }
    }
    Ok(())
}

fn sort_values(reply: &mut Document) {
    if let Ok(values) = reply.get_array_mut("values") {
        values.sort_by_key(ToString::to_string);
    }
}
