//! Pipelines whose first stages select and sort documents without the array.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::Outlier;
use proto_tests::sides::{COLLECTION, Sides};

/// Both sides with 100 documents and an index.
fn sides() -> Result<Sides<Outlier>> {
    let mut sides = Sides::open(Outlier::new("tags", (5, 7)))?;
    let document = |id: i32| doc! { "_id": id, "year": id % 2, "date": id, "tags": (0..id % 20).collect::<Vec<_>>() };
    let documents: Vec<Document> = (0..100).map(document).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": documents })?;
    let key = doc! { "year": 1, "date": -1 };
    let indexes = [doc! { "key": key, "name": "by_year" }];
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": indexes })?;
    Ok(sides)
}

fn aggregate(pipeline: Vec<Document>) -> Document {
    doc! { "aggregate": COLLECTION, "pipeline": pipeline, "cursor": {} }
}

#[test]
fn leading_stages_use_an_index() -> Result<()> {
    let mut sides = sides()?;
    for stage in [
        doc! { "$match": { "tags": 12 } },
        doc! { "$match": { "year": 1 } },
        doc! { "$unwind": "$tags" },
        doc! { "$set": { "n": { "$size": "$tags" } } },
        doc! { "$sort": { "tags": 1, "_id": 1 } },
    ] {
        let sort = doc! { "$sort": { "date": -1 } };
        let first = [doc! { "$match": { "year": 1 } }, sort];
        let rest = [doc! { "$skip": 1 }, doc! { "$limit": 4 }, stage.clone()];
        let pipeline: Vec<Document> = first.into_iter().chain(rest).collect();
        let fetched = sides.pages_read(&aggregate(pipeline))?;
        ensure!(fetched <= 10, "{stage}: {fetched} documents are fetched");
    }
    Ok(())
}

#[test]
fn stages_behind_one_on_the_array_read_whole_documents() -> Result<()> {
    let mut sides = sides()?;
    let of_array = doc! { "$match": { "tags": 15 } };
    let sort = doc! { "$sort": { "date": 1 } };
    for pipeline in [
        vec![of_array.clone(), sort.clone(), doc! { "$limit": 3 }],
        vec![sort.clone(), of_array.clone(), doc! { "$limit": 3 }],
        vec![sort.clone(), doc! { "$limit": 50 }, of_array, doc! { "$count": "n" }],
        vec![doc! { "$sort": { "tags.6": -1, "_id": 1 } }, doc! { "$limit": 3 }],
        vec![doc! { "$match": { "$expr": { "$gt": ["$$ROOT.tags", [5]] } } }, sort],
        vec![doc! { "$sample": { "size": 100 } }, doc! { "$sort": { "_id": 1 } }],
    ] {
        sides.pages_read(&aggregate(pipeline))?;
    }
    Ok(())
}
