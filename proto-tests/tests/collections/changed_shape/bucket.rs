//! A changed bucket shape on existing pages.

use anyhow::{Result, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::shaped::{COLLECTION, Shaped};

use crate::changed_shape::{INDEX, all_refused, failed};

const SHAPE: &str = "time = \"at\"\n";
/// The changed lines of the shape, and a part of the error.
const CHANGED: &[(&str, &str)] = &[
    ("time = \"at\"\nmax_items = 50\n", "max_items is 10 in the shape marker"),
    ("time = \"at\"\nmax_items = 5\n", "max_items is 10 in the shape marker"),
    (
        "time = \"at\"\nitems = \"others\"\n",
        "items is \"history\" in the shape marker",
    ),
    (
        "time = \"at\"\ncount = \"number\"\n",
        "count is \"count\" in the shape marker",
    ),
    (
        "time = \"at\"\nitem_ids = \"dropped\"\n",
        "item_ids is \"unique\" in the shape marker",
    ),
    (
        "time = \"at\"\nrename = { n = \"m\" }\n",
        "the shape marker does not contain rename",
    ),
    ("time = \"then\"\n", "time is \"at\" in the shape marker"),
    ("", "time is \"at\" in the shape marker"),
];

fn item(id: i32) -> Document {
    doc! { "_id": id, "k": id % 3, "n": id, "at": DateTime::from_millis(i64::from(id) * 1000) }
}

/// A collection with some pages of each key.
fn start() -> Result<Shaped> {
    let shaped = Shaped::start(SHAPE)?;
    let items: Vec<_> = (0..100).map(item).collect();
    shaped.application()?.command_ok(&shaped.insert(&items))?;
    Ok(shaped)
}

/// Commands that would be answered wrongly.
fn commands(shaped: &Shaped) -> Vec<Document> {
    let on = |mut command: Document| {
        command.insert("$db", &shaped.database);
        command
    };
    let update = doc! { "q": { "_id": 5 }, "u": { "$set": { "n": -1 } } };
    vec![
        on(doc! { "find": COLLECTION, "filter": { "k": 0 }, "skip": 20, "limit": 3 }),
        on(doc! { "count": COLLECTION }),
        on(doc! { "aggregate": COLLECTION, "pipeline": [{ "$group": { "_id": "$n" } }], "cursor": {} }),
        on(doc! { "aggregate": "none", "pipeline": [{ "$unionWith": COLLECTION }], "cursor": {} }),
        on(doc! { "update": COLLECTION, "updates": [update] }),
        on(doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 5 }, "limit": 1 }] }),
        on(doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { "n": 1 }, "name": "n" }] }),
        shaped.insert(&[item(1000)]),
    ]
}

#[test]
fn pages_are_not_read_with_a_shape_that_differs_from_the_stored_one() -> Result<()> {
    let shaped = start()?;
    let (stored, indexes) = (shaped.stored()?, shaped.indexes()?);
    ensure!(indexes.iter().any(|name| name == INDEX), "{indexes:?}");
    for (changed, error) in CHANGED {
        let mut another = shaped.misfitting_proxy(changed)?;
        let mut application = Connection::open(another.address())?;
        all_refused(&mut application, &commands(&shaped), error)?;
        for verb in ["check", "setup", "compact"] {
            failed(&another.run(verb)?, error)?;
        }
        ensure!(
            (shaped.stored()?, shaped.indexes()?) == (stored.clone(), indexes.clone()),
            "{changed}"
        );
        another.stop()?;
    }
    // What may be another.
    let another = shaped.another_proxy(&format!("{SHAPE}max_bytes = 2000\n"))?;
    let mut application = Connection::open(another.address())?;
    for command in commands(&shaped) {
        application.command_ok(&command)?;
    }
    Ok(())
}

#[test]
fn pages_without_a_shape_marker_are_checked_against_the_shape() -> Result<()> {
    let shaped = start()?;
    let drop = doc! { "dropIndexes": COLLECTION, "index": INDEX, "$db": &shaped.database };
    shaped.direct()?.command_ok(&drop)?;
    let another = shaped.misfitting_proxy(SHAPE)?;
    let error = "has no index mongoshape_shape, which records its shape: run `mongoshape setup`";
    all_refused(&mut Connection::open(another.address())?, &commands(&shaped), error)?;
    let lower = shaped.misfitting_proxy(&format!("{SHAPE}max_items = 5\n"))?;
    failed(&lower.run("setup")?, "it has 10 items, but max_items is 5")?;
    let higher = shaped.misfitting_proxy(&format!("{SHAPE}max_items = 50\n"))?;
    failed(&higher.run("setup")?, "is neither full nor marked short")?;
    ensure!(another.run("setup")?.status.success());
    ensure!(shaped.indexes()?.iter().any(|name| name == INDEX));
    Connection::open(another.address())?.command_ok(&commands(&shaped)[0])?;
    Ok(())
}
