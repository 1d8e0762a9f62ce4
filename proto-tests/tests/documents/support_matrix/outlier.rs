//! The probes of outlier collections. Each command runs on the same documents; three of them are outliers.

mod base;
mod collections;
mod indexes;
mod operators;
mod queries;
mod reads;
mod stages;
mod transactions;
mod writes;

use anyhow::{Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::Outlier;
use proto_tests::sides::{COLLECTION, Pattern, Sides};

use crate::support_matrix::observed;
use crate::support_matrix::probe::{Of, Probe};
use crate::support_matrix::tried::{self, Expected, Tried};

/// Elements in a base document, and in a page.
const SIZES: (usize, usize) = (5, 7);
/// How many of the documents are outliers.
const OUTLIERS: usize = 3;
/// Commands that leave everything as it was.
const READS: [&str; 13] = [
    "find",
    "getMore",
    "count",
    "distinct",
    "explain",
    "listIndexes",
    "listCollections",
    "collStats",
    "dataSize",
    "dbStats",
    "validate",
    "compact",
    "planCacheClear",
];
/// Commands that leave the collection, and may leave other documents in it.
const CHANGES: [&str; 6] = [
    "insert",
    "update",
    "delete",
    "findAndModify",
    "aggregate",
    "commitTransaction",
];
/// Stages that write.
const WRITING: [&str; 2] = ["$out", "$merge"];

/// The comment of a command that the next one is to find done.
const KEPT: &str = "kept";

impl Tried for Outlier {
    const DOCUMENT: &'static str = "support-outlier.md";
    const TELLS_ERRORS: bool = true;

    fn renew(sides: &mut Sides<Self>, sent: &Document, expected: Expected) -> Result<()> {
        let name = sent.keys().next().map_or("", String::as_str);
        let only_reads = name == "aggregate" && !WRITING.iter().any(|stage| sent.to_string().contains(stage));
        // The transaction continues.
        let is_within = sent.contains_key("autocommit") && name != "commitTransaction";
        if READS.contains(&name)
            || only_reads
            || is_within
            || sent.get_str("comment").is_ok_and(|comment| comment == KEPT)
        {
            return Ok(());
        }
        if name == "createIndexes" || sent.get_str("create").is_ok_and(|created| created == COLLECTION) {
            // A collection is made only where there is none, and indexes in no time where it is empty.
            sides.run(&doc! { "drop": COLLECTION })?;
            return Ok(());
        }
        let is_there = CHANGES.contains(&name);
        let checked = if is_there && expected == Expected::Alike {
            sides.check()
        } else {
            Ok(())
        };
        fill(sides, is_there, &documents())?;
        checked
    }
}

/// Two empty collections.
pub(crate) fn open() -> Result<Sides<Outlier>> {
    Sides::open(Outlier::new("tags", SIZES))
}

/// Has both sides hold what every command finds, the plain one these documents.
fn fill<P: Pattern>(sides: &mut Sides<P>, is_there: bool, plain: &[Document]) -> Result<()> {
    let delete = |name: &str| doc! { "delete": name, "deletes": [{ "q": {}, "limit": 0 }] };
    if is_there {
        // Not by what is tried here.
        let database = sides.shaped_database();
        for name in [COLLECTION, "extra_items"] {
            let mut delete = delete(name);
            delete.insert("$db", &database);
            sides.plain.command_ok(&delete)?;
        }
        let mut delete = delete(COLLECTION);
        delete.insert("$db", sides.plain_database());
        sides.plain.command_ok(&delete)?;
    } else {
        let indexes = bson!([
            { "key": { "n": 1 }, "name": "n_1" },
            { "key": { "tags": 1 }, "name": "tags_1" },
            { "key": { "loc": "2dsphere" }, "name": "loc" },
        ]);
        sides.run(&doc! { "drop": COLLECTION })?;
        sides.run(&doc! { "drop": "items_view" })?;
        sides.run(&doc! { "createIndexes": COLLECTION, "indexes": indexes })?;
    }
    let into = |database: String, documents: &[Document]| doc! { "insert": COLLECTION, "documents": documents, "$db": database };
    sides.plain.command_ok(&into(sides.plain_database(), plain))?;
    sides.shaped.command_ok(&into(sides.shaped_database(), &documents()))?;
    Ok(())
}

/// What there is beside the collection.
fn fill_others<P: Pattern>(sides: &mut Sides<P>) -> Result<()> {
    let documents = bson!([{ "_id": 1, "n": 2, "t": 19 }, { "_id": 2, "n": 7, "t": 1 }]);
    sides.run(&doc! { "insert": "plain", "documents": documents })?;
    Ok(())
}

/// A typical document, three outliers, and some without a long array.
fn documents() -> Vec<Document> {
    let mixed = |n: i32| match n % 4 {
        0 => Bson::Int32(n),
        1 => format!("w{n}").into(),
        2 => Bson::Null,
        _ => Bson::Double(f64::from(n)),
    };
    let mixed: Vec<Bson> = (0..13).rev().map(mixed).collect();
    let objects: Vec<Document> = (0..12).map(|n| doc! { "x": n, "y": n % 3, "z": "Ab" }).collect();
    vec![
        doc! { "_id": 1, "n": 1, "s": "a", "loc": [1, 1], "tags": [0, 1, 2] },
        doc! { "_id": 2, "n": 2, "s": "b", "loc": [2, 2], "tags": (0..20).collect::<Vec<i32>>() },
        doc! { "_id": 3, "n": 3, "s": "c", "tags": mixed },
        doc! { "_id": 4, "n": 4, "s": "d", "symbol": Bson::Symbol("x".to_owned()) },
        doc! { "_id": 5, "n": 5, "s": "e", "tags": objects },
        doc! { "_id": 6, "n": 6, "s": "f", "tags": [] },
        doc! { "_id": 7, "n": 7, "s": "g", "tags": 19 },
    ]
}

/// Commands that read.
fn reads() -> Vec<Of> {
    vec![
        reads::find(),
        queries::filters(),
        queries::sorts(),
        queries::projections(),
        reads::get_more(),
        reads::kill_cursors(),
        reads::count(),
        reads::distinct(),
        stages::aggregate(),
        stages::stages(),
        stages::others(),
        reads::explain(),
    ]
}

/// Commands that write documents.
fn writes() -> Vec<Of> {
    vec![
        every_command(),
        writes::insert(),
        writes::update(),
        operators::operators(),
        operators::others(),
        writes::delete(),
        writes::find_and_modify(),
        transactions::transactions(),
    ]
}

/// Commands about the collection. Those that make it come last: they leave none.
fn about_collections() -> Vec<Of> {
    vec![
        indexes::list(),
        indexes::drop(),
        collections::coll_mod(),
        collections::views(),
        collections::statistics(),
        collections::data_size(),
        collections::validate(),
        collections::compact(),
        collections::plan_cache(),
        collections::list_collections(),
        collections::db_stats(),
        collections::rename(),
        collections::drop(),
        indexes::create(),
        indexes::create_others(),
        collections::create(),
    ]
}

fn every_command() -> Of {
    let find = doc! { "find": COLLECTION, "sort": { "n": 1 }, "limit": 3 };
    let push = |value: i32| {
        let pushed = bson!([{ "q": { "_id": 2 }, "u": { "$push": { "tags": value }, "$inc": { "n": 1 } } }]);
        doc! { "update": COLLECTION, "updates": pushed }
    };
    let with = |mut sent: Document, more: Document| {
        sent.extend(more);
        sent
    };
    let pull = bson!([{ "q": { "_id": 2 }, "u": { "$pull": { "tags": 3 } } }]);
    let pull = doc! { "update": COLLECTION, "updates": pull };
    let within = |more: Document| {
        let sent =
            doc! { "find": COLLECTION, "filter": { "tags": 19 }, "lsid": {}, "txnNumber": 3_i64, "autocommit": false };
        with(sent, more)
    };
    let abort = doc! { "abortTransaction": 1, "lsid": {}, "txnNumber": 3_i64, "autocommit": false, "$db": "admin" };
    let strict = doc! { "apiVersion": "1", "apiStrict": true };
    let by_tag = doc! { "find": COLLECTION, "filter": { "tags": 19 } };
    Of::new("every command", find)
        .with("comment", "c")
        .with("maxTimeMS", 10_000)
        .with("readConcern", doc! { "level": "majority" })
        .with("readConcern", doc! { "level": "snapshot" })
        .with("$readPreference", doc! { "mode": "primaryPreferred" })
        .with("apiVersion", "1")
        .beside("apiStrict", strict.clone())
        .sent("apiStrict", with(by_tag, strict.clone()))
        .sent("apiStrict", with(pull.clone(), strict))
        .beside(
            "apiDeprecationErrors",
            doc! { "apiVersion": "1", "apiDeprecationErrors": true },
        )
        .with("lsid", doc! {})
        .sent(
            "writeConcern",
            with(push(1), doc! { "writeConcern": { "w": "majority" } }),
        )
        .sent("txnNumber", with(push(2), doc! { "lsid": {}, "txnNumber": 1_i64 }))
        .sent("txnNumber", with(pull, doc! { "lsid": {}, "txnNumber": 2_i64 }))
        .sent("startTransaction", within(doc! { "startTransaction": true }))
        .sent("autocommit", within(doc! {}))
        .sent("autocommit", abort)
}

fn try_all(of: Vec<Of>) -> Result<()> {
    let mut sides = open()?;
    fill_others(&mut sides)?;
    fill(&mut sides, false, &documents())?;
    let outliers = sides.buckets()?;
    let outliers = outliers.iter().filter(|base| base.contains_key("has_extras"));
    ensure!(outliers.count() == OUTLIERS, "the documents are no outliers");
    tried::all(&mut sides, &probes(of))
}

fn probes(of: Vec<Of>) -> Vec<Probe> {
    of.into_iter().flat_map(|of| of.probes).collect()
}

#[test]
fn read_rows_behave_as_documented() -> Result<()> {
    try_all(reads())
}

#[test]
fn write_rows_behave_as_documented() -> Result<()> {
    try_all(writes())
}

#[test]
fn collection_rows_behave_as_documented() -> Result<()> {
    try_all(about_collections())
}

#[test]
fn refusals_are_observed() -> Result<()> {
    for of in [reads(), writes(), about_collections()] {
        let mut sides = open()?;
        fill_others(&mut sides)?;
        fill(&mut sides, false, &documents())?;
        // Only a value that is a symbol is refused, and the key of an index with this name is stored.
        let unplanned = [("distinct", "collation"), ("collMod", "index")];
        observed::all(&sides, &probes(of), &unplanned)?;
    }
    Ok(())
}

#[test]
fn every_row_is_tried() -> Result<()> {
    let of = [reads(), writes(), about_collections(), vec![base::all()]];
    let probes = probes(of.into_iter().flatten().collect());
    tried::none_is_left_out::<Outlier>(&probes)?;
    tried::no_refusal_is_left_out::<Outlier>(&probes)
}

/// `create` refuses one, but another client may have created it.
#[test]
fn no_outlier_is_changed_by_another_collation() -> Result<()> {
    let mut sides = open()?;
    let database = sides.shaped_database();
    let collation = doc! { "locale": "en", "strength": 2 };
    sides
        .plain
        .command_ok(&doc! { "create": COLLECTION, "collation": collation, "$db": database })?;
    sides.run(&doc! { "insert": COLLECTION, "documents": documents() })?;
    let before = sides.items(true)?;
    let pull = doc! { "q": { "_id": 3 }, "u": { "$pull": { "tags": "W9" } } };
    let [_, shaped] = sides.run(&doc! { "update": COLLECTION, "updates": [pull] })?;
    ensure!(
        shaped.to_string().contains("a collection with a default collation"),
        "{shaped}"
    );
    ensure!(sides.items(true)? == before, "it was changed");
    Ok(())
}
