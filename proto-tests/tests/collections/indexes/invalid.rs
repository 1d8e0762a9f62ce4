//! Invalid and refused index commands.

use anyhow::{Result, ensure};
use bson::{Document, bson, doc};
use proto_tests::sessions::lsid;
use proto_tests::shaped::COLLECTION;

use super::{Compared, Comparison, NOT_SUPPORTED, spec, with};

fn with_two() -> Result<Comparison> {
    let mut sides = Comparison::filled()?;
    sides.create(
        &[spec(doc! { "a": 1 }, "a"), spec(doc! { "quantity": 1 }, "q")],
        Compared::Whole,
    )?;
    Ok(sides)
}

/// Each is answered with an error, the same on both sides, and changes nothing.
fn check(sides: &mut Comparison, wrong: &[Document]) -> Result<()> {
    let before = sides.stored()?;
    for command in wrong {
        let reply = sides.same(command, Compared::Whole)?;
        ensure!(reply.get_i32("code").is_ok(), "{command} was no mistake: {reply}");
        ensure!(sides.stored()? == before, "{command} changed something");
    }
    Ok(())
}

#[test]
fn specifications_are_judged_by_mongod() -> Result<()> {
    let mut sides = with_two()?;
    let wrong: Vec<Document> = [
        bson!(1),
        bson!(null),
        bson!([]),
        bson!([1]),
        bson!({}),
        bson!([{}]),
        bson!([{ "name": "x" }]),
        bson!([{ "key": { "x": 1 } }]),
        bson!([{ "key": { "x": 1 }, "name": "" }]),
        bson!([{ "key": { "x": 1 }, "name": "*" }]),
        bson!([{ "key": { "x": 1 }, "name": 1 }]),
        bson!([{ "key": 1, "name": "x" }]),
        bson!([{ "key": {}, "name": "x" }]),
        bson!([{ "key": { "quantity": 1 }, "name": "x", "zip": 1 }]),
        bson!([{ "key": { "quantity": 1 }, "name": "x", "v": 3 }]),
        bson!([{ "key": { "quantity": 1 }, "name": "x", "sparse": "x" }]),
        bson!([{ "key": { "quantity": 1 }, "name": "x", "hidden": 1 }]),
        bson!([{ "key": { "quantity": 1 }, "name": "x", "collation": {} }]),
        bson!([{ "key": { "quantity": 1 }, "name": "x", "weights": { "x": 1 } }]),
        bson!([{ "key": { "quantity": 1 }, "name": "x" }, { "key": { "x": "foo" }, "name": "y" }]),
        bson!([{ "key": { "a": -1 }, "name": "a" }]),
        bson!([{ "key": { "quantity": -1 }, "name": "a" }]),
        bson!([{ "key": { "b": 1.5, "c": -1 }, "name": "q", "background": true, "v": 1 }]),
        bson!([{ "key": { "quantity": 1 }, "name": "a" }]),
        bson!([{ "key": { "quantity": 1 }, "name": "other" }]),
        bson!([{ "key": { "new": 1 }, "name": "new" }, { "key": { "a": 1 }, "name": "other" }]),
    ]
    .into_iter()
    .map(|indexes| doc! { "createIndexes": COLLECTION, "indexes": indexes })
    .collect();
    check(&mut sides, &wrong)
}

#[test]
fn keys_and_arguments_are_judged_by_mongod() -> Result<()> {
    let mut sides = with_two()?;
    let mut wrong = Vec::new();
    for value in [
        bson!(0),
        bson!(0.0),
        bson!(f64::NAN),
        bson!(true),
        bson!(null),
        bson!(""),
        bson!("foo"),
        bson!({}),
        bson!([]),
    ] {
        wrong.push(doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { "x": value }, "name": "x" }] });
    }
    for path in ["", ".", "x.", ".x", "x..y", "$x", "x.$y", "x.$**.y"] {
        wrong.push(doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { path: 1 }, "name": "x" }] });
    }
    wrong.extend([
        doc! { "createIndexes": COLLECTION },
        doc! { "createIndexes": COLLECTION, "indexes": [spec(doc! { "x": 1 }, "x")], "zip": 1 },
        doc! { "createIndexes": COLLECTION, "indexes": [spec(doc! { "x": 1 }, "x")], "commitQuorum": "nope" },
        doc! { "createIndexes": COLLECTION, "indexes": [spec(doc! { "x": 1 }, "x")], "readConcern": { "level": "majority" } },
    ]);
    check(&mut sides, &wrong)
}

#[test]
fn dropping_a_missing_index_fails() -> Result<()> {
    let mut sides = with_two()?;
    let mut wrong = Vec::new();
    for index in [
        bson!("nope"),
        bson!(""),
        bson!("mongoshape_page"),
        bson!(1),
        bson!(null),
        bson!(["a", "a"]),
        bson!(["a", "nope"]),
        bson!(["a", "*"]),
        bson!([1]),
        bson!(["a", 1]),
        bson!([["a"]]),
        bson!([{}]),
        bson!({}),
        bson!({ "a": -1 }),
        bson!({ "a": true }),
        bson!({ "a": "x" }),
        bson!({ "quantity": 2, "b.c": -1.5 }),
        bson!({ "qty": 1 }),
        bson!({ "history.qty": 1 }),
        bson!({ "control.page": 1 }),
    ] {
        wrong.push(doc! { "dropIndexes": COLLECTION, "index": index });
    }
    wrong.extend([
        doc! { "dropIndexes": COLLECTION },
        doc! { "deleteIndexes": COLLECTION },
        doc! { "dropIndexes": COLLECTION, "index": "a", "zip": 1 },
        doc! { "dropIndexes": COLLECTION, "index": "nope", "zip": 1 },
        doc! { "dropIndexes": COLLECTION, "index": "_id_", "collectionUUID": 1 },
    ]);
    check(&mut sides, &wrong)
}

/// Where the collection is there, the text has the build's ids.
#[test]
fn two_indexes_of_one_command_can_conflict() -> Result<()> {
    let mut sides = with_two()?;
    for specs in [
        [spec(doc! { "y": 1 }, "y"), spec(doc! { "y": 1 }, "y")],
        [spec(doc! { "y": 1 }, "y1"), spec(doc! { "y": 1 }, "y2")],
        [spec(doc! { "y": 1 }, "y"), spec(doc! { "z": 1 }, "y")],
    ] {
        sides.create(&specs, Compared::Code)?;
    }
    sides.list()?;
    Ok(())
}

#[test]
fn index_with_meaning_for_pages_only_is_refused() -> Result<()> {
    for filled in [true, false] {
        let mut sides = if filled {
            Comparison::filled()?
        } else {
            Comparison::start()?
        };
        for (key, options, reason) in [
            (
                doc! { "a": 1 },
                doc! { "unique": true, "sparse": true },
                "a sparse unique index",
            ),
            (
                doc! { "a": 1 },
                doc! { "storageEngine": { "wiredTiger": {} } },
                "storageEngine",
            ),
            (doc! { "a": "text" }, doc! {}, "a text index"),
            (
                doc! { "a": "2d" },
                doc! { "partialFilterExpression": { "b": 1 } },
                "a partial geospatial index",
            ),
            (
                doc! { "a": "2dsphere" },
                doc! { "unique": true },
                "a unique geospatial index",
            ),
            (doc! { "a": "hashed" }, doc! {}, "a hashed index"),
            (doc! { "k": "hashed" }, doc! {}, "a hashed index"),
            (doc! { "0": 1 }, doc! {}, "whose name is a number"),
        ] {
            let specs = [spec(doc! { "fine": 1 }, "fine"), with(spec(key, "x"), options)];
            let create = doc! { "createIndexes": COLLECTION, "indexes": specs.to_vec() };
            sides.refused(&create, NOT_SUPPORTED, reason)?;
        }
        let own = doc! { "createIndexes": COLLECTION, "indexes": [spec(doc! { "a": 1 }, "mongoshape_a")] };
        sides.refused(&own, 67, "mongoshape_a")?;
        // A plain collection has room for 63 beside the one on `_id`.
        let many: Vec<_> = (0..60)
            .map(|number| spec(doc! { format!("f{number}"): 1 }, &format!("f{number}")))
            .collect();
        sides.refused(
            &doc! { "createIndexes": COLLECTION, "indexes": many },
            67,
            "too many indexes",
        )?;
    }
    let mut sides = Comparison::filled()?;
    let in_transaction =
        doc! { "lsid": lsid("one"), "txnNumber": 1_i64, "autocommit": false, "startTransaction": true };
    for command in [
        doc! { "listIndexes": COLLECTION },
        doc! { "dropIndexes": COLLECTION, "index": "*" },
    ] {
        sides.same(&with(command, in_transaction.clone()), Compared::Whole)?;
    }
    sides.refused(
        &doc! { "aggregate": COLLECTION, "pipeline": [{ "$indexStats": {} }], "cursor": {} },
        NOT_SUPPORTED,
        "$indexStats",
    )
}
