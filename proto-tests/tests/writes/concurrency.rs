//! Many clients on two proxies, and collections that are dropped concurrently.
//!
//! `MONGOSHAPE_CRASHES=full` stores several times as many items.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use anyhow::{Result, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::buckets::{self, Layout};
use proto_tests::measure::{is_full, show};
use proto_tests::mongod;
use proto_tests::raw::Connection;
use proto_tests::shaped::{COLLECTION, Shaped};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

const OPTIONS: &str = "time = \"at\"";
const LAYOUT: Layout = Layout {
    key: "k",
    time: Some("at"),
    max_items: 10,
    max_bytes: 1 << 20,
};
const CLIENTS: u32 = 16;
const KEYS: i32 = 5;

/// The number of items of all clients.
fn items() -> u32 {
    if is_full("MONGOSHAPE_CRASHES") { 20_000 } else { 2_500 }
}

/// Times of many writers overlap, so that pages are late now and then.
fn item(number: u32, key: i32) -> Document {
    let at = DateTime::from_millis(1_698_335_223_434 + i64::from(number / 32) * 1000);
    doc! { "_id": i64::from(number), "k": key, "at": at }
}

/// An item that was sent: its `_id`, its key, and a rank that is the same for items whose order is not
/// promised.
type Sent = (i64, i32, usize);

/// Inserts what is left of the shared numbers in commands of 1 to 50 items and gives its own items in their
/// order.
fn write(mut connection: Connection, shaped: &Shaped, next: &AtomicU32, seed: u64) -> Result<Vec<Sent>> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut written = Vec::new();
    loop {
        let size = if random.random_bool(0.3) {
            1
        } else {
            random.random_range(1..=50)
        };
        let first = next.fetch_add(size, Ordering::Relaxed);
        let batch: Vec<_> = (first..items().min(first.saturating_add(size)))
            .map(|number| item(number, random.random_range(0..KEYS)))
            .collect();
        if batch.is_empty() {
            return Ok(written);
        }
        let mut command = shaped.insert(&batch);
        let ordered = random.random_bool(0.5);
        command.insert("ordered", ordered);
        let reply = connection.command_ok(&command)?;
        ensure!(reply.get_i32("n")? == i32::try_from(batch.len())?, "{reply}");
        let before = written.len();
        for (offset, item) in batch.iter().enumerate() {
            written.push((id(item), item.get_i32("k")?, before + if ordered { offset } else { 0 }));
        }
    }
}

fn id(item: &Document) -> i64 {
    item.get_i64("_id").unwrap()
}

fn ids(items: &[Document]) -> Vec<i64> {
    items.iter().map(id).collect()
}

#[test]
fn sixteen_clients_on_two_proxies_store_every_item_once_on_full_pages() -> Result<()> {
    let shaped = Shaped::start(OPTIONS)?;
    mongod::create_on_wine(&mut shaped.application()?, &shaped.database, COLLECTION)?;
    let other = shaped.another_proxy(OPTIONS)?;
    let next = AtomicU32::new(0);
    let written = thread::scope(|scope| -> Result<Vec<Vec<Sent>>> {
        let writers: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let address = if client % 2 == 0 {
                    shaped.proxy.address()
                } else {
                    other.address()
                };
                let (shaped, next) = (&shaped, &next);
                scope.spawn(move || write(Connection::open(address)?, shaped, next, u64::from(client)))
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().expect("a writer panicked"))
            .collect()
    })?;
    let keys = LAYOUT.check(&shaped.stored()?)?;
    assert_eq!(keys.len(), usize::try_from(KEYS)?);
    let stored: Vec<Vec<Document>> = keys
        .iter()
        .map(|pages| pages.iter().flat_map(buckets::items).collect())
        .collect();
    let mut all = ids(&stored.concat());
    all.sort_unstable();
    assert!(
        all.into_iter().eq(0..i64::from(items())),
        "not every item is there once"
    );
    assert_eq!(shaped.indexes()?, buckets::INDEXES);
    let series = format!(
        "mongoshape_bucket_items_inserted_total{{namespace=\"{}.items\"}}",
        shaped.database
    );
    let inserted = shaped.proxy.metric(&series) + other.metric(&series);
    assert!((inserted - f64::from(items())).abs() < 0.5, "{inserted}");
    check_order_of_each_writer(&stored, &written);
    for (key, items) in (0..KEYS).zip(&stored) {
        check_pages(&shaped, key, items)?;
    }
    Ok(())
}

#[test]
fn thirty_two_clients_on_three_proxies_share_one_key() -> Result<()> {
    const CLIENTS: u32 = 32;
    let each = if is_full("MONGOSHAPE_CRASHES") { 60 } else { 20 };
    let shaped = Shaped::start("")?;
    mongod::create_on_wine(&mut shaped.application()?, &shaped.database, COLLECTION)?;
    let others = [shaped.another_proxy("")?, shaped.another_proxy("")?];
    thread::scope(|scope| -> Result<()> {
        let writers: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let proxies = [&shaped.proxy, &others[0], &others[1]];
                let address = proxies[client as usize % 3].address();
                let shaped = &shaped;
                scope.spawn(move || -> Result<()> {
                    let mut connection = Connection::open(address)?;
                    for number in 0..each {
                        let item = doc! { "_id": i64::from(client * each + number), "k": 1 };
                        let reply = connection.command_ok(&shaped.insert(&[item]))?;
                        ensure!(reply.get_i32("n")? == 1, "{reply}");
                    }
                    Ok(())
                })
            })
            .collect();
        writers
            .into_iter()
            .try_for_each(|writer| writer.join().expect("a writer panicked"))
    })?;
    let layout = Layout { time: None, ..LAYOUT };
    let keys = layout.check(&shaped.stored()?)?;
    let [pages] = keys.as_slice() else {
        anyhow::bail!("{} keys", keys.len())
    };
    assert!(pages.iter().rev().skip(1).all(|page| buckets::items(page).len() == 10));
    let mut stored = ids(&pages.iter().flat_map(buckets::items).collect::<Vec<_>>());
    stored.sort_unstable();
    assert!(stored.into_iter().eq(0..i64::from(CLIENTS * each)));
    Ok(())
}

/// A writer waits for each answer, so its items of one key lie in the order in which it sent them.
fn check_order_of_each_writer(stored: &[Vec<Document>], written: &[Vec<Sent>]) {
    for of_writer in written {
        for (key, items) in (0..KEYS).zip(stored) {
            let own = of_writer.iter().filter(|(_, of, _)| *of == key);
            let ranks: BTreeMap<i64, usize> = own.map(|(id, _, rank)| (*id, *rank)).collect();
            let found: Vec<_> = ids(items).iter().filter_map(|id| ranks.get(id).copied()).collect();
            assert!(found.is_sorted(), "key {key}: {found:?}");
            assert_eq!(found.len(), ranks.len());
        }
    }
}

/// Page n through the proxy is items 10(n-1) to 10n-1 as they are stored.
fn check_pages(shaped: &Shaped, key: i32, stored: &[Document]) -> Result<()> {
    let mut application = shaped.application()?;
    let mut page = |number: usize| {
        let skip = i64::try_from(10 * number)?;
        application.all(
            &doc! { "find": COLLECTION, "filter": { "k": key }, "skip": skip, "limit": 10, "$db": &shaped.database },
        )
    };
    let chunks: Vec<_> = stored.chunks(10).collect();
    for (number, expected) in chunks.iter().enumerate() {
        assert_eq!(ids(&page(number)?), ids(expected), "key {key}, page {number}");
    }
    assert!(page(chunks.len())?.is_empty());
    Ok(())
}

#[test]
fn one_writers_pages_are_in_the_order_of_its_inserts() -> Result<()> {
    let shaped = Shaped::start("")?;
    let mut application = shaped.application()?;
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut first = 0;
    while first < 500 {
        let size = random.random_range(1..=35);
        let batch: Vec<_> = (first..first + size)
            .map(|number| doc! { "_id": i64::from(number), "k": "one" })
            .collect();
        let mut command = shaped.insert(&batch);
        command.insert("ordered", random.random_bool(0.5));
        application.command_ok(&command)?;
        first += size;
    }
    for (number, expected) in (0..i64::from(first)).collect::<Vec<_>>().chunks(10).enumerate() {
        let skip = i64::try_from(10 * number)?;
        let page =
            doc! { "find": COLLECTION, "filter": { "k": "one" }, "skip": skip, "limit": 10, "$db": &shaped.database };
        assert_eq!(ids(&application.all(&page)?), expected);
    }
    Ok(())
}

/// Inserts until stopped. No insert may fail.
fn keep_inserting(mut connection: Connection, shaped: &Shaped, key: i32, stop: &AtomicBool) -> Result<u32> {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let batch: Vec<_> = (0..7)
            .map(|offset| doc! { "k": key, "n": i64::from(number + offset) })
            .collect();
        let reply = connection.command_ok(&shaped.insert(&batch))?;
        ensure!(reply.get_i32("n")? == 7, "{reply}");
        number += 7;
    }
    Ok(number)
}

fn dropping_beside_writers(drop_through_proxy: bool) -> Result<()> {
    if mongod::find_program()?.is_windows {
        show("not run: mongod crashes on Wine if several clients create a collection at the same time");
        return Ok(());
    }
    let shaped = Shaped::start("")?;
    let other = shaped.another_proxy("")?;
    let mut dropper = if drop_through_proxy {
        shaped.application()?
    } else {
        shaped.direct()?
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let writers: Vec<_> = (0..4)
            .map(|key| {
                let address = if key % 2 == 0 || drop_through_proxy {
                    other.address()
                } else {
                    shaped.proxy.address()
                };
                let (shaped, stop) = (&shaped, &stop);
                scope.spawn(move || keep_inserting(Connection::open(address)?, shaped, key, stop))
            })
            .collect();
        let drops = drop_often(&mut dropper, &shaped);
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("a writer panicked")?;
        }
        drops
    })?;
    let mut application = shaped.application()?;
    application.command_ok(&shaped.insert(&[doc! { "k": 0 }]))?;
    Layout { time: None, ..LAYOUT }.check(&shaped.stored()?)?;
    let expected: Vec<_> = buckets::INDEXES
        .into_iter()
        .filter(|name| !["mongoshape_from", "mongoshape_to"].contains(name))
        .collect();
    assert_eq!(shaped.indexes()?, expected);
    Ok(())
}

/// Drops whenever there is something again.
fn drop_often(connection: &mut Connection, shaped: &Shaped) -> Result<()> {
    let mut direct = shaped.direct()?;
    for _ in 0..10 {
        let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
        loop {
            let count = direct.command_ok(&doc! { "count": COLLECTION, "$db": &shaped.database })?;
            if count.get_i32("n")? > 8 {
                break;
            }
            ensure!(std::time::Instant::now() < deadline, "nothing is stored any more");
        }
        connection.command_ok(&doc! { "drop": COLLECTION, "$db": &shaped.database })?;
    }
    Ok(())
}

#[test]
fn collection_dropped_through_one_proxy_is_recreated_by_another() -> Result<()> {
    dropping_beside_writers(true)
}

#[test]
fn collection_dropped_directly_on_mongod_is_recreated() -> Result<()> {
    dropping_beside_writers(false)
}

#[test]
fn pages_closed_early_by_their_size_keep_positions_right() -> Result<()> {
    let shaped = Shaped::start("time = \"at\"\nmax_bytes = 1024")?;
    let layout = Layout {
        max_bytes: 1024,
        ..LAYOUT
    };
    let mut application = shaped.application()?;
    let mut random = ChaCha8Rng::seed_from_u64(3);
    // One in ten is larger than a page.
    let items: Vec<_> = (0..120)
        .map(|number| {
            let length = if number % 10 == 3 {
                1200
            } else {
                random.random_range(0..300)
            };
            let mut item = item(number * 32, 1);
            item.insert("text", "x".repeat(length));
            item
        })
        .collect();
    for batch in items.chunks(9) {
        application.command_ok(&shaped.insert(batch))?;
    }
    let keys = layout.check(&shaped.stored()?)?;
    assert!(keys[0].len() > items.len() / 10, "no page was closed early");
    let expected = ids(&items);
    let newest_first: Vec<_> = expected.iter().rev().copied().collect();
    for (sort, expected) in [
        (doc! {}, &expected),
        (doc! { "at": 1 }, &expected),
        (doc! { "at": -1 }, &newest_first),
    ] {
        for skip in (0..items.len() + 12).step_by(7) {
            for limit in [1, 2, 10, 17, 101] {
                let (skip_i, limit_i) = (i64::try_from(skip)?, i64::try_from(limit)?);
                let command = doc! {
                    "find": COLLECTION, "filter": { "k": 1 }, "sort": sort.clone(), "skip": skip_i, "limit": limit_i,
                    "$db": &shaped.database,
                };
                let expected: Vec<_> = expected.iter().skip(skip).take(limit).copied().collect();
                assert_eq!(ids(&application.all(&command)?), expected, "{command}");
            }
        }
    }
    Ok(())
}
