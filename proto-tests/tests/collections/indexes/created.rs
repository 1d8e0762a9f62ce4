//! Creates, lists and drops indexes.

use anyhow::{Result, ensure};
use bson::{bson, doc};
use proto_tests::shaped::COLLECTION;

use super::{Compared, Comparison, spec, with};

#[test]
fn indexes_are_made_listed_and_dropped_by_the_applications_names() -> Result<()> {
    let mut sides = Comparison::filled()?;
    assert_eq!(sides.list()?, ["_id_"]);
    let specs = [
        spec(doc! { "k": 1 }, "k_1"),
        spec(doc! { "k": 1, "at": -1 }, "newest"),
        spec(doc! { "quantity": 1, "a": -1.0 }, "quantity"),
        spec(doc! { "qty": 1_i64 }, "qty_1"),
        spec(doc! { "a.quantity": 2 }, "nested"),
        spec(doc! { "history.count": 1.5 }, "history"),
        spec(doc! { "count": 1, "_id": -1, "control.page": 1 }, "odd"),
        spec(doc! { "tags.0": 1 }, "first tag"),
        with(spec(doc! { "b": 1 }, "b"), doc! { "background": true, "v": 1 }),
        with(
            spec(doc! { "c": 1 }, "c"),
            doc! { "hidden": true, "sparse": false, "unique": false },
        ),
        with(
            spec(doc! { "d": 1 }, "d"),
            doc! { "collation": { "locale": "simple" }, "ns": "x.y", "dropDups": true },
        ),
    ];
    for spec in &specs {
        sides.create(std::slice::from_ref(spec), Compared::Whole)?;
        sides.list()?;
    }
    // All are there, and one more.
    sides.create(&specs, Compared::Whole)?;
    sides.create(&[specs[0].clone(), spec(doc! { "e": 1 }, "e")], Compared::Whole)?;
    sides.create(
        &[spec(doc! { "f": 1 }, "f"), spec(doc! { "g": 1 }, "g")],
        Compared::Whole,
    )?;
    assert_eq!(sides.list()?.len(), 15);
    let stored = sides.stored()?.to_string();
    ensure!(
        stored.contains("history.qty") && stored.contains("history.a.quantity"),
        "{stored}"
    );
    for dropped in [
        bson!("k_1"),
        bson!(["newest", "qty_1"]),
        bson!({ "quantity": 1.0, "a": -1 }),
        bson!([]),
        bson!(["c"]),
        bson!("*"),
        bson!("*"),
        bson!(["*"]),
    ] {
        sides.same(&doc! { "dropIndexes": COLLECTION, "index": dropped }, Compared::Whole)?;
        sides.list()?;
    }
    sides.create(&specs[..1], Compared::Whole)?;
    sides.same(&doc! { "deleteIndexes": COLLECTION, "index": "k_1" }, Compared::Whole)?;
    assert_eq!(sides.list()?, ["_id_"]);
    let own = sides.shaped.indexes();
    ensure!(
        sides.stored()?.to_string().matches("mongoshape_").count() == 6,
        "{own:?}"
    );
    sides.create(&specs[..3], Compared::Whole)?;
    sides.same(&doc! { "drop": COLLECTION }, Compared::Whole)?;
    Ok(())
}

#[test]
fn the_index_on_id_is_there_from_the_beginning() -> Result<()> {
    let mut sides = Comparison::filled()?;
    for specs in [
        vec![spec(doc! { "_id": 1 }, "_id_")],
        vec![spec(doc! { "_id": 1.0 }, "other")],
        vec![spec(doc! { "_id": 1 }, "_id_"), spec(doc! { "a": 1 }, "a")],
        vec![with(spec(doc! { "_id": 1 }, "_id_"), doc! { "unique": true })],
        vec![with(spec(doc! { "_id": 1 }, "_id_"), doc! { "hidden": true })],
        vec![spec(doc! { "_id": -1 }, "x")],
        vec![spec(doc! { "a": 1 }, "_id_")],
        vec![spec(doc! { "_id": 2 }, "two")],
        vec![spec(doc! { "_id.x": 1 }, "x")],
    ] {
        sides.create(&specs, Compared::Whole)?;
        sides.list()?;
    }
    for dropped in [
        bson!("_id_"),
        bson!({ "_id": 1 }),
        bson!({ "_id": 1.0 }),
        bson!({ "_id": -1 }),
        bson!(["_id_"]),
        bson!(["a", "_id_"]),
        bson!(["_id_", "nope"]),
        bson!(["nope", "_id_"]),
    ] {
        sides.same(&doc! { "dropIndexes": COLLECTION, "index": dropped }, Compared::Whole)?;
    }
    Ok(())
}

#[test]
fn an_index_makes_its_collection() -> Result<()> {
    for specs in [
        vec![spec(doc! { "quantity": 1 }, "q")],
        vec![spec(doc! { "_id": 1 }, "_id_")],
        vec![spec(doc! { "_id": 1 }, "_id_"), spec(doc! { "a": 1 }, "a")],
        vec![spec(doc! { "a": 1 }, "a"), spec(doc! { "b": 1 }, "b")],
        vec![spec(doc! { "y": 1 }, "y"), spec(doc! { "y": 1 }, "y")],
        vec![spec(doc! { "y": 1 }, "y1"), spec(doc! { "y": 1 }, "y2")],
        vec![spec(doc! { "y": 1 }, "y"), spec(doc! { "z": 1 }, "y")],
        vec![spec(doc! { "y": "foo" }, "y")],
    ] {
        let mut sides = Comparison::start()?;
        sides.create(&specs, Compared::Whole)?;
        sides.same(&doc! { "listIndexes": COLLECTION }, Compared::Whole)?;
        let item = doc! { "_id": 1, "k": 1, "quantity": 2 };
        sides.same(&doc! { "insert": COLLECTION, "documents": [item] }, Compared::Whole)?;
        sides.list()?;
        let stored = sides.stored()?.to_string();
        ensure!(stored.matches("\"mongoshape_").count() == 6, "{stored}");
    }
    let mut sides = Comparison::start()?;
    for quorum in [bson!("nope"), bson!(9)] {
        let create =
            doc! { "createIndexes": COLLECTION, "indexes": [spec(doc! { "a": 1 }, "a")], "commitQuorum": quorum };
        sides.same(&create, Compared::Whole)?;
        sides.same(&doc! { "listIndexes": COLLECTION }, Compared::Whole)?;
    }
    // A collection that was made beside the proxy.
    sides
        .direct
        .command_ok(&doc! { "create": COLLECTION, "$db": &sides.shaped.database })?;
    sides
        .direct
        .command_ok(&doc! { "create": COLLECTION, "$db": format!("{}_plain", sides.shaped.database) })?;
    sides.create(&[spec(doc! { "a": 1 }, "a")], Compared::Whole)?;
    sides.list()?;
    Ok(())
}

#[test]
fn a_missing_collection_has_no_indexes() -> Result<()> {
    let mut sides = Comparison::start()?;
    for command in [
        doc! { "listIndexes": COLLECTION },
        doc! { "listIndexes": COLLECTION, "cursor": { "batchSize": 1 } },
        doc! { "dropIndexes": COLLECTION, "index": "x" },
        doc! { "dropIndexes": COLLECTION, "index": "_id_" },
        doc! { "dropIndexes": COLLECTION, "index": "*" },
        doc! { "dropIndexes": COLLECTION, "index": { "a": 1 } },
        doc! { "dropIndexes": COLLECTION, "index": 1 },
        doc! { "dropIndexes": COLLECTION },
        doc! { "find": COLLECTION, "hint": "x" },
    ] {
        sides.same(&command, Compared::Whole)?;
    }
    let stored = sides.stored()?;
    ensure!(stored.get_i32("code").ok() == Some(26), "{stored}");
    Ok(())
}

#[test]
fn indexes_created_directly_on_mongod_are_hidden() -> Result<()> {
    let mut sides = Comparison::filled()?;
    let beside = [
        spec(doc! { "control.bytes": 1 }, "bytes"),
        with(
            spec(doc! { "history.a": 1 }, "unique"),
            doc! { "unique": false, "sparse": true },
        ),
        spec(doc! { "k": 1, "history.qty": -1 }, "seen"),
    ];
    sides
        .direct
        .command_ok(&doc! { "createIndexes": COLLECTION, "indexes": beside.to_vec(), "$db": &sides.shaped.database })?;
    let plain = format!("{}_plain", sides.shaped.database);
    let seen = spec(doc! { "k": 1, "quantity": -1 }, "seen");
    sides
        .direct
        .command_ok(&doc! { "createIndexes": COLLECTION, "indexes": [&seen], "$db": plain })?;
    assert_eq!(sides.list()?, ["_id_", "seen"]);
    sides.create(&[seen], Compared::Whole)?;
    let taken = doc! { "createIndexes": COLLECTION, "indexes": [spec(doc! { "x": 1 }, "bytes")] };
    sides.refused(&taken, 86, "bytes")?;
    sides.same(&doc! { "dropIndexes": COLLECTION, "index": "bytes" }, Compared::Whole)?;
    sides.same(&doc! { "dropIndexes": COLLECTION, "index": "*" }, Compared::Whole)?;
    let stored = sides.stored()?.to_string();
    ensure!(stored.contains("control.bytes") && !stored.contains("seen"), "{stored}");
    Ok(())
}
