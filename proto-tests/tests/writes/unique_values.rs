//! The errors of updates that give an item a second key, for values that indexes and expressions treat
//! differently.

use anyhow::{Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::measure::rows;
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{ProxyOptions, mongod};

const PLAIN: &str = "plain";

/// Values of an indexed field. `None`: the field is missing.
fn values() -> Vec<Option<Bson>> {
    vec![
        None,
        Some(Bson::Null),
        Some(Bson::Undefined),
        Some(bson!([])),
        Some(bson!([null])),
        Some(Bson::Array(vec![Bson::Undefined, Bson::Int32(1)])),
        Some(bson!([null, 1])),
        Some(bson!(1)),
    ]
}

fn item(id: i32, key: i32, value: Option<&Bson>) -> Document {
    let mut item = doc! { "_id": id, "k": key };
    item.extend(value.map(|value| ("value".to_owned(), value.clone())));
    item
}

/// The updates by `_id` that give the item the value.
fn updates(value: Option<&Bson>) -> Vec<Bson> {
    let literal = value.map(|value| bson!([{ "$set": { "value": { "$literal": value.clone() } } }]));
    let operator = value.map_or(
        bson!({ "$unset": { "value": 1 } }),
        |value| bson!({ "$set": { "value": value.clone() } }),
    );
    [operator].into_iter().chain(literal).collect()
}

/// Replaces the namespace in all texts.
fn rename(value: &mut Bson, namespace: &str) {
    match value {
        Bson::String(text) => *text = text.replace(namespace, "NAMESPACE "),
        Bson::Array(values) => values.iter_mut().for_each(|value| rename(value, namespace)),
        Bson::Document(fields) => fields.iter_mut().for_each(|(_, value)| rename(value, namespace)),
        _ => {}
    }
}

/// Whether an update is a transaction of its own.
#[derive(Debug, Clone, Copy)]
enum Sent {
    Alone,
    InTransaction,
}

struct Side {
    connection: Connection,
    database: String,
    collection: &'static str,
}

impl Side {
    /// The compared parts of the reply, with a neutral name of the collection.
    fn run(&mut self, mut command: Document) -> Result<Bson> {
        let verb = command.keys().next().cloned().unwrap_or_default();
        command.insert(verb, self.collection);
        command.insert("$db", &self.database);
        let reply = self.connection.command(&command)?;
        let mut compared = Document::new();
        for name in [
            "n",
            "nModified",
            "ok",
            "code",
            "errmsg",
            "keyPattern",
            "keyValue",
            "writeErrors",
        ] {
            compared.extend(reply.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        let mut compared = Bson::from(compared);
        rename(&mut compared, &format!("{}.{} ", self.database, self.collection));
        Ok(compared)
    }

    fn transaction(&mut self, number: i64, mut command: Document) -> Result<Bson> {
        let lsid = lsid(&format!("{}.{}", self.database, self.collection));
        command.extend(doc! { "lsid": lsid, "txnNumber": number, "autocommit": false });
        let mut abort = doc! { "abortTransaction": 1, "$db": "admin" };
        abort.extend(command.clone().into_iter().skip(2));
        command.insert("startTransaction", true);
        let reply = self.run(command)?;
        self.connection.command(&abort)?;
        Ok(reply)
    }
}

#[test]
fn an_update_reports_the_value_that_another_item_has() -> Result<()> {
    check(Sent::Alone)
}

#[test]
fn an_update_in_a_transaction_reports_the_value_that_another_item_has() -> Result<()> {
    check(Sent::InTransaction)
}

fn check(sent: Sent) -> Result<()> {
    let upstream = mongod::shared_replica_set();
    let shaped = Shaped::with("max_items = 10", &ProxyOptions::new(&upstream.uri()))?;
    let database = &shaped.database;
    let side = |connection, collection| Side {
        connection,
        database: database.clone(),
        collection,
    };
    let mut ours = side(shaped.application()?, COLLECTION);
    let mut theirs = side(Connection::open(upstream.address())?, PLAIN);
    let index = doc! { "key": { "value": 1 }, "name": "value_1", "unique": true };
    for side in [&mut ours, &mut theirs] {
        side.run(doc! { "createIndexes": "", "indexes": [&index] })?;
    }
    let mut differences = Vec::new();
    let mut number = 0;
    let mut combinations = 0..;
    for (held, place) in values().into_iter().flat_map(|held| [(held.clone(), 1), (held, 2)]) {
        for before in [Some(bson!([null, 1])), Some(bson!(1))] {
            let updates = values().into_iter().flat_map(|value| updates(value.as_ref()));
            for update in rows(updates, 9, combinations.next().unwrap_or_default()) {
                let documents = [item(2, place, held.as_ref()), item(1, 1, before.as_ref())];
                let update = doc! { "update": "", "updates": [{ "q": { "_id": 1 }, "u": &update }] };
                number += 1;
                let replies = [&mut ours, &mut theirs].map(|side| {
                    side.run(doc! { "delete": "", "deletes": [{ "q": {}, "limit": 0 }] })?;
                    side.run(doc! { "insert": "", "documents": documents.to_vec() })?;
                    match sent {
                        Sent::Alone => side.run(update.clone()),
                        Sent::InTransaction => side.transaction(number, update.clone()),
                    }
                });
                let [ours, theirs] = replies;
                let (ours, theirs) = (ours?, theirs?);
                if ours != theirs {
                    differences.push(format!("{documents:?} {update}\n  {ours}\ninstead of\n  {theirs}"));
                }
            }
        }
    }
    ensure!(
        differences.is_empty(),
        "{} of {number}\n{}",
        differences.len(),
        differences.join("\n")
    );
    Ok(())
}
