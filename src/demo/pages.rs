//! Reads the pages of a customer with thousands of trades: through mongoshape, and directly from a plain collection.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bson::{Bson, DateTime, Document, doc};
use futures_util::TryStreamExt as _;
use mongodb::{Client, Collection, Database, IndexModel};

use super::DemoDatabases;
use super::print::{note, section};

const PAGE: u32 = 10;
const BATCH: usize = 500;
/// Reads of each page; the median is shown.
const RUNS: usize = 25;
const CUSTOMER: i32 = 1;
/// Other customers, whose trades lie between those of the customer.
const OTHER_CUSTOMERS: i32 = 4;

pub(super) async fn show(
    proxied: &Client,
    direct: &Client,
    databases: &DemoDatabases,
    trades: u32,
) -> anyhow::Result<()> {
    section(&format!("A customer with {trades} trades"));
    let shaped = proxied.database(&databases.shaped);
    let plain = direct.database(&databases.plain);
    let index = IndexModel::builder().keys(doc! { "customerId": 1, "date": 1 }).build();
    orders(&plain).create_index(index).await?;
    for database in [&shaped, &plain] {
        insert(&orders(database), trades).await?;
    }
    note("plain: a plain collection with an index on {customerId, date}, read without a proxy");
    note("above 1, mongoshape is faster; a first page costs the hop to the proxy");
    note("both:  find({customerId}).sort({date: 1}).skip(10 * (n - 1)).limit(10), median of 25 runs\n");
    println!(
        "    {:>7}{:>16}{:>16}{:>18}",
        "page", "plain", "mongoshape", "plain/mongoshape"
    );
    let last = trades.div_ceil(PAGE);
    let mut pages = vec![1, 2, 10, 100, last];
    pages.retain(|page| *page <= last);
    pages.dedup();
    for page in pages {
        let times = compare(&plain, &shaped, page).await?;
        let ratio = times.plain.as_secs_f64() / times.shaped.as_secs_f64();
        println!(
            "    {page:>7}{:>13} µs{:>13} µs{ratio:>18.2}",
            times.plain.as_micros(),
            times.shaped.as_micros()
        );
    }
    println!();
    // Sizes on disk are as of the last checkpoint. The user may lack the right to request one.
    let _ = direct.database("admin").run_command(doc! { "fsync": 1 }).await;
    sizes(&plain, "plain").await?;
    sizes(&direct.database(&databases.shaped), "pages").await?;
    note("these are the trades of all customers; indexes are smaller with item_ids = \"stored\" or \"dropped\"");
    Ok(())
}

fn orders(database: &Database) -> Collection<Document> {
    database.collection("orders")
}

async fn insert(collection: &Collection<Document>, trades: u32) -> anyhow::Result<()> {
    let customers = (0..trades).flat_map(|number| (0..=OTHER_CUSTOMERS).map(move |other| (number, other)));
    // The others trade less: every tenth time.
    let customers = customers.filter(|(number, other)| *other == 0 || number.is_multiple_of(10));
    let orders: Vec<_> = customers
        .map(|(number, other)| order(number, CUSTOMER.saturating_add(other)))
        .collect();
    for batch in orders.chunks(BATCH) {
        collection.insert_many(batch).await?;
    }
    Ok(())
}

fn order(number: u32, customer_id: i32) -> Document {
    let minutes = i64::from(number).saturating_mul(60_000);
    let date = DateTime::from_millis(minutes.saturating_add(1_698_335_223_434));
    let id = format!("{customer_id}-{number}");
    doc! { "_id": id, "ticker": "MDB", "customerId": customer_id, "type": "buy", "quantity": number, "date": date }
}

/// The median times of a page.
struct PageTimes {
    plain: Duration,
    shaped: Duration,
}

/// A page that was read, and the time from the request to its reply.
struct ReadPage {
    /// The fields of each item by their names: the order of fields of a stored item is not significant.
    items: Vec<BTreeMap<String, Bson>>,
    time: Duration,
}

/// Reads both collections in turn, so that noise affects both alike. The items must be equal.
async fn compare(plain: &Database, shaped: &Database, page: u32) -> anyhow::Result<PageTimes> {
    let (mut plain_times, mut shaped_times) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let expected = read(plain, page).await?;
        let found = read(shaped, page).await?;
        ensure!(expected.items == found.items, "page {page} differs");
        plain_times.push(expected.time);
        shaped_times.push(found.time);
    }
    Ok(PageTimes {
        plain: median(plain_times),
        shaped: median(shaped_times),
    })
}

async fn read(database: &Database, page: u32) -> anyhow::Result<ReadPage> {
    let skipped = i64::from(page.saturating_sub(1)).saturating_mul(i64::from(PAGE));
    let find = doc! {
        "find": "orders", "filter": { "customerId": CUSTOMER }, "sort": { "date": 1 },
        "skip": skipped, "limit": i64::from(PAGE),
    };
    let started = Instant::now();
    let reply = database.run_command(find).await?;
    let time = started.elapsed();
    let cursor = reply.get_document("cursor").with_context(|| reply.to_string())?;
    let items = cursor.get_array("firstBatch")?.iter();
    let items = items.map(|item| item.as_document().cloned().unwrap_or_default().into_iter().collect());
    Ok(ReadPage {
        items: items.collect(),
        time,
    })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

async fn sizes(database: &Database, name: &str) -> anyhow::Result<()> {
    let stats = [doc! { "$collStats": { "storageStats": {} } }];
    let stats: Vec<Document> = orders(database).aggregate(stats).await?.try_collect().await?;
    let stats = stats.first().and_then(|first| first.get_document("storageStats").ok());
    let number = |field: &str| {
        let value = stats?.get(field)?;
        value.as_i64().or_else(|| value.as_i32().map(i64::from))
    };
    let kilobytes = |field: &str| number(field).unwrap_or_default() / 1024;
    let (documents, data) = (number("count").unwrap_or_default(), kilobytes("size"));
    note(&format!(
        "stored as {name:<8}{documents:>7} documents,{data:>7} kB of data,{:>6} kB of indexes",
        kilobytes("totalIndexSize")
    ));
    Ok(())
}
