//! `$in` on the first field of a sort. Each test compares the result with that of a plain collection, and
//! counts the pages that mongod fetches.

use anyhow::{Result, ensure};
use bson::{Document, bson, doc};
use proto_tests::sides::{COLLECTION, Sides};

use crate::proxies::small_pages;

const ITEMS: i32 = 3000;
/// The most pages for a few listed values. mongod tries several indexes at first.
const FEW: i64 = 40;

/// A thousand pages. Both sides have an index on a field without equal values, and on one with few values.
fn start() -> Result<Sides> {
    let mut sides = Sides::on_a_standalone(small_pages())?;
    let indexes = ["n", "group"].map(|field| doc! { "key": { field: 1 }, "name": field });
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": indexes.to_vec() })?;
    let items: Vec<Document> = (0..ITEMS)
        .map(|number| doc! { "_id": number, "k": number % 7, "n": number, "group": number / 300 })
        .collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    Ok(sides)
}

#[test]
fn no_other_pages_are_read_for_a_few_ids() -> Result<()> {
    let mut sides = start()?;
    let filter = doc! { "_id": { "$in": [2990, 2750, 2600, 2500, ITEMS] } };
    let sort = doc! { "_id": 1 };
    let stages = bson!([{ "$match": &filter }, { "$sort": &sort }, { "$limit": 5 }]);
    for command in [
        doc! { "find": COLLECTION, "filter": &filter, "limit": 5 },
        doc! { "find": COLLECTION, "filter": &filter, "sort": &sort, "limit": 100 },
        doc! { "find": COLLECTION, "filter": &filter, "sort": { "n": -1 }, "limit": 5 },
        doc! { "find": COLLECTION, "filter": { "_id": 2990 }, "sort": { "n": 1 }, "limit": 5 },
        doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {} },
    ] {
        let read = sides.pages_read(&command)?;
        ensure!(read <= FEW, "{read} pages for {command}");
    }
    Ok(())
}

#[test]
fn listed_values_are_read_from_the_first_one_or_one_by_one() -> Result<()> {
    let mut sides = start()?;
    let find = |filter: Document, sort: Document| {
        doc! { "find": COLLECTION, "filter": filter, "sort": sort, "limit": 5 }
    };
    let ids: Vec<i32> = (2500..2520).collect();
    let mut group = find(doc! { "group": { "$in": [7, 8] } }, doc! { "group": 1 });
    group.insert("projection", doc! { "group": 1, "_id": 0 });
    for (command, pages) in [
        (find(doc! { "n": { "$in": [2000, 2400, 2800] } }, doc! { "n": 1 }), FEW),
        (find(doc! { "n": { "$in": [2000, 2400, 2800] } }, doc! { "n": -1 }), FEW),
        (find(doc! { "n": { "$in": [2000, "a"] } }, doc! { "n": 1 }), FEW),
        (find(doc! { "_id": { "$in": ids } }, doc! { "_id": 1 }), 10),
        // A page for each listed item would be more than a hundred.
        (group, 10),
    ] {
        let read = sides.pages_read(&command)?;
        ensure!(read <= pages, "{read} pages for {command}");
    }
    Ok(())
}
