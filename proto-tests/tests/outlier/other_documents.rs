//! Pipelines that return documents with an application's own fields of the names that the proxy reserves.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::Outlier;
use proto_tests::raw::Connection;
use proto_tests::sides::{COLLECTION, Sides};

use crate::batches::batches;

const OTHERS: &str = "others";

/// Both sides with an inline document and an outlier, and another collection.
fn sides() -> Result<Sides<Outlier>> {
    let mut sides = Sides::open(Outlier::new("tags", (5, 7)))?;
    let document = |id: i32, length: i32| {
        let part = doc! { "_id": id, "has_extras": id == 2, "tags": [id] };
        doc! { "_id": id, "part": part, "tags": (0..length).collect::<Vec<_>>() }
    };
    sides.alike(&doc! { "insert": COLLECTION, "documents": [document(1, 3), document(2, 20)] })?;
    let others = [
        doc! { "_id": 1, "has_extras": true, "tags": ["own"] },
        doc! { "_id": 2, "has_extras": true, "tags": ["own"], "text": "x" },
        doc! { "has_extras": false, "_id": 3 },
        doc! { "_id": 4, "has_extras": { "has_extras": 1 }, "has_extras_control": { "v": 1 } },
        doc! { "_id": 5, "has_extras_control": { "document": { "n": 1 } } },
        doc! { "_id": 6, "n": 1 },
    ];
    sides.alike(&doc! { "insert": OTHERS, "documents": others.to_vec() })?;
    Ok(sides)
}

/// All documents of a pipeline, in batches of one.
fn all(connection: &mut Connection, database: &str, pipeline: &[Document]) -> Result<Vec<Document>> {
    let aggregate = doc! {
        "aggregate": COLLECTION, "pipeline": pipeline, "cursor": { "batchSize": 1 }, "$db": database,
    };
    let batches = batches(connection, &aggregate, std::iter::repeat(1))?;
    Ok(batches.into_iter().flat_map(|batch| batch.documents).collect())
}

#[test]
fn fields_of_other_documents_are_returned_in_every_batch() -> Result<()> {
    let mut sides = sides()?;
    let [plain_database, shaped_database] = [sides.plain_database(), sides.shaped_database()];
    let every = || doc! { "from": OTHERS, "as": "other", "pipeline": [{ "$sort": { "_id": 1 } }] };
    for pipeline in [
        vec![doc! { "$unionWith": OTHERS }],
        vec![
            doc! { "$match": { "_id": 1 } },
            doc! { "$unionWith": { "coll": OTHERS, "pipeline": [] } },
        ],
        vec![
            doc! { "$lookup": every() },
            doc! { "$unwind": "$other" },
            doc! { "$replaceWith": "$other" },
        ],
        vec![doc! { "$replaceWith": "$part" }],
        // No stage depends on the array.
        vec![
            doc! { "$project": { "part": 1 } },
            doc! { "$replaceRoot": { "newRoot": "$part" } },
        ],
        vec![
            doc! { "$project": { "part": 1 } },
            doc! { "$replaceWith": { "$mergeObjects": ["$part", { "n": 1 }] } },
        ],
    ] {
        let plain = all(&mut sides.plain, &plain_database, &pipeline)?;
        let shaped = all(&mut sides.shaped, &shaped_database, &pipeline)?;
        ensure!(
            plain == shaped,
            "{pipeline:?}\n  plain:  {plain:?}\n  shaped: {shaped:?}"
        );
        ensure!(plain.iter().any(|found| found.contains_key("has_extras")), "{plain:?}");
    }
    Ok(())
}

/// Another collection gets the documents as they are.
#[test]
fn fields_of_other_documents_are_written() -> Result<()> {
    let mut sides = sides()?;
    for last in [doc! { "$out": "copies" }, doc! { "$merge": "copies" }] {
        let pipeline = [
            doc! { "$unionWith": OTHERS },
            doc! { "$match": { "_id": { "$gt": 2 } } },
            last,
        ];
        sides.alike(&doc! { "aggregate": COLLECTION, "pipeline": pipeline.to_vec(), "cursor": {} })?;
        let database = sides.plain_database();
        let plain = sides.plain.find(&database, "copies", doc! {})?;
        let database = sides.shaped_database();
        let shaped = sides.shaped.find(&database, "copies", doc! {})?;
        ensure!(
            plain == shaped && plain.len() == 4,
            "plain: {plain:?}\n  shaped: {shaped:?}"
        );
    }
    Ok(())
}
