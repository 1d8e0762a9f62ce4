//! `demo`: an application for plain collections, a mongod that stores only buckets, and mongoshape between
//! them.
//!
//! Each part prints a description of its steps. All output is real: the program's lines are from its source
//! file, documents and times are from the servers.

mod application;
mod pages;
mod print;
mod stored;

use anyhow::{Result, ensure};
use clap::Args;
use proto_tests::proxy::{Profile, build_binary};
use proto_tests::{Mongod, Proxy, ProxyOptions};

use print::{note, section};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Leaves mongod and mongoshape running at the end, until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// How many trades the busy customer has
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    trades: u32,
    /// Takes this binary of mongoshape; otherwise the release build is made and taken
    #[arg(long)]
    binary: Option<std::path::PathBuf>,
}

const SHAPES: &str = r#"[[bucket]]
namespace = "shop.trades"
key = "customerId"
time = "date"
rename = { quantity = "qty" }
item_ids = "dropped"

[[bucket]]
namespace = "shop.orders"
key = "customerId"
time = "date"
"#;

pub(crate) fn run(options: &Options) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(show(options))
}

async fn show(options: &Options) -> Result<()> {
    section("Starting mongod and mongoshape");
    let mongod = Mongod::standalone()?;
    note(&format!("mongod      at {}", mongod.address()));
    let binary = options
        .binary
        .clone()
        .map_or_else(|| build_binary(Profile::Release), Ok)?;
    let mut proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(SHAPES).binary(&binary))?;
    let setup = proxy.run("setup")?;
    ensure!(
        setup.status.success(),
        "`mongoshape setup` failed:\n{}",
        String::from_utf8_lossy(&setup.stderr)
    );
    note(&format!("mongoshape  at {}, configured with:\n", proxy.address()));
    print::indented(SHAPES);

    application::show(&proxy.uri()).await?;
    stored::show(&mongod.uri()).await?;
    pages::show(&proxy, &mongod, options.trades).await?;
    metrics(&proxy)?;

    if options.keep {
        keep(&proxy, &mongod).await?;
    }
    proxy.stop()?;
    drop(mongod);
    println!("\nBoth are stopped, and their files removed.");
    Ok(())
}

fn metrics(proxy: &Proxy) -> Result<()> {
    section("What mongoshape counted (GET /metrics)");
    let answer = proxy.admin_get("/metrics")?;
    // Distributions are for machines, zeros for alerts: leave both out.
    let is_shown = |line: &&str| {
        let (name, value) = line.rsplit_once(' ').unwrap_or((line, "0"));
        let family = name.split('{').next().unwrap_or(name);
        let is_distribution = ["_bucket", "_sum", "_count"].iter().any(|end| family.ends_with(end));
        name.starts_with("mongoshape_") && value != "0" && !is_distribution
    };
    let shown: String = answer
        .body
        .lines()
        .filter(is_shown)
        .flat_map(|line| [line, "\n"])
        .collect();
    print::indented(&shown);
    Ok(())
}

async fn keep(proxy: &Proxy, mongod: &Mongod) -> Result<()> {
    section("Try it yourself; Ctrl-C ends both");
    note("As the application sees it:\n");
    print::indented(&format!(
        "mongosh \"mongodb://{}/shop?directConnection=true\"",
        proxy.address()
    ));
    println!();
    note("What mongod holds:\n");
    print::indented(&format!(
        "mongosh \"mongodb://{}/shop?directConnection=true\"",
        mongod.address()
    ));
    println!();
    note(&format!("Metrics: http://{}/metrics", proxy.admin_address()));
    tokio::signal::ctrl_c().await?;
    Ok(())
}
