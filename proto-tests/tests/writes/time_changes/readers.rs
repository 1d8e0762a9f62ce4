//! Readers of a key during time changes, on a mongod that yields as often as possible.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::measure::is_full;
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::{ItemIds, Proxy};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

use crate::time_changes::fixture::{COLLECTION, Sides, check_order, item, seconds, set_time, shape};

const ITEMS: i32 = 240;

/// For how long readers and writers run.
fn time() -> Duration {
    Duration::from_secs(if is_full("MONGOSHAPE_CRASHES") { 10 } else { 3 })
}

/// Which times items get.
#[derive(Clone, Copy)]
enum Times {
    /// Among the others.
    ToAndFro,
    /// Always further out, so that bounds move each time.
    Outwards,
}

impl Times {
    /// No two items have the same.
    fn next(self, random: &mut ChaCha8Rng, (number, count): (i32, &AtomicI64)) -> i64 {
        match self {
            Self::ToAndFro => i64::from(random.random_range(0..ITEMS) * 1000 + number),
            Self::Outwards => {
                let out = 1_000_000 + count.fetch_add(1, Ordering::Relaxed);
                if random.random_bool(0.5) { out } else { -out }
            }
        }
    }

    fn find(self, random: &mut ChaCha8Rng) -> Document {
        let direction = if random.random_bool(0.5) { 1 } else { -1 };
        let mut find = doc! { "find": COLLECTION, "filter": { "k": 0 }, "sort": { "at": direction } };
        match self {
            // All at once, or in small batches.
            Self::ToAndFro if random.random_bool(0.2) => find.extend(doc! { "batchSize": 7 }),
            Self::ToAndFro => {
                let skip = random.random_range(0..ITEMS).max(ITEMS / 2) - ITEMS / 2;
                find.extend(doc! { "skip": skip, "limit": random.random_range(1..60), "batchSize": 100 });
            }
            // As many pages as there are, by their bounds.
            Self::Outwards => find.extend(doc! { "limit": 200, "batchSize": 200 }),
        }
        find
    }
}

/// What all threads have to do with.
struct Fixture<'a> {
    database: &'a str,
    times: Times,
    stop: AtomicBool,
    count: AtomicI64,
}

/// Items of odd numbers change their times.
fn is_untouched(number: i32) -> bool {
    number % 2 == 0
}

fn change_times(proxy: &Proxy, fixture: &Fixture<'_>, seed: u64) -> Result<u32> {
    let mut connection = Connection::open(proxy.address())?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut changed = 0;
    while !fixture.stop.load(Ordering::Relaxed) {
        let number = random.random_range(0..ITEMS / 2) * 2 + 1;
        let time = fixture.times.next(&mut random, (number, &fixture.count));
        let mut update = set_time(doc! { "k": 0, "n": number }, time);
        update.insert("$db", fixture.database);
        let reply = connection.command_ok(&update)?;
        ensure!(reply.get_i32("n")? == 1, "{reply}");
        changed += 1;
    }
    Ok(changed)
}

fn read(proxy: &Proxy, fixture: &Fixture<'_>, seed: u64) -> Result<u32> {
    let mut connection = Connection::open(proxy.address())?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut reads = 0;
    while !fixture.stop.load(Ordering::Relaxed) {
        let mut find = fixture.times.find(&mut random);
        find.insert("$db", fixture.database);
        let found = connection.all(&find)?;
        check(&found, &find).with_context(|| format!("{find}: {found:?}"))?;
        reads += 1;
    }
    Ok(reads)
}

/// In order, and with all that stay where they are between the first and the last.
fn check(found: &[Document], find: &Document) -> Result<()> {
    let direction = find.get_document("sort")?.get_i32("at")?;
    let [skip, limit] = ["skip", "limit"].map(|name| find.get_i32(name).ok());
    check_order(found, direction)?;
    let mut times = found.iter().map(seconds).collect::<Result<Vec<i64>>>()?;
    times.sort_unstable();
    let (Some(mut first), Some(mut last)) = (times.first().copied(), times.last().copied()) else {
        return Ok(());
    };
    let begins = skip.is_none_or(|skip| skip == 0);
    let ends = usize::try_from(limit.unwrap_or(i32::MAX)).is_ok_and(|limit| found.len() < limit);
    let (has_oldest, has_newest) = if direction > 0 { (begins, ends) } else { (ends, begins) };
    if has_oldest {
        first = i64::MIN;
    }
    if has_newest {
        last = i64::MAX;
    }
    let returned: Vec<i32> = found.iter().flat_map(|item| item.get_i32("n")).collect();
    for number in (0..ITEMS).filter(|number| is_untouched(*number)) {
        let is_between = (first..=last).contains(&(i64::from(number) * 1000));
        ensure!(!is_between || returned.contains(&number), "{number} is missing");
    }
    Ok(())
}

#[test]
fn readers_return_all_items_with_unchanged_time() -> Result<()> {
    scans_beside_writers(Times::ToAndFro)
}

#[test]
fn readers_return_all_items_while_time_bounds_move() -> Result<()> {
    scans_beside_writers(Times::Outwards)
}

fn scans_beside_writers(times: Times) -> Result<()> {
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
    let fixture = Fixture {
        database: &database,
        times,
        stop: AtomicBool::new(false),
        count: AtomicI64::new(0),
    };
    thread::scope(|scope| -> Result<()> {
        let (proxies, fixture) = ([&sides.proxy, &other], &fixture);
        let writers: Vec<_> = (0..2)
            .map(|seed| scope.spawn(move || change_times(proxies[seed], fixture, seed as u64)))
            .collect();
        let readers: Vec<_> = (0..3)
            .map(|seed| scope.spawn(move || read(proxies[seed % 2], fixture, seed as u64)))
            .collect();
        let end = Instant::now() + time();
        while Instant::now() < end && !readers.iter().any(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(50));
        }
        fixture.stop.store(true, Ordering::Relaxed);
        let mut done = Vec::new();
        for thread in writers.into_iter().chain(readers) {
            done.push(thread.join().expect("a thread panicked")?);
        }
        ensure!(done.iter().all(|done| *done > 5), "hardly anything was done: {done:?}");
        Ok(())
    })?;
    sides.check_layout()
}
