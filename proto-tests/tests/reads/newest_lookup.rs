//! The newest or oldest items of keys, by `$lookup`: the answers of a plain collection, and the number of pages
//! that mongod reads.

use std::ops::Range;

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, bson, doc};
use proto_tests::measure::rows;
use proto_tests::mongod;
use proto_tests::sessions::lsid;
use proto_tests::sides::{COLLECTION, Sides};

use crate::proxies::small_pages;

/// Pages of each key that has many, at three items a page.
const PAGES: i64 = 12;
/// The keys whose items are in the order of time.
const KEYS: i32 = 4;
/// A key whose items are not.
const LATE: i32 = 50;
/// A key whose first and last pages have few items.
const SHORT: i32 = 60;

fn at(seconds: i64) -> Bson {
    Bson::DateTime(DateTime::from_millis(seconds * 1000))
}

/// Items of a key, numbered by their times.
fn items(key: &Bson, times: Range<i64>) -> Vec<Document> {
    times
        .map(|time| doc! { "_id": format!("{key} {time}"), "k": key.clone(), "at": at(time), "n": time })
        .collect()
}

fn insert(sides: &mut Sides, items: &[Document]) -> Result<()> {
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    Ok(())
}

/// Keys with many pages, one whose items are out of order, one with deleted items, and items without a key.
fn start() -> Result<Sides> {
    let mut sides = Sides::on_a_standalone(small_pages())?;
    for key in (0..KEYS).chain([LATE, SHORT]) {
        insert(&mut sides, &items(&key.into(), 0..PAGES * 3))?;
    }
    insert(&mut sides, &[doc! { "_id": "late", "k": LATE, "at": at(5), "n": -1 }])?;
    let ends = doc! { "k": SHORT, "n": { "$in": [0, 1, 2, 3, 34, 35] } };
    sides.alike(&doc! { "delete": COLLECTION, "deletes": [{ "q": ends, "limit": 0 }] })?;
    // One page of items that are newer than those of all other keys.
    insert(&mut sides, &items(&"one page".into(), 2000..2002))?;
    insert(&mut sides, &items(&"ONE PAGE".into(), 0..9))?;
    insert(&mut sides, &items(&bson!({ "$f": 1 }), 0..9))?;
    for number in 0..9_i64 {
        let mut item = doc! { "_id": format!("no key {number}"), "at": at(number) };
        if number % 2 == 0 {
            item.insert("k", Bson::Null);
        }
        insert(&mut sides, &[item])?;
    }
    Ok(sides)
}

/// A `$lookup` by key that continues with these stages, in both forms.
fn lookups(local: &str, stages: &[Bson]) -> [Document; 2] {
    let by_fields = doc! {
        "from": COLLECTION, "localField": local, "foreignField": "k", "pipeline": stages.to_vec(), "as": "found",
    };
    let equal = bson!({ "$match": { "$expr": { "$eq": ["$k", "$$wanted"] } } });
    let pipeline: Vec<Bson> = [equal].into_iter().chain(stages.iter().cloned()).collect();
    let variables = doc! { "wanted": format!("${local}") };
    let by_variable = doc! { "from": COLLECTION, "let": variables, "pipeline": pipeline, "as": "found" };
    [by_fields, by_variable]
}

/// An `aggregate` that looks the keys up.
fn looked_up(keys: &[Document], stages: &[Bson]) -> Document {
    let documents: Vec<Bson> = keys.iter().map(|key| bson!({ "$literal": key.clone() })).collect();
    let pipeline: Vec<Bson> = [bson!({ "$documents": documents })]
        .into_iter()
        .chain(stages.iter().cloned())
        .collect();
    doc! { "aggregate": 1, "pipeline": pipeline, "cursor": { "batchSize": 100_000 } }
}

fn key(key: impl Into<Bson>) -> Document {
    doc! { "key": key.into() }
}

#[test]
fn a_lookup_reads_the_pages_at_one_end_of_each_key() -> Result<()> {
    let mut sides = start()?;
    let keys: Vec<Document> = (0..KEYS).map(key).collect();
    // Before, mongod reads all pages of a key.
    for (sort, skip, limit, pages) in [
        (-1, 0, 1, 1),
        (-1, 0, 3, 2),
        (-1, 0, 5, 3),
        (-1, 4, 3, 3),
        (1, 0, 1, 1),
        (1, 0, 3, 1),
        (1, 0, 4, 2),
        (1, 4, 3, 3),
    ] {
        let sort = bson!({ "$sort": { "at": sort } });
        let mut stages = vec![sort];
        stages.extend((skip > 0).then(|| bson!({ "$skip": skip })));
        stages.extend([bson!({ "$limit": limit }), bson!({ "$project": { "n": 1 } })]);
        for lookup in lookups("key", &stages) {
            let command = looked_up(&keys, &[bson!({ "$lookup": lookup })]);
            sides.pages_read(&command)?;
            let read = sides.pages_read(&command)?;
            ensure!(read == i64::from(KEYS) * pages, "{read} pages for {command}");
        }
    }
    Ok(())
}

#[test]
fn only_keys_out_of_order_are_read_completely() -> Result<()> {
    let mut sides = start()?;
    // mongod 7.0 plans a lookup again that reads many more pages than the one before. It tries ten of them.
    let replanning = if mongod::find_program()?.version.major < 7 {
        0
    } else {
        10
    };
    for sort in [-1, 1] {
        let stages = [bson!({ "$sort": { "at": sort, } }), bson!({ "$limit": 3 })];
        let by_fields = bson!({ "$lookup": lookups("key", &stages)[0].clone() });
        // The late item is on a page of its own.
        let command = looked_up(&[key(0), key(LATE), key(1)], std::slice::from_ref(&by_fields));
        let needed = if sort == 1 { 1 } else { 2 };
        let read = sides.pages_read(&command)?;
        let expected = 3 * needed + PAGES + 1;
        ensure!(
            (expected..=expected + replanning).contains(&read),
            "{read} pages for {command}"
        );
        // Pages at the end have too few items.
        let command = looked_up(&[key(SHORT)], std::slice::from_ref(&by_fields));
        let read = sides.pages_read(&command)?;
        ensure!(read <= needed + PAGES + replanning, "{read} pages for {command}");
    }
    Ok(())
}

#[test]
fn a_lookup_of_any_value_is_exact() -> Result<()> {
    let mut sides = start()?;
    let keys = [
        key(0),
        key(1.0),
        key(LATE),
        key(SHORT),
        key(999),
        key("one page"),
        key(Bson::Null),
        doc! {},
        key(bson!([0, 1])),
        key(bson!([0, "one page"])),
        key(bson!([])),
        key(bson!([Bson::Null, 1])),
        key(bson!([[0]])),
        key(bson!({ "a": 1 })),
        key(bson!({ "deep": 2 })),
        key(bson!([{ "deep": 2 }, { "deep": LATE }])),
        key(bson!([{ "deep": 2 }, { "deep": "one page" }])),
        key(Bson::MinKey),
    ];
    for (of_sort, sort) in [-1, 1].into_iter().enumerate() {
        // The sort of the whole array makes the order of tied items irrelevant.
        let stages = [bson!({ "$sort": { "at": sort } }), bson!({ "$limit": 4 })];
        let sorted = |found: &str| bson!({ "$set": { found: { "$sortArray": { "input": format!("${found}.at"), "sortBy": 1 } } } });
        for (of_local, local) in ["key", "key.deep"].into_iter().enumerate() {
            for (of_form, lookup) in lookups(local, &stages).into_iter().enumerate() {
                let lookup = bson!({ "$lookup": lookup });
                let direct = looked_up(&keys, &[lookup.clone(), sorted("found")]);
                let facet = bson!({ "$facet": { "one": [lookup.clone(), sorted("found")] } });
                let inner = bson!([{ "$documents": ["$$outer"] }, lookup.clone(), sorted("found")]);
                let nested = bson!({ "$lookup": { "let": { "outer": "$$ROOT" }, "pipeline": inner, "as": "inner" } });
                let mut insensitive = looked_up(&keys, &[lookup, sorted("found")]);
                insensitive.insert("collation", doc! { "locale": "en", "strength": 2 });
                // An ordinary run has two of these. Which ones depends on the sort, the field and the form.
                let commands = [
                    direct,
                    looked_up(&keys, &[facet]),
                    looked_up(&keys, &[nested]),
                    insensitive,
                ];
                for command in rows(commands, 2, of_sort + of_local + of_form) {
                    sides.pages_read(&command)?;
                }
            }
        }
    }
    // The localField form fails on both sides: mongod takes `$` in a list of values for an operator.
    let stages = [bson!({ "$sort": { "at": -1 } }), bson!({ "$limit": 4 })];
    let by_variable = bson!({ "$lookup": lookups("key", &stages)[1].clone() });
    sides.pages_read(&looked_up(
        &[key(bson!({ "$f": 1 })), key(Bson::Undefined)],
        &[by_variable],
    ))?;
    Ok(())
}

#[test]
fn large_pages_are_not_collected_in_an_array() -> Result<()> {
    let mut sides = Sides::on_a_standalone(small_pages())?;
    let text = "x".repeat(7 << 20);
    for number in 0..20_i64 {
        insert(
            &mut sides,
            &[doc! { "_id": number, "k": 1, "at": at(number), "text": &text }],
        )?;
    }
    let stages = [
        bson!({ "$sort": { "at": -1 } }),
        bson!({ "$limit": 20 }),
        bson!({ "$project": { "at": 1 } }),
    ];
    for lookup in lookups("key", &stages) {
        sides.pages_read(&looked_up(&[key(1)], &[bson!({ "$lookup": lookup })]))?;
    }
    Ok(())
}

#[test]
fn a_thousand_keys_are_read_in_a_thousand_pages() -> Result<()> {
    let mut sides = Sides::on_a_standalone(small_pages())?;
    // The index that an application has for such a `$lookup`.
    let index = doc! { "key": { "k": 1, "at": -1 }, "name": "newest" };
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    for first in (0..1000).step_by(100) {
        let documents: Vec<Document> = (first..first + 100)
            .flat_map(|key| items(&Bson::Int32(key), 0..9))
            .collect();
        insert(&mut sides, &documents)?;
    }
    let keys: Vec<Document> = (0..1000).map(key).collect();
    let stages = [bson!({ "$sort": { "at": -1 } }), bson!({ "$limit": 1 })];
    for lookup in lookups("key", &stages) {
        let read = sides.pages_read(&looked_up(&keys, &[bson!({ "$lookup": lookup })]))?;
        // mongod tries that index, too, before it knows the better plan.
        ensure!((1000..1020).contains(&read), "{read} pages");
    }
    Ok(())
}

#[test]
fn a_transaction_looks_up_its_own_items() -> Result<()> {
    let mut sides = Sides::open(small_pages())?;
    insert(&mut sides, &items(&1.into(), 0..9))?;
    let database = sides.shaped_database();
    let conversation = doc! { "insert": "conversations", "documents": [{ "_id": 1 }], "$db": &database };
    sides.shaped.command_ok(&conversation)?;
    let transaction = doc! { "$db": &database, "lsid": lsid(&database), "txnNumber": 1_i64, "autocommit": false };
    let mut write = doc! { "insert": COLLECTION, "documents": items(&1.into(), 20..21), "startTransaction": true };
    write.extend(transaction.clone());
    sides.shaped.command_ok(&write)?;
    let stages = [bson!({ "$sort": { "at": -1 } }), bson!({ "$limit": 2 })];
    for lookup in lookups("_id", &stages) {
        let times = doc! { "$project": { "times": "$found.n" } };
        let pipeline = [doc! { "$lookup": lookup }, times];
        let mut read = doc! { "aggregate": "conversations", "pipeline": pipeline.to_vec(), "cursor": {} };
        read.extend(transaction.clone());
        let reply = sides.shaped.command_ok(&read)?;
        let found = reply.get_document("cursor")?.get_array("firstBatch")?;
        ensure!(*found == [bson!({ "_id": 1, "times": [20_i64, 8_i64] })], "{reply}");
    }
    let mut commit = doc! { "commitTransaction": 1 };
    commit.extend(transaction);
    commit.insert("$db", "admin");
    sides.shaped.command_ok(&commit)?;
    Ok(())
}
