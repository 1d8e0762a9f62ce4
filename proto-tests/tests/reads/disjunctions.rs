//! Filters with a `$or` or a pattern on the key: the answers of a plain collection, and the pages that mongod reads.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, bson, doc};
use proto_tests::Shape;
use proto_tests::sides::{COLLECTION, Sides};

use crate::proxies::small_pages;

/// Keys with two pages each.
const KEYS: i32 = 30;

fn at(seconds: i32) -> Bson {
    Bson::DateTime(DateTime::from_millis(i64::from(seconds) * 1000))
}

fn items(key: &Bson) -> Vec<Document> {
    let item = |number: i32| {
        let id = format!("{key} {number}");
        doc! { "_id": id, "k": key.clone(), "at": at(number), "n": number, "kind": number % 2 }
    };
    (0..6).map(item).collect()
}

/// Both sides have an index on a field that no filter here names: mongod could read all of it.
fn start() -> Result<Sides> {
    let shape = Shape {
        items_change: true,
        ..small_pages()
    };
    let mut sides = Sides::on_a_standalone(shape)?;
    let index = doc! { "key": { "other": 1 }, "name": "by_other" };
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    let texts = ["alpha", "alps", "Alpha", "beta"].map(Bson::from);
    for key in (0..KEYS).map(Bson::from).chain(texts) {
        sides.alike(&doc! { "insert": COLLECTION, "documents": items(&key) })?;
    }
    let mut without_key = items(&"none".into());
    for (number, item) in without_key.iter_mut().enumerate() {
        item.remove("k");
        if number % 2 == 0 {
            item.insert("k", Bson::Null);
        }
    }
    sides.alike(&doc! { "insert": COLLECTION, "documents": without_key })?;
    Ok(sides)
}

/// Filters, and how many pages the keys have that they name.
fn filters() -> Vec<(Document, i64)> {
    vec![
        (doc! { "$or": [{ "k": 1 }, { "k": 2.0 }] }, 4),
        (
            doc! { "$or": [{ "k": 1, "at": { "$gte": at(4) } }, { "k": 7, "kind": 0 }] },
            4,
        ),
        (
            doc! { "$or": [{ "k": 1 }, { "k": { "$gt": KEYS - 2 } }], "n": { "$lt": 4 } },
            4,
        ),
        (
            doc! { "$and": [{ "$or": [{ "k": { "$in": [3, "beta"] } }, { "$and": [{ "k": 5 }, { "n": 5 }] }] }] },
            6,
        ),
        (doc! { "$or": [{ "k": Bson::Null, "n": { "$gt": 1 } }, { "k": 2 }] }, 4),
        (doc! { "$or": [{ "k": 3 }, { "_id": "9 2" }] }, 3),
        (
            doc! { "$or": [{ "k": 3, "$expr": { "$eq": ["$n", 1] } }, { "k": 4, "$or": [{ "n": 1 }, { "k": 5 }] }] },
            4,
        ),
        (doc! { "k": { "$regex": "^al" } }, 4),
        (doc! { "k": { "$in": [pattern(), 4] }, "n": 0 }, 6),
    ]
}

fn pattern() -> Bson {
    Bson::RegularExpression(bson::Regex {
        pattern: bson::raw::cstr!("^al").into(),
        options: bson::raw::cstr!("").into(),
    })
}

#[test]
fn a_disjunction_reads_the_pages_of_the_keys_that_it_names() -> Result<()> {
    let mut sides = start()?;
    for (filter, pages) in filters() {
        let find = doc! { "find": COLLECTION, "filter": &filter, "sort": { "_id": 1 } };
        let counted = [doc! { "$match": &filter }, doc! { "$count": "items" }];
        let count = doc! { "aggregate": COLLECTION, "pipeline": counted.to_vec(), "cursor": {} };
        for command in [find, count] {
            let scanned = sides.pages_scanned()?;
            // mongod compares the indexes before it has cached the better one.
            sides.pages_read(&command)?;
            sides.pages_read(&command)?;
            let read = sides.pages_read(&command)?;
            let scanned = sides.pages_scanned()? - scanned;
            ensure!(
                read <= 3 * pages && scanned < i64::from(KEYS),
                "{read} pages, and {scanned} by scans, for {command}"
            );
        }
    }
    Ok(())
}

#[test]
fn a_disjunction_of_any_conditions_has_the_answer_of_a_plain_collection() -> Result<()> {
    let mut sides = start()?;
    let others = [
        doc! { "$or": [{ "k": 1 }, { "n": 2 }] },
        doc! { "$or": [{ "k": 1 }, { "k.x": 2 }, { "k": { "$exists": false } }] },
        doc! { "$or": [{ "k": { "$ne": 1 } }, { "k": 1, "n": 3 }] },
        doc! { "$or": [{ "k": "ALPHA" }, { "k": { "$regex": "^B", "$options": "i" } }] },
        doc! { "$or": [{ "k": 1 }, {}] },
        doc! { "$nor": [{ "k": { "$lt": 20 } }, { "$or": [{ "k": 25 }, { "n": { "$gt": 1 } }] }] },
    ];
    for filter in filters().into_iter().map(|(filter, _)| filter).chain(others) {
        let find = doc! { "find": COLLECTION, "filter": &filter, "sort": { "_id": 1 } };
        let mut insensitive = find.clone();
        insensitive.insert("collation", doc! { "locale": "en", "strength": 2 });
        // Ids that differ in case alone.
        insensitive.insert("sort", doc! { "n": 1, "_id": 1, "at": 1 });
        insensitive.insert("projection", doc! { "_id": 0, "n": 1 });
        for command in [&find, &insensitive] {
            sides.pages_read(command)?;
        }
        sides.alike(&doc! { "count": COLLECTION, "query": &filter })?;
    }
    for (filter, _) in filters() {
        let change = doc! { "q": &filter, "u": { "$inc": { "changed": 1 } }, "multi": true };
        sides.alike(&doc! { "update": COLLECTION, "updates": [change] })?;
        sides.alike(&doc! { "findAndModify": COLLECTION, "query": &filter, "sort": { "_id": -1 }, "remove": true })?;
        sides.check()?;
        sides.alike(&doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": 0 }] })?;
        sides.check()?;
    }
    Ok(())
}

#[test]
fn a_list_of_keys_may_fill_half_of_a_command() -> Result<()> {
    let mut sides = start()?;
    let long: Vec<Bson> = (0..9)
        .map(|number| format!("{number}{}", "x".repeat(1 << 20)).into())
        .collect();
    let keys: Vec<Bson> = long.into_iter().chain([bson!(3), bson!("beta")]).collect();
    for filter in [
        doc! { "k": { "$in": keys.clone() }, "n": 1 },
        doc! { "k": { "$in": keys } },
    ] {
        sides.pages_read(&doc! { "find": COLLECTION, "filter": filter, "sort": { "n": 1, "_id": 1 } })?;
    }
    Ok(())
}
