//! The newest item of each key, by a skip scan of the page index, and the newest of several keys, by a scan of
//! their time bounds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::altering_relay::AlteringRelay;
use proto_tests::measure::is_full;
use proto_tests::raw::Connection;
use proto_tests::sides::Sides;
use proto_tests::{Proxy, database_name, mongod};

use crate::proxies::{small_pages, two_proxies};

const COLLECTION: &str = "items";
const KEYS: usize = 6;

/// How many items a writer inserts after another in the order of time.
fn rounds() -> i64 {
    if is_full("MONGOSHAPE_CRASHES") { 40 } else { 20 }
}

struct Fixture {
    database: String,
    proxies: [Proxy; 2],
}

impl Fixture {
    fn start() -> Result<Self> {
        let database = database_name();
        Ok(Self {
            proxies: two_proxies(&small_pages(), &database, COLLECTION)?,
            database,
        })
    }

    fn application(&self, proxy: usize) -> Result<Connection> {
        Connection::open(self.proxies[proxy % 2].address())
    }

    fn insert(&self, key: usize, times: &[i64]) -> Result<Document> {
        let key = i32::try_from(key)?;
        let items: Vec<Document> = times.iter().map(|time| doc! { "k": key, "at": at(*time) }).collect();
        Ok(doc! { "insert": COLLECTION, "documents": items, "$db": &self.database })
    }

    fn delete(&self, key: usize, time: i64) -> Result<Document> {
        let filter = doc! { "k": i32::try_from(key)?, "at": at(time) };
        Ok(doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": 0 }], "$db": &self.database })
    }

    fn newest(&self) -> Document {
        let pipeline = [
            doc! { "$sort": { "at": -1 } },
            doc! { "$group": { "_id": "$k", "at": { "$first": "$at" } } },
        ];
        doc! { "aggregate": COLLECTION, "pipeline": pipeline.as_slice(), "cursor": {}, "$db": &self.database }
    }

    /// The newest time of each key, by a `$lookup` of its two newest items.
    fn newest_by_lookup(&self) -> Result<Document> {
        let keys: Vec<Document> = (0..i32::try_from(KEYS)?).map(|key| doc! { "_id": key }).collect();
        let pipeline = [doc! { "$sort": { "at": -1 } }, doc! { "$limit": 2 }];
        let lookup = doc! {
            "from": COLLECTION, "localField": "_id", "foreignField": "k", "pipeline": pipeline.as_slice(),
            "as": "found",
        };
        let newest = doc! { "at": { "$first": "$found.at" } };
        let stages = [
            doc! { "$documents": keys },
            doc! { "$lookup": lookup },
            doc! { "$set": newest },
        ];
        Ok(doc! { "aggregate": 1, "pipeline": stages.as_slice(), "cursor": {}, "$db": &self.database })
    }
}

/// The newest items of the keys with odd numbers, whose items stay in the order of time, or of all keys.
fn feed(fixture: &Fixture, is_of_all: bool) -> Document {
    let keys: Vec<i32> = (0..6).filter(|key| is_of_all || key % 2 == 1).collect();
    doc! {
        "find": COLLECTION, "filter": { "k": { "$in": keys } }, "sort": { "at": -1 }, "limit": 8,
        "$db": &fixture.database,
    }
}

/// Fails unless the items come in order, and none is left out that was stored before.
fn check_feed(application: &mut Connection, feed: &Document, before: &[i64], is_of_all: bool) -> Result<()> {
    let items = application.all(feed)?;
    let found: Vec<(i32, i64)> = items
        .iter()
        .map(|item| Ok((item.get_i32("k")?, item.get_datetime("at")?.timestamp_millis() / 1000)))
        .collect::<Result<_>>()?;
    ensure!(found.is_sorted_by(|(_, one), (_, next)| one >= next), "{found:?}");
    let oldest = found.last().map_or(i64::MIN, |(_, time)| *time);
    for (key, time) in (0..).zip(before).filter(|(key, _)| is_of_all || key % 2 == 1) {
        ensure!(
            *time <= oldest || found.contains(&(key, *time)),
            "{time} of the key {key} is missing: {found:?}"
        );
    }
    Ok(())
}

/// The `explain` of a command.
fn explain(mut command: Document) -> Document {
    let database = command.remove("$db");
    doc! { "explain": command, "verbosity": "executionStats", "$db": database }
}

fn at(seconds: i64) -> Bson {
    Bson::DateTime(DateTime::from_millis(seconds * 1000))
}

/// The time of each key, in seconds.
fn times(answer: &[Document]) -> Result<BTreeMap<i32, i64>> {
    let times = answer.iter().map(|group| {
        Ok((
            group.get_i32("_id")?,
            group.get_datetime("at")?.timestamp_millis() / 1000,
        ))
    });
    times.collect()
}

#[test]
fn mongod_skips_from_key_to_key() -> Result<()> {
    let fixture = Fixture::start()?;
    let mut application = fixture.application(0)?;
    for key in 0..KEYS {
        application.command_ok(&fixture.insert(key, &[1, 2, 3, 4, 5])?)?;
    }
    let plan = application.command_ok(&explain(fixture.newest()))?.to_string();
    ensure!(plan.contains("\"DISTINCT_SCAN\""), "{plan}");
    let answer = times(&application.all(&fixture.newest())?)?;
    ensure!(
        answer.len() == KEYS && answer.values().all(|time| *time == 5),
        "{answer:?}"
    );
    // The items of one key are no longer in the order of time.
    application.command_ok(&fixture.insert(3, &[9, 1])?)?;
    application.command_ok(&fixture.insert(4, &[9])?)?;
    let answer = times(&application.all(&fixture.newest())?)?;
    let expected = BTreeMap::from([(0, 5), (1, 5), (2, 5), (3, 9), (4, 9), (5, 5)]);
    ensure!(answer == expected, "{answer:?}");
    Ok(())
}

/// Whether [`interrupt`] changes replies.
static INTERRUPTS: AtomicBool = AtomicBool::new(false);
/// How many replies [`interrupt`] has changed.
static INTERRUPTED: AtomicUsize = AtomicUsize::new(0);

/// Turns a reply with items into the error of a command that was killed.
fn interrupt(reply: &mut Document) -> bool {
    let has_items = reply.get_document("cursor").is_ok_and(|cursor| {
        let is_of_items = cursor.get_str("ns").is_ok_and(|name| name.ends_with(COLLECTION));
        is_of_items && cursor.get_array("firstBatch").is_ok_and(|batch| !batch.is_empty())
    });
    if !has_items || !INTERRUPTS.load(Ordering::SeqCst) {
        return false;
    }
    INTERRUPTED.fetch_add(1, Ordering::SeqCst);
    *reply = doc! { "ok": 0.0, "errmsg": "operation was interrupted", "code": 11601, "codeName": "Interrupted" };
    true
}

/// A read of all pages followed.
#[test]
fn killed_skip_scan_has_ended() -> Result<()> {
    let server = mongod::shared();
    let relay = AlteringRelay::to(server.address(), interrupt)?;
    let mut sides = Sides::at(small_pages(), (relay.uri(), server.address()))?;
    let items: Vec<Document> = (0..20)
        .map(|id| doc! { "_id": id, "k": id % 4, "at": at(i64::from(id)) })
        .collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    let stages = [
        doc! { "$sort": { "at": -1 } },
        doc! { "$group": { "_id": "$k", "at": { "$first": "$at" } } },
    ];
    let newest = doc! {
        "aggregate": COLLECTION, "pipeline": stages.as_slice(), "cursor": {}, "$db": sides.shaped_database(),
    };
    ensure!(sides.shaped.all(&newest)?.len() == 4, "not one item of each key");
    INTERRUPTS.store(true, Ordering::SeqCst);
    let reply = sides.shaped.command(&newest)?;
    ensure!(reply.get_i32("code")? == 11601, "{reply}");
    let attempts = INTERRUPTED.load(Ordering::SeqCst);
    ensure!(attempts == 1, "{attempts} attempts");
    Ok(())
}

/// mongod's `$graphLookup` may use 100 MB.
#[test]
fn a_long_key_that_is_out_of_order_is_read_item_by_item() -> Result<()> {
    let fixture = Fixture::start()?;
    let mut application = fixture.application(0)?;
    let text = "x".repeat(14 << 20);
    for time in [1, 9, 3, 4, 5, 6, 7, 8] {
        let item = doc! { "k": 1, "at": at(time), "text": &text };
        application.command_ok(&doc! { "insert": COLLECTION, "documents": [item], "$db": &fixture.database })?;
    }
    let answer = times(&application.all(&fixture.newest())?)?;
    ensure!(answer == BTreeMap::from([(1, 9)]), "{answer:?}");
    Ok(())
}

/// mongod's `$graphLookup` takes `$` in a key for an operator.
#[test]
fn a_key_with_a_dollar_field_is_read_item_by_item() -> Result<()> {
    let fixture = Fixture::start()?;
    let mut application = fixture.application(0)?;
    let items = [1, 9, 3].map(|time| doc! { "k": { "$f": 1 }, "at": at(time) });
    application.command_ok(&doc! { "insert": COLLECTION, "documents": items.as_slice(), "$db": &fixture.database })?;
    let answer = application.all(&fixture.newest())?;
    ensure!(answer == [doc! { "_id": { "$f": 1 }, "at": at(9) }], "{answer:?}");
    Ok(())
}

/// Inserts items of a key: each newer than those before, some beside them that are older, and some that are
/// newest for a moment, on a page of their own often.
fn write(fixture: &Fixture, key: usize, newest: &AtomicI64) -> Result<()> {
    let mut application = fixture.application(key)?;
    for round in 1..=rounds() {
        let time = round * 10;
        application.command_ok(&fixture.insert(key, &[time])?)?;
        newest.store(time, Ordering::SeqCst);
        application.command_ok(&fixture.insert(key, &[time + 1, time + 2])?)?;
        application.command_ok(&fixture.delete(key, time + 2)?)?;
        application.command_ok(&fixture.delete(key, time + 1)?)?;
        // Half of the keys stay in the order of time.
        if key.is_multiple_of(2) && round % 16 == 0 {
            application.command_ok(&fixture.insert(key, &[time - 5])?)?;
        }
    }
    Ok(())
}

#[test]
fn pages_of_listed_keys_are_merged_by_an_index() -> Result<()> {
    let fixture = Fixture::start()?;
    let mut application = fixture.application(0)?;
    for key in 0..KEYS {
        application.command_ok(&fixture.insert(key, &[1, 2, 3, 4, 5])?)?;
    }
    // An index on the time alone has the order, too, and reads the items of all keys.
    let index = doc! { "key": { "at": -1 }, "name": "newest" };
    application.command_ok(&doc! { "createIndexes": COLLECTION, "indexes": [index], "$db": &fixture.database })?;
    let plan = application.command_ok(&explain(feed(&fixture, true)))?;
    let examined = plan.get_document("executionStats")?.get_i32("totalDocsExamined")?;
    ensure!(plan.to_string().contains("\"SORT_MERGE\"") && examined <= 9, "{plan}");
    let items = application.all(&feed(&fixture, true))?;
    let times: Vec<i64> = items
        .iter()
        .map(|item| Ok(item.get_datetime("at")?.timestamp_millis() / 1000))
        .collect::<Result<_>>()?;
    ensure!(times == [5, 5, 5, 5, 5, 5, 4, 4], "{times:?}");
    Ok(())
}

#[test]
fn the_newest_items_are_found_while_others_are_inserted_and_deleted() -> Result<()> {
    let fixture = Fixture::start()?;
    let newest: [AtomicI64; KEYS] = Default::default();
    for key in 0..KEYS {
        fixture.application(0)?.command_ok(&fixture.insert(key, &[0])?)?;
    }
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let readers = [0, 1].map(|proxy| {
            let (fixture, newest, is_done) = (&fixture, &newest, &is_done);
            scope.spawn(move || -> Result<()> {
                let mut application = fixture.application(proxy)?;
                while !is_done.load(Ordering::SeqCst) {
                    for command in [fixture.newest(), fixture.newest_by_lookup()?] {
                        let before: Vec<i64> = newest.iter().map(|time| time.load(Ordering::SeqCst)).collect();
                        let answer = times(&application.all(&command)?)?;
                        for (key, least) in (0..).zip(before) {
                            let time = answer.get(&key).with_context(|| format!("no key {key}: {answer:?}"))?;
                            ensure!(*time >= least, "{time} of the key {key} is older than {least}");
                        }
                    }
                    for is_of_all in [false, true] {
                        let before: Vec<i64> = newest.iter().map(|time| time.load(Ordering::SeqCst)).collect();
                        check_feed(&mut application, &feed(fixture, is_of_all), &before, is_of_all)?;
                    }
                }
                Ok(())
            })
        });
        let writers: Vec<_> = (0..KEYS)
            .map(|key| {
                let (fixture, newest) = (&fixture, &newest[key]);
                scope.spawn(move || write(fixture, key, newest))
            })
            .collect();
        let written: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_done.store(true, Ordering::SeqCst);
        for reader in readers {
            reader.join().expect("a reader panicked")?;
        }
        for writer in written {
            writer.expect("a writer panicked")?;
        }
        Ok(())
    })?;
    let answer = times(&fixture.application(0)?.all(&fixture.newest())?)?;
    ensure!(
        answer.len() == KEYS && answer.values().all(|time| *time == rounds() * 10),
        "{answer:?}"
    );
    Ok(())
}
