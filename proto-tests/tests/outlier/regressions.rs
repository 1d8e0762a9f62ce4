//! Cases that random operations have found, one test for each.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, Timestamp, bson, doc};
use proto_tests::Outlier;
use proto_tests::sides::{COLLECTION, Sides};

/// A document with an array of so many numbers.
fn long(id: i32, length: i32) -> Document {
    doc! { "_id": id, "n": id, "tags": (0..length).collect::<Vec<_>>() }
}

/// Both sides with a typical document and two outliers.
fn sides() -> Result<Sides<Outlier>> {
    filled(Sides::open(Outlier::new("tags", (5, 7)))?)
}

fn on_a_standalone() -> Result<Sides<Outlier>> {
    filled(Sides::on_a_standalone(Outlier::new("tags", (5, 7)))?)
}

fn filled(mut sides: Sides<Outlier>) -> Result<Sides<Outlier>> {
    sides.alike(&doc! { "insert": COLLECTION, "documents": [long(1, 3), long(2, 20), long(3, 13)] })?;
    Ok(sides)
}

fn update(statements: &[Document]) -> Document {
    doc! { "update": COLLECTION, "updates": statements }
}

/// As a retryable write, or with more fields as a part of a transaction.
fn numbered(mut command: Document, number: i64, more: Document) -> Document {
    command.extend(doc! { "lsid": {}, "txnNumber": number });
    command.extend(more);
    command
}

/// Sends it twice. Both times the replies and the stored documents are the same.
fn twice(sides: &mut Sides<Outlier>, command: &Document, number: i64) -> Result<()> {
    for _ in 0..2 {
        sides.alike(&numbered(command.clone(), number, doc! {}))?;
        sides.check()?;
    }
    Ok(())
}

/// What both answer a `find` with, which must be the same.
fn found(sides: &mut Sides<Outlier>, mut find: Document) -> Result<Vec<Document>> {
    find.insert("$db", sides.plain_database());
    let plain = sides.plain.all(&find)?;
    find.insert("$db", sides.shaped_database());
    let shaped = sides.shaped.all(&find)?;
    ensure!(plain == shaped, "{find}\n  plain:  {plain:?}\n  shaped: {shaped:?}");
    Ok(plain)
}

/// mongod refuses such a path in the list of fields on which a pipeline depends.
#[test]
fn filters_with_paths_below_a_dollar_name_are_evaluated() -> Result<()> {
    let mut sides = sides()?;
    let filter = doc! { "tags": { "$gte": 1 }, "$or": [{ "qty.$f": 1 }, { "n": { "$gte": 2 } }] };
    for projection in [doc! {}, doc! { "_id": 1 }, doc! { "tags": 0 }] {
        let find = doc! { "find": COLLECTION, "filter": &filter, "projection": projection, "sort": { "_id": 1 } };
        ensure!(found(&mut sides, find)?.len() == 2);
    }
    sides.alike(&doc! { "count": COLLECTION, "query": &filter })?;
    sides.alike(&doc! { "distinct": COLLECTION, "key": "n", "query": &filter })?;
    let remove = doc! { "findAndModify": COLLECTION, "query": &filter, "sort": { "n": -1 }, "remove": true };
    sides.alike(&remove)?;
    sides.alike(&update(&[
        doc! { "q": filter, "u": { "$push": { "tags": 1 } }, "multi": true },
    ]))?;
    sides.check()
}

#[test]
fn a_transaction_begins_once() -> Result<()> {
    let begins = [
        doc! { "findAndModify": COLLECTION, "query": { "n": 2 }, "update": { "$set": { "z": 1 } } },
        doc! { "find": COLLECTION, "filter": { "n": 2 } },
        doc! { "find": COLLECTION, "filter": { "tags": 19 } },
        doc! { "insert": COLLECTION, "documents": [long(4, 9)] },
        update(&[doc! { "q": { "n": 2 }, "u": { "$pull": { "tags": 3 } } }]),
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": 2 }, "limit": 1 }] },
    ];
    for (number, command) in (1_i64..).zip(begins) {
        let mut sides = sides()?;
        let begin = numbered(command, number, doc! { "autocommit": false, "startTransaction": true });
        sides.alike(&begin)?;
        let push = update(&[doc! { "q": { "_id": 3 }, "u": { "$push": { "tags": "later" } } }]);
        sides.alike(&numbered(push, number, doc! { "autocommit": false }))?;
        for is_shaped in [false, true] {
            let database = if is_shaped {
                sides.shaped_database()
            } else {
                sides.plain_database()
            };
            let connection = if is_shaped { &mut sides.shaped } else { &mut sides.plain };
            connection.command_ok(&doc! {
                "commitTransaction": 1, "lsid": proto_tests::sessions::lsid(&database), "txnNumber": number,
                "autocommit": false, "$db": "admin",
            })?;
        }
        sides.check()?;
    }
    Ok(())
}

/// mongod ends a transaction in which a statement fails: also one that failed on the copy of an outlier.
#[test]
fn failure_in_the_scratch_collection_aborts_the_transaction() -> Result<()> {
    let fails = [
        update(&[doc! { "q": { "_id": 2 }, "u": { "$inc": { "tags.x": 1 } } }]),
        update(&[doc! { "q": { "n": 9 }, "u": [{ "$set": { "tags": { "$divide": [1, 0] } } }], "upsert": true }]),
        doc! { "findAndModify": COLLECTION, "query": { "n": 2 }, "update": { "$inc": { "tags.x": 1 } } },
        doc! { "findAndModify": COLLECTION, "query": { "n": 2 }, "remove": true, "new": true },
        update(&[doc! { "q": { "n": 2 }, "u": { "$nope": { "tags": 1 } }, "hint": "nope" }]),
    ];
    for (number, command) in (1_i64..).zip(fails) {
        let mut sides = sides()?;
        let in_transaction = doc! { "autocommit": false };
        let begin = doc! { "find": COLLECTION, "filter": { "n": 1 } };
        let first = doc! { "autocommit": false, "startTransaction": true };
        sides.alike(&numbered(begin.clone(), number, first))?;
        let [plain, shaped] = sides.run(&numbered(command.clone(), number, in_transaction.clone()))?;
        let code = |reply: &Document| -> Option<i32> {
            let error = reply
                .get_array("writeErrors")
                .ok()
                .and_then(|errors| errors.first()?.as_document());
            error.unwrap_or(reply).get_i32("code").ok()
        };
        ensure!(
            code(&plain).is_some() && code(&plain) == code(&shaped),
            "{command}\n  {plain}\n  {shaped}"
        );
        let [plain, shaped] = sides.run(&numbered(begin, number, in_transaction))?;
        let codes = (code(&plain), code(&shaped));
        ensure!(
            codes == (Some(251), Some(251)),
            "{command} has not ended the transaction: {codes:?}"
        );
        sides.check()?;
    }
    Ok(())
}

#[test]
fn errors_have_mongods_precedence() -> Result<()> {
    let mut sides = on_a_standalone()?;
    let wrong = [
        // The change before the hint, and before an expression.
        doc! { "q": { "n": 2 }, "u": { "$nope": { "tags": 1 } }, "hint": "nope" },
        doc! { "q": { "n": 2 }, "u": { "$push": { "tags": 1 } }, "hint": "nope" },
        doc! { "q": { "$expr": { "$eq": ["$n", 2] } }, "u": { "$inc": { "tags.0": "x" } }, "upsert": true },
        doc! { "q": { "$expr": { "$eq": ["$n", 2] } }, "u": { "$inc": { "tags.0": 1 } }, "upsert": true },
        doc! { "q": { "_id": 2, "n": 9 }, "u": [{ "$set": { "tags": ["$n"] } }], "upsert": true, "hint": { "z": 1 } },
        // A replacement of many, whether or not any is meant.
        doc! { "q": { "n": 2 }, "u": { "tags": [1] }, "multi": true },
        doc! { "q": { "n": 2 }, "u": {}, "multi": true },
    ];
    for statement in wrong {
        let [plain, shaped] = sides.run(&update(std::slice::from_ref(&statement)))?;
        let error = |reply: &Document| -> Result<i32> {
            let error = reply
                .get_array("writeErrors")?
                .first()
                .and_then(Bson::as_document)
                .cloned();
            Ok(error.context("no error")?.get_i32("code")?)
        };
        let context = || format!("{statement}\n  plain:  {plain}\n  shaped: {shaped}");
        let codes = (
            error(&plain).with_context(context)?,
            error(&shaped).with_context(context)?,
        );
        ensure!(codes.0 == codes.1, "{}", context());
    }
    sides.check()
}

/// Many writes of one number would be taken for one of them.
#[test]
fn updates_of_many_are_not_retryable() -> Result<()> {
    let mut sides = sides()?;
    let commands = [
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": { "$gt": 1 } }, "limit": 0 }] },
        update(&[doc! { "q": { "n": { "$gt": 1 } }, "u": { "$push": { "tags": 1 } }, "multi": true }]),
    ];
    for (number, command) in (1..).zip(commands) {
        let reply = sides.alike(&numbered(command, number, doc! {}))?;
        ensure!(reply.contains_key("writeErrors"), "{reply}");
        sides.check()?;
    }
    Ok(())
}

/// What a write that is sent again would do now is another question than what it did.
#[test]
fn resent_write_returns_the_same_reply() -> Result<()> {
    let to = |id: i32, change: Bson| update(&[doc! { "q": { "n": id }, "u": change }]);
    let made = |id: i32, change: Bson| update(&[doc! { "q": { "_id": id, "n": id }, "u": change, "upsert": true }]);
    let changed = |id: i32, change: Bson| {
        doc! { "findAndModify": COLLECTION, "query": { "_id": id }, "update": change, "upsert": true, "new": true }
    };
    let numbers: Vec<i32> = (0..20).collect();
    let commands = [
        // It finds nothing to pull the second time, nothing to rename, and a string.
        to(2, bson!({ "$pull": { "tags": 7 } })),
        to(2, bson!({ "$set": { "tags.9": "x" } })),
        to(3, bson!({ "$rename": { "tags": "others" } })),
        to(
            3,
            bson!([{ "$set": { "tags": { "$concatArrays": ["$others", ["$n"]] } } }]),
        ),
        // It finds what it has inserted.
        made(11, bson!([{ "$set": { "history": "$tags" } }])),
        made(12, bson!({ "$set": { "tags": numbers.clone() } })),
        made(13, bson!({ "$push": { "tags": { "$each": numbers.clone() } } })),
        made(14, bson!({ "$push": { "tags": 1 } })),
        changed(21, bson!({ "$set": { "tags": numbers.clone() } })),
        changed(22, bson!({ "$push": { "tags": 1 } })),
        changed(23, bson!({ "z": 1 })),
        changed(1, bson!({ "$set": { "tags": numbers } })),
    ];
    let mut sides = sides()?;
    for (number, command) in (1..).zip(commands) {
        twice(&mut sides, &command, number).with_context(|| format!("{command}"))?;
    }
    Ok(())
}

/// mongod applies the projection to the first reply only.
#[test]
fn resent_find_and_modify_returns_the_whole_document() -> Result<()> {
    let modify = |id: i32, more: Document| {
        let mut command = doc! { "findAndModify": COLLECTION, "query": { "_id": id } };
        command.extend(more);
        command
    };
    let numbers: Vec<i32> = (0..20).collect();
    let commands = [
        modify(1, doc! { "update": { "$inc": { "n": 1 } }, "fields": { "n": 1 } }),
        modify(
            1,
            doc! { "update": { "$push": { "tags": 7 } }, "new": true, "fields": { "tags": 1, "_id": 0 } },
        ),
        modify(
            2,
            doc! { "update": { "$push": { "tags": 7 } }, "new": true, "fields": { "n": 1, "_id": 0 } },
        ),
        modify(
            3,
            doc! { "update": { "$set": { "tags.9": "x" } }, "new": true, "fields": { "tags": { "$slice": 2 } } },
        ),
        modify(
            4,
            doc! { "update": { "$set": { "tags": numbers } }, "upsert": true, "new": true, "fields": { "tags": 0 } },
        ),
        modify(1, doc! { "remove": true, "fields": { "n": 1 } }),
    ];
    let mut sides = sides()?;
    for (number, command) in (1..).zip(commands) {
        twice(&mut sides, &command, number).with_context(|| format!("{command}"))?;
    }
    Ok(())
}

#[test]
fn an_upsert_may_make_an_outlier_with_variables() -> Result<()> {
    let mut sides = on_a_standalone()?;
    let stages = bson!([{ "$set": { "tags": { "$range": ["$$from", 30] } } }]);
    let mut command = update(&[doc! { "q": { "_id": 4 }, "u": stages.clone(), "upsert": true }]);
    command.insert("let", doc! { "from": 7 });
    sides.alike(&command)?;
    sides.alike(&doc! {
        "findAndModify": COLLECTION, "query": { "_id": 5 }, "update": stages, "upsert": true, "let": { "from": 1 },
        "new": true,
    })?;
    sides.check()
}

/// mongod counts a push with a sort as a change in any case.
#[test]
fn push_without_change_has_mongods_reply() -> Result<()> {
    let mut sides = on_a_standalone()?;
    let each = bson!({ "tags": { "$each": [], "$sort": 1 } });
    sides.alike(&update(&[
        doc! { "q": { "n": 1 }, "u": { "$push": each.clone() } },
        doc! { "q": { "n": 2 }, "u": { "$push": each } },
        doc! { "q": { "n": 2 }, "u": { "$push": { "tags": { "$each": [], "$slice": 30 } } } },
        doc! { "q": { "n": 2 }, "u": { "$pull": { "tags": "nobody" } } },
    ]))?;
    sides.check()
}

/// An insert fills an empty timestamp in, an update does not: the copy of an outlier has it as it was.
#[test]
fn empty_timestamps_are_kept() -> Result<()> {
    let mut sides = on_a_standalone()?;
    let empty = Bson::Timestamp(Timestamp { time: 0, increment: 0 });
    sides.alike(&update(&[
        doc! { "q": { "_id": 2 }, "u": { "$set": { "t": empty.clone() } } },
        doc! { "q": { "_id": 2 }, "u": { "$pull": { "tags": 3 } } },
        doc! { "q": { "_id": 2 }, "u": [{ "$set": { "tags": { "$slice": ["$tags", 9] } } }] },
        doc! { "q": { "_id": 4 }, "u": [{ "$set": { "t": empty, "tags": { "$range": [0, 9] } } }], "upsert": true },
    ]))?;
    sides.check()
}

#[test]
fn outliers_are_found_without_their_ids_and_in_natural_order() -> Result<()> {
    let mut sides = on_a_standalone()?;
    for projection in [
        doc! { "_id": 0 },
        doc! { "_id": 0, "tags": 1 },
        doc! { "_id": 0, "n": 0 },
        doc! { "_id": 0, "n": 1 },
        doc! { "_id": 0, "tags": 0 },
        doc! { "_id": 0, "other": { "$slice": 1 } },
        doc! { "_id": false, "tags": { "$slice": [4, 4] } },
    ] {
        let seen = found(
            &mut sides,
            doc! { "find": COLLECTION, "projection": projection, "batchSize": 1 },
        )?;
        ensure!(seen.len() == 3, "{seen:?}");
    }
    for order in [1, -1] {
        let sort = doc! { "$natural": order };
        let seen = found(
            &mut sides,
            doc! { "find": COLLECTION, "filter": { "tags": { "$gte": 2 } }, "sort": sort },
        )?;
        ensure!(seen.len() == 3, "{seen:?}");
    }
    Ok(())
}

#[test]
fn outliers_are_found_by_a_projection_of_a_part_of_their_ids() -> Result<()> {
    let mut sides = Sides::on_a_standalone(Outlier::new("tags", (5, 7)))?;
    let document = |id: i32| {
        let mut document = long(id, 5 + id * 5);
        document.insert("_id", doc! { "a": id, "b": 2 });
        document
    };
    sides.alike(&doc! { "insert": COLLECTION, "documents": [document(0), document(1), document(2)] })?;
    for projection in [
        doc! { "_id.b": 0 },
        doc! { "_id.a": 1, "tags": 1 },
        doc! { "_id.a": 1, "n": 1 },
        doc! { "_id": { "b": 0 } },
        doc! { "_id": { "b": 0 }, "tags": 0 },
        doc! { "_id": "x", "tags": 1 },
    ] {
        let find = doc! { "find": COLLECTION, "projection": projection, "batchSize": 1 };
        ensure!(found(&mut sides, find)?.len() == 3);
    }
    Ok(())
}

#[test]
fn an_id_that_mongod_refuses_is_refused_beside_a_long_array() -> Result<()> {
    let mut sides = on_a_standalone()?;
    for id in [Bson::Undefined, bson!([1])] {
        let mut wrong = long(4, 9);
        wrong.insert("_id", id);
        let documents = [wrong, long(5, 9)];
        sides.alike(&doc! { "insert": COLLECTION, "documents": documents.to_vec(), "ordered": false })?;
        sides.check()?;
    }
    Ok(())
}
