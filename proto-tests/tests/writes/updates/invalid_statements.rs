//! An invalid statement and its effect on the other statements. The differential tests found these cases.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::ItemIds;
use proto_tests::sessions::lsid;

use crate::updates::sides::{self, COLLECTION, Sides};

/// Counts and codes, without texts: mongod's texts describe its plans.
fn comparable(reply: &Document) -> String {
    let errors = reply.get_array("writeErrors").into_iter().flatten();
    let errors: Vec<_> = errors
        .filter_map(|error| error.as_document())
        .map(|error| ["index", "code"].map(|name| error.get(name).cloned()))
        .collect();
    let fields = ["ok", "n", "nModified", "code", "codeName"].map(|name| reply.get(name).cloned());
    format!("{fields:?} {errors:?}")
}

fn check(sides: &mut Sides, command: &Document) -> Result<()> {
    let [plain, shaped] = sides.run(command)?;
    ensure!(
        comparable(&plain) == comparable(&shaped),
        "{command}\n  plain:  {plain}\n  shaped: {shaped}"
    );
    sides.check()
}

#[test]
fn a_wrong_hint_fails_its_statement_alone() -> Result<()> {
    let mut sides = sides::open()?;
    let right = |id: i32| doc! { "q": { "_id": id }, "u": { "$inc": { "n": 1 } } };
    let wrong = doc! { "q": { "_id": 2 }, "u": { "$inc": { "n": 1 } }, "hint": "nope" };
    for ordered in [true, false] {
        let statements = [right(1), wrong.clone(), right(3)];
        check(
            &mut sides,
            &doc! { "update": COLLECTION, "updates": &statements[..], "ordered": ordered },
        )?;
    }
    // What else is wrong with it comes first.
    let statements = [doc! { "q": { "n": 1 }, "u": { "$nope": { "n": 1 } }, "hint": "nope" }];
    check(&mut sides, &doc! { "update": COLLECTION, "updates": &statements[..] })
}

#[test]
fn upsert_with_expr_fails_even_if_an_item_matches() -> Result<()> {
    let mut sides = sides::open()?;
    let filters = [
        doc! { "_id": 1, "$expr": { "$gte": ["$n", 0] } },
        doc! { "n": 1, "$expr": { "$gte": ["$n", 0] } },
        doc! { "n": 1, "$or": [{ "$expr": { "$gte": ["$n", 0] } }] },
    ];
    for filter in filters {
        let change = doc! { "$set": { "name": "changed" } };
        let statement = doc! { "q": &filter, "u": &change, "upsert": true };
        check(&mut sides, &doc! { "update": COLLECTION, "updates": [statement] })?;
        check(
            &mut sides,
            &doc! { "findAndModify": COLLECTION, "query": &filter, "update": &change, "upsert": true },
        )?;
    }
    Ok(())
}

/// These paths of `$setOnInsert` are about fields that the item's page depends on.
#[test]
fn set_on_insert_is_validated_if_nothing_is_inserted() -> Result<()> {
    let mut sides = sides::open()?;
    let changes = [
        doc! { "$set": { "n": 70 }, "$setOnInsert": { "k": 5, "k.a": 1 } },
        doc! { "$set": { "n": 70, "k": 1 }, "$setOnInsert": { "k.a": 1 } },
        doc! { "$set": { "n": 70 }, "$setOnInsert": { "_id": 1, "_id.a": 1 } },
        doc! { "$set": { "n": 70 }, "$setOnInsert": { "at.x": 1, "at": sides::at(1) } },
        doc! { "$set": { "n": 70 }, "$setOnInsert": { "k.": 1 } },
        doc! { "$setOnInsert": { "k..a": 1 } },
        // This one is valid.
        doc! { "$set": { "n": 71 }, "$setOnInsert": { "k.a": 1 } },
    ];
    for change in changes {
        for id in [1, 1000] {
            let statement = doc! { "q": { "_id": id }, "u": &change };
            check(&mut sides, &doc! { "update": COLLECTION, "updates": [statement] })?;
            check(
                &mut sides,
                &doc! { "findAndModify": COLLECTION, "query": { "_id": id }, "update": &change },
            )?;
        }
    }
    Ok(())
}

#[test]
fn a_wrong_statement_ends_the_transaction() -> Result<()> {
    let mut sides = sides::open()?;
    let by_zero = vec![doc! { "$set": { "n": { "$divide": [1, { "$subtract": ["$n", "$n"] }] } } }];
    let statements = [
        doc! { "q": { "n": 1 }, "u": { "$set": { "n": 5 } }, "hint": "nope" },
        doc! { "q": { "n": 1 }, "u": &by_zero },
        doc! { "q": { "k": 1 }, "u": &by_zero, "multi": true },
        doc! { "q": { "n": 1 }, "u": { "$unset": { "_id": 1 } } },
        doc! { "q": { "k": 1 }, "u": { "$unset": { "_id": 1 } }, "multi": true },
        doc! { "q": { "k": 1 }, "u": { "$set": { "k": 2 }, "$inc": { "name": 1 } }, "multi": true },
        doc! { "q": { "n": 1 }, "u": { "$set": { "lines.$.b": 1 } } },
    ];
    let mut commands = vec![
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": 1 }, "limit": 0, "hint": "nope" }] },
        doc! { "findAndModify": COLLECTION, "query": { "n": 1 }, "update": &by_zero },
    ];
    commands.extend(statements.map(|statement| doc! { "update": COLLECTION, "updates": [statement] }));
    for (number, command) in (1_i64..).zip(commands) {
        let mut command = command;
        let fields = doc! { "lsid": lsid("any"), "txnNumber": number, "autocommit": false };
        command.extend(fields.clone());
        command.insert("startTransaction", true);
        check(&mut sides, &command)?;
        for next in [doc! { "find": COLLECTION }, command] {
            let mut next = next;
            next.extend(fields.clone());
            next.remove("startTransaction");
            check(&mut sides, &next)?;
        }
    }
    Ok(())
}

#[test]
fn resent_upsert_of_an_item_without_id_returns_the_same_reply() -> Result<()> {
    let mut sides = sides::of(ItemIds::Dropped)?;
    let command = doc! {
        "findAndModify": COLLECTION, "query": { "n": 900, "k": 1 }, "update": { "$push": { "tags": 3 } }, "upsert": true,
        "new": true, "lsid": lsid("any"), "txnNumber": 1_i64,
    };
    for _ in 0..2 {
        let [plain, shaped] = sides.run(&command)?;
        let value = |reply: &Document| reply.get_document("value").cloned();
        let (plain, shaped) = (value(&plain)?, value(&shaped)?);
        ensure!(
            ["n", "k", "tags"]
                .iter()
                .all(|name| plain.get(name) == shaped.get(name))
                && plain.len() == shaped.len(),
            "plain: {plain}; shaped: {shaped}"
        );
    }
    sides.check()
}
