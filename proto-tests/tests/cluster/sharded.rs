//! mongoshape before the model: a bucket collection that is sharded by the key of its shape answers as a plain
//! collection does.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::cluster::{self, Cluster, Kind, SLOTS};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{ItemIds, Shape};

/// The shard key and the key of the shape.
pub(super) const KEY: &str = "k";

fn shape() -> Shape {
    Shape {
        max_items: 3,
        time: Some("date".to_owned()),
        items_change: true,
        item_ids: ItemIds::UniqueInKey,
        ..Shape::new(&[KEY])
    }
}

/// A plain collection, and a shaped one that is sharded.
pub(super) struct Sharded {
    cluster: &'static Cluster,
    pub(super) sides: Sides,
}

pub(super) fn item(number: i64) -> Document {
    let date = bson::DateTime::from_millis(number * 1000);
    doc! { "_id": number, KEY: number % 17, "date": date, "n": number * 7 % 30 }
}

impl Sharded {
    /// Two collections that are not sharded yet.
    pub(super) fn unsharded() -> Result<Self> {
        let cluster = cluster::shared();
        let sides = Sides::at(shape(), (cluster.uri(), cluster.router_addresses()[0]))?;
        Ok(Self { cluster, sides })
    }

    pub(super) fn open(kind: Kind) -> Result<Self> {
        let sharded = Self::unsharded()?;
        sharded.shard(kind)?;
        Ok(sharded)
    }

    pub(super) fn with_items() -> Result<Self> {
        let mut sharded = Self::open(Kind::Ranged)?;
        sharded.insert_items()?;
        Ok(sharded)
    }

    fn shard(&self, kind: Kind) -> Result<()> {
        self.cluster.shard_collection(&self.namespace(), &doc! { KEY: 1 }, kind)
    }

    pub(super) fn insert_items(&mut self) -> Result<()> {
        let items: Vec<Document> = (0..100).map(item).collect();
        self.sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
        Ok(())
    }

    pub(super) fn namespace(&self) -> String {
        format!("{}.{COLLECTION}", self.sides.shaped_database())
    }

    /// The pages on each shard.
    fn stored(&self) -> Result<Vec<Vec<Document>>> {
        let stored = self.cluster.shards().iter().map(|shard| {
            let mut connection = Connection::open(shard.address())?;
            connection.find(&self.sides.shaped_database(), COLLECTION, doc! {})
        });
        stored.collect()
    }

    /// The number of pages on each shard.
    pub(super) fn pages(&self) -> Result<Vec<usize>> {
        Ok(self.stored()?.iter().map(Vec::len).collect())
    }

    /// Fails unless both sides return the same documents in the same order.
    fn alike_documents(&mut self, command: &Document) -> Result<()> {
        let (plain, shaped) = (self.sides.plain_database(), self.sides.shaped_database());
        let mut command = command.clone();
        command.insert("$db", plain);
        let expected = self.sides.plain.all(&command)?;
        command.insert("$db", shaped);
        let found = self.sides.shaped.all(&command)?;
        ensure!(
            found == expected,
            "{command}\n  plain:  {expected:?}\n  shaped: {found:?}"
        );
        Ok(())
    }

    /// A key on each shard.
    fn keys_on_both_shards(&self) -> Result<[i64; 2]> {
        let mut stored = self.stored()?.into_iter().map(|pages| {
            let page = pages.into_iter().next().context("no page")?;
            page.get_i32(KEY).map(i64::from).with_context(|| page.to_string())
        });
        let mut next = || stored.next().context("no shard")?;
        Ok([next()?, next()?])
    }

    fn move_all(&self, shard: usize) -> Result<()> {
        (0..SLOTS).try_for_each(|slot| self.cluster.move_slot(&self.namespace(), slot, shard))
    }
}

/// Commands that name the key of the item that they write, or its `_id`.
pub(super) fn commands() -> Vec<Document> {
    let update = |filter: Document, change: Document| doc! { "q": filter, "u": change };
    let later = bson::DateTime::from_millis(70_500);
    let delete = |filter: Document, limit: i32| doc! { "q": filter, "limit": limit };
    let replace = |id: i64| {
        let replacement = doc! { KEY: 9_i64, "date": bson::DateTime::from_millis(26_000), "n": 5 };
        doc! { "findAndModify": COLLECTION, "query": { "_id": id, KEY: 9_i64 }, "update": replacement, "new": true }
    };
    let upsert = doc! { "q": { "_id": 900, KEY: 3 }, "u": { "$set": { "n": 3 } }, "upsert": true };
    let many = doc! { "q": { "n": 7 }, "u": { "$set": { "n": 8 } }, "multi": true };
    vec![
        doc! { "update": COLLECTION, "updates": [update(doc! { "_id": 4, KEY: 4 }, doc! { "$inc": { "n": 1 } })] },
        doc! { "update": COLLECTION, "updates": [update(doc! { KEY: 5 }, doc! { "$set": { "date": later } })] },
        doc! { "update": COLLECTION, "updates": [upsert, many] },
        doc! { "update": COLLECTION, "updates": [
            update(doc! { "_id": 30 }, doc! { "$inc": { "n": 1 } }), update(doc! { "_id": 31, "n": 1000 }, doc! { "$inc": { "n": 1 } }),
            update(doc! { "_id": 32 }, doc! { "$set": { "date": later } }), update(doc! { "_id": 1000 }, doc! { "$set": { "n": 1 } }),
        ] },
        doc! { "delete": COLLECTION, "deletes": [delete(doc! { "_id": 33 }, 1), delete(doc! { "_id": 34, "n": -1 }, 1)] },
        doc! { "delete": COLLECTION, "deletes": [
            delete(doc! { "_id": 40 }, 1), delete(doc! { "_id": 41, KEY: 7 }, 1), delete(doc! { "_id": 1000 }, 1), delete(doc! { "_id": 42 }, 1),
        ] },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 24, KEY: 7 }, "update": { "$inc": { "n": 1 } }, "new": true },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 25, KEY: 8 }, "remove": true },
        replace(26_i64),
        replace(1000_i64),
        doc! { "findAndModify": COLLECTION, "query": { "_id": 27, KEY: 10 }, "update": { "$set": { KEY: 10_i64, "n": 5 } } },
        doc! { "delete": COLLECTION, "deletes": [delete(doc! { KEY: 6, "n": 12 }, 1), delete(doc! { KEY: 2 }, 0)] },
        doc! { "delete": COLLECTION, "deletes": [delete(doc! { "n": { "$lt": 3 } }, 0)] },
        doc! { "insert": COLLECTION, "documents": (200..240).map(item).collect::<Vec<_>>(), "ordered": false },
        doc! { "insert": COLLECTION, "documents": (300..340).map(item).collect::<Vec<_>>() },
    ]
}

fn reads() -> Vec<Document> {
    vec![
        doc! { "find": COLLECTION, "sort": { "_id": 1 } },
        doc! { "find": COLLECTION, "filter": { KEY: 3 }, "sort": { "date": -1 }, "limit": 2 },
        doc! { "find": COLLECTION, "filter": { KEY: { "$in": [3, 4, 11] } }, "sort": { "date": 1, "_id": 1 }, "skip": 3 },
        doc! { "find": COLLECTION, "filter": { "n": { "$gt": 20 } }, "sort": { "_id": -1 } },
    ]
}

#[test]
fn a_sharded_collection_answers_as_a_plain_one() -> Result<()> {
    let mut sharded = Sharded::with_items()?;
    let pages = sharded.pages()?;
    ensure!(!pages.contains(&0), "{pages:?}");
    for command in commands() {
        sharded.sides.alike(&command)?;
        sharded.sides.check()?;
        for read in reads() {
            sharded.alike_documents(&read)?;
        }
    }
    Ok(())
}

#[test]
fn resent_writes_are_executed_once() -> Result<()> {
    let mut sharded = Sharded::with_items()?;
    for (number, command) in commands().into_iter().enumerate() {
        let is_of_many = command.to_string().contains("\"multi\"") || command.to_string().contains("\"limit\": 0");
        if is_of_many {
            continue;
        }
        let mut command = command;
        command.insert("lsid", lsid("resent"));
        command.insert("txnNumber", i64::try_from(number)?);
        for _ in 0..3 {
            sharded.sides.alike(&command)?;
            sharded.sides.check()?;
        }
    }
    Ok(())
}

#[test]
fn pages_move_to_other_shards_between_writes() -> Result<()> {
    let mut sharded = Sharded::with_items()?;
    for (number, command) in commands().into_iter().enumerate() {
        sharded.move_all(number % 2)?;
        sharded.sides.alike(&command)?;
        sharded.sides.check()?;
    }
    Ok(())
}

/// The results of shards are merged in the order of the query.
#[test]
fn reads_by_an_index_return_the_items_of_all_shards() -> Result<()> {
    let mut sharded = Sharded::with_items()?;
    let indexes = [doc! { "n": 1 }, doc! { "n": 1, "date": 1 }, doc! { KEY: 1, "n": 1 }];
    let indexes = indexes.map(|key| doc! { "name": key.to_string(), "key": key }).to_vec();
    sharded
        .sides
        .run(&doc! { "createIndexes": COLLECTION, "indexes": indexes })?;
    for read in [
        doc! { "find": COLLECTION, "filter": { "n": 7 }, "sort": { "date": 1 }, "limit": 3 },
        doc! { "find": COLLECTION, "filter": { "n": 7 }, "sort": { "date": -1 }, "limit": 1 },
        doc! { "find": COLLECTION, "filter": { KEY: 3 }, "sort": { "n": 1 }, "limit": 2 },
        doc! { "find": COLLECTION, "sort": { "n": 1, "date": 1 }, "limit": 5 },
        doc! { "find": COLLECTION, "filter": { "n": { "$gt": 4 } }, "sort": { "n": 1, "date": 1 }, "limit": 4 },
    ] {
        sharded.alike_documents(&read)?;
    }
    let mut distinct = doc! { "distinct": COLLECTION, "key": "n", "$db": sharded.sides.plain_database() };
    let plain = sharded.sides.plain.command_ok(&distinct)?;
    distinct.insert("$db", sharded.sides.shaped_database());
    let shaped = sharded.sides.shaped.command_ok(&distinct)?;
    let values = |reply: &Document| {
        let values = reply.get_array("values").with_context(|| reply.to_string())?;
        let mut values: Vec<i64> = values.iter().filter_map(Bson::as_i64).collect();
        values.sort_unstable();
        anyhow::Ok(values)
    };
    ensure!(values(&plain)? == values(&shaped)?, "{plain}\n{shaped}");
    Ok(())
}

/// The collection keeps its UUID, so a proxy that has checked it before does not know.
#[test]
fn a_collection_is_sharded_after_its_first_use() -> Result<()> {
    let mut sharded = Sharded::unsharded()?;
    sharded.insert_items()?;
    let index = doc! { "name": "n", "key": { "n": 1, "date": 1 } };
    sharded
        .sides
        .run(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    let read = doc! { "find": COLLECTION, "filter": { "n": 7 }, "sort": { "date": 1 }, "limit": 3 };
    let mut proxies = Vec::new();
    for _ in commands() {
        let proxy = sharded.sides.another_proxy()?;
        sharded.sides.shaped = Connection::open(proxy.address())?;
        sharded.alike_documents(&read)?;
        proxies.push(proxy);
    }
    sharded.shard(Kind::Ranged)?;
    let pages = sharded.pages()?;
    ensure!(!pages.contains(&0), "{pages:?}");
    for (number, (mut command, proxy)) in (0_i64..).zip(commands().into_iter().zip(&proxies)) {
        // Without a number, the documents of an insert that a mongos refuses are not sent again.
        if command.contains_key("insert") {
            command.insert("lsid", lsid("sharded"));
            command.insert("txnNumber", number);
        }
        sharded.sides.shaped = Connection::open(proxy.address())?;
        sharded.alike_documents(&read)?;
        let [plain, mut shaped] = sharded.sides.run(&command)?;
        // The proxy has sent it twice.
        shaped.remove("retriedStmtIds");
        ensure!(plain == shaped, "{command}\n  plain:  {plain}\n  shaped: {shaped}");
        sharded.sides.check()?;
    }
    Ok(())
}

#[test]
fn pages_of_keys_with_the_same_text_have_different_ids() -> Result<()> {
    let mut sharded = Sharded::open(Kind::Ranged)?;
    let of_key = |key: Bson, number: i32| doc! { "_id": number, KEY: key, "date": bson::DateTime::from_millis(7) };
    let numbers = (0..20).map(|number| of_key(number.into(), number));
    let texts = (0..20).map(|number| of_key(number.to_string().into(), 100 + number));
    let items: Vec<Document> = numbers.chain(texts).collect();
    sharded
        .sides
        .alike(&doc! { "insert": COLLECTION, "documents": items })?;
    let stored = sharded.stored()?;
    let ids: BTreeSet<String> = stored
        .iter()
        .flatten()
        .map(|page| page.get_str("_id").map(str::to_owned))
        .collect::<Result<_, _>>()?;
    ensure!(ids.len() == 40, "{ids:?}");
    sharded.sides.check()
}

#[test]
fn a_transaction_changes_a_key_across_shards() -> Result<()> {
    let mut sharded = Sharded::with_items()?;
    let sides = &mut sharded.sides;
    for (number, key) in [(4_i64, 9), (5, 10), (6, 2)] {
        let update = doc! { "q": { "_id": number, KEY: number % 17 }, "u": { "$set": { KEY: key } } };
        let command = doc! { "update": COLLECTION, "updates": [update] };
        for reply in sides.in_transaction(&number.to_string(), &command)? {
            ensure!(reply.get_i32("nModified")? == 1, "{reply}");
        }
        sides.check()?;
    }
    Ok(())
}

#[test]
fn writes_of_one_item_without_its_key_are_refused() -> Result<()> {
    let mut sharded = Sharded::with_items()?;
    let set = doc! { "$set": { "n": 1 } };
    for command in [
        doc! { "update": COLLECTION, "updates": [{ "q": { "n": 7 }, "u": set.clone() }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 4 }, "u": set.clone(), "upsert": true }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "n": 700 }, "u": set.clone(), "multi": true, "upsert": true }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": 7 }, "limit": 1 }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { KEY: 4 }, "limit": 1, "collation": { "locale": "en" } }] },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 4 }, "update": set.clone() },
        doc! { "findAndModify": COLLECTION, "query": { KEY: { "$gt": 3 } }, "remove": true },
    ] {
        sharded.sides.refused(&command)?;
    }
    sharded.sides.check()
}

/// Between the attempts, another client deletes the item and inserts one with its `_id` on the other shard.
#[test]
fn a_resent_write_by_id_finds_the_record_on_another_shard() -> Result<()> {
    let mut sharded = Sharded::with_items()?;
    let [first, other] = sharded.keys_on_both_shards()?;
    let change = doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 500 }, "u": { "$inc": { "n": 1 } } }] };
    let removal = doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 500 }, "limit": 1 }] };
    let of_key = |key: i64| {
        let date = bson::DateTime::from_millis(900_000);
        doc! { "insert": COLLECTION, "documents": [{ "_id": 500, KEY: key, "date": date, "n": 1 }] }
    };
    let other_id = doc! { "q": { "_id": 501 }, "limit": 1 };
    let removals = doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 500 }, "limit": 1 }, other_id] };
    for (number, mut command) in (1_i64..).zip([change, removal.clone(), removals]) {
        sharded.sides.alike(&of_key(first))?;
        command.insert("lsid", lsid("other shard"));
        command.insert("txnNumber", number);
        sharded.sides.alike(&command)?;
        sharded.sides.run(&removal)?;
        sharded.sides.alike(&of_key(other))?;
        sharded.sides.alike(&command)?;
        sharded.sides.check()?;
        sharded.sides.alike(&removal)?;
    }
    Ok(())
}

/// `_id`s are unique in each key, as on a plain collection that is sharded by it.
#[test]
fn an_id_occurs_once_in_a_key() -> Result<()> {
    let mut sharded = Sharded::with_items()?;
    let key = |number: i64| number % 17;
    let other = |number: i64, key: i64| doc! { "_id": number, KEY: key, "date": bson::DateTime::from_millis(1) };
    for ordered in [true, false] {
        let documents = vec![other(3, key(3)), other(600, 1), other(20, key(20)), other(600, 1)];
        sharded
            .sides
            .alike(&doc! { "insert": COLLECTION, "documents": documents, "ordered": ordered })?;
        sharded.sides.check()?;
    }
    let database = sharded.sides.shaped_database();
    let shaped = &mut sharded.sides.shaped;
    let insert = doc! { "insert": COLLECTION, "documents": [other(3, 4), other(3, 5)], "$db": &database };
    let reply = shaped.command_ok(&insert)?;
    ensure!(
        reply.get_i32("n")? == 2 && !reply.contains_key("writeErrors"),
        "{reply}"
    );
    // A mongos would change one item on each shard.
    let update = doc! { "q": { "_id": 3 }, "u": { "$set": { "n": 1 } } };
    let reply = shaped.command(&doc! { "update": COLLECTION, "updates": [update], "$db": &database })?;
    ensure!(reply.get_i32("code")? == 115, "{reply}");
    let found = shaped.find(&database, COLLECTION, doc! { "_id": 3 })?;
    ensure!(found.len() == 3, "{found:?}");
    Ok(())
}

/// An update of nothing waits. It reaches the shards although the proxy has not checked the collection.
#[test]
fn a_refused_insert_waits_for_its_write_concern() -> Result<()> {
    let mut sides = Sharded::open(Kind::Ranged)?.sides;
    let id = bson::Regex {
        pattern: bson::raw::cstr!("a").into(),
        options: bson::raw::cstr!("").into(),
    };
    let insert = doc! { "insert": COLLECTION, "documents": [{ "_id": id, KEY: 1 }], "writeConcern": { "w": "nope" } };
    let databases = [sides.plain_database(), sides.shaped_database()];
    for (connection, database) in [&mut sides.plain, &mut sides.shaped].into_iter().zip(databases) {
        let mut insert = insert.clone();
        insert.insert("$db", database);
        let reply = connection.command(&insert)?;
        let error = reply.get_document("writeConcernError").context(reply.to_string())?;
        ensure!(error.get_i32("code")? == 79, "{reply}");
    }
    Ok(())
}
