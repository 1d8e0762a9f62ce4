//! Updates of all items that match.

use anyhow::{Context as _, Result};
use bson::{Bson, doc};
use proto_tests::sessions::lsid;

use crate::updates::sides::{self, ALL_IDS, COLLECTION, at};

#[test]
fn all_that_match_are_changed() -> Result<()> {
    for ids in ALL_IDS {
        let mut sides = sides::of(ids)?;
        let early = doc! { "at": { "$lt": at(20) } };
        let statements = [
            doc! { "q": {}, "u": { "$inc": { "n": 1 } } },
            doc! { "q": { "k": 1 }, "u": { "$set": { "name": "one", "n": 10 } } },
            doc! { "q": { "k": 1 }, "u": { "$set": { "name": "one", "n": 10 } } },
            doc! { "q": { "k": { "$in": [0, 2] }, "u": { "$gt": 10 } }, "u": { "$push": { "tags": 1 } } },
            doc! { "q": &early, "u": { "$rename": { "n": "m", "quantity": "amount" } } },
            doc! { "q": { "k": 0 }, "u": { "$set": { "k": 0 } } },
            doc! { "q": { "k": 0 }, "u": { "$set": { "k": 0, "z": 1 } } },
            doc! { "q": { "u": { "$gt": 1000 } }, "u": { "$set": { "z": 1 } } },
            doc! { "q": {}, "u": [{ "$set": { "sum": { "$add": ["$u", "$k"] }, "m": Bson::Null } }] },
            doc! { "q": { "k": 2 }, "u": [{ "$set": { "sum": { "$cond": [{ "$gt": ["$u", 20] }, "$sum", 0] } } }] },
            doc! { "q": { "k": 2 }, "u": { "x": 1 } },
            doc! { "q": {}, "u": { "$inc": { "name": 1 } } },
            doc! { "q": {}, "u": [{ "$set": { "name": { "$add": ["$name", 1] } } }] },
            doc! { "q": { "name": "ONE" }, "u": { "$set": { "y": 1 } }, "collation": { "locale": "en", "strength": 1 } },
            doc! { "q": { "tags": "x" }, "u": { "$set": { "lines.$[l].b": 5 } }, "arrayFilters": [{ "l.a": 7 }] },
            doc! { "q": { "tags": "x" }, "u": { "$unset": { "tags": 1 } }, "hint": { "_id": 1 } },
            doc! { "q": {}, "u": { "$set": { "_id": 5 } } },
            doc! { "q": {}, "u": { "$unset": { "_id": 1 } } },
        ];
        for statement in statements {
            if ids == proto_tests::ItemIds::Dropped && statement.to_string().contains("\"_id\": 5") {
                continue;
            }
            let mut statement = statement;
            statement.insert("multi", true);
            sides.alike(&doc! { "update": COLLECTION, "updates": [&statement] })?;
            sides.check().with_context(|| format!("{ids:?}, after {statement}"))?;
        }
    }
    Ok(())
}

#[test]
fn statements_of_all_kinds_in_one_command() -> Result<()> {
    for ids in ALL_IDS {
        let mut sides = sides::of(ids)?;
        for ordered in [true, false] {
            let updates = vec![
                doc! { "q": { "u": 1 }, "u": { "$inc": { "n": 1 } } },
                doc! { "q": { "k": 0 }, "u": { "$inc": { "n": 1 } }, "multi": true },
                doc! { "q": { "u": 2 }, "u": { "k": 2, "at": at(2), "u": 2 } },
                doc! { "q": { "u": 3 }, "u": [{ "$set": { "n": 0 } }] },
                doc! { "q": { "u": 4 }, "u": { "$inc": { "name": 1 } } },
                doc! { "q": { "u": 5 }, "u": { "$inc": { "n": 1 } } },
                doc! { "q": { "u": 500 }, "u": { "$inc": { "n": 1 } } },
                doc! { "q": {}, "u": { "n": 1 }, "multi": true },
                doc! { "q": { "u": 6 }, "u": { "$inc": { "n": 1 } } },
            ];
            for writes in [doc! {}, doc! { "w": "majority" }] {
                sides.alike(
                    &doc! { "update": COLLECTION, "updates": &updates, "ordered": ordered, "writeConcern": writes },
                )?;
                sides.check()?;
            }
        }
    }
    Ok(())
}

/// Items of which one cannot be changed, behind some that can.
#[test]
fn refused_update_of_many_changes_no_item() -> Result<()> {
    for ids in ALL_IDS {
        let mut sides = sides::of(ids)?;
        let third =
            |change: bson::Document| doc! { "update": COLLECTION, "updates": [{ "q": { "u": 31 }, "u": change }] };
        let decimal = Bson::Decimal128("1.5".parse()?);
        sides.alike(&third(doc! { "$set": { "n": decimal, "to": [1, 2] } }))?;
        for change in [
            doc! { "$set": { "k": 0, "x": 1 }, "$inc": { "n": 1 } },
            doc! { "$rename": { "to": "k", "name": "x" } },
        ] {
            let statement = doc! { "q": { "k": { "$in": [0, 1] } }, "u": change, "multi": true };
            sides.refused(&doc! { "update": COLLECTION, "updates": [statement] })?;
        }
        sides.check()?;
    }
    Ok(())
}

/// More than a batch, on many pages and on few.
#[test]
fn batches_follow_each_other() -> Result<()> {
    for ids in ALL_IDS {
        let mut sides = sides::of(ids)?;
        let item = |number: i32| {
            doc! { "_id": 1000 + number, "k": number % 7 + 10, "at": at(i64::from(number)), "n": number, "u": 1000 + number }
        };
        sides.alike(&doc! { "insert": COLLECTION, "documents": (0..450).map(item).collect::<Vec<_>>() })?;
        let many = |filter: bson::Document, change: bson::Document| {
            doc! {
                "update": COLLECTION, "updates": [{ "q": filter, "u": change, "multi": true }], "writeConcern": { "w": "majority" },
            }
        };
        // Also by an index that each change moves the item in.
        sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { "n": 1 }, "name": "n" }] })?;
        sides.alike(&many(doc! { "n": { "$gte": 40 } }, doc! { "$inc": { "n": 1000 } }))?;
        sides.alike(&many(
            doc! { "k": { "$gt": 9 } },
            doc! { "$inc": { "n": 1 }, "$set": { "x": [1] } },
        ))?;
        sides.check()?;
        let session = lsid(&format!("{}_s", sides.database));
        let mut within = many(doc! { "k": { "$gt": 9 } }, doc! { "$inc": { "n": 1 } });
        within.remove("writeConcern");
        within.extend(
            doc! { "lsid": session.clone(), "txnNumber": 1_i64, "autocommit": false, "startTransaction": true },
        );
        sides.alike(&within)?;
        for (shaped, database) in [(false, "n"), (true, "s")] {
            let session = lsid(&format!("{}_{database}", sides.database));
            let commit = doc! {
                "commitTransaction": 1, "lsid": session, "txnNumber": 1_i64, "autocommit": false, "$db": "admin",
            };
            let connection = if shaped { &mut sides.shaped } else { &mut sides.plain };
            connection.command_ok(&commit)?;
        }
        sides.check()?;
    }
    Ok(())
}
