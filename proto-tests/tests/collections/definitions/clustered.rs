//! Clustered collections: both the application's collection and the bucket collection are clustered.

mod ids;

use anyhow::{Result, ensure};
use bson::{Document, bson, doc};
use proto_tests::measure::rows;
use proto_tests::sessions::lsid;
use proto_tests::{Mongod, mongod};

use super::{Comparison, servers, without_sizes_of_database};

/// Without a name, with one, and written otherwise.
fn indexes() -> [Document; 3] {
    [
        doc! { "key": { "_id": 1 }, "unique": true },
        doc! { "key": { "_id": 1 }, "unique": true, "name": "by id", "v": 2 },
        doc! { "key": { "_id": 1.0 }, "unique": 1 },
    ]
}

/// With items in it.
fn filled(mongod: &Mongod, index: &Document) -> Result<Comparison> {
    let mut comparison = Comparison::start(mongod)?;
    comparison.same(|_| doc! { "create": "items", "clusteredIndex": index })?;
    comparison.insert("items", 25)?;
    Ok(comparison)
}

#[test]
fn clustered_collection_is_created_and_listed_with_its_index() -> Result<()> {
    for mongod in servers() {
        let mut comparison = Comparison::start(mongod)?;
        for index in indexes() {
            for further in [
                doc! {},
                doc! { "validationLevel": "off" },
                doc! { "collation": { "locale": "simple" }, "capped": false },
            ] {
                let mut create = doc! { "create": "items", "clusteredIndex": &index };
                create.extend(further);
                comparison.same(|_| create.clone())?;
                comparison.listed(&doc! {}, None)?;
                comparison.same(|_| doc! { "listIndexes": "items" })?;
                comparison.same(|_| create.clone())?;
                comparison.same(|_| doc! { "create": "items" })?;
                comparison.through_second(|comparison| comparison.insert("items", 3))?;
                comparison.same(|_| doc! { "find": "items", "sort": { "_id": 1 } })?;
                let rename = |database: &str| doc! { "renameCollection": format!("{database}.items"), "to": format!("{database}.others"), "$db": "admin" };
                comparison.same(rename)?;
                comparison.same(|_| doc! { "listIndexes": "others" })?;
                comparison.same(|_| doc! { "drop": "others" })?;
                comparison.same(|_| doc! { "drop": "others" })?;
            }
        }
        // There already, and not clustered.
        comparison.insert("items", 3)?;
        comparison.same(|_| doc! { "create": "items", "clusteredIndex": &indexes()[0] })?;
        comparison.same(|_| doc! { "listIndexes": "items" })?;
    }
    Ok(())
}

#[test]
fn invalid_clustered_index_has_mongods_error() -> Result<()> {
    let mut comparison = Comparison::start(mongod::shared())?;
    let wrong = [
        bson!({}),
        bson!(1),
        bson!(true),
        bson!("x"),
        bson!(null),
        bson!([]),
        bson!({ "key": { "_id": 1 } }),
        bson!({ "unique": true }),
        bson!({ "key": { "_id": 1 }, "unique": false }),
        bson!({ "key": { "_id": 1 }, "unique": "x" }),
        bson!({ "key": { "k": 1 }, "unique": true }),
        bson!({ "key": { "_id": -1 }, "unique": true }),
        bson!({ "key": { "_id": 1, "k": 1 }, "unique": true }),
        bson!({ "key": 1, "unique": true }),
        bson!({ "key": { "_id": 1 }, "unique": true, "v": 1 }),
        bson!({ "key": { "_id": 1 }, "unique": true, "v": 3 }),
        bson!({ "key": { "_id": 1 }, "unique": true, "name": 1 }),
        bson!({ "key": { "_id": 1 }, "unique": true, "hidden": true }),
        bson!({ "key": { "_id": 1 }, "unique": true, "nonsense": true }),
    ];
    for index in wrong {
        comparison.same(|_| doc! { "create": "items", "clusteredIndex": &index })?;
        comparison.listed(&doc! {}, None)?;
    }
    let good = &indexes()[0];
    comparison.same(
        |_| doc! { "create": "items", "clusteredIndex": good, "idIndex": { "key": { "_id": 1 }, "name": "_id_" } },
    )?;
    comparison.same(|_| doc! { "create": "items", "clusteredIndex": good, "size": 4096 })?;
    comparison.same(|_| doc! { "create": "items", "clusteredIndex": good, "nonsense": 1 })?;
    for further in [doc! { "expireAfterSeconds": 10 }, doc! { "viewOn": "plain" }] {
        let mut create = doc! { "create": "items", "clusteredIndex": good };
        create.extend(further);
        comparison.refused(72, |_| create.clone())?;
    }
    Ok(())
}

#[test]
fn clustered_options_that_the_shape_cannot_keep_are_refused() -> Result<()> {
    let mut comparison = Comparison::start(mongod::shared())?;
    let good = &indexes()[0];
    for collection in ["stored", "dropped"] {
        comparison.refused(72, |_| doc! { "create": collection, "clusteredIndex": good })?;
        comparison.same(|_| doc! { "create": collection, "clusteredIndex": false })?;
    }
    let kept = doc! { "key": { "_id": 1 }, "unique": true, "name": "mongoshape_page" };
    comparison.refused(67, |_| doc! { "create": "items", "clusteredIndex": &kept })?;
    Ok(())
}

#[test]
fn clustered_index_acts_as_the_id_index_and_cannot_be_dropped() -> Result<()> {
    for (place, mongod) in servers().into_iter().enumerate() {
        for index in rows(indexes(), 2, place) {
            let mut comparison = filled(mongod, &index)?;
            let specifications = [
                doc! { "key": { "_id": 1 }, "name": "_id_" },
                doc! { "key": { "_id": 1 }, "name": "by id" },
                doc! { "key": { "_id": 1 }, "name": "x" },
                doc! { "key": { "_id": 1 }, "name": "x", "unique": true },
                doc! { "key": { "_id": 1 }, "name": "x", "unique": true, "clustered": true },
                doc! { "key": { "_id": 1 }, "name": "x", "clustered": true },
                doc! { "key": { "_id": -1 }, "name": "x" },
                doc! { "key": { "a": 1 }, "name": "_id_" },
                doc! { "key": { "a": 1 }, "name": "by id" },
                doc! { "key": { "a": 1 }, "name": "by id", "v": 2 },
                doc! { "key": { "a": 1 }, "name": "a", "unique": true, "clustered": true },
                doc! { "key": { "a": 1 }, "name": "a", "clustered": false },
                doc! { "key": { "a": 1 }, "name": "b" },
                doc! { "key": { "a": 1 }, "name": "c" },
                doc! { "key": { "b": 1 }, "name": "b" },
            ];
            for specification in specifications {
                comparison.same(|_| doc! { "createIndexes": "items", "indexes": [&specification] })?;
                comparison.same(|_| doc! { "createIndexes": "others", "indexes": [&specification] })?;
                comparison.same(|_| doc! { "listIndexes": "items" })?;
                comparison.run(|_| doc! { "drop": "others" })?;
            }
            for dropped in [
                bson!("_id_"),
                bson!("by id"),
                bson!({ "_id": 1 }),
                bson!({ "_id": -1 }),
                bson!(["b", "_id_"]),
                bson!(["b", "by id"]),
                bson!(["nope", "by id"]),
                bson!("*"),
                bson!("*"),
                bson!([]),
            ] {
                comparison.same(|_| doc! { "dropIndexes": "items", "index": &dropped })?;
                comparison.same(|_| doc! { "listIndexes": "items" })?;
            }
            for hint in [
                bson!("_id_"),
                bson!("by id"),
                bson!({ "_id": 1 }),
                bson!({ "_id": -1 }),
                bson!({ "$natural": 1 }),
            ] {
                comparison.same_read(&doc! { "find": "items", "hint": &hint, "sort": { "_id": 1 } })?;
                comparison.same_read(&doc! { "count": "items", "query": { "_id": { "$gt": 3 } }, "hint": &hint })?;
            }
            comparison.same(|_| doc! { "drop": "items" })?;
        }
    }
    Ok(())
}

#[test]
fn clustered_collection_statistics_have_no_id_index() -> Result<()> {
    for mongod in servers() {
        for index in indexes() {
            let mut comparison = filled(mongod, &index)?;
            let check = |comparison: &mut Comparison, command: Document| -> Result<()> {
                let [plain, shaped] = comparison.run(|_| command.clone())?;
                ensure!(
                    without_sizes_of_database(&plain) == without_sizes_of_database(&shaped),
                    "{command}\n  plain:  {plain}\n  shaped: {shaped}"
                );
                Ok(())
            };
            check(&mut comparison, doc! { "validate": "items" })?;
            check(&mut comparison, doc! { "validate": "items", "full": true })?;
            for indexed in [false, true] {
                if indexed {
                    comparison
                        .same(|_| doc! { "createIndexes": "items", "indexes": [{ "key": { "a": 1 }, "name": "a" }] })?;
                }
                check(&mut comparison, doc! { "collStats": "items" })?;
                let [_, statistics] = comparison.run(|_| doc! { "collStats": "items" })?;
                let size = |name: &str| statistics.get_i32(name).map(i64::from);
                ensure!(
                    size("totalSize")? == size("storageSize")? + size("totalIndexSize")?
                        && (size("totalIndexSize")? > 0) == indexed,
                    "{statistics}"
                );
                check(&mut comparison, doc! { "collStats": "items", "scale": 1024 })?;
                check(&mut comparison, doc! { "dbStats": 1 })?;
                comparison.same(|_| doc! { "aggregate": "items", "pipeline": [{ "$collStats": { "count": {} } }, { "$project": { "count": 1 } }], "cursor": {} })?;
            }
            comparison.same(|_| doc! { "collMod": "items", "validationLevel": "strict" })?;
            comparison.same(|_| doc! { "planCacheClear": "items" })?;
            comparison.same(|_| doc! { "collMod": "items", "index": { "name": "_id_", "hidden": true } })?;
            for refused in [
                doc! { "collMod": "items", "expireAfterSeconds": 5 },
                doc! { "aggregate": "items", "pipeline": [{ "$indexStats": {} }], "cursor": {} },
            ] {
                comparison.refused(super::NOT_SUPPORTED, |_| refused.clone())?;
            }
        }
    }
    Ok(())
}

#[test]
fn transaction_creates_a_clustered_collection() -> Result<()> {
    for index in indexes() {
        for end in ["abortTransaction", "commitTransaction"] {
            let mut comparison = Comparison::start(mongod::shared_replica_set())?;
            let mut begun = false;
            let mut inside = |comparison: &mut Comparison, mut command: Document| -> Result<()> {
                if begun {
                    command.extend(doc! { "txnNumber": 1_i64, "autocommit": false });
                } else {
                    command.extend(doc! { "txnNumber": 1_i64, "autocommit": false, "startTransaction": true });
                }
                begun = true;
                comparison.same(|database| {
                    let mut command = command.clone();
                    command.insert("lsid", lsid(database));
                    command
                })
            };
            inside(&mut comparison, doc! { "create": "items", "clusteredIndex": &index })?;
            let specifications = [
                doc! { "key": { "_id": 1 }, "name": "_id_" },
                doc! { "key": { "a": 1 }, "name": "a" },
            ];
            for specification in specifications {
                inside(
                    &mut comparison,
                    doc! { "createIndexes": "items", "indexes": [specification] },
                )?;
            }
            let documents: Vec<_> = (0..12).map(|id| doc! { "_id": id, "k": id % 2 }).collect();
            inside(&mut comparison, doc! { "insert": "items", "documents": documents })?;
            inside(&mut comparison, doc! { "find": "items", "sort": { "_id": 1 } })?;
            inside(&mut comparison, doc! { end: 1, "$db": "admin" })?;
            comparison.listed(&doc! {}, None)?;
            comparison.same(|_| doc! { "listIndexes": "items" })?;
            comparison.same(|_| doc! { "find": "items", "sort": { "_id": 1 } })?;
            comparison.through_second(|comparison| {
                comparison.same(|_| doc! { "insert": "items", "documents": [{ "_id": 5, "k": 1 }] })
            })?;
        }
    }
    Ok(())
}

#[test]
fn clustered_collection_created_directly_is_served() -> Result<()> {
    for index in indexes() {
        let mut comparison = Comparison::start(mongod::shared())?;
        for database in comparison.names() {
            comparison
                .stored
                .command_ok(&doc! { "create": "items", "clusteredIndex": &index, "$db": database })?;
        }
        comparison.same(|_| doc! { "listIndexes": "items" })?;
        comparison.insert("items", 25)?;
        comparison.insert("items", 25)?;
        comparison.same(|_| doc! { "listIndexes": "items" })?;
        comparison.same(|_| doc! { "find": "items", "sort": { "_id": 1 } })?;
    }
    // Its items would expire a page at a time, or their `_id`s need not be unique.
    let mut comparison = Comparison::start(mongod::shared())?;
    let database = comparison.shaped_database();
    let expiring = doc! { "create": "items", "clusteredIndex": &indexes()[0], "expireAfterSeconds": 3600 };
    let stored = doc! { "create": "stored", "clusteredIndex": &indexes()[0] };
    for mut create in [expiring, stored] {
        create.insert("$db", &database);
        comparison.stored.command_ok(&create)?;
        let collection = create.get_str("create")?.to_owned();
        comparison.refused(72, |_| doc! { "find": &collection })?;
        comparison.refused(
            72,
            |_| doc! { "insert": &collection, "documents": [{ "_id": 1, "k": 1 }] },
        )?;
    }
    Ok(())
}
