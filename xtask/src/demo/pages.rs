//! Reads a customer's thousands of trades page by page: through mongoshape, and directly from a plain
//! collection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use futures_util::TryStreamExt as _;
use mongodb::{Client, Collection, IndexModel};
use proto_tests::{Mongod, Proxy, raw};

use super::print::{note, section};

const PAGE: u32 = 10;
const BATCH: usize = 500;
/// How often each collection's page is read; the median counts.
const RUNS: usize = 25;
const BUSY_CUSTOMER: i32 = 1;
/// Trades of others between two of the busy customer's, so that its own do not lie side by side.
const OTHER_CUSTOMERS: i32 = 4;

pub(super) async fn show(proxy: &Proxy, mongod: &Mongod, trades: u32) -> Result<()> {
    section(&format!("A customer with {trades} trades"));
    let proxied = Client::with_uri_str(proxy.uri())
        .await?
        .database("shop")
        .collection::<Document>("orders");
    let direct = Client::with_uri_str(mongod.uri()).await?;
    let plain = direct.database("plain").collection::<Document>("orders");
    let index = IndexModel::builder().keys(doc! { "customerId": 1, "date": 1 }).build();
    plain.create_index(index).await?;
    for collection in [&proxied, &plain] {
        insert(collection, trades).await?;
    }
    note("plain: a plain collection with an index on {customerId, date}, read without a proxy");
    note("both:  find({customerId}).sort({date: 1}).skip(10 * (n - 1)).limit(10), median of 25 runs\n");
    println!(
        "    {:>7}{:>16}{:>16}{:>18}",
        "page", "plain", "mongoshape", "plain/mongoshape"
    );
    let mut readers = (
        Reader::open(mongod.address(), "plain")?,
        Reader::open(proxy.address(), "shop")?,
    );
    let last = trades.div_ceil(PAGE);
    let mut pages = vec![1, 2, 10, 100, last];
    pages.retain(|page| *page <= last);
    pages.dedup();
    for page in pages {
        let (plain, proxied) = compare(&mut readers.0, &mut readers.1, page)?;
        let ratio = plain.as_secs_f64() / proxied.as_secs_f64();
        println!(
            "    {page:>7}{:>13} µs{:>13} µs{ratio:>18.2}",
            plain.as_micros(),
            proxied.as_micros()
        );
    }
    println!();
    // Sizes on disk are as of the last checkpoint.
    direct.database("admin").run_command(doc! { "fsync": 1 }).await?;
    sizes(&plain, "plain").await?;
    sizes(&direct.database("shop").collection("orders"), "buckets").await
}

async fn insert(collection: &Collection<Document>, trades: u32) -> Result<()> {
    let customers = (0..trades).flat_map(|number| (0..=OTHER_CUSTOMERS).map(move |other| (number, other)));
    // The others trade less: every tenth time.
    let customers = customers.filter(|(number, other)| *other == 0 || number % 10 == 0);
    let orders: Vec<_> = customers
        .map(|(number, other)| order(number, BUSY_CUSTOMER + other))
        .collect();
    for batch in orders.chunks(BATCH) {
        collection.insert_many(batch).await?;
    }
    Ok(())
}

fn order(number: u32, customer_id: i32) -> Document {
    let date = DateTime::from_millis(1_698_335_223_434 + i64::from(number) * 60_000);
    let id = format!("{customer_id}-{number}");
    doc! { "_id": id, "ticker": "MDB", "customerId": customer_id, "type": "buy", "quantity": number, "date": date }
}

/// Reads both collections in turn, so that noise affects both alike. The items must be equal.
fn compare(plain: &mut Reader, proxied: &mut Reader, page: u32) -> Result<(Duration, Duration)> {
    let (mut plain_times, mut proxied_times) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (expected, time) = plain.read(page)?;
        plain_times.push(time);
        let (found, time) = proxied.read(page)?;
        proxied_times.push(time);
        ensure!(expected == found, "page {page} differs: {expected:?} and {found:?}");
    }
    Ok((median(plain_times), median(proxied_times)))
}

/// Reads pages of the busy customer. Without a driver, whose own work on a page takes longer than the
/// server's.
struct Reader {
    connection: raw::Connection,
    database: &'static str,
}

impl Reader {
    fn open(address: SocketAddr, database: &'static str) -> Result<Self> {
        let mut connection = raw::Connection::open(address)?;
        connection.command_ok(&doc! { "hello": 1, "$db": "admin" })?;
        Ok(Self { connection, database })
    }

    /// The page and the time from the request to its answer. Each item is its fields by name: their order in
    /// a document that was kept in a bucket is not significant.
    fn read(&mut self, page: u32) -> Result<(Vec<BTreeMap<String, Bson>>, Duration)> {
        let find = doc! {
            "find": "orders", "filter": { "customerId": BUSY_CUSTOMER }, "sort": { "date": 1 },
            "skip": i64::from((page - 1) * PAGE), "limit": i64::from(PAGE), "$db": self.database,
        };
        let request = raw::request(1, &find)?;
        let mut frame = Vec::new();
        let started = Instant::now();
        self.connection.send(&request)?;
        self.connection.read_frame(&mut frame)?;
        let time = started.elapsed();
        let reply = raw::document(&frame)?;
        let found = reply
            .get_document("cursor")
            .with_context(|| reply.to_string())?
            .get_array("firstBatch")?;
        let fields = |item: &Bson| item.as_document().cloned().unwrap_or_default().into_iter().collect();
        Ok((found.iter().map(fields).collect(), time))
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

async fn sizes(collection: &Collection<Document>, name: &str) -> Result<()> {
    let stats = [doc! { "$collStats": { "storageStats": {} } }];
    let stats: Vec<Document> = collection.aggregate(stats).await?.try_collect().await?;
    let stats = stats
        .first()
        .map(|first| first.get_document("storageStats"))
        .transpose()?
        .cloned()
        .unwrap_or_default();
    let number = |field: &str| {
        stats
            .get(field)
            .and_then(|value| value.as_i64().or_else(|| value.as_i32().map(i64::from)))
    };
    let kilobytes = |field: &str| number(field).unwrap_or_default() / 1024;
    let (documents, data) = (number("count").unwrap_or_default(), kilobytes("size"));
    note(&format!(
        "stored as {name:<8}{documents:>7} documents,{data:>7} kB of data,{:>6} kB of indexes",
        kilobytes("totalIndexSize")
    ));
    Ok(())
}
