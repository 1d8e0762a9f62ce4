//! Transactions on a bucket collection: conflicts between them, and their visibility outside.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::Transaction;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{ProxyOptions, mongod};

fn start() -> Result<Shaped> {
    let shaped = Shaped::with("max_items = 3", &ProxyOptions::new(&mongod::shared_replica_set().uri()))?;
    shaped.application()?.command_ok(&shaped.insert(&[item(0)]))?;
    Ok(shaped)
}

fn item(id: i32) -> Document {
    doc! { "_id": id, "k": 1 }
}

/// The transaction of a session of that number.
fn in_session(shaped: &Shaped, number: u8) -> Transaction {
    Transaction::new(&format!("{}.{number}", shaped.database), &shaped.database)
}

fn insert(
    transaction: &mut Transaction,
    connection: &mut Connection,
    (shaped, ids): (&Shaped, std::ops::Range<i32>),
) -> Result<Document> {
    let items: Vec<Document> = ids.map(item).collect();
    transaction.run(connection, &shaped.insert(&items))
}

fn ids(connection: &mut Connection, shaped: &Shaped) -> Result<Vec<i32>> {
    let items = connection.find(&shaped.database, COLLECTION, doc! { "k": 1 })?;
    Ok(items.iter().filter_map(|item| item.get_i32("_id").ok()).collect())
}

fn is_transient(reply: &Document) -> bool {
    let labels = reply.get_array("errorLabels").map(Vec::as_slice).unwrap_or_default();
    labels
        .iter()
        .any(|label| label.as_str() == Some("TransientTransactionError"))
}

#[test]
fn transaction_writes_are_visible_outside_only_after_commit() -> Result<()> {
    let shaped = start()?;
    let (mut inside, mut outside) = (shaped.application()?, shaped.application()?);
    for (number, end, expected) in [(1, "abortTransaction", 1), (2, "commitTransaction", 9)] {
        let mut transaction = in_session(&shaped, number);
        // Over several pages.
        for range in [1..3, 3..9] {
            let reply = insert(&mut transaction, &mut inside, (&shaped, range.clone()))?;
            ensure!(reply.get_i32("n")? == range.end - range.start, "{reply}");
        }
        let find = doc! { "find": COLLECTION, "filter": { "k": 1 }, "$db": &shaped.database };
        let found = transaction.run(&mut inside, &find)?;
        ensure!(
            found.get_document("cursor")?.get_array("firstBatch")?.len() == 9,
            "{found}"
        );
        ensure!(ids(&mut outside, &shaped)? == [0]);
        let ended = transaction.end(&mut inside, end)?;
        ensure!(ended.get_f64("ok")? > 0.0, "{ended}");
        ensure!(ids(&mut outside, &shaped)?.len() == expected);
    }
    // Cached pages from before the transaction are checked again.
    outside.command_ok(&shaped.insert(&[item(9), item(10)]))?;
    ensure!(ids(&mut inside, &shaped)? == (0..=10).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn concurrent_transactions_on_one_key_get_a_transient_write_conflict() -> Result<()> {
    let shaped = start()?;
    let (mut one, mut other) = (shaped.application()?, shaped.application()?);
    let mut first = in_session(&shaped, 1);
    let mut second = in_session(&shaped, 2);
    ensure!(insert(&mut first, &mut one, (&shaped, 1..2))?.get_i32("n")? == 1);
    let conflict = insert(&mut second, &mut other, (&shaped, 2..3))?;
    ensure!(
        conflict.get_i32("code")? == 112 && is_transient(&conflict),
        "{conflict}"
    );
    ensure!(first.end(&mut one, "commitTransaction")?.get_f64("ok")? > 0.0);
    // It began before the other was committed, and so cannot see the page that it would have to write.
    let mut third = in_session(&shaped, 3);
    let find = doc! { "find": "another", "$db": &shaped.database };
    third.run(&mut other, &find)?;
    one.command_ok(&shaped.insert(&[item(5)]))?;
    let stale = insert(&mut third, &mut other, (&shaped, 6..7))?;
    ensure!(is_transient(&stale), "{stale}");
    ensure!(ids(&mut one, &shaped)? == [0, 1, 5]);
    Ok(())
}

#[test]
fn transaction_continues_on_another_connection_and_another_proxy() -> Result<()> {
    let shaped = start()?;
    let options = "max_items = 3";
    let uri = mongod::shared_replica_set().uri();
    let table = format!(
        "[[bucket]]\nnamespace = \"{}.{COLLECTION}\"\nkey = \"k\"\n{options}",
        shaped.database
    );
    let proxy = proto_tests::Proxy::start(&ProxyOptions::new(&uri).config(&table))?;
    let mut transaction = in_session(&shaped, 1);
    insert(&mut transaction, &mut shaped.application()?, (&shaped, 1..4))?;
    let mut other = Connection::open(proxy.address())?;
    ensure!(insert(&mut transaction, &mut other, (&shaped, 4..8))?.get_i32("n")? == 4);
    ensure!(transaction.end(&mut other, "commitTransaction")?.get_f64("ok")? > 0.0);
    ensure!(ids(&mut other, &shaped)? == (0..8).collect::<Vec<_>>());
    Ok(())
}

/// A command on a collection of this name.
type Step<'a> = &'a dyn Fn(&str) -> Document;

/// The reply of an index command, or its error.
fn comparable(reply: &Document) -> Document {
    const TOLD: [&str; 7] = [
        "ok",
        "code",
        "n",
        "numIndexesBefore",
        "numIndexesAfter",
        "createdCollectionAutomatically",
        "note",
    ];
    let fields = reply.iter().filter(|(name, _)| TOLD.contains(&name.as_str()));
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn names(connection: &mut Connection, database: &str, collection: &str) -> Result<Vec<String>> {
    let reply = connection.command(&doc! { "listIndexes": collection, "$db": database })?;
    let Ok(cursor) = reply.get_document("cursor") else {
        return Ok(Vec::new());
    };
    let specs = cursor.get_array("firstBatch")?.iter();
    let names = specs.filter_map(|spec| spec.as_document()?.get_str("name").ok().map(str::to_owned));
    Ok(names.collect())
}

#[test]
fn collection_and_indexes_created_in_a_transaction_are_hidden_until_commit() -> Result<()> {
    const PLAIN: &str = "plain";
    let create = |collection: &str| doc! { "create": collection };
    let insert = |collection: &str| doc! { "insert": collection, "documents": [item(1), item(2)] };
    let indexes = |names: &'static [&'static str]| {
        move |collection: &str| {
            let specs: Vec<_> = names
                .iter()
                .map(|name| doc! { "name": *name, "key": { *name: 1 } })
                .collect();
            doc! { "createIndexes": collection, "indexes": specs }
        }
    };
    let bad = |collection: &str| doc! { "createIndexes": collection, "indexes": [{ "name": "no_key" }] };
    let (a, id) = (indexes(&["a"]), indexes(&["_id", "b"]));
    let steps: [&[Step<'_>]; 9] = [
        &[&create, &insert, &insert],
        &[&insert],
        &[&create, &a, &insert],
        &[&a, &a, &insert, &a],
        &[&id, &create],
        &[&indexes(&["_id"]), &id],
        &[&create, &create],
        &[&insert, &a],
        &[&create, &bad],
    ];
    for end in ["abortTransaction", "commitTransaction"] {
        for (number, steps) in (0..).zip(steps) {
            let shaped = Shaped::with("max_items = 3", &ProxyOptions::new(&mongod::shared_replica_set().uri()))?;
            let (mut inside, mut outside) = (shaped.application()?, shaped.application()?);
            let mut told_of = Vec::new();
            for (transaction, collection) in [(1, PLAIN), (2, COLLECTION)] {
                let mut transaction = in_session(&shaped, transaction);
                let mut answers = Vec::new();
                for step in steps {
                    let mut command = step(collection);
                    command.insert("$db", &shaped.database);
                    answers.push(comparable(&transaction.run(&mut inside, &command)?));
                    ensure!(names(&mut outside, &shaped.database, collection)?.is_empty());
                }
                answers.push(comparable(&transaction.end(&mut inside, end)?));
                let count = doc! { "count": collection, "$db": &shaped.database };
                answers.push(comparable(&outside.command(&count)?));
                told_of.push((answers, names(&mut outside, &shaped.database, collection)?));
            }
            ensure!(told_of[0] == told_of[1], "{number} {end}: {told_of:#?}");
        }
    }
    Ok(())
}

/// A collection of this database cannot be named by its UUID. The refusal needs no command to the server, but
/// nothing of the transaction is committed.
#[test]
fn a_refused_command_ends_the_transaction() -> Result<()> {
    let shaped = start()?;
    let mut application = shaped.application()?;
    let by_uuid = doc! { "find": bson::Uuid::new() };
    let beside = doc! { "insert": "plain", "documents": [item(1)] };
    for (number, commands) in (1..).zip([[Some(&beside), Some(&by_uuid)], [None, Some(&by_uuid)]]) {
        let mut transaction = in_session(&shaped, number);
        let mut reply = Document::new();
        for command in commands.into_iter().flatten() {
            reply = transaction.run(&mut application, command)?;
        }
        ensure!(reply.get_i32("code")? == 115, "{reply}");
        let ended = transaction.end(&mut application, "commitTransaction")?;
        ensure!(ended.get_i32("code")? == 251, "{ended}");
    }
    ensure!(application.find(&shaped.database, "plain", doc! {})?.is_empty());
    Ok(())
}

#[test]
fn transaction_that_creates_an_existing_collection_fails() -> Result<()> {
    let shaped = start()?;
    let mut application = shaped.application()?;
    let index = |name: &str| {
        let spec = doc! { "name": name, "key": { name: 1 } };
        doc! { "createIndexes": COLLECTION, "indexes": [spec], "$db": &shaped.database }
    };
    let no_key = doc! { "createIndexes": COLLECTION, "indexes": [{ "name": "x" }], "$db": &shaped.database };
    let create = doc! { "create": COLLECTION, "$db": &shaped.database };
    application.command_ok(&index("a"))?;
    for (number, (command, code)) in (1..).zip([(index("b"), 263), (create, 48), (no_key, 9)]) {
        let mut transaction = in_session(&shaped, number);
        let reply = transaction.run(&mut application, &command)?;
        ensure!(reply.get_i32("code")? == code, "{reply}");
        // It has ended.
        let ended = transaction.end(&mut application, "commitTransaction")?;
        ensure!(ended.get_i32("code")? == 251, "{ended}");
    }
    let mut transaction = in_session(&shaped, 9);
    let reply = transaction.run(&mut application, &index("a"))?;
    let expected = doc! { "numIndexesBefore": 2, "numIndexesAfter": 2, "note": "all indexes already exist", "ok": 1.0 };
    ensure!(comparable(&reply) == expected, "{reply}");
    ensure!(transaction.end(&mut application, "commitTransaction")?.get_f64("ok")? > 0.0);
    ensure!(names(&mut application, &shaped.database, COLLECTION)? == ["_id_", "a"]);
    Ok(())
}

#[test]
fn retried_snapshot_transaction_finds_the_created_collection() -> Result<()> {
    let shaped = Shaped::with("max_items = 3", &ProxyOptions::new(&mongod::shared_replica_set().uri()))?;
    let mut application = shaped.application()?;
    let mut transaction = in_session(&shaped, 1);
    let find = doc! { "find": "another", "readConcern": { "level": "snapshot" }, "$db": &shaped.database };
    transaction.run(&mut application, &find)?;
    let reply = insert(&mut transaction, &mut application, (&shaped, 1..2))?;
    ensure!(reply.get_i32("code")? == 112 && is_transient(&reply), "{reply}");
    let mut again = in_session(&shaped, 2);
    again.run(&mut application, &find)?;
    ensure!(insert(&mut again, &mut application, (&shaped, 1..2))?.get_i32("n")? == 1);
    ensure!(again.end(&mut application, "commitTransaction")?.get_f64("ok")? > 0.0);
    ensure!(ids(&mut application, &shaped)? == [1]);
    Ok(())
}

/// mongod ends the transaction with the failed statement. With one item in the statement, the reply is that of a plain
/// collection. Otherwise the item is not known, and the command fails with the same code.
#[test]
fn an_item_that_an_index_refuses_is_reported() -> Result<()> {
    const CANNOT_BUILD_INDEX_KEYS: i32 = 201;
    let shaped = start()?;
    let mut connection = shaped.application()?;
    let index = doc! { "key": { "s": 1 }, "name": "s_1", "collation": { "locale": "de" } };
    connection.command_ok(&doc! { "createIndexes": COLLECTION, "indexes": [index], "$db": &shaped.database })?;
    let refused = |id: i32| doc! { "_id": id, "k": 1, "s": Bson::Symbol("a".to_owned()) };
    for (number, items) in [(1, vec![refused(1)]), (2, vec![item(1), refused(2), item(3)])] {
        let mut transaction = in_session(&shaped, number);
        let reply = transaction.run(&mut connection, &shaped.insert(&items))?;
        let code = match reply.get_array("writeErrors") {
            Ok(errors) if items.len() == 1 => errors[0].as_document().context("an error")?.get_i32("code")?,
            _ => reply.get_i32("code")?,
        };
        ensure!(code == CANNOT_BUILD_INDEX_KEYS && !is_transient(&reply), "{reply}");
        let ended = transaction.end(&mut connection, "commitTransaction")?;
        ensure!(ended.get_str("codeName")? == "NoSuchTransaction", "{ended}");
        ensure!(ids(&mut connection, &shaped)? == [0]);
    }
    Ok(())
}
