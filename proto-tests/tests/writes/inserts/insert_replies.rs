//! Replies of inserts: write concerns, old transaction numbers, and pages of another layout.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::ItemIds;
use proto_tests::Shape;
use proto_tests::sessions::lsid;
use proto_tests::sides::{ALL_IDS, COLLECTION, Sides};

fn insert(ids: &[i32]) -> Document {
    let documents: Vec<Document> = ids.iter().map(|id| doc! { "_id": id, "k": id % 3 }).collect();
    doc! { "insert": COLLECTION, "documents": documents }
}

fn with(command: &Document, fields: Document) -> Document {
    let mut command = command.clone();
    command.extend(fields);
    command
}

/// Whether both have the same write concern error.
fn told_of_concern(sides: &mut Sides, command: &Document) -> Result<()> {
    let databases = [sides.plain_database(), sides.shaped_database()];
    let [plain, shaped] = &databases;
    let plain = sides.plain.command(&with(command, doc! { "$db": plain }))?;
    let shaped = sides.shaped.command(&with(command, doc! { "$db": shaped }))?;
    let comparable = |reply: &Document| {
        let error = reply.get_document("writeConcernError").ok();
        let error = error.map(|error| {
            (
                error.get_i32("code").ok(),
                error.get_str("errmsg").ok().map(str::to_owned),
            )
        });
        (
            error,
            reply.get_i32("n").ok(),
            reply.get_f64("ok").ok(),
            reply.get_i32("code").ok(),
        )
    };
    ensure!(
        comparable(&plain) == comparable(&shaped),
        "{command}\n  plain:  {plain}\n  shaped: {shaped}"
    );
    Ok(())
}

#[test]
fn unsatisfied_write_concern_is_returned_if_nothing_is_stored() -> Result<()> {
    let mut sides = Sides::open(Shape::new(&["k"]))?;
    sides.alike(&insert(&[1, 2, 3]))?;
    for concern in [
        doc! { "w": 3, "wtimeout": 50 },
        doc! { "w": "nobody" },
        doc! { "w": 1 },
        doc! { "w": 0 },
    ] {
        for command in [
            with(&insert(&[1, 2, 3]), doc! { "ordered": true }),
            with(&insert(&[1, 2, 3]), doc! { "ordered": false }),
            insert(&[1]),
            doc! { "insert": COLLECTION, "documents": [{ "_id": [1], "k": 1 }] },
        ] {
            told_of_concern(&mut sides, &with(&command, doc! { "writeConcern": concern.clone() }))?;
        }
    }
    sides.check()
}

#[test]
fn command_with_an_old_transaction_number_fails() -> Result<()> {
    for item_ids in ALL_IDS {
        let mut sides = Sides::open(Shape {
            item_ids,
            ..Shape::new(&["k"])
        })?;
        let numbered = |command: &Document, number: i64| with(command, doc! { "lsid": lsid("x"), "txnNumber": number });
        sides.alike(&numbered(&insert(&[1, 2, 3]), 5))?;
        for ids in [vec![4], vec![4, 5, 6, 7], vec![1, 2], (10..60).collect()] {
            for ordered in [true, false] {
                let replies = sides.run(&with(&numbered(&insert(&ids), 4), doc! { "ordered": ordered }))?;
                // The message names the session, which is another on each side.
                for reply in replies {
                    ensure!(reply.get_i32("code")? == 225 && !reply.contains_key("n"), "{reply}");
                }
            }
        }
        sides.check()?;
    }
    Ok(())
}

#[test]
fn insert_and_delete_skip_a_page_of_another_layout() -> Result<()> {
    for item_ids in [ItemIds::Unique, ItemIds::Stored] {
        let mut sides = Sides::open(Shape {
            item_ids,
            ..Shape::new(&["k"])
        })?;
        sides.alike(&insert(&[1, 4, 7]))?;
        let database = sides.shaped_database();
        // A layout must change the revision of a page that it takes over.
        let later = doc! { "control.v": 2, "control.revision": 0 };
        sides.plain.command_ok(&doc! {
            "update": COLLECTION, "updates": [{ "q": {}, "u": { "$set": later } }], "$db": &database,
        })?;
        let before = sides.buckets()?;
        for command in [
            insert(&[10]),
            insert(&[10, 13]),
            insert(&(10..40).map(|n| n * 3 + 1).collect::<Vec<_>>()),
            doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 4 }, "u": { "$set": { "x": 1 } } }] },
            doc! { "update": COLLECTION, "updates": [{ "q": { "k": 1 }, "u": { "$set": { "x": 1 } }, "multi": true }] },
            doc! { "findAndModify": COLLECTION, "query": { "_id": 4 }, "update": { "$set": { "x": 1 } } },
            doc! { "findAndModify": COLLECTION, "query": { "_id": 4 }, "remove": true },
            doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 4 }, "limit": 1 }] },
            doc! { "delete": COLLECTION, "deletes": [{ "q": { "k": 1 }, "limit": 0 }] },
        ] {
            let reply = sides.shaped.command(&with(&command, doc! { "$db": &database }))?;
            let has_failed = reply.contains_key("writeErrors") || reply.get_i32("code").is_ok();
            ensure!(has_failed, "{command} was acknowledged: {reply}");
            ensure!(sides.buckets()? == before, "{command} has changed a page");
        }
    }
    Ok(())
}
