//! `cargo xtask page`: the operator's page under a workload, as a picture for the documents.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bson::{DateTime, Document, doc};
use proto_tests::proxy::{Profile, build_binary};
use proto_tests::raw::Connection;
use proto_tests::{Browser, Level, Mongod, Proxy, ProxyOptions, Scripts, browser, paths};

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

/// What `page` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds of work before the picture is taken
    #[arg(long, default_value_t = 100)]
    seconds: u64,
    /// `light` or `dark`
    #[arg(long, default_value = "light")]
    scheme: String,
    /// A proxy to take, not one built for release
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Where to write the picture
    #[arg(long)]
    output: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut browser = Browser::start()?.with_context(|| format!("there is no Chromium here: {}", browser::INSTALL))?;
    let mongod = Mongod::replica_set(1)?;
    let binary = options.binary.clone();
    let binary = binary.map_or_else(|| build_binary(Profile::Release), Ok)?;
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(SHAPES).binary(&binary))?;
    proxy.expect_log(Level::Warn, "does not keep to the protocol");
    browser.screen(&options.scheme, 1280)?;
    browser.open(proxy.admin_address(), Scripts::On)?;
    println!("http://{}/ for {} s", proxy.admin_address(), options.seconds);
    let stop = AtomicBool::new(false);
    let picture = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (proxy, stop) = (&proxy, &stop);
                scope.spawn(move || work(proxy, client, stop))
            })
            .collect();
        misspeak(&proxy)?;
        thread::sleep(Duration::from_secs(options.seconds));
        let picture = browser.screenshot();
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap_or_else(|_| anyhow::bail!("a client panicked"))?;
        }
        picture
    })?;
    let output = options.output.clone();
    let output = output.unwrap_or_else(|| paths::workspace().join("docs/images/operators-page.png"));
    fs::create_dir_all(output.parent().context("a folder")?)?;
    fs::write(&output, picture)?;
    println!("{}", output.display());
    Ok(())
}

/// One client, in waves, so that plots have something to show.
fn work(proxy: &Proxy, client: usize, stop: &AtomicBool) -> Result<()> {
    let mut connection = Connection::open(proxy.address())?;
    let began = Instant::now();
    let mut round = 0_i64;
    while !stop.load(Ordering::Relaxed) {
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
    let trade = |number: i64| {
        let customer = (round * 7 + number * 13 + client) % 40;
        doc! { "customerId": customer, "ticker": "MDB", "qty": number, "date": DateTime::now() }
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
    if round % 40 == 7 {
        commands.push(doc! { "mapReduce": "trades", "map": "", "reduce": "", "out": "o", "$db": "shop" });
    }
    commands
}

/// What ends in a warning.
fn misspeak(proxy: &Proxy) -> Result<()> {
    let mut connection = Connection::open(proxy.address())?;
    connection.send(&[16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0])?;
    connection.is_closed().map(drop)
}
