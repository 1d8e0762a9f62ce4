//! Another writer changes the page between the look-up of an item and its removal by `findAndModify`. A retry
//! returns the item that was removed.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::delaying_relay::{DelayingRelay, Fate};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{ItemIds, Proxy, ProxyOptions, Shape, database_name, invariants, mongod};

const COLLECTION: &str = "items";

/// The number of the item in a reply.
fn removed(reply: &Document) -> Result<i32> {
    let value = reply.get_document("value");
    Ok(value.with_context(|| format!("no item: {reply}"))?.get_i32("n")?)
}

/// Removes an item while another writer executes a command, and sends the removal again. Returns the numbers
/// of the removed item and of the items that are left.
fn race(item_ids: ItemIds, removal: &Document, meanwhile: &Document) -> Result<(i32, Vec<i32>)> {
    let shape = Shape {
        item_ids,
        items_change: true,
        ..Shape::new(&["k"])
    };
    let database = database_name();
    let in_database = |command: &Document| {
        let mut command = command.clone();
        command.insert("$db", &database);
        command
    };
    let set = mongod::shared_replica_set();
    let relay = DelayingRelay::to(set.address())?;
    let config = shape.toml(&format!("{database}.{COLLECTION}"));
    let start = |uri: &str| Proxy::start(&ProxyOptions::new(uri).config(&config));
    let (ours, theirs) = (start(&relay.uri())?, start(&set.uri())?);
    let mut application = Connection::open(ours.address())?;
    let mut other = Connection::open(theirs.address())?;
    let items = [(1, 6, "busy"), (2, 5, "ready"), (3, 7, "ready")]
        .map(|(n, priority, state)| doc! { "_id": n, "k": 1, "n": n, "priority": priority, "state": state });
    other.command_ok(&in_database(
        &doc! { "insert": COLLECTION, "documents": items.to_vec() },
    ))?;
    let mut change = Some((Connection::open(theirs.address())?, in_database(meanwhile)));
    relay.judge(move |command| {
        if command.contains_key("findAndModify")
            && let Some((mut writer, change)) = change.take()
        {
            writer.command_ok(&change).expect("the other writer's command");
        }
        Fate::Arrives
    });
    let mut removal = in_database(removal);
    removal.extend(doc! { "remove": true, "lsid": lsid(&database), "txnNumber": 1_i64 });
    let first = application.command_ok(&removal)?;
    let second = other.command_ok(&removal)?;
    ensure!(
        removed(&first)? == removed(&second)? && second.contains_key("retriedStmtId"),
        "{item_ids:?} {removal}\n  {first}\n  {second}"
    );
    let left = other.all(&in_database(&doc! { "find": COLLECTION, "sort": { "n": 1 } }))?;
    let left: Vec<i32> = left.iter().filter_map(|item| item.get_i32("n").ok()).collect();
    invariants::check(&mut Connection::open(set.address())?, &database, COLLECTION, &shape)?;
    Ok((removed(&first)?, left))
}

#[test]
fn a_retry_returns_the_removed_item_although_another_became_the_first() -> Result<()> {
    for item_ids in [ItemIds::Unique, ItemIds::Stored, ItemIds::Dropped] {
        let of_key = doc! { "findAndModify": COLLECTION, "query": { "k": 1 }, "sort": { "priority": 1 } };
        let urgent = doc! { "_id": 4, "k": 1, "n": 4, "priority": 1, "state": "ready" };
        let insert = doc! { "insert": COLLECTION, "documents": [urgent] };
        let found = race(item_ids, &of_key, &insert)?;
        ensure!(found == (4, vec![1, 2, 3]), "{item_ids:?}: {found:?}");
        let of_state = doc! { "findAndModify": COLLECTION, "query": { "state": "ready" } };
        let ready = doc! { "q": { "n": 1 }, "u": { "$set": { "state": "ready" } } };
        let update = doc! { "update": COLLECTION, "updates": [ready] };
        let found = race(item_ids, &of_state, &update)?;
        ensure!(found == (1, vec![2, 3]), "{item_ids:?}: {found:?}");
    }
    Ok(())
}

/// Only what could come before the item matters.
#[test]
fn a_removal_without_a_sort_does_not_wait_for_later_items() -> Result<()> {
    let of_state = doc! { "findAndModify": COLLECTION, "query": { "state": "ready" } };
    let insert = doc! { "insert": COLLECTION, "documents": [{ "_id": 4, "k": 1, "n": 4, "state": "ready" }] };
    let found = race(ItemIds::Unique, &of_state, &insert)?;
    ensure!(found == (2, vec![1, 3, 4]), "{found:?}");
    Ok(())
}
