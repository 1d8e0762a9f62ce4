//! Reads by an index on key and time. Each test compares the result with that of a plain collection, and counts the
//! pages that mongod fetches.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, bson, doc};
use proto_tests::sessions::lsid;
use proto_tests::sides::{COLLECTION, Sides};

use crate::proxies::small_pages;

/// Items of the long key, at three a page.
const LONG: i64 = 180;
/// Keys of four items.
const SHORT: i64 = 12;

fn at(seconds: i64) -> Bson {
    Bson::DateTime(DateTime::from_millis(seconds * 1000))
}

fn items(key: i64, count: i64) -> Vec<Document> {
    (0..count)
        .map(|time| doc! { "_id": format!("{key} {time}"), "k": key, "at": at(time), "n": time, "kind": time % 2 })
        .collect()
}

/// One key with many pages, and others with two each. Both sides have an index on key and time.
fn start() -> Result<Sides> {
    let mut sides = Sides::on_a_standalone(small_pages())?;
    let index = doc! { "key": { "k": 1, "at": -1 }, "name": "by_key_and_time" };
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    for key in 0..SHORT {
        sides.alike(&doc! { "insert": COLLECTION, "documents": items(key, 4) })?;
    }
    sides.alike(&doc! { "insert": COLLECTION, "documents": items(SHORT, LONG) })?;
    Ok(sides)
}

#[test]
fn the_index_is_listed_as_the_application_created_it_and_has_an_entry_for_each_page() -> Result<()> {
    let mut sides = start()?;
    let database = sides.shaped_database();
    let list = doc! { "listIndexes": COLLECTION, "$db": &database };
    let key = |indexes: &[Document]| -> Option<Document> {
        let index = indexes
            .iter()
            .find(|index| index.get_str("name").is_ok_and(|name| name == "by_key_and_time"));
        index?.get_document("key").ok().cloned()
    };
    assert_eq!(key(&sides.shaped.all(&list)?), Some(doc! { "k": 1, "at": -1 }));
    let stored = doc! { "k": 1, "control.page": -1, "control.v": 1 };
    assert_eq!(key(&sides.plain.all(&list)?), Some(stored));
    let validated = sides
        .plain
        .command_ok(&doc! { "validate": COLLECTION, "$db": &database })?;
    let entries = validated.get_document("keysPerIndex")?.get("by_key_and_time");
    assert_eq!(entries, validated.get("nrecords"));
    // The same again is no error, and another index of that key pattern is.
    let index = |name: &str| doc! { "key": { "k": 1, "at": -1 }, "name": name };
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index("by_key_and_time")] })?;
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index("other")] })?;
    sides.alike(&doc! { "dropIndexes": COLLECTION, "index": { "k": 1, "at": -1 } })?;
    assert_eq!(key(&sides.plain.all(&list)?), None);
    Ok(())
}

#[test]
fn a_sort_by_key_and_time_reads_the_pages_of_the_answer() -> Result<()> {
    let mut sides = start()?;
    for (filter, sort, pages) in [
        (doc! {}, doc! { "k": 1, "at": 1 }, 6),
        (doc! {}, doc! { "k": -1, "at": -1 }, 6),
        (doc! {}, doc! { "k": 1, "at": -1 }, 6),
        (doc! {}, doc! { "k": -1, "at": 1, "_id": 1 }, 6),
        (doc! { "k": { "$gt": 3, "$lt": 9 } }, doc! { "k": 1, "at": 1 }, 6),
        (doc! { "k": { "$in": [7, SHORT] } }, doc! { "k": -1, "at": -1 }, 6),
        (doc! { "n": { "$gt": 1 } }, doc! { "k": 1, "at": 1 }, 24),
    ] {
        let find = doc! { "find": COLLECTION, "filter": filter, "sort": sort, "limit": 5 };
        let read = sides.pages_read(&find)?;
        ensure!(read <= pages, "{read} pages for {find}");
    }
    // A key whose pages are out of order is sorted by mongod.
    sides.alike(&doc! { "insert": COLLECTION, "documents": [{ "_id": "late", "k": 0, "at": at(-1), "n": -1 }] })?;
    let find = doc! { "find": COLLECTION, "sort": { "k": 1, "at": 1 }, "limit": 5 };
    sides.pages_read(&find)?;
    Ok(())
}

/// Commands on the items of the long key in a range of time.
fn commands(range: &Bson) -> Vec<Document> {
    let filter = doc! { "k": SHORT, "at": range };
    let group = doc! { "_id": "$kind", "sum": { "$sum": "$n" }, "count": { "$sum": 1 } };
    vec![
        doc! {
            "aggregate": COLLECTION,
            "pipeline": [{ "$match": &filter }, { "$group": group }, { "$sort": { "_id": 1 } }],
            "cursor": {},
        },
        doc! { "find": COLLECTION, "filter": &filter, "sort": { "kind": 1, "n": -1 } },
        doc! { "find": COLLECTION, "filter": { "$and": [&filter, { "n": { "$mod": [2, 1] } }] }, "sort": { "n": 1 } },
        doc! {
            "aggregate": COLLECTION,
            "pipeline": [{ "$match": &filter }, { "$count": "n" }],
            "cursor": {},
        },
    ]
}

#[test]
fn pipelines_on_a_range_of_time_read_the_pages_of_the_range() -> Result<()> {
    let mut sides = start()?;
    // The first command reads the first pages, and the proxy learns that there are more.
    sides.pages_read(&commands(&at(90))[1])?;
    let ranges = [
        bson!({ "$gte": at(90), "$lt": at(96) }),
        bson!({ "$gt": at(LONG - 6) }),
        bson!({ "$lte": at(5) }),
        at(90),
    ];
    for range in &ranges {
        for command in commands(range) {
            // Four headers show the range. It is on three pages at most, and the page before it is read, too. For
            // the first query of its kind, mongod tries two indexes.
            let read = sides.pages_read(&command)?;
            ensure!(read <= 12, "{read} pages for {command}");
        }
        for (name, query) in [("count", "query"), ("distinct", "query")] {
            let mut command = doc! { name: COLLECTION, query: { "k": SHORT, "at": range } };
            if name == "distinct" {
                command.insert("key", "kind");
            }
            let before = sides.page_fetches()?;
            let [plain, shaped] = sides.run(&command)?;
            for field in ["n", "values"] {
                assert_eq!(plain.get(field), shaped.get(field), "{command}");
            }
            let read = sides.page_fetches()? - before;
            ensure!(read <= 12, "{read} pages for {command}");
        }
    }
    let change = doc! { "q": { "k": SHORT, "at": &ranges[0] }, "u": { "$set": { "kind": 7 } }, "multi": true };
    sides.alike(&doc! { "update": COLLECTION, "updates": [change] })?;
    let gone = doc! { "q": { "k": SHORT, "at": { "$lt": at(20) } }, "limit": 0 };
    sides.alike(&doc! { "delete": COLLECTION, "deletes": [gone] })?;
    for command in commands(&ranges[0]) {
        sides.pages_read(&command)?;
    }
    Ok(())
}

#[test]
fn retryable_writes_in_a_range_of_time_read_the_pages_of_the_range() -> Result<()> {
    let mut sides = Sides::open(small_pages())?;
    sides.alike(&doc! { "insert": COLLECTION, "documents": items(SHORT, LONG) })?;
    let filter = doc! { "k": SHORT, "at": { "$gte": at(90), "$lt": at(96) } };
    let command = |number: i64| {
        doc! {
            "findAndModify": COLLECTION, "query": &filter, "update": { "$inc": { "kind": 7 } }, "sort": { "n": -1 },
            "lsid": lsid("range"), "txnNumber": number,
        }
    };
    let mut read = 0;
    // The first one reads the first pages, and the proxy learns that there are more.
    for number in 1..=2 {
        let before = sides.page_fetches()?;
        let mut command = command(number);
        command.insert("$db", sides.shaped_database());
        sides.shaped.command_ok(&command)?;
        read = sides.page_fetches()? - before;
    }
    ensure!(read <= 12, "{read} pages");
    Ok(())
}

#[test]
fn a_long_key_that_is_out_of_order_is_read_completely() -> Result<()> {
    let mut sides = start()?;
    let late = doc! { "_id": "late", "k": SHORT, "at": at(91), "n": 1000, "kind": 0 };
    sides.alike(&doc! { "insert": COLLECTION, "documents": [late] })?;
    for command in commands(&bson!({ "$gte": at(90), "$lt": at(96) })) {
        sides.pages_read(&command)?;
    }
    Ok(())
}
