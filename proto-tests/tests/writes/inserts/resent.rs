//! Retryable inserts that are resent to a proxy with another `max_bytes`.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::attempts::disturbed;
use proto_tests::breaking_relay::{BreakingRelay, Moment};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{ItemIds, Level, Proxy, ProxyOptions, Shape, database_name, invariants, mongod};

const COLLECTION: &str = "items";
/// Commands of the proxy for one of the client's, at most.
const MOST: usize = 60;
const DOCUMENTS: i32 = 130;
/// The bounds of the proxy of the first attempt, and of that of the second.
const BOUNDS: [[usize; 2]; 3] = [[1 << 20, 1024], [1024, 1 << 20], [1500, 1024]];

/// What happens to the first attempt.
#[derive(Clone, Copy, Debug)]
enum First {
    /// Its connection to mongod breaks at a command.
    Breaks(Moment),
    /// It waits before a command until the second is done.
    Waits,
}

fn shape(max_bytes: usize) -> Shape {
    Shape {
        item_ids: ItemIds::Stored,
        max_bytes,
        max_items: 20,
        items_change: true,
        ..Shape::new(&["k"])
    }
}

/// Documents of three keys, of very different lengths.
fn documents(base: i32) -> Vec<Document> {
    let document = |n: i32| {
        let length = usize::try_from(n * 37 % 300).unwrap_or_default();
        doc! { "_id": base + n, "k": base + n % 3, "x": "x".repeat(length) }
    };
    (0..DOCUMENTS).map(document).collect()
}

/// Disturbs the proxy's commands of the first attempt in turn. Fails if a document is not stored exactly once.
/// `place`: that of the bounds.
fn check(first: First, place: usize) -> Result<()> {
    let [before, after] = BOUNDS[place];
    let set = mongod::shared_replica_set();
    let relay = Arc::new(BreakingRelay::to(set.address())?);
    let database = database_name();
    let start = |address, max_bytes| {
        let config = shape(max_bytes).toml(&format!("{database}.{COLLECTION}"));
        let uri = format!("mongodb://{address}/?directConnection=true");
        Proxy::start(&ProxyOptions::new(&uri).config(&config))
    };
    let (ours, other) = (start(relay.address(), before)?, start(set.address(), after)?);
    ours.expect_log(Level::Warn, "the upstream is not available");
    for number in disturbed(place, 3, MOST) {
        let base = i32::try_from(number)? * 1000;
        let key = doc! { "_id": base + 500, "k": base };
        let mut second = Connection::open(other.address())?;
        second.command_ok(&doc! { "insert": COLLECTION, "documents": [key], "$db": &database })?;
        let command = doc! {
            "insert": COLLECTION, "documents": documents(base), "$db": &database,
            "lsid": lsid(&format!("{database}{number}")), "txnNumber": 1_i64,
        };
        let mut application = Connection::open(ours.address())?;
        application.command_ok(&doc! { "find": COLLECTION, "$db": &database })?;
        let (reply, is_over) = attempts((&mut application, second), &relay, &command, (first, number))?;
        ensure!(reply.get_i32("n")? == DOCUMENTS, "{first:?} {number}: {reply}");
        let filter = doc! { "k": { "$gte": base, "$lt": base + 3 }, "_id": { "$ne": base + 500 } };
        let mut other = Connection::open(other.address())?;
        let stored = other.find(&database, COLLECTION, filter)?;
        let ids: HashSet<i32> = stored.iter().filter_map(|item| item.get_i32("_id").ok()).collect();
        let expected = usize::try_from(DOCUMENTS)?;
        ensure!(
            ids.len() == expected && stored.len() == expected,
            "{first:?} {number}: {} stored, {} of them different",
            stored.len(),
            ids.len()
        );
        if is_over {
            let mut direct = Connection::open(set.address())?;
            // Pages of the larger bound are there too.
            return invariants::check(&mut direct, &database, COLLECTION, &shape(before.max(after)));
        }
    }
    anyhow::bail!("the command takes more commands than that")
}

/// Both attempts at a command; the reply that the client sees, and whether the first was not disturbed any
/// more.
fn attempts(
    (first, mut second): (&mut Connection, Connection),
    relay: &Arc<BreakingRelay>,
    command: &Document,
    (what, number): (First, usize),
) -> Result<(Document, bool)> {
    match what {
        First::Breaks(moment) => {
            relay.arm(moment, number);
            let reply = first.command(command);
            let broke = relay.disarm();
            ensure!(reply.is_err() == broke, "{reply:?}");
            Ok((second.command_ok(command)?, !broke))
        }
        First::Waits => {
            let second_reply = Arc::new(Mutex::new(None));
            let (result, sent) = (Arc::clone(&second_reply), command.clone());
            relay.meanwhile(number, move || {
                *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(second.command_ok(&sent));
            });
            let reply = first.command_ok(command)?;
            let _ = relay.disarm();
            match second_reply.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(second) => Ok((second.context("the second attempt")?, false)),
                None => Ok((reply, true)),
            }
        }
    }
}

#[test]
fn a_resend_with_another_max_bytes_stores_each_document_once() -> Result<()> {
    for place in 0..BOUNDS.len() {
        check(First::Breaks(Moment::After), place)?;
        check(First::Breaks(Moment::Before), place)?;
    }
    Ok(())
}

#[test]
fn delayed_attempt_stores_nothing_after_a_retry_with_another_max_bytes() -> Result<()> {
    for place in 0..BOUNDS.len() {
        check(First::Waits, place)?;
    }
    Ok(())
}
