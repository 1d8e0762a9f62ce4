//! Transactions on a bucket collection: what several of them do to each other, and to those that are in none.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
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

/// A transaction of one session.
struct Transaction<'a> {
    shaped: &'a Shaped,
    lsid: Document,
    begun: bool,
}

impl<'a> Transaction<'a> {
    fn new(shaped: &'a Shaped, number: u8) -> Self {
        Self {
            shaped,
            lsid: lsid(&format!("{}{number}", shaped.database)),
            begun: false,
        }
    }

    fn run(&mut self, connection: &mut Connection, command: &Document) -> Result<Document> {
        let mut command = command.clone();
        command.extend(doc! { "lsid": self.lsid.clone(), "txnNumber": 1_i64, "autocommit": false });
        if !self.begun {
            command.insert("startTransaction", true);
        }
        self.begun = true;
        connection.command(&command)
    }

    fn insert(&mut self, connection: &mut Connection, ids: std::ops::Range<i32>) -> Result<Document> {
        let items: Vec<Document> = ids.map(item).collect();
        self.run(connection, &self.shaped.insert(&items))
    }

    fn end(&mut self, connection: &mut Connection, how: &str) -> Result<Document> {
        self.run(connection, &doc! { how: 1, "$db": "admin" })
    }
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
fn what_is_written_is_seen_inside_and_outside_only_once_it_is_committed() -> Result<()> {
    let shaped = start()?;
    let (mut inside, mut outside) = (shaped.application()?, shaped.application()?);
    for (number, end, expected) in [(1, "abortTransaction", 1), (2, "commitTransaction", 9)] {
        let mut transaction = Transaction::new(&shaped, number);
        // Over several pages.
        for range in [1..3, 3..9] {
            let reply = transaction.insert(&mut inside, range.clone())?;
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
    // What others knew of the pages before is not taken for true.
    outside.command_ok(&shaped.insert(&[item(9), item(10)]))?;
    ensure!(ids(&mut inside, &shaped)? == (0..=10).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn two_that_write_one_key_conflict_and_the_driver_is_told_to_try_again() -> Result<()> {
    let shaped = start()?;
    let (mut one, mut other) = (shaped.application()?, shaped.application()?);
    let mut first = Transaction::new(&shaped, 1);
    let mut second = Transaction::new(&shaped, 2);
    ensure!(first.insert(&mut one, 1..2)?.get_i32("n")? == 1);
    let conflict = second.insert(&mut other, 2..3)?;
    ensure!(
        conflict.get_i32("code")? == 112 && is_transient(&conflict),
        "{conflict}"
    );
    ensure!(first.end(&mut one, "commitTransaction")?.get_f64("ok")? > 0.0);
    // It began before the other was committed, and so cannot see the page that it would have to write.
    let mut third = Transaction::new(&shaped, 3);
    let find = doc! { "find": "another", "$db": &shaped.database };
    third.run(&mut other, &find)?;
    one.command_ok(&shaped.insert(&[item(5)]))?;
    let stale = third.insert(&mut other, 6..7)?;
    ensure!(is_transient(&stale), "{stale}");
    ensure!(ids(&mut one, &shaped)? == [0, 1, 5]);
    Ok(())
}

#[test]
fn one_goes_on_through_another_connection_and_another_proxy() -> Result<()> {
    let shaped = start()?;
    let options = "max_items = 3";
    let uri = mongod::shared_replica_set().uri();
    let table = format!(
        "[[bucket]]\nnamespace = \"{}.{COLLECTION}\"\nkey = \"k\"\n{options}",
        shaped.database
    );
    let proxy = proto_tests::Proxy::start(&ProxyOptions::new(&uri).config(&table))?;
    let mut transaction = Transaction::new(&shaped, 1);
    transaction.insert(&mut shaped.application()?, 1..4)?;
    let mut other = Connection::open(proxy.address())?;
    ensure!(transaction.insert(&mut other, 4..8)?.get_i32("n")? == 4);
    ensure!(transaction.end(&mut other, "commitTransaction")?.get_f64("ok")? > 0.0);
    ensure!(ids(&mut other, &shaped)? == (0..8).collect::<Vec<_>>());
    Ok(())
}
