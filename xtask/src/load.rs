//! A workload of every kind on a proxy, in waves, for pictures: on bucket, outlier, observed and plain
//! collections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use bson::{DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::{Level, Mongod, Proxy, ProxyOptions};

const SHAPES: &str = r#"
[[bucket]]
namespace = "shop.trades"
key = "customerId"
time = "date"
max_items = 50

[[outlier]]
namespace = "shop.sales"
array = "customers_purchased"
threshold = 50

[[bucket]]
namespace = "shop.clicks"
key = "session"
mode = "observe"
"#;
const CLIENTS: usize = 4;
/// Rounds that a client takes before it connects anew, and before the first one does what ends in a warning:
/// a few of them fit into a picture.
const ROUNDS_OF_A_CONNECTION: i64 = 500;
const ROUNDS_OF_A_WARNING: i64 = 1000;

/// A proxy with a shape of each kind. Its warnings are a part of the picture.
pub(crate) fn proxy(mongod: &Mongod, binary: &std::path::Path) -> Result<Proxy> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(SHAPES).binary(binary))?;
    proxy.expect_log(Level::Warn, "violates the protocol");
    proxy.expect_log(Level::Warn, "closed a connection");
    Ok(proxy)
}

/// Runs `meanwhile` with clients at work.
pub(crate) fn during<T>(proxy: &Proxy, meanwhile: impl FnOnce() -> Result<T>) -> Result<T> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let start = |client| {
            let stop = &stop;
            scope.spawn(move || work(proxy, client, stop))
        };
        let clients: Vec<_> = (0..CLIENTS).map(start).collect();
        let done = meanwhile();
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap_or_else(|_| anyhow::bail!("a client panicked"))?;
        }
        done
    })
}

fn work(proxy: &Proxy, client: usize, stop: &AtomicBool) -> Result<()> {
    let mut connection = Connection::open(proxy.address())?;
    let began = Instant::now();
    let mut round = 0_i64;
    while !stop.load(Ordering::Relaxed) {
        if round % ROUNDS_OF_A_CONNECTION == 0 {
            connection = Connection::open(proxy.address())?;
        }
        if client == 0 && round % ROUNDS_OF_A_WARNING == 0 {
            misspeak(proxy)?;
        }
        for command in commands(client, round) {
            let reply = connection.command(&command)?;
            anyhow::ensure!(reply.contains_key("ok"), "{reply}");
        }
        round += 1;
        let wave = (began.elapsed().as_secs_f64() / 12.0 + f64::from(u8::try_from(client)?)).sin();
        thread::sleep(Duration::from_secs_f64(0.03 + 0.025 * wave));
    }
    Ok(())
}

fn commands(client: usize, round: i64) -> Vec<Document> {
    let client = i64::try_from(client).unwrap_or_default();
    let now = DateTime::now();
    let trade = |number: i64| {
        let customer = (round * 7 + number * 13 + client) % 40;
        doc! { "customerId": customer, "ticker": "MDB", "qty": number, "date": now }
    };
    let mut commands = vec![
        doc! { "insert": "trades", "documents": (0..8).map(trade).collect::<Vec<_>>(), "$db": "shop" },
        doc! { "find": "trades", "filter": { "customerId": round % 40 }, "sort": { "date": -1 }, "limit": 20, "$db": "shop" },
        doc! { "insert": "clicks", "documents": [{ "session": round % 9, "n": round }], "$db": "shop" },
        doc! { "find": "products", "filter": { "_id": round % 100 }, "$db": "shop" },
    ];
    let book = (round * 3 + client) % 30;
    let buyers: Vec<_> = (0..=book % 5).map(|buyer| round * 10 + buyer).collect();
    let push =
        doc! { "q": { "_id": book }, "u": { "$push": { "customers_purchased": { "$each": buyers } } }, "upsert": true };
    commands.push(doc! { "update": "sales", "updates": [push], "$db": "shop" });
    if round % 5 == 0 {
        commands.push(doc! { "find": "sales", "filter": { "_id": book }, "$db": "shop" });
        let pipeline = vec![doc! { "$match": { "qty": 3 } }, doc! { "$limit": 5 }];
        commands.push(doc! { "aggregate": "trades", "pipeline": pipeline, "cursor": {}, "$db": "shop" });
    }
    if round % 20 == 3 {
        let late = DateTime::from_millis(now.timestamp_millis() - 60_000);
        let trade = doc! { "customerId": round % 40, "ticker": "LATE", "qty": 1, "date": late };
        commands.push(doc! { "insert": "trades", "documents": [trade], "$db": "shop" });
    }
    if round % 40 == 7 {
        commands.push(doc! { "mapReduce": "trades", "map": "", "reduce": "", "out": "o", "$db": "shop" });
    }
    commands
}

/// What ends in a warning: an operation that is none, and a message that is too long.
fn misspeak(proxy: &Proxy) -> Result<()> {
    let unknown = [16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0];
    let too_long = [0, 0, 0, 0x7f, 1, 0, 0, 0, 0, 0, 0, 0, 0xdd, 0x07, 0, 0];
    for header in [unknown, too_long] {
        let mut connection = Connection::open(proxy.address())?;
        connection.send(&header)?;
        connection.is_closed()?;
    }
    Ok(())
}
