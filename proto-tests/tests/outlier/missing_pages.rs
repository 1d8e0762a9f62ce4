//! Reads in which mongod reassembles outliers, and whose pages another writer has removed meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::altering_relay::AlteringRelay;
use proto_tests::raw::Connection;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{Mongod, Outlier, mongod};

use crate::interleaved::interleaved;

/// The collection of extras.
const EXTRAS: &str = "extra_items";

/// Names an `aggregate` at one cluster time.
fn at_one_time(command: &Document) -> Option<String> {
    let is_aggregate = command.contains_key("aggregate");
    let concern = command.get_document("readConcern");
    let level = concern.and_then(|concern| concern.get_str("level"));
    (is_aggregate && level.is_ok_and(|level| level == "snapshot")).then(|| "snapshot".to_owned())
}

/// Names every `aggregate`, and a `getMore` on the collection.
fn reads(command: &Document) -> Option<String> {
    let more = command.get_str("collection").ok().filter(|name| *name == COLLECTION);
    let more = more.filter(|_| command.contains_key("getMore"));
    let aggregate = command.contains_key("aggregate").then_some("aggregate");
    let named = at_one_time(command).or_else(|| aggregate.map(str::to_owned));
    named.or_else(|| more.map(|_| "getMore".to_owned()))
}

/// Both sides with this many outliers.
fn sides(mongod: &Mongod, relay: &StoppingRelay, count: i32) -> Result<Sides<Outlier>> {
    let mut sides = Sides::at(Outlier::new("tags", (5, 7)), (relay.uri(), mongod.address()))?;
    let document = |id: i32| doc! { "_id": id, "n": id, "tags": (0..10 + id % 5).collect::<Vec<_>>() };
    let documents: Vec<Document> = (0..count).map(document).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": documents })?;
    Ok(sides)
}

/// Removes all pages, and returns them.
fn remove_pages(mongod: &mut Connection, database: &str) -> Result<Vec<Document>> {
    let pages = mongod.find(database, EXTRAS, doc! {})?;
    let all = doc! { "q": {}, "limit": 0 };
    let concern = doc! { "w": "majority" };
    mongod.command_ok(&doc! { "delete": EXTRAS, "deletes": [all], "writeConcern": concern, "$db": database })?;
    Ok(pages)
}

fn aggregate(stage: Document) -> Document {
    let sort = doc! { "$sort": { "_id": 1 } };
    doc! { "aggregate": COLLECTION, "pipeline": [stage, sort], "cursor": {} }
}

/// The result in a reply, as it is compared.
fn result(reply: &Document) -> Result<Document> {
    let fields = reply
        .iter()
        .filter(|(name, _)| ["cursor", "n", "ok"].contains(&name.as_str()));
    let mut result: Document = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
    if let Ok(cursor) = result.get_document_mut("cursor") {
        cursor.remove("ns");
    }
    ensure!(result.get_f64("ok")? > 0.0, "{reply}");
    Ok(result)
}

/// A writer that replaces arrays without a pause could make each attempt fail at the present state.
#[test]
fn a_read_that_missed_pages_is_executed_again_at_one_time() -> Result<()> {
    let set = mongod::shared_replica_set();
    let relay = StoppingRelay::to(set.address(), at_one_time)?;
    let mut sides = sides(set, &relay, 4)?;
    let [plain, shaped] = [sides.plain_database(), sides.shaped_database()];
    for command in [
        doc! { "count": COLLECTION, "query": { "tags": 12 } },
        doc! { "find": COLLECTION, "filter": { "tags": 11 }, "sort": { "_id": 1 } },
        doc! { "find": COLLECTION, "filter": { "tags": 11 }, "sort": { "_id": 1 }, "readConcern": { "level": "majority" } },
        aggregate(doc! { "$match": { "tags": 10 } }),
        aggregate(doc! { "$set": { "n": { "$size": "$tags" } } }),
    ] {
        let on = |database: &str| {
            let mut command = command.clone();
            command.insert("$db", database);
            command
        };
        let expected = result(&sides.plain.command(&on(&plain))?)?;
        let pages = remove_pages(&mut sides.plain, &shaped)?;
        let found = interleaved(&mut sides.shaped, &on(&shaped), &relay, || {
            let concern = doc! { "w": "majority" };
            let insert = doc! { "insert": EXTRAS, "documents": &pages, "writeConcern": concern, "$db": &shaped };
            sides.plain.command_ok(&insert).map(|_| ())
        })?;
        let found = result(&found)?;
        ensure!(found == expected, "{command}\n  plain:  {expected}\n  shaped: {found}");
        ensure!(relay.commands() == ["snapshot"], "{command}: {:?}", relay.commands());
    }
    sides.check()
}

#[test]
fn a_later_batch_of_replaced_extras_is_an_error_of_the_cursor() -> Result<()> {
    for server in [mongod::shared(), mongod::shared_replica_set()] {
        let relay = StoppingRelay::to(server.address(), reads)?;
        let mut sides = sides(server, &relay, 5)?;
        let database = sides.shaped_database();
        let find = doc! { "find": COLLECTION, "filter": { "tags": 8 }, "batchSize": 1, "$db": &database };
        let id = sides.shaped.command_ok(&find)?.get_document("cursor")?.get_i64("id")?;
        remove_pages(&mut sides.plain, &database)?;
        let more = doc! { "getMore": id, "collection": COLLECTION, "$db": &database };
        let reply = sides.shaped.command(&more)?;
        ensure!(reply.get_i32("code")? == 175, "{reply}");
    }
    Ok(())
}

#[test]
fn lost_pages_are_reported_after_a_few_attempts() -> Result<()> {
    for server in [mongod::shared(), mongod::shared_replica_set()] {
        let relay = StoppingRelay::to(server.address(), reads)?;
        let mut sides = sides(server, &relay, 2)?;
        let database = sides.shaped_database();
        remove_pages(&mut sides.plain, &database)?;
        relay.arm(None);
        let reply = sides
            .shaped
            .command(&doc! { "count": COLLECTION, "query": { "tags": 8 }, "$db": &database })?;
        ensure!(reply.get_i32("code")? == 72, "{reply}");
        let attempts = relay.commands().len();
        ensure!(attempts == 10, "{attempts} attempts");
    }
    Ok(())
}

/// The cursor of an update of many is opened again, at one time.
#[test]
fn documents_of_an_update_are_selected_again_at_one_time() -> Result<()> {
    let set = mongod::shared_replica_set();
    let relay = StoppingRelay::to(set.address(), |command| {
        reads(command).filter(|name| name != "aggregate")
    })?;
    // More than one batch of `_id`s.
    let mut sides = sides(set, &relay, 1100)?;
    let database = sides.shaped_database();
    let mut mongod = Connection::open(set.address())?;
    let statement = doc! { "q": { "tags": 8 }, "u": { "$set": { "a": 1 } }, "multi": true };
    let update = doc! { "update": COLLECTION, "updates": [statement], "$db": &database };
    interleaved(&mut sides.shaped, &update, &relay, || {
        remove_pages(&mut mongod, &database).map(|_| ())
    })?;
    let commands = relay.commands();
    ensure!(
        commands.starts_with(&["getMore".to_owned(), "snapshot".to_owned()]),
        "{commands:?}"
    );
    Ok(())
}

/// Whether [`miss_pages`] changes replies.
static MISSES_PAGES: AtomicBool = AtomicBool::new(false);

/// Turns the reply to a `$merge` into the error of a pipeline that missed pages.
fn miss_pages(reply: &mut Document) -> bool {
    let is_of_merge = reply.get_document("cursor").is_ok_and(|cursor| {
        let is_of_items = cursor.get_str("ns").is_ok_and(|name| name.ends_with(COLLECTION));
        is_of_items && cursor.get_array("firstBatch").is_ok_and(Vec::is_empty)
    });
    if !is_of_merge || !MISSES_PAGES.load(Ordering::SeqCst) {
        return false;
    }
    let message = "mongoshape: pages are missing of 507f1f77bcf86cd799439011";
    *reply = doc! { "ok": 0.0, "errmsg": message, "code": 241, "codeName": "ConversionFailure" };
    true
}

/// A repeated one would have added to a number several times.
#[test]
fn only_a_merge_without_a_second_effect_is_executed_again() -> Result<()> {
    let server = mongod::shared();
    let relay = AlteringRelay::to(server.address(), miss_pages)?;
    let mut sides = Sides::at(Outlier::new("tags", (5, 7)), (relay.uri(), server.address()))?;
    let items: Vec<Document> = (0..3)
        .map(|id| doc! { "_id": id, "n": id, "tags": (0..10).collect::<Vec<i32>>() })
        .collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    let database = sides.shaped_database();
    let merge = |when_matched: Bson| {
        let stages = bson!([
            { "$match": { "tags": 8 } },
            { "$merge": { "into": "totals", "whenMatched": when_matched } },
        ]);
        doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {}, "$db": &database }
    };
    let add = bson!([{ "$set": { "n": { "$add": ["$n", 100] } } }]);
    MISSES_PAGES.store(true, Ordering::SeqCst);
    for (when_matched, code) in [(add, 112), (bson!("replace"), 72)] {
        let reply = sides.shaped.command(&merge(when_matched))?;
        ensure!(reply.get_i32("code")? == code, "{reply}");
        let totals = sides.plain.find(&database, "totals", doc! {})?;
        ensure!(totals.len() == 3, "{totals:?}");
        for total in totals {
            ensure!(total.get_i32("n")? == total.get_i32("_id")?, "{total}");
        }
    }
    Ok(())
}
