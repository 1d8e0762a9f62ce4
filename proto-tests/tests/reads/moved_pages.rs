//! Pages whose entries in an index move while mongod merges scans.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use anyhow::{Result, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::measure::is_full;
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::{Proxy, ProxyOptions, Shape, database_name};

const COLLECTION: &str = "items";
const KEYS: i32 = 8;

/// How many items each writer inserts.
fn rounds() -> i64 {
    if is_full("MONGOSHAPE_CRASHES") { 300 } else { 120 }
}

fn at(time: i64) -> DateTime {
    DateTime::from_millis(time)
}

fn time_of(item: &Document) -> DateTime {
    item.get_datetime("at").copied().unwrap_or(DateTime::MIN)
}

struct Fixture {
    database: String,
    proxy: Proxy,
}

impl Fixture {
    fn application(&self) -> Result<Connection> {
        Connection::open(self.proxy.address())
    }

    fn insert(&self, application: &mut Connection, key: i32, time: i64) -> Result<()> {
        let item = doc! { "k": key, "at": at(time) };
        application.command_ok(&doc! { "insert": COLLECTION, "documents": [item], "$db": &self.database })?;
        Ok(())
    }

    /// Inserts items of a key, each newer than the last one.
    fn write(&self, key: i32, newest: &AtomicI64) -> Result<()> {
        let mut application = self.application()?;
        for time in 1..=rounds() {
            self.insert(&mut application, key, time)?;
            newest.store(time, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Fails unless the newest items of all keys contain those that were stored before.
    fn read(&self, newest: &[AtomicI64]) -> Result<()> {
        let mut application = self.application()?;
        let keys: Vec<i32> = (0..KEYS).collect();
        let before: Vec<i64> = newest.iter().map(|time| time.load(Ordering::SeqCst)).collect();
        let items = application.all(&doc! {
            "find": COLLECTION, "filter": { "k": { "$in": keys } }, "sort": { "at": -1 }, "limit": 100,
            "$db": &self.database,
        })?;
        let oldest = items.last().map_or(DateTime::MIN, time_of);
        for (key, time) in (0..).zip(before) {
            let is_found = items
                .iter()
                .any(|item| item.get_i32("k").ok() == Some(key) && time_of(item) == at(time));
            ensure!(
                at(time) <= oldest || is_found,
                "{time} of the key {key} is missing: {items:?}"
            );
        }
        Ok(())
    }
}

/// mongod drops a page whose entry has moved between the merge of the scans and the fetch. It yields at every
/// step here.
#[test]
fn the_newest_items_of_several_keys_are_found_while_their_pages_grow() -> Result<()> {
    let server = Options::default()
        .parameter("internalQueryExecYieldIterations=1")
        .standalone()?;
    let database = database_name();
    let shape = Shape {
        time: Some("at".to_owned()),
        max_items: 1000,
        ..Shape::new(&["k"])
    };
    let config = shape.toml(&format!("{database}.{COLLECTION}"));
    let proxy = Proxy::start(&ProxyOptions::new(&server.uri()).config(&config))?;
    let fixture = Fixture { database, proxy };
    let newest: Vec<AtomicI64> = (0..KEYS).map(|_| AtomicI64::new(0)).collect();
    let mut application = fixture.application()?;
    for key in 0..KEYS {
        fixture.insert(&mut application, key, 0)?;
    }
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let reader = scope.spawn(|| -> Result<usize> {
            let mut reads = 0;
            while !is_done.load(Ordering::SeqCst) {
                fixture.read(&newest)?;
                reads += 1;
            }
            Ok(reads)
        });
        let fixture = &fixture;
        let writers: Vec<_> = (0..)
            .zip(&newest)
            .map(|(key, newest)| scope.spawn(move || fixture.write(key, newest)))
            .collect();
        let written: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_done.store(true, Ordering::SeqCst);
        let reads = reader.join().expect("the reader panicked")?;
        ensure!(reads > 10, "{reads} reads");
        for writer in written {
            writer.expect("a writer panicked")?;
        }
        Ok(())
    })
}
