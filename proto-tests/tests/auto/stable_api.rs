//! Writes under `apiStrict`, which may not name the UUID of their collection.

use anyhow::{Result, ensure};
use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use proto_tests::measure::rows;
use proto_tests::mongod;

use super::commands::{code, waits_for};
use super::fixture::{COLLECTION, Fixture, item};
use super::plain_documents::OF_TIME;

/// So many documents that mongod does not change all of them within a time limit of the proxy.
const MANY: i32 = 100_000;

fn strict(mut command: Document) -> Document {
    command.extend(doc! { "apiVersion": "1", "apiStrict": true });
    command
}

fn increment() -> Document {
    doc! { "q": {}, "u": { "$inc": { "n": 1 } }, "multi": true }
}

/// The number of documents with this `n`.
fn count(fixture: &Fixture, n: i32) -> Result<i32> {
    Ok(fixture
        .past(doc! { "count": COLLECTION, "query": { "n": n } })?
        .get_i32("n")?)
}

#[test]
fn a_slow_write_is_executed_once() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    fixture.store_plain(&[])?;
    let documents: Vec<Document> = (0..MANY).map(|n| item(n, n % 3, i64::from(n))).collect();
    let reply = fixture.run(0, strict(doc! { "insert": COLLECTION, "documents": documents }))?;
    ensure!(
        reply.get_i32("n")? == MANY && !reply.contains_key("writeErrors"),
        "{}",
        reply.to_string().chars().take(300).collect::<String>()
    );
    for round in 1..=2 {
        let concern = doc! { "w": "majority" };
        let update = doc! { "update": COLLECTION, "updates": [increment()], "writeConcern": concern };
        let reply = fixture.run(0, strict(update))?;
        ensure!(reply.get_i32("nModified")? == MANY, "{reply}");
        ensure!(count(&fixture, round)? == MANY, "not each document was changed once");
    }
    let reply = fixture.run(
        0,
        strict(doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] }),
    )?;
    ensure!(reply.get_i32("n")? == MANY, "{reply}");
    Ok(())
}

/// A reply without fields that depend on the time.
fn comparable(mut reply: Document) -> Document {
    for field in OF_TIME {
        reply.remove(field);
    }
    reply
}

#[test]
fn statements_that_fail_are_reported_as_by_mongod() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    let wrong = doc! { "q": {}, "u": { "$inc": { "at": 1 } }, "multi": true };
    let updates = [increment(), wrong, increment()];
    for ordered in [true, false] {
        let update = strict(doc! { "update": COLLECTION, "updates": &updates, "ordered": ordered });
        let mut replies = Vec::new();
        for is_direct in [true, false] {
            fixture.store_plain(&[item(1, 1, 1), item(2, 1, 2)])?;
            let reply = if is_direct {
                let mut update = update.clone();
                update.insert("$db", &fixture.database);
                fixture.direct()?.command(&update)?
            } else {
                fixture.run(0, update.clone())?
            };
            replies.push((comparable(reply), count(&fixture, 1)?));
            fixture.past(doc! { "drop": COLLECTION })?;
        }
        ensure!(replies[0] == replies[1], "{replies:?}");
    }
    Ok(())
}

#[test]
fn writes_that_the_stable_api_does_not_allow_change_nothing() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    fixture.store_plain(&[item(1, 1, 1), item(2, 1, 2)])?;
    let index = doc! { "key": { "n": 1 }, "name": "sparse", "sparse": true };
    fixture.past(doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    let uuid = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: vec![1; 16],
    };
    let with_hint = doc! { "q": {}, "u": { "$inc": { "n": 1 } }, "hint": "sparse" };
    let delete = doc! { "q": {}, "limit": 1, "hint": "sparse" };
    for command in [
        doc! { "insert": COLLECTION, "documents": [item(3, 1, 3)], "collectionUUID": &uuid },
        doc! { "update": COLLECTION, "updates": [increment()], "collectionUUID": &uuid },
        doc! { "update": COLLECTION, "updates": [with_hint.clone()] },
        doc! { "update": COLLECTION, "updates": [with_hint.clone(), increment()] },
        doc! { "delete": COLLECTION, "deletes": [delete] },
        doc! { "findAndModify": COLLECTION, "update": { "$inc": { "n": 1 } }, "hint": "sparse" },
    ] {
        let mut direct = strict(command.clone());
        direct.insert("$db", &fixture.database);
        let expected = fixture.direct()?.command(&direct)?;
        let reply = fixture.run(0, strict(command))?;
        ensure!(
            code(&reply).is_some() && code(&reply) == code(&expected),
            "{direct}: {reply}"
        );
        let result = |reply: &Document| (reply.get_i32("n").ok(), reply.get_i32("nModified").ok());
        ensure!(result(&reply) == result(&expected), "{direct}: {reply}");
    }
    // mongod executes the first statement. The proxy executes none, and reports the whole command as failed.
    let update = doc! { "update": COLLECTION, "updates": [increment(), with_hint] };
    let reply = fixture.run(0, strict(update))?;
    ensure!(code(&reply) == Some(2) && reply.get_f64("ok")? == 0.0, "{reply}");
    ensure!(count(&fixture, 0)? == 2, "changed");
    Ok(())
}

#[test]
fn a_command_between_the_renamings_waits() -> Result<()> {
    let (found, change) = (doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } });
    let commands = [
        doc! { "insert": COLLECTION, "documents": [item(2, 1, 2)] },
        doc! { "update": COLLECTION, "updates": [increment()] },
        doc! { "findAndModify": COLLECTION, "query": &found, "update": change },
        doc! { "find": COLLECTION, "filter": &found },
        doc! { "count": COLLECTION },
    ];
    let cases = [false, true].into_iter().flat_map(|has_pages| {
        let commands = commands.iter();
        commands.map(move |command| (command, has_pages))
    });
    // The number of commands is odd, so that an ordinary run takes each in one of the layouts.
    for (command, has_pages) in rows(cases, 2, 0) {
        let reply = waits_for(&strict(command.clone()), has_pages)?;
        let is_executed = reply.get_i32("n").is_ok_and(|n| n == 1)
            || reply.get_document("value").is_ok()
            || reply
                .get_document("cursor")
                .is_ok_and(|cursor| cursor.get_array("firstBatch").is_ok_and(|batch| batch.len() == 1));
        ensure!(is_executed && code(&reply).is_none(), "{command}: {reply}");
    }
    Ok(())
}
