//! mongoshape before the model: bucket collections that are not sharded answer as plain ones through the same
//! router do.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::cluster::{self, Kind};
use proto_tests::raw::Connection;
use proto_tests::replies::first_code;
use proto_tests::sessions::lsid;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{Outlier, Proxy, ProxyOptions, Shape, database_name};

/// The proxy's code for a refused command.
const NOT_SUPPORTED: i32 = 115;

fn shape() -> Shape {
    Shape {
        max_items: 3,
        time: Some("date".to_owned()),
        items_change: true,
        ..Shape::new(&["k"])
    }
}

fn sides() -> Result<Sides> {
    let cluster = cluster::shared();
    Sides::at(shape(), (cluster.uri(), cluster.router_addresses()[0]))
}

fn item(number: i64) -> Document {
    let date = bson::DateTime::from_millis(number * 1000);
    doc! { "_id": number, "k": number % 3, "date": date, "n": number * 7 % 30 }
}

fn with_items() -> Result<Sides> {
    let mut sides = sides()?;
    let items: Vec<Document> = (0..30).map(item).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    Ok(sides)
}

/// The whole reply of each side, without the times of the cluster, and with neutral names.
fn whole(sides: &mut Sides, command: &Document) -> Result<[String; 2]> {
    let of = |connection: &mut Connection, database: &str| -> Result<String> {
        let mut command = command.clone();
        command.insert("$db", database);
        let mut reply = connection.command(&command)?;
        for name in ["operationTime", "$clusterTime"] {
            reply.remove(name);
        }
        Ok(reply.to_string().replace(database, "<db>"))
    };
    let (plain, shaped) = (sides.plain_database(), sides.shaped_database());
    Ok([of(&mut sides.plain, &plain)?, of(&mut sides.shaped, &shaped)?])
}

#[test]
fn a_collection_that_is_not_sharded_answers_as_a_plain_one() -> Result<()> {
    let mut sides = with_items()?;
    let later = bson::DateTime::from_millis(100_000);
    let commands = [
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 4 }, "u": { "$inc": { "n": 1 } } }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "n": 7 }, "u": { "$set": { "n": 8 } }, "multi": true }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 5 }, "u": { "$set": { "date": later } } }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 99, "k": 1 }, "u": { "$set": { "n": 3 } }, "upsert": true }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 6 }, "limit": 1 }, { "q": { "k": 2 }, "limit": 0 }] },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 7 }, "update": { "$inc": { "n": 1 } }, "new": true },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 9 }, "remove": true },
        doc! { "insert": COLLECTION, "documents": [item(40), item(1), item(41)], "ordered": false },
        doc! { "count": COLLECTION, "query": { "k": 1 } },
        doc! { "distinct": COLLECTION, "key": "n" },
    ];
    for command in commands {
        sides.alike(&command)?;
        sides.check()?;
    }
    Ok(())
}

#[test]
fn replies_of_index_commands_have_the_form_of_a_mongos() -> Result<()> {
    let mut sides = with_items()?;
    let index = |name: &str| doc! { "key": { name: 1 }, "name": name };
    let missing = database_name();
    let expiring = doc! { "key": { "date": 1 }, "name": "date", "expireAfterSeconds": 10_000_000 };
    let change = doc! { "keyPattern": { "date": 1 }, "expireAfterSeconds": 20_000_000 };
    for command in [
        doc! { "createIndexes": COLLECTION, "indexes": [index("n")] },
        doc! { "createIndexes": COLLECTION, "indexes": [index("n"), index("city")] },
        doc! { "dropIndexes": COLLECTION, "index": "n" },
        doc! { "createIndexes": COLLECTION, "indexes": [expiring] },
        doc! { "collMod": COLLECTION, "index": change },
        doc! { "dropIndexes": COLLECTION, "index": "*" },
        doc! { "createIndexes": &missing, "indexes": [index("n")] },
    ] {
        let [plain, shaped] = whole(&mut sides, &command)?;
        ensure!(plain == shaped, "{command}\n  plain:  {plain}\n  shaped: {shaped}");
        ensure!(plain.contains("\"raw\""), "{plain}");
    }
    sides.check()
}

#[test]
fn a_resent_change_of_a_time_is_executed_once() -> Result<()> {
    let mut sides = with_items()?;
    // The item leaves the range of its page.
    let update = doc! { "q": { "_id": 4 }, "u": [{ "$set": { "date": { "$add": ["$date", 12_000] } } }] };
    let command = doc! { "update": COLLECTION, "updates": [update], "lsid": lsid("once"), "txnNumber": 1_i64 };
    for _ in 0..3 {
        sides.alike(&command)?;
        sides.check()?;
    }
    Ok(())
}

#[test]
fn a_change_of_a_key_outside_a_transaction_is_refused() -> Result<()> {
    let mut sides = with_items()?;
    let update = doc! { "q": { "_id": 4 }, "u": { "$set": { "k": 2 } } };
    let command = doc! { "update": COLLECTION, "updates": [update] };
    sides.refused(&command)?;
    let mut retryable = command.clone();
    retryable.insert("lsid", lsid("key"));
    retryable.insert("txnNumber", 1_i64);
    sides.refused(&retryable)?;
    sides.check()?;
    for reply in sides.in_transaction("key in a transaction", &command)? {
        ensure!(reply.get_i32("nModified")? == 1, "{reply}");
    }
    sides.check()
}

#[test]
fn a_sharded_collection_with_unique_ids_is_refused() -> Result<()> {
    let cluster = cluster::shared();
    let database = database_name();
    let namespace = format!("{database}.{COLLECTION}");
    cluster.shard_collection(&namespace, &doc! { "k": 1 }, Kind::Ranged)?;
    let proxy = Proxy::start_with_misfits(&ProxyOptions::new(&cluster.uri()).config(&shape().toml(&namespace)))?;
    let mut connection = Connection::open(proxy.address())?;
    for command in [
        doc! { "insert": COLLECTION, "documents": [item(1)], "$db": &database },
        doc! { "find": COLLECTION, "$db": &database },
    ] {
        let reply = connection.command(&command)?;
        let text = reply.get_str("errmsg").with_context(|| reply.to_string())?;
        ensure!(text.contains("it is sharded"), "{reply}");
    }
    for shard in cluster.shards() {
        let stored = Connection::open(shard.address())?.find(&database, COLLECTION, doc! {})?;
        ensure!(stored.is_empty(), "{stored:?}");
    }
    let check = String::from_utf8(proxy.run("check")?.stdout)?;
    ensure!(check.contains("is sharded: set `item_ids`"), "{check}");
    Ok(())
}

#[test]
fn check_and_compact_name_the_mongos() -> Result<()> {
    let mut sides = with_items()?;
    sides.check()?;
    let check = sides.proxy.run("check")?;
    let text = String::from_utf8(check.stdout)?;
    ensure!(check.status.success(), "{text}");
    ensure!(
        text.contains("it is a mongos: the shard key of a sharded collection"),
        "{text}"
    );
    let compact = sides.proxy.run("compact")?;
    let text = String::from_utf8(compact.stdout)?;
    ensure!(!compact.status.success(), "{text}");
    ensure!(
        text.contains("it is a mongos, behind which this command is not supported"),
        "{text}"
    );
    sides.check()
}

#[test]
fn outliers_are_refused() -> Result<()> {
    let cluster = cluster::shared();
    let database = database_name();
    let toml = Outlier::new("tags", (5, 7)).toml(&format!("{database}.{COLLECTION}"));
    let proxy = Proxy::start(&ProxyOptions::new(&cluster.uri()).config(&toml))?;
    let mut connection = Connection::open(proxy.address())?;
    let reply = connection.command(&doc! { "find": COLLECTION, "$db": &database })?;
    ensure!(first_code(&reply) == NOT_SUPPORTED, "{reply}");
    Ok(())
}
