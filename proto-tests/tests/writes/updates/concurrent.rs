//! Updates of the same items by several clients through two proxies.

use std::thread;

use anyhow::{Result, anyhow, ensure};
use bson::{Bson, Document, doc};
use proto_tests::breaking_relay::BreakingRelay;
use proto_tests::delaying_relay::{DelayingRelay, Fate};
use proto_tests::raw::Connection;
use proto_tests::{ItemIds, Shape, mongod};

use crate::updates::sides::{self, ALL_IDS, COLLECTION, Sides, WRITERS};

const UPDATES: i32 = 25;
const BULKS: i32 = 60;
/// Items of each key.
const OF_KEY: i32 = 400;

/// The update number `number` of a writer: each adds 1 to `n` of the item that it is about.
fn command(number: i32, ids: ItemIds) -> Document {
    let stages = vec![doc! { "$set": { "n": { "$add": ["$n", 1] } } }];
    match number % 4 {
        0 => doc! { "update": COLLECTION, "updates": [{ "q": { "u": 5 }, "u": { "$inc": { "n": 1 } } }] },
        1 => doc! { "update": COLLECTION, "updates": [{ "q": { "u": 5 }, "u": stages }] },
        2 => doc! { "findAndModify": COLLECTION, "query": { "u": 5 }, "update": { "$inc": { "n": 1 } } },
        // Without an `_id` an item cannot be identified after another client has changed it.
        _ if ids == ItemIds::Dropped => doc! { "findAndModify": COLLECTION, "query": { "u": 5 }, "update": stages },
        _ => {
            doc! { "update": COLLECTION, "updates": [{ "q": { "u": 5 }, "u": { "$inc": { "n": 1 } }, "multi": true }] }
        }
    }
}

#[test]
fn concurrent_increments_have_the_expected_sum() -> Result<()> {
    for ids in ALL_IDS {
        let sides = sides::of(ids)?;
        let second = sides.another_proxy()?;
        sides::write_concurrently(&sides, &second, UPDATES, move |writer, number| {
            command(writer + number, ids)
        })?;
        let mut sides = sides;
        let found = sides.items(true)?;
        let item = found.iter().find(|item| item.get_i32("u").ok() == Some(5));
        let sum = item.and_then(|item| item.get_i32("n").ok());
        ensure!(sum == Some(5 + WRITERS * UPDATES), "{ids:?}: {item:?}");
    }
    Ok(())
}

/// Another client changes the only item between the lookup and the statement, so that it no longer matches.
#[test]
fn an_update_of_many_inserts_if_all_located_items_have_changed() -> Result<()> {
    let set = mongod::shared_replica_set();
    for change in [
        doc! { "$set": { "state": "done" } },
        doc! { "$set": { "state": "done", "k": 2 } },
    ] {
        let relay = BreakingRelay::to(set.address())?;
        let uri = format!("mongodb://{}/?directConnection=true", relay.address());
        let mut sides = Sides::at(Shape::new(&["k"]), (uri, set.address()))?;
        let database = sides.shaped_database();
        let second = sides.another_proxy_to(&set.uri())?;
        let item = doc! { "_id": 1, "k": 1, "state": "open" };
        sides.alike(&doc! { "insert": COLLECTION, "documents": [item] })?;
        let mut other = Connection::open(second.address())?;
        let theirs = doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 1 }, "u": change }], "$db": &database };
        relay.meanwhile(2, move || {
            other.command_ok(&theirs).expect("the other client's update");
        });
        let filter = doc! { "k": 1, "state": "open" };
        let statement = doc! { "q": filter, "u": { "$set": { "x": 1 } }, "multi": true, "upsert": true };
        let update = doc! { "update": COLLECTION, "updates": [statement], "$db": &database };
        let reply = sides.shaped.command_ok(&update)?;
        let upserted = reply.get_array("upserted").map_or(0, Vec::len);
        ensure!(reply.get_i32("n")? == 1 && upserted == 1, "{reply}");
    }
    Ok(())
}

/// A bulk without a transaction number, of items that are relocated concurrently: each is updated once.
#[test]
fn bulk_updates_match_items_that_are_relocated_concurrently() -> Result<()> {
    let mut sides = sides::open()?;
    let second = sides.another_proxy()?;
    let database = sides.shaped_database();
    let moves = {
        let mut connection = Connection::open(second.address())?;
        let database = database.clone();
        let moving = move |number: i32| {
            let statement = doc! { "q": { "_id": 5 }, "u": { "$set": { "k": number % 3 } } };
            doc! { "update": COLLECTION, "updates": [statement], "$db": &database }
        };
        thread::spawn(move || -> Result<()> {
            (0..BULKS).try_for_each(|number| connection.command_ok(&moving(number)).map(drop))
        })
    };
    for number in 0..BULKS {
        let statement = |id: i32| doc! { "q": { "_id": id }, "u": { "$inc": { "sum": 1 } }, "multi": number % 7 == 0 };
        let statements: Vec<Document> = (4..7).map(statement).collect();
        let reply = sides.shaped.command_ok(
            &doc! { "update": COLLECTION, "updates": statements, "ordered": number % 2 == 0, "$db": &database },
        )?;
        ensure!(reply.get_i32("n")? == 3 && reply.get_i32("nModified")? == 3, "{reply}");
        ensure!(!reply.contains_key("retriedStmtIds"), "{reply}");
    }
    moves.join().map_err(|_| anyhow!("the mover panicked"))??;
    let found = sides.items(true)?;
    let sums = found.iter().filter_map(|item| item.get_i32("sum").ok());
    ensure!(sums.collect::<Vec<_>>() == [BULKS; 3], "{found:?}");
    Ok(())
}

/// The cursor of an update of many items returns an item twice if another client moves the item to a page
/// that is not read yet.
#[test]
fn update_of_many_changes_an_item_once_that_moves_before_the_cursor() -> Result<()> {
    let set = mongod::shared_replica_set();
    let relay = DelayingRelay::to(set.address())?;
    let shape = Shape {
        max_items: 2,
        items_change: true,
        ..Shape::new(&["k"])
    };
    let mut sides = Sides::at(shape, (relay.uri(), set.address()))?;
    let database = sides.shaped_database();
    let second = sides.another_proxy_to(&set.uri())?;
    // mongod reads up to 4 MB of pages ahead of the cursor.
    let item = |id: i32| doc! { "_id": id, "k": id / OF_KEY, "n": 0, "text": "x".repeat(10_000) };
    let items: Vec<Document> = (0..2 * OF_KEY).map(item).collect();
    sides
        .shaped
        .command_ok(&doc! { "insert": COLLECTION, "documents": items, "$db": &database })?;
    let statement = doc! { "q": { "_id": 0 }, "u": { "$set": { "k": 1 } } };
    let key_change = doc! { "update": COLLECTION, "updates": [statement], "$db": &database };
    let mut other = Some(Connection::open(second.address())?);
    relay.judge(move |command| {
        if command.contains_key("getMore")
            && command.get_str("collection").is_ok_and(|name| name == COLLECTION)
            && let Some(mut other) = other.take()
        {
            other.command_ok(&key_change).expect("the other client's update");
        }
        Fate::Arrives
    });
    let many = doc! { "q": {}, "u": { "$inc": { "n": 1 } }, "multi": true };
    let reply = sides
        .shaped
        .command_ok(&doc! { "update": COLLECTION, "updates": [many], "$db": &database })?;
    ensure!(reply.get_i32("n")? == 2 * OF_KEY, "{reply}");
    let found = sides.items(true)?;
    let key = found.first().and_then(|item| item.get_i32("k").ok());
    ensure!(key == Some(1), "the item is in key {key:?}");
    let numbers = found.iter().map(|item| (item.get("_id"), item.get("n")));
    let wrong: Vec<_> = numbers.filter(|(_, n)| *n != Some(&Bson::Int32(1))).collect();
    ensure!(wrong.is_empty(), "{wrong:?}");
    sides.check_layout()
}
