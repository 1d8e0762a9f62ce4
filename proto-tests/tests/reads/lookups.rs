//! `$lookup` of items by a field other than the key: the answers of a plain collection, by an index if there is
//! one.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, bson, doc};
use proto_tests::sides::{COLLECTION, Sides};

use crate::proxies::small_pages;

/// Keys with a full page each.
const KEYS: i32 = 40;
const INVOICES: &str = "invoices";

/// Items with an index on `ref`, and invoices that name some of them.
fn start() -> Result<Sides> {
    let mut sides = Sides::on_a_standalone(small_pages())?;
    let index = doc! { "key": { "ref": 1 }, "name": "by_ref" };
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    let item = |number: i32| {
        doc! { "_id": number, "k": number / 3, "at": DateTime::from_millis(number.into()), "ref": number, "n": number }
    };
    let mut items: Vec<Document> = (0..KEYS * 3).map(item).collect();
    items[4].remove("ref");
    items[5].insert("ref", bson!([500, 501]));
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    let wanted = [
        bson!(0),
        bson!(21.0),
        bson!([60, 61, 119]),
        bson!(500),
        Bson::Null,
        bson!("none"),
    ];
    let invoices: Vec<Document> = wanted
        .into_iter()
        .enumerate()
        .map(|(number, wanted)| doc! { "_id": number.to_string(), "wanted": wanted })
        .chain([doc! { "_id": "nothing" }])
        .collect();
    sides.alike(&doc! { "insert": INVOICES, "documents": invoices })?;
    Ok(sides)
}

/// An `aggregate` that looks items up by this field.
fn looked_up(foreign: &str, pipeline: Option<Bson>) -> Document {
    let mut lookup = doc! { "from": COLLECTION, "localField": "wanted", "foreignField": foreign, "as": "found" };
    lookup.extend(pipeline.map(|pipeline| ("pipeline".to_owned(), pipeline)));
    let found = bson!({ "$sortArray": { "input": "$found", "sortBy": { "n": 1 } } });
    let pipeline = bson!([{ "$sort": { "_id": 1 } }, { "$lookup": lookup }, { "$set": { "found": found } }]);
    doc! { "aggregate": INVOICES, "pipeline": pipeline, "cursor": {} }
}

#[test]
fn a_lookup_by_an_indexed_field_reads_the_pages_with_its_items() -> Result<()> {
    let mut sides = start()?;
    let before = sides.pages_scanned()?;
    let pages = i64::try_from(sides.buckets()?.len())?;
    ensure!(
        sides.pages_scanned()? - before >= pages,
        "a scan of the collection is not counted"
    );
    let filter = bson!([{ "$match": { "n": { "$gte": 0 } } }, { "$project": { "n": 1 } }]);
    for foreign in ["_id", "ref"] {
        for pipeline in [None, Some(bson!([])), Some(filter.clone())] {
            let command = looked_up(foreign, pipeline);
            let before = sides.pages_scanned()?;
            // mongod compares the indexes before it knows the better one.
            sides.pages_read(&command)?;
            let read = sides.pages_read(&command)?;
            let scanned = sides.pages_scanned()? - before;
            // Seven invoices name items on at most three pages each.
            ensure!(
                read <= 7 * 4 && scanned < pages,
                "{read} pages, and {scanned} by scans, for {command}"
            );
        }
    }
    Ok(())
}

#[test]
fn a_lookup_by_a_field_without_an_index_finds_the_same_items() -> Result<()> {
    let mut sides = start()?;
    for foreign in ["n", "absent", "ref.x", "0.x"] {
        for pipeline in [None, Some(bson!([{ "$match": { "k": { "$lt": 30 } } }]))] {
            sides.pages_read(&looked_up(foreign, pipeline))?;
        }
    }
    Ok(())
}
