//! Writers of one key through two proxies: one changes times while the other inserts and deletes.

use std::thread;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::measure::is_full;
use proto_tests::raw::Connection;
use proto_tests::{ItemIds, Proxy};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

use crate::time_changes::fixture::{COLLECTION, Sides, at, check_order, item, shape};

const KEYS: i32 = 4;

/// The inserts of a writer. The other writers change twice as many times.
fn rounds() -> i32 {
    if is_full("MONGOSHAPE_CRASHES") { 120 } else { 40 }
}

fn insert_and_delete(proxy: &Proxy, database: &str, seed: u64) -> Result<()> {
    let mut connection = Connection::open(proxy.address())?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut next = 20;
    for _ in 0..rounds() {
        let k = random.random_range(0..KEYS);
        let items: Vec<Document> = (next..next + random.random_range(1..12)).map(|n| item(k, n)).collect();
        next += 12;
        connection.command_ok(&doc! { "insert": COLLECTION, "documents": items, "$db": database })?;
        if random.random_bool(0.5) {
            // The newest ones, so that pages go.
            let q = doc! { "k": random.random_range(0..KEYS), "n": { "$gte": next - random.random_range(0..200) } };
            let delete = doc! { "delete": COLLECTION, "deletes": [{ "q": q, "limit": 0 }], "$db": database };
            connection.command_ok(&delete)?;
        }
    }
    Ok(())
}

/// Gives items of the first ones other times, and reads the key after each from both ends.
fn change_times(proxy: &Proxy, database: &str, seed: u64) -> Result<()> {
    let mut connection = Connection::open(proxy.address())?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for round in 0..rounds() * 2 {
        let k = random.random_range(0..KEYS);
        let number = random.random_range(0..20);
        let time = at(random.random_range(-10_000..100_000) * 10 + i64::from(round % 10));
        let update = doc! { "q": { "k": k, "n": number }, "u": { "$set": { "at": time } } };
        let reply = connection.command_ok(&doc! { "update": COLLECTION, "updates": [update], "$db": database })?;
        ensure!(!reply.contains_key("writeErrors"), "{reply}");
        for direction in [1, -1] {
            let find = doc! {
                "find": COLLECTION, "filter": { "k": k }, "sort": { "at": direction }, "limit": 9, "$db": database,
            };
            check_order(&connection.all(&find)?, direction)?;
        }
    }
    Ok(())
}

#[test]
fn two_proxies_write_at_once() -> Result<()> {
    let mut sides = Sides::on_a_standalone(shape(ItemIds::Unique))?;
    let database = sides.shaped_database();
    for k in 0..KEYS {
        let items: Vec<Document> = (0..20).map(|n| item(k, n)).collect();
        let insert = doc! { "insert": COLLECTION, "documents": items, "$db": &database };
        sides.shaped.command_ok(&insert)?;
    }
    let other = sides.another_proxy()?;
    thread::scope(|scope| -> Result<()> {
        let database = &database;
        let proxy = &sides.proxy;
        let other = &other;
        let threads = [
            scope.spawn(move || insert_and_delete(other, database, 1)),
            scope.spawn(move || change_times(proxy, database, 2)),
            scope.spawn(move || change_times(other, database, 3)),
        ];
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a thread panicked"))
    })?;
    sides.check_layout()?;
    let delete = doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }], "$db": &database };
    sides.shaped.command_ok(&delete)?;
    ensure!(sides.buckets()?.is_empty(), "{:?}", sides.buckets()?);
    Ok(())
}
