//! `bulkWrite` of MongoDB 8.0, on shaped and plain collections at once. The server is one of 6.0 behind a stand-in
//! that claims to have the command.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use mongodb::Client;
use mongodb::options::{DeleteOneModel, InsertOneModel, UpdateManyModel, UpdateOneModel};
use proto_tests::newer_server::NewerServer;
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{Proxy, ProxyOptions, Shape, database_name, mongod};

const PLAIN: &str = "plain";
/// Collections with a shape: of pages, automatic, and of outliers.
const SHAPED: [&str; 3] = ["pages", "automatic", "outliers"];
/// Another collection of pages.
const OTHERS: &str = "others";

struct Fixture {
    database: String,
    proxy: Proxy,
    shaped: Connection,
}

impl Fixture {
    fn open() -> Result<Self> {
        let database = database_name();
        let server = NewerServer::before(mongod::shared_replica_set().address())?;
        let shape = Shape {
            max_items: 3,
            ..Shape::new(&["k"])
        };
        let automatic = shape.toml(&format!("{database}.automatic"));
        let outlier = format!("[[outlier]]\nnamespace = \"{database}.outliers\"\narray = \"list\"\nthreshold = 3\n");
        let proxy = Proxy::start(
            &ProxyOptions::new(&server.uri())
                .config(&shape.toml(&format!("{database}.pages")))
                .config(&shape.toml(&format!("{database}.{OTHERS}")))
                .config(&automatic.replacen("[[bucket]]\n", "[[bucket]]\nmode = \"auto\"\n", 1))
                .config(&outlier),
        )?;
        Ok(Self {
            shaped: Connection::open(proxy.address())?,
            database,
            proxy,
        })
    }

    /// A `bulkWrite` that executes each operation on these collections, one after the other. The operations name
    /// no collection.
    fn command(&self, collections: &[&str], operations: &[Document]) -> Document {
        let mut ops = Vec::new();
        for operation in operations {
            for position in 0..collections.len() {
                let mut placed = operation.clone();
                let kind = operation.keys().next().expect("an operation has a kind");
                placed.insert(kind, i32::try_from(position).expect("there are few collections"));
                ops.push(placed);
            }
        }
        let namespaces = collections
            .iter()
            .map(|collection| doc! { "ns": format!("{}.{collection}", self.database) });
        doc! { "bulkWrite": 1, "ops": ops, "nsInfo": namespaces.collect::<Vec<_>>(), "$db": "admin" }
    }

    fn documents(&mut self, collection: &str) -> Result<Vec<Document>> {
        let command = doc! { "find": collection, "sort": { "_id": 1 }, "$db": &self.database };
        self.shaped.all(&command)
    }

    /// Checks that all collections have the same documents.
    fn check(&mut self) -> Result<Vec<Document>> {
        let expected = self.documents(PLAIN)?;
        for collection in SHAPED {
            let found = self.documents(collection)?;
            ensure!(found == expected, "{collection}: {found:?}, expected {expected:?}");
        }
        Ok(expected)
    }
}

fn results(reply: &Document) -> Result<Vec<Document>> {
    let batch = reply.get_document("cursor")?.get_array("firstBatch")?;
    Ok(batch.iter().filter_map(Bson::as_document).cloned().collect())
}

fn counts(reply: &Document) -> Vec<i32> {
    let names = ["nErrors", "nInserted", "nMatched", "nModified", "nUpserted", "nDeleted"];
    names.map(|name| reply.get_i32(name).unwrap_or(-1)).to_vec()
}

/// A document with an array that is too long for a base document.
fn document(n: i32) -> Document {
    doc! { "_id": n, "k": n % 2, "n": n, "list": (0..n).collect::<Vec<_>>() }
}

fn insert(n: i32) -> Document {
    doc! { "insert": 0, "document": document(n) }
}

/// All kinds of operations. None fails.
fn operations() -> Vec<Document> {
    vec![
        insert(1),
        insert(5),
        insert(6),
        doc! { "update": 0, "filter": { "_id": 5 }, "updateMods": { "$set": { "n": 50 } } },
        doc! { "update": 0, "filter": { "n": { "$lt": 10 } }, "updateMods": { "$inc": { "n": 1 } }, "multi": true },
        doc! { "update": 0, "filter": { "_id": 9 }, "updateMods": { "$set": { "k": 1 } }, "upsert": true },
        doc! { "update": 0, "filter": { "_id": 6 }, "updateMods": [{ "$set": { "n": { "$add": ["$n", 100] } } }] },
        doc! { "delete": 0, "filter": { "_id": 1 } },
        doc! { "delete": 0, "filter": { "_id": 77 }, "multi": true },
        doc! { "update": 0, "filter": { "_id": 5 }, "updateMods": { "k": 1, "n": 51 } },
    ]
}

#[test]
fn all_operations_have_the_results_of_a_plain_collection() -> Result<()> {
    let mut fixture = Fixture::open()?;
    let collections = [PLAIN, SHAPED[0], SHAPED[1], SHAPED[2]];
    let command = fixture.command(&collections, &operations());
    let reply = fixture.shaped.command_ok(&command)?;
    let results = results(&reply)?;
    ensure!(results.len() == 4 * operations().len(), "{reply}");
    for (number, of_operation) in results.chunks(4).enumerate() {
        let without_position = |result: &Document| -> Document {
            let fields = result.clone().into_iter();
            fields.filter(|(name, _)| name != "idx").collect()
        };
        for (place, result) in of_operation.iter().enumerate() {
            ensure!(
                without_position(result) == without_position(&of_operation[0]),
                "{number} on {}: {result}, expected {}",
                collections[place],
                of_operation[0]
            );
            ensure!(result.get_i32("idx")? == i32::try_from(4 * number + place)?, "{result}");
        }
    }
    ensure!(
        results[4 * 5].get_document("upserted")? == &doc! { "_id": 9 },
        "{}",
        results[4 * 5]
    );
    ensure!(counts(&reply) == [0, 12, 20, 20, 4, 4], "{reply}");
    ensure!(fixture.check()?.len() == 3);
    Ok(())
}

#[test]
fn only_errors_are_returned_if_that_is_requested() -> Result<()> {
    let mut fixture = Fixture::open()?;
    let mut operations = operations();
    operations.insert(3, insert(5));
    let mut command = fixture.command(&[PLAIN, SHAPED[0]], &operations);
    command.insert("errorsOnly", true);
    command.insert("ordered", false);
    let reply = fixture.shaped.command_ok(&command)?;
    let results = results(&reply)?;
    let failed: Vec<i32> = results.iter().filter_map(|result| result.get_i32("idx").ok()).collect();
    ensure!(failed == [6, 7] && counts(&reply) == [2, 6, 10, 10, 2, 2], "{reply}");
    for result in &results {
        ensure!(
            result.get_i32("code")? == 11000 && result.contains_key("keyValue"),
            "{result}"
        );
    }
    ensure!(fixture.documents(PLAIN)? == fixture.documents(SHAPED[0])?);
    Ok(())
}

#[test]
fn the_first_failure_ends_an_ordered_command() -> Result<()> {
    for collection in SHAPED {
        let mut fixture = Fixture::open()?;
        let update = doc! { "update": 0, "filter": { "_id": 1 }, "updateMods": { "$set": { "n": 7 } } };
        let command = fixture.command(&[collection], &[insert(1), insert(1), update, insert(2)]);
        let reply = fixture.shaped.command_ok(&command)?;
        let results = results(&reply)?;
        let failed = results.last().context("a result")?;
        ensure!(
            results.len() == 2 && counts(&reply) == [1, 1, 0, 0, 0, 0],
            "{collection}: {reply}"
        );
        ensure!(
            failed.get_i32("idx")? == 1 && failed.get_i32("code")? == 11000,
            "{failed}"
        );
        ensure!(fixture.documents(collection)? == [document(1)]);
    }
    Ok(())
}

#[test]
fn a_retried_command_is_executed_once() -> Result<()> {
    let mut fixture = Fixture::open()?;
    let collections = [PLAIN, SHAPED[0], SHAPED[1], SHAPED[2]];
    let increment = doc! { "update": 0, "filter": { "_id": 5 }, "updateMods": { "$inc": { "n": 1 } } };
    let mut command = fixture.command(&collections, &[insert(5), increment]);
    command.insert("lsid", lsid(&fixture.database));
    command.insert("txnNumber", 1_i64);
    let first = fixture.shaped.command_ok(&command)?;
    let second = fixture.shaped.command_ok(&command)?;
    ensure!(counts(&first) == counts(&second), "{first}, then {second}");
    ensure!(second.get_array("retriedStmtIds")?.len() == 8, "{second}");
    let documents = fixture.check()?;
    ensure!(documents.len() == 1 && documents[0].get_i32("n")? == 6, "{documents:?}");
    Ok(())
}

/// Each operation is a command of its own, which changes the key.
#[test]
fn a_retried_command_moves_each_document_once() -> Result<()> {
    let update = |filter: Document, change: Document| doc! { "update": 0, "filter": filter, "updateMods": change };
    let operations = [
        update(doc! { "_id": 1 }, doc! { "$inc": { "k": 10 } }),
        // The document that the next one is about has another key by then.
        update(doc! { "_id": 2 }, doc! { "$inc": { "k": 10 } }),
        update(doc! { "k": 0, "n": 4 }, doc! { "$set": { "k": 7 } }),
        update(doc! { "_id": 77 }, doc! { "$set": { "k": 7 } }),
        update(doc! { "_id": 3 }, doc! { "k": 8, "n": 30 }),
    ];
    for (collections, errors_only) in [
        (vec![SHAPED[0]], false),
        (vec![SHAPED[0], OTHERS], false),
        (vec![SHAPED[0], PLAIN, OTHERS], true),
    ] {
        let mut fixture = Fixture::open()?;
        let inserts: Vec<Document> = (1..5).map(insert).collect();
        let insert = fixture.command(&collections, &inserts);
        fixture.shaped.command_ok(&insert)?;
        let mut command = fixture.command(&collections, &operations);
        command.extend(doc! { "errorsOnly": errors_only, "lsid": lsid(&fixture.database), "txnNumber": 1_i64 });
        let first = fixture.shaped.command_ok(&command)?;
        let second = fixture.shaped.command_ok(&command)?;
        let changed = i32::try_from(4 * collections.len())?;
        for reply in [&first, &second] {
            ensure!(
                counts(reply) == [0, 0, changed, changed, 0, 0],
                "{collections:?}: {reply}"
            );
        }
        ensure!(
            results(&first)? == results(&second)?,
            "{collections:?}: {first}, then {second}"
        );
        let retried = second.get_array("retriedStmtIds")?.len();
        ensure!(retried == 4 * collections.len(), "{collections:?}: {second}");
        for collection in collections {
            let documents = fixture.documents(collection)?;
            let keys: Vec<i32> = documents
                .iter()
                .filter_map(|document| document.get_i32("k").ok())
                .collect();
            ensure!(keys == [11, 10, 8, 7], "{collection}: {documents:?}");
        }
    }
    Ok(())
}

#[test]
fn a_transaction_is_committed_or_aborted_as_a_whole() -> Result<()> {
    let mut fixture = Fixture::open()?;
    let collections = [PLAIN, SHAPED[0], SHAPED[1]];
    let first = fixture.command(&collections, &[insert(1)]);
    fixture.shaped.command_ok(&first)?;
    for (number, end) in [(1_i64, "abortTransaction"), (2, "commitTransaction")] {
        let in_transaction = doc! { "lsid": lsid(&fixture.database), "txnNumber": number, "autocommit": false };
        let mut command = fixture.command(&collections, &[insert(2), insert(3)]);
        command.extend(in_transaction.clone());
        command.insert("startTransaction", true);
        let reply = fixture.shaped.command_ok(&command)?;
        ensure!(counts(&reply) == [0, 6, 0, 0, 0, 0], "{reply}");
        let mut ended = doc! { end: 1, "$db": "admin" };
        ended.extend(in_transaction);
        fixture.shaped.command_ok(&ended)?;
        for collection in collections {
            let count = fixture.documents(collection)?.len();
            ensure!(
                count == if end == "abortTransaction" { 1 } else { 3 },
                "{end}, {collection}: {count}"
            );
        }
    }
    Ok(())
}

/// The failure aborts the transaction, also where operations are not ordered.
#[test]
fn the_first_failure_ends_a_command_in_a_transaction() -> Result<()> {
    let update = doc! { "update": 0, "filter": { "_id": 1 }, "updateMods": { "$set": { "n": 7 } } };
    for (operations, failed) in [
        // In a command of its own, before another one.
        (vec![insert(2), insert(1), update.clone()], 1),
        (vec![update.clone(), insert(1), update], 1),
        // In the last command, before another operation of it.
        (vec![insert(2), insert(1), insert(3)], 1),
        (vec![insert(1), insert(3)], 0),
    ] {
        let mut expected = None;
        for collection in SHAPED {
            let mut fixture = Fixture::open()?;
            let first = fixture.command(&[collection], &[insert(1)]);
            fixture.shaped.command_ok(&first)?;
            let transaction = doc! { "lsid": lsid(&fixture.database), "txnNumber": 1_i64, "autocommit": false };
            let mut command = fixture.command(&[collection], &operations);
            command.extend(transaction.clone());
            command.extend(doc! { "startTransaction": true, "ordered": false });
            let reply = fixture.shaped.command_ok(&command)?;
            let results = results(&reply)?;
            let last = results.last().context("a result")?;
            ensure!(
                last.get_i32("idx")? == failed && last.get_i32("code")? == 11000,
                "{collection}: {reply}"
            );
            let kept = expected.get_or_insert_with(|| (counts(&reply), results.len()));
            ensure!(
                *kept == (counts(&reply), results.len()) && !reply.contains_key("errorLabels"),
                "{collection}: {reply}, expected {kept:?}"
            );
            let mut commit = doc! { "commitTransaction": 1, "$db": "admin" };
            commit.extend(transaction);
            let ended = fixture.shaped.command(&commit)?;
            ensure!(ended.get_i32("code").ok() == Some(251), "{collection}: {ended}");
            ensure!(fixture.documents(collection)? == [document(1)], "{collection}");
        }
    }
    Ok(())
}

#[test]
fn malformed_commands_change_nothing() -> Result<()> {
    let mut fixture = Fixture::open()?;
    let whole = fixture.command(&[SHAPED[0]], &[insert(1)]);
    let with = |field: &str, value: Bson| {
        let mut command = whole.clone();
        command.insert(field, value);
        command
    };
    let ops = |operation: Document| with("ops", vec![Bson::from(insert(1)), operation.into()].into());
    for (command, code) in [
        (ops(doc! { "insert": 7, "document": {} }), 2),
        (ops(doc! { "insert": 0 }), 40414),
        (ops(doc! { "insert": 0, "document": 5 }), 14),
        (ops(doc! { "update": 0, "filter": {} }), 40414),
        (ops(doc! { "delete": 0, "filter": {}, "unknown": 1 }), 40415),
        (ops(doc! { "find": 0 }), 9),
        (with("unknown", 1.into()), 40415),
        (with("ops", vec![Bson::from(1)].into()), 14),
        (
            with(
                "stmtIds",
                vec![1, 2].into_iter().map(Bson::from).collect::<Vec<_>>().into(),
            ),
            16,
        ),
    ] {
        let reply = fixture.shaped.command(&command)?;
        ensure!(reply.get_i32("code").ok() == Some(code), "{command}: {reply}");
    }
    ensure!(fixture.documents(SHAPED[0])?.is_empty());
    Ok(())
}

#[test]
fn a_server_without_the_command_refuses_it() -> Result<()> {
    let database = database_name();
    let shape = Shape::new(&["k"]).toml(&format!("{database}.pages"));
    let mongod = mongod::shared_replica_set();
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&shape))?;
    let info = doc! { "ns": format!("{database}.pages") };
    let command = doc! { "bulkWrite": 1, "ops": [insert(1)], "nsInfo": [info], "$db": "admin" };
    let direct = Connection::open(mongod.address())?.command(&command)?;
    let reply = Connection::open(proxy.address())?.command(&command)?;
    let code = reply.get_i32("code").ok();
    // mongod 7.0 has the command, but does not execute it (115).
    ensure!(
        code.is_some() && code == direct.get_i32("code").ok(),
        "{reply}\n{direct}"
    );
    Ok(())
}

#[tokio::test]
async fn the_rust_driver_writes_to_several_collections() -> Result<()> {
    let fixture = Fixture::open()?;
    let client = Client::with_uri_str(fixture.proxy.uri()).await?;
    let mut models: Vec<mongodb::options::WriteModel> = Vec::new();
    for collection in [PLAIN, SHAPED[0], SHAPED[1], SHAPED[2]] {
        let namespace = mongodb::Namespace::new(&fixture.database, collection);
        for n in 1..20 {
            models.push(
                InsertOneModel::builder()
                    .namespace(namespace.clone())
                    .document(document(n))
                    .build()
                    .into(),
            );
        }
        let set = doc! { "$set": { "n": 70 } };
        let of_five = UpdateOneModel::builder()
            .namespace(namespace.clone())
            .filter(doc! { "_id": 5 })
            .update(set.clone());
        models.push(of_five.build().into());
        let of_many = UpdateManyModel::builder()
            .namespace(namespace.clone())
            .filter(doc! { "k": 1 })
            .update(set);
        models.push(of_many.build().into());
        models.push(
            DeleteOneModel::builder()
                .namespace(namespace)
                .filter(doc! { "_id": 6 })
                .build()
                .into(),
        );
    }
    let written = client.bulk_write(models).verbose_results().await?;
    ensure!(
        (written.summary.inserted_count, written.summary.deleted_count) == (76, 4),
        "{written:?}"
    );
    ensure!(
        written.summary.matched_count == 44 && written.summary.modified_count == 40,
        "{written:?}"
    );
    ensure!(
        written.insert_results.len() == 76 && written.update_results.len() == 8,
        "{written:?}"
    );
    let mut fixture = fixture;
    ensure!(fixture.check()?.len() == 18);
    Ok(())
}
