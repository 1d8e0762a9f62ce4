//! The first command after a swap, through a proxy that has the old collection in its catalog: it is executed
//! once.
//!
//! An ordinary run takes a part of the cases. The commands that the replica set leaves out are run on the
//! standalone. `MONGOSHAPE_TABLES=full` runs all on both.

use anyhow::{Context as _, Result, bail, ensure};
use bson::{Document, doc};
use proto_tests::measure::rows;
use proto_tests::sessions::Transaction;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{Mongod, ProxyOptions, mongod};

use super::compact;

/// An ordinary run takes one of so many cases.
const PARTS: usize = 4;

/// The commands, and the expected `n` of each.
fn commands(has_transactions: bool) -> Vec<(Document, i32)> {
    let update = |statement: Document| doc! { "update": COLLECTION, "updates": [statement] };
    let mut commands = vec![
        (
            doc! { "insert": COLLECTION, "documents": [{ "_id": "a", "k": 0, "n": -1 }] },
            1,
        ),
        (
            doc! { "insert": COLLECTION, "documents": [{ "_id": "b", "k": 0, "n": -1 }, { "_id": "c", "k": "new", "n": -1 }] },
            2,
        ),
        (update(doc! { "q": { "_id": 10 }, "u": { "$inc": { "m": 1 } } }), 1),
        (update(doc! { "q": { "n": 10 }, "u": { "$inc": { "m": 1 } } }), 1),
        (
            update(doc! { "q": { "k": 1 }, "u": { "$inc": { "m": 1 } }, "multi": true }),
            100,
        ),
        (
            update(doc! { "q": { "_id": "d" }, "u": { "$set": { "k": 1, "n": -1 } }, "upsert": true }),
            1,
        ),
        (
            doc! { "update": COLLECTION, "updates": [
                { "q": { "_id": 10 }, "u": { "$inc": { "m": 1 } } }, { "q": { "_id": 12 }, "u": { "$inc": { "m": 1 } } },
                { "q": { "_id": 310 }, "u": { "$inc": { "m": 1 } } },
            ] },
            3,
        ),
        (
            doc! { "findAndModify": COLLECTION, "query": { "_id": 10 }, "update": { "$inc": { "m": 1 } } },
            1,
        ),
        (
            doc! { "findAndModify": COLLECTION, "query": { "n": { "$gte": 0 } }, "sort": { "n": -1 }, "update": { "$inc": { "m": 1 } } },
            1,
        ),
        (
            doc! { "findAndModify": COLLECTION, "query": { "_id": 20 }, "remove": true },
            1,
        ),
        (
            doc! { "findAndModify": COLLECTION, "query": { "n": { "$gte": 0 } }, "sort": { "n": 1 }, "remove": true },
            1,
        ),
        (
            doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 30 }, "limit": 1 }] },
            1,
        ),
        (
            doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": 32 }, "limit": 1 }] },
            1,
        ),
        (
            doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": { "$in": [34, 36] } }, "limit": 0 }] },
            2,
        ),
        (
            doc! { "delete": COLLECTION, "deletes": [{ "q": { "k": 2 }, "limit": 0 }] },
            100,
        ),
    ];
    if has_transactions {
        commands.extend(moving());
    }
    commands
}

/// Those that give items another key.
fn moving() -> [(Document, i32); 2] {
    let one = doc! { "q": { "_id": 40 }, "u": { "$set": { "k": 0 }, "$inc": { "m": 1 } } };
    let many = doc! { "q": { "k": 0 }, "u": { "$set": { "k": 4 }, "$inc": { "m": 1 } }, "multi": true };
    [
        (doc! { "update": COLLECTION, "updates": [one] }, 1),
        (doc! { "update": COLLECTION, "updates": [many] }, 100),
    ]
}

/// Runs every command in every mode, or a part of them from case `first` on.
fn run(mongod: &Mongod, has_transactions: bool, first: usize) -> Result<()> {
    let modes: &[&str] = if has_transactions {
        &["plain", "strict", "transaction"]
    } else {
        &["plain", "strict"]
    };
    let cases = modes.iter().flat_map(|mode| {
        let commands = commands(has_transactions).into_iter();
        commands.map(move |(command, n)| (*mode, command, n))
    });
    for (mode, command, n) in rows(cases, PARTS, first) {
        check(mongod, mode, command, n)?;
    }
    Ok(())
}

/// Runs a command after a swap. `n`: the expected `n`.
fn check(mongod: &Mongod, mode: &str, mut command: Document, n: i32) -> Result<()> {
    let shaped = Shaped::with("max_items = 20\n", &ProxyOptions::new(&mongod.uri()))?;
    let mut application = shaped.application()?;
    let items: Vec<Document> = (0..600)
        .map(|n| doc! { "_id": n, "k": n / 200, "n": n, "m": 0 })
        .collect();
    application.command_ok(&shaped.insert(&items))?;
    let odd = doc! { "q": { "n": { "$mod": [2, 1] } }, "limit": 0 };
    application.command_ok(&doc! { "delete": COLLECTION, "deletes": [odd], "$db": &shaped.database })?;
    let packed = compact(&shaped.proxy)?;
    ensure!(packed.contains("packed: "), "{packed}");
    command.insert("$db", &shaped.database);
    if mode == "strict" {
        command.extend(doc! { "apiVersion": "1", "apiStrict": true });
    }
    let reply = if mode == "transaction" {
        within(&shaped, &command)?
    } else {
        application.command(&command)?
    };
    let count = match reply.get_document("lastErrorObject") {
        Ok(last) => last.get_i32("n"),
        Err(_) => reply.get_i32("n"),
    };
    ensure!(
        count.with_context(|| format!("{mode} {command}: {reply}"))? == n,
        "{mode} {command}: {reply}"
    );
    ensure!(reply.get("writeErrors").is_none(), "{mode} {command}: {reply}");
    let find = doc! { "find": COLLECTION, "filter": { "m": { "$gt": 0 } }, "$db": &shaped.database };
    let changed = application.all(&find)?;
    ensure!(
        changed.iter().all(|item| item.get_i32("m").ok() == Some(1)),
        "{mode} {command}: some twice"
    );
    Ok(())
}

/// A transaction may have to be run again, as drivers do.
fn within(shaped: &Shaped, command: &Document) -> Result<Document> {
    let mut connection = shaped.application()?;
    for attempt in 0..2 {
        let mut transaction = Transaction::new(&format!("{} {attempt}", shaped.database), &shaped.database);
        let reply = transaction.run(&mut connection, command)?;
        if let Ok(labels) = reply.get_array("errorLabels") {
            ensure!(
                attempt == 0 && format!("{labels:?}").contains("TransientTransactionError"),
                "{reply}"
            );
            continue;
        }
        transaction.end(&mut connection, "commitTransaction")?;
        return Ok(reply);
    }
    bail!("it is never done")
}

#[test]
fn proxy_with_a_stale_catalog_executes_a_command_on_a_replica_set() -> Result<()> {
    run(mongod::shared_replica_set(), true, 1)
}

#[test]
fn proxy_with_a_stale_catalog_executes_a_command_on_a_standalone() -> Result<()> {
    run(mongod::shared(), false, 2)
}
