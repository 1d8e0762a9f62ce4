//! Clustered collections: both the application's collection and the bucket collection are clustered.

mod ids;

use anyhow::{Result, ensure};
use bson::{Document, bson, doc};
use proto_tests::sessions::lsid;
use proto_tests::{Mongod, mongod};

use super::{Both, servers, without_sizes_of_database};

/// Without a name, with one, and written otherwise.
fn indexes() -> [Document; 3] {
    [
        doc! { "key": { "_id": 1 }, "unique": true },
        doc! { "key": { "_id": 1 }, "unique": true, "name": "by id", "v": 2 },
        doc! { "key": { "_id": 1.0 }, "unique": 1 },
    ]
}

/// With items in it.
fn filled(mongod: &Mongod, index: &Document) -> Result<Both> {
    let mut both = Both::start(mongod)?;
    both.same(|_| doc! { "create": "items", "clusteredIndex": index })?;
    both.insert("items", 25)?;
    Ok(both)
}

#[test]
fn clustered_collection_is_created_and_listed_with_its_index() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::start(mongod)?;
        for index in indexes() {
            for further in [
                doc! {},
                doc! { "validationLevel": "off" },
                doc! { "collation": { "locale": "simple" }, "capped": false },
            ] {
                let mut create = doc! { "create": "items", "clusteredIndex": &index };
                create.extend(further);
                both.same(|_| create.clone())?;
                both.listed(&doc! {}, None)?;
                both.same(|_| doc! { "listIndexes": "items" })?;
                both.same(|_| create.clone())?;
                both.same(|_| doc! { "create": "items" })?;
                both.through_second(|both| both.insert("items", 3))?;
                both.same(|_| doc! { "find": "items", "sort": { "_id": 1 } })?;
                let rename = |database: &str| doc! { "renameCollection": format!("{database}.items"), "to": format!("{database}.others"), "$db": "admin" };
                both.same(rename)?;
                both.same(|_| doc! { "listIndexes": "others" })?;
                both.same(|_| doc! { "drop": "others" })?;
                both.same(|_| doc! { "drop": "others" })?;
            }
        }
        // There already, and not clustered.
        both.insert("items", 3)?;
        both.same(|_| doc! { "create": "items", "clusteredIndex": &indexes()[0] })?;
        both.same(|_| doc! { "listIndexes": "items" })?;
    }
    Ok(())
}

#[test]
fn invalid_clustered_index_has_mongods_error() -> Result<()> {
    let mut both = Both::start(mongod::shared())?;
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
        both.same(|_| doc! { "create": "items", "clusteredIndex": &index })?;
        both.listed(&doc! {}, None)?;
    }
    let good = &indexes()[0];
    both.same(
        |_| doc! { "create": "items", "clusteredIndex": good, "idIndex": { "key": { "_id": 1 }, "name": "_id_" } },
    )?;
    both.same(|_| doc! { "create": "items", "clusteredIndex": good, "size": 4096 })?;
    both.same(|_| doc! { "create": "items", "clusteredIndex": good, "nonsense": 1 })?;
    for further in [doc! { "expireAfterSeconds": 10 }, doc! { "viewOn": "plain" }] {
        let mut create = doc! { "create": "items", "clusteredIndex": good };
        create.extend(further);
        both.refused(72, |_| create.clone())?;
    }
    Ok(())
}

#[test]
fn clustered_options_that_the_shape_cannot_keep_are_refused() -> Result<()> {
    let mut both = Both::start(mongod::shared())?;
    let good = &indexes()[0];
    for collection in ["stored", "dropped"] {
        both.refused(72, |_| doc! { "create": collection, "clusteredIndex": good })?;
        both.same(|_| doc! { "create": collection, "clusteredIndex": false })?;
    }
    let kept = doc! { "key": { "_id": 1 }, "unique": true, "name": "mongoshape_page" };
    both.refused(67, |_| doc! { "create": "items", "clusteredIndex": &kept })?;
    Ok(())
}

#[test]
fn clustered_index_acts_as_the_id_index_and_cannot_be_dropped() -> Result<()> {
    for mongod in servers() {
        for index in indexes() {
            let mut both = filled(mongod, &index)?;
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
                both.same(|_| doc! { "createIndexes": "items", "indexes": [&specification] })?;
                both.same(|_| doc! { "createIndexes": "others", "indexes": [&specification] })?;
                both.same(|_| doc! { "listIndexes": "items" })?;
                both.run(|_| doc! { "drop": "others" })?;
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
                both.same(|_| doc! { "dropIndexes": "items", "index": &dropped })?;
                both.same(|_| doc! { "listIndexes": "items" })?;
            }
            for hint in [
                bson!("_id_"),
                bson!("by id"),
                bson!({ "_id": 1 }),
                bson!({ "_id": -1 }),
                bson!({ "$natural": 1 }),
            ] {
                both.same_read(&doc! { "find": "items", "hint": &hint, "sort": { "_id": 1 } })?;
                both.same_read(&doc! { "count": "items", "query": { "_id": { "$gt": 3 } }, "hint": &hint })?;
            }
            both.same(|_| doc! { "drop": "items" })?;
        }
    }
    Ok(())
}

#[test]
fn clustered_collection_statistics_have_no_id_index() -> Result<()> {
    for mongod in servers() {
        for index in indexes() {
            let mut both = filled(mongod, &index)?;
            let check = |both: &mut Both, command: Document| -> Result<()> {
                let [plain, shaped] = both.run(|_| command.clone())?;
                ensure!(
                    without_sizes_of_database(&plain) == without_sizes_of_database(&shaped),
                    "{command}\n  plain:  {plain}\n  shaped: {shaped}"
                );
                Ok(())
            };
            check(&mut both, doc! { "validate": "items" })?;
            check(&mut both, doc! { "validate": "items", "full": true })?;
            for indexed in [false, true] {
                if indexed {
                    both.same(|_| doc! { "createIndexes": "items", "indexes": [{ "key": { "a": 1 }, "name": "a" }] })?;
                }
                check(&mut both, doc! { "collStats": "items" })?;
                let [_, statistics] = both.run(|_| doc! { "collStats": "items" })?;
                let size = |name: &str| statistics.get_i32(name).map(i64::from);
                ensure!(
                    size("totalSize")? == size("storageSize")? + size("totalIndexSize")?
                        && (size("totalIndexSize")? > 0) == indexed,
                    "{statistics}"
                );
                check(&mut both, doc! { "collStats": "items", "scale": 1024 })?;
                check(&mut both, doc! { "dbStats": 1 })?;
                both.same(|_| doc! { "aggregate": "items", "pipeline": [{ "$collStats": { "count": {} } }, { "$project": { "count": 1 } }], "cursor": {} })?;
            }
            both.same(|_| doc! { "collMod": "items", "validationLevel": "strict" })?;
            both.same(|_| doc! { "planCacheClear": "items" })?;
            for refused in [
                doc! { "collMod": "items", "expireAfterSeconds": 5 },
                doc! { "collMod": "items", "index": { "name": "_id_", "hidden": true } },
                doc! { "aggregate": "items", "pipeline": [{ "$indexStats": {} }], "cursor": {} },
            ] {
                both.refused(super::NOT_SUPPORTED, |_| refused.clone())?;
            }
        }
    }
    Ok(())
}

#[test]
fn transaction_creates_a_clustered_collection() -> Result<()> {
    for index in indexes() {
        for end in ["abortTransaction", "commitTransaction"] {
            let mut both = Both::start(mongod::shared_replica_set())?;
            let mut begun = false;
            let mut inside = |both: &mut Both, mut command: Document| -> Result<()> {
                if begun {
                    command.extend(doc! { "txnNumber": 1_i64, "autocommit": false });
                } else {
                    command.extend(doc! { "txnNumber": 1_i64, "autocommit": false, "startTransaction": true });
                }
                begun = true;
                both.same(|database| {
                    let mut command = command.clone();
                    command.insert("lsid", lsid(database));
                    command
                })
            };
            inside(&mut both, doc! { "create": "items", "clusteredIndex": &index })?;
            let specifications = [
                doc! { "key": { "_id": 1 }, "name": "_id_" },
                doc! { "key": { "a": 1 }, "name": "a" },
            ];
            for specification in specifications {
                inside(&mut both, doc! { "createIndexes": "items", "indexes": [specification] })?;
            }
            let documents: Vec<_> = (0..12).map(|id| doc! { "_id": id, "k": id % 2 }).collect();
            inside(&mut both, doc! { "insert": "items", "documents": documents })?;
            inside(&mut both, doc! { "find": "items", "sort": { "_id": 1 } })?;
            inside(&mut both, doc! { end: 1, "$db": "admin" })?;
            both.listed(&doc! {}, None)?;
            both.same(|_| doc! { "listIndexes": "items" })?;
            both.same(|_| doc! { "find": "items", "sort": { "_id": 1 } })?;
            both.through_second(|both| both.same(|_| doc! { "insert": "items", "documents": [{ "_id": 5, "k": 1 }] }))?;
        }
    }
    Ok(())
}

#[test]
fn clustered_collection_created_directly_is_served() -> Result<()> {
    for index in indexes() {
        let mut both = Both::start(mongod::shared())?;
        for database in both.names() {
            both.stored
                .command_ok(&doc! { "create": "items", "clusteredIndex": &index, "$db": database })?;
        }
        both.same(|_| doc! { "listIndexes": "items" })?;
        both.insert("items", 25)?;
        both.insert("items", 25)?;
        both.same(|_| doc! { "listIndexes": "items" })?;
        both.same(|_| doc! { "find": "items", "sort": { "_id": 1 } })?;
    }
    // Its items would expire a page at a time, or their `_id`s need not be unique.
    let mut both = Both::start(mongod::shared())?;
    let database = both.shaped_database();
    let expiring = doc! { "create": "items", "clusteredIndex": &indexes()[0], "expireAfterSeconds": 3600 };
    let stored = doc! { "create": "stored", "clusteredIndex": &indexes()[0] };
    for mut create in [expiring, stored] {
        create.insert("$db", &database);
        both.stored.command_ok(&create)?;
        let collection = create.get_str("create")?.to_owned();
        both.refused(72, |_| doc! { "find": &collection })?;
        both.refused(
            72,
            |_| doc! { "insert": &collection, "documents": [{ "_id": 1, "k": 1 }] },
        )?;
    }
    Ok(())
}
