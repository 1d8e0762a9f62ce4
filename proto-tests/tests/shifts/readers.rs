//! Readers of a key beside writers who change its items' times to and fro, before a mongod that yields wherever it may.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::{ItemIds, Proxy};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

use crate::scene::{COLLECTION, Sides, check_order, item, seconds, set_time, shape};

const ITEMS: i32 = 240;
const RUNS_FOR: Duration = Duration::from_secs(12);

/// Items of odd numbers change their times.
fn is_untouched(number: i32) -> bool {
    number % 2 == 0
}

fn change_times(proxy: &Proxy, database: &str, (stop, seed): (&AtomicBool, u64)) -> Result<u32> {
    let mut connection = Connection::open(proxy.address())?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut changed = 0;
    while !stop.load(Ordering::Relaxed) {
        let number = random.random_range(0..ITEMS / 2) * 2 + 1;
        // No two have the same time.
        let time = random.random_range(0..ITEMS) * 1000 + number;
        let mut update = set_time(doc! { "k": 0, "n": number }, time.into());
        update.insert("$db", database);
        let reply = connection.command_ok(&update)?;
        ensure!(reply.get_i32("n")? == 1, "{reply}");
        changed += 1;
    }
    Ok(changed)
}

fn read(proxy: &Proxy, database: &str, (stop, seed): (&AtomicBool, u64)) -> Result<u32> {
    let mut connection = Connection::open(proxy.address())?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        let direction = if random.random_bool(0.5) { 1 } else { -1 };
        let skip = if random.random_bool(0.5) {
            0
        } else {
            random.random_range(0..ITEMS)
        };
        let limit = random.random_range(1..60);
        let mut find = doc! {
            "find": COLLECTION, "filter": { "k": 0 }, "sort": { "at": direction }, "skip": skip, "$db": database,
        };
        // All at once, or in small batches.
        let limit = if random.random_bool(0.8) {
            find.extend(doc! { "limit": limit, "batchSize": 100 });
            limit
        } else {
            find.insert("batchSize", 7);
            ITEMS
        };
        let found = connection.all(&find)?;
        check(&found, direction, (skip, limit)).with_context(|| format!("{find}: {found:?}"))?;
        reads += 1;
    }
    Ok(reads)
}

/// In order, and with all that stay where they are between the first and the last.
fn check(found: &[Document], direction: i32, (skip, limit): (i32, i32)) -> Result<()> {
    check_order(found, direction)?;
    let mut times = found.iter().map(seconds).collect::<Result<Vec<i64>>>()?;
    times.sort_unstable();
    let (Some(mut first), Some(mut last)) = (times.first().copied(), times.last().copied()) else {
        return Ok(());
    };
    let is_all = found.len() < usize::try_from(limit)?;
    if direction > 0 {
        first = if skip == 0 { i64::MIN } else { first };
        last = if is_all { i64::MAX } else { last };
    } else {
        last = if skip == 0 { i64::MAX } else { last };
        first = if is_all { i64::MIN } else { first };
    }
    let met: Vec<i32> = found.iter().flat_map(|item| item.get_i32("n")).collect();
    for number in (0..ITEMS).filter(|number| is_untouched(*number)) {
        let is_between = (first..=last).contains(&(i64::from(number) * 1000));
        ensure!(!is_between || met.contains(&number), "{number} is missing");
    }
    Ok(())
}

#[test]
fn readers_miss_nothing_that_stays() -> Result<()> {
    let mongod = Options::default()
        .parameter("internalQueryExecYieldIterations=1")
        .standalone()?;
    let mut sides = Sides::at(shape(ItemIds::Unique), (mongod.uri(), mongod.address()))?;
    let database = sides.shaped_database();
    let items: Vec<Document> = (0..ITEMS).map(|n| item(0, n)).collect();
    sides
        .shaped
        .command_ok(&doc! { "insert": COLLECTION, "documents": items, "$db": &database })?;
    let other = sides.another_proxy()?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let proxies = [&sides.proxy, &other];
        let (stop, database) = (&stop, &database);
        let writers: Vec<_> = (0..2)
            .map(|seed| scope.spawn(move || change_times(proxies[seed], database, (stop, seed as u64))))
            .collect();
        let readers: Vec<_> = (0..3)
            .map(|seed| scope.spawn(move || read(proxies[seed % 2], database, (stop, seed as u64))))
            .collect();
        let end = Instant::now() + RUNS_FOR;
        while Instant::now() < end && !readers.iter().any(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            ensure!(
                writer.join().expect("a writer panicked")? > 10,
                "hardly anything was changed"
            );
        }
        for reader in readers {
            ensure!(
                reader.join().expect("a reader panicked")? > 10,
                "hardly anything was read"
            );
        }
        Ok(())
    })?;
    sides.check_layout()
}
