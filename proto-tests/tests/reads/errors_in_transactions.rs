//! Errors of mongod for a command on one key and a range of time, in a transaction: those of a plain
//! collection. After an error that is labelled as transient, drivers would repeat the whole transaction.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, bson, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::Transaction;
use proto_tests::sides::{COLLECTION, Sides};

use crate::proxies::small_pages;

/// The code of the error, and whether drivers repeat the transaction after it.
#[derive(Debug, PartialEq)]
struct Failure {
    code: Option<Bson>,
    is_transient: bool,
}

impl Failure {
    /// The failure of a command or of its first statement.
    fn of(reply: &Document) -> Self {
        let statement = reply.get_array("writeErrors").ok().and_then(|errors| errors.first());
        let code = statement.and_then(Bson::as_document).unwrap_or(reply).get("code");
        let labels = reply.get_array("errorLabels").map(Vec::as_slice).unwrap_or_default();
        Self {
            code: code.cloned(),
            is_transient: labels.contains(&"TransientTransactionError".into()),
        }
    }
}

/// Inserts an item of a key that has not been read before, and executes the command in the same transaction.
fn failure(connection: &mut Connection, database: &str, key: i32, command: &Document) -> Result<Failure> {
    let mut transaction = Transaction::new(&format!("{database} {key}"), database);
    let item = doc! { "_id": key, "k": key, "at": DateTime::from_millis(0), "x": "no number" };
    let inserted = transaction.run(connection, &doc! { "insert": COLLECTION, "documents": [item] })?;
    ensure!(inserted.get_i32("n")? == 1, "{inserted}");
    let reply = transaction.run(connection, command)?;
    transaction.end(connection, "abortTransaction")?;
    Ok(Failure::of(&reply))
}

/// Commands with a filter.
fn commands(filter: &Document) -> Vec<Document> {
    let change = bson!({ "$set": { "y": 1 } });
    vec![
        doc! { "find": COLLECTION, "filter": filter },
        doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": filter }], "cursor": {} },
        doc! { "distinct": COLLECTION, "key": "x", "query": filter },
        doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change.clone(), "multi": true }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": 0 }] },
        doc! { "findAndModify": COLLECTION, "query": filter, "update": change },
    ]
}

#[test]
fn an_error_of_a_read_by_key_and_time_is_that_of_a_plain_collection() -> Result<()> {
    let mut sides = Sides::open(small_pages())?;
    let other = doc! { "_id": "other", "k": "other", "at": DateTime::from_millis(0) };
    sides.alike(&doc! { "insert": COLLECTION, "documents": [other] })?;
    let mut key = 0;
    for condition in [
        // It fails for the item.
        doc! { "$expr": { "$gt": [{ "$add": ["$x", 1] }, 0] } },
        doc! { "x": { "$nope": 1 } },
    ] {
        for form in 0..commands(&doc! {}).len() {
            key += 1;
            let mut filter = doc! { "k": key, "at": { "$gte": DateTime::from_millis(-1) } };
            filter.extend(condition.clone());
            let command = commands(&filter).into_iter().nth(form).context("a command")?;
            let (plain, shaped) = (sides.plain_database(), sides.shaped_database());
            let expected = failure(&mut sides.plain, &plain, key, &command)?;
            let found = failure(&mut sides.shaped, &shaped, key, &command)?;
            ensure!(
                expected.code.is_some() && !expected.is_transient,
                "{command}: {expected:?}"
            );
            ensure!(
                found == expected,
                "{command}\n  plain:  {expected:?}\n  shaped: {found:?}"
            );
        }
    }
    Ok(())
}
