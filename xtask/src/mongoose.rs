//! `mongoose`: Mongoose's own test suite, run directly, relayed, and with all its collections as bucket
//! collections; results are compared test by test.
//!
//! The key of the buckets is a field that no document has, so every collection is one sequence of pages. Each
//! run has a new mongod.

mod expected;
mod mocha;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;
use proto_tests::mongod::Options as MongodOptions;
use proto_tests::{Level, Mongod, Proxy, ProxyOptions};

use expected::Expected;
use mocha::{Mocha, Outcomes, Status};

/// A field that no document of the suite has.
const KEY: &str = "mongoshape_key";
/// Databases that are not the suite's.
const NOT_ITS_OWN: [&str; 3] = ["admin", "config", "local"];

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A checkout of Mongoose's repository, in which `npm install` was run
    #[arg(long, value_name = "FOLDER", env = "MONGOOSE_CHECKOUT")]
    checkout: PathBuf,
    /// Runs only these files, such as `test/query.test.js`
    #[arg(long, value_name = "FILE", num_args = 1..)]
    only: Vec<String>,
    /// Runs it with buckets alone, after the direct run
    #[arg(long)]
    shaped: bool,
    /// Takes this binary of mongoshape
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// A test that came to something else than directly.
struct Difference {
    test: String,
    direct: Status,
    proxied: Status,
}

/// Runs the suite, prints the differences, and fails where one is not expected.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mocha = Mocha::find(&options.checkout)?;
    let mongod = start_mongod()?;
    let direct = run_at(&mocha, "direct", mongod.address(), &options.only)?;
    let collections = collections(&mongod.log(0));
    drop(mongod);
    ensure!(!collections.is_empty(), "the suite created no collection");
    let mut failures = 0;
    if !options.shaped {
        let relayed = proxied(&mocha, "relayed", options, "")?;
        failures += report("relayed", &differences(&direct, &relayed), &[]);
    }
    let shaped = proxied(&mocha, "in buckets", options, &shapes(&collections))?;
    failures += report("in buckets", &differences(&direct, &shaped), &expected::of_buckets()?);
    ensure!(failures == 0, "{failures} tests differ that are not expected to");
    Ok(())
}

fn start_mongod() -> Result<Mongod> {
    // The suite waits for documents to expire.
    MongodOptions::default().parameter("ttlMonitorSleepSecs=1").standalone()
}

fn run_at(mocha: &Mocha, name: &str, address: SocketAddr, files: &[String]) -> Result<Outcomes> {
    let started = Instant::now();
    let outcomes = mocha.run(name, address, files)?;
    let count = |status| outcomes.values().filter(|outcome| **outcome == status).count();
    let [passed, failed, pending] = [Status::Passed, Status::Failed, Status::Pending].map(count);
    let seconds = started.elapsed().as_secs();
    println!("{name}: {passed} passed, {failed} failed, {pending} pending in {seconds} s");
    Ok(outcomes)
}

/// A run through a proxy with these shapes.
fn proxied(mocha: &Mocha, name: &str, options: &Options, shapes: &str) -> Result<Outcomes> {
    let mongod = start_mongod()?;
    // As often as this mongod deletes expired documents.
    let mut of_proxy = ProxyOptions::new(&mongod.uri()).config(shapes).expire_every(1000);
    if let Some(binary) = &options.binary {
        of_proxy = of_proxy.binary(binary);
    }
    let proxy = Proxy::start(&of_proxy)?;
    for level in [Level::Warn, Level::Error] {
        proxy.expect_log(level, "");
    }
    run_at(mocha, name, proxy.address(), &options.only)
}

/// The names of the collections that mongod's log reports as created.
fn collections(log: &str) -> BTreeSet<String> {
    let created = log.lines().filter(|line| line.contains(r#""msg":"createCollection""#));
    let namespaces = created.filter_map(|line| line.split(r#""namespace":""#).nth(1)?.split('"').next());
    let parts = namespaces.filter_map(|namespace| namespace.split_once('.'));
    let own = parts.filter(|(database, name)| !NOT_ITS_OWN.contains(database) && !name.starts_with("system."));
    own.map(|(_, name)| name.to_owned()).collect()
}

/// A table for each collection, in every database.
fn shapes(collections: &BTreeSet<String>) -> String {
    let mut tables = String::new();
    for name in collections {
        // Writing to a string cannot fail.
        let _ = writeln!(
            tables,
            "[[bucket]]\nnamespace = {:?}\nkey = {KEY:?}",
            format!("*.{name}")
        );
    }
    tables
}

fn differences(direct: &Outcomes, proxied: &Outcomes) -> Vec<Difference> {
    let status = |outcomes: &Outcomes, test: &String| outcomes.get(test).copied().unwrap_or(Status::Missing);
    let tests: BTreeSet<&String> = direct.keys().chain(proxied.keys()).collect();
    let compared = tests.into_iter().map(|test| Difference {
        test: test.clone(),
        direct: status(direct, test),
        proxied: status(proxied, test),
    });
    compared.filter(|one| one.direct != one.proxied).collect()
}

/// Prints the differences; how many are not expected.
fn report(name: &str, differences: &[Difference], expected: &[Expected]) -> usize {
    let mut unexpected = 0;
    for difference in differences {
        let listed = expected.iter().find(|entry| entry.matches(&difference.test));
        let cause = match (listed, difference.direct) {
            (Some(entry), _) => entry.cause.as_str(),
            (None, Status::Failed) => "it fails directly",
            (None, _) => {
                unexpected += 1;
                "NOT EXPECTED"
            }
        };
        let Difference { test, direct, proxied } = difference;
        println!("  {test}: {direct} -> {proxied}: {cause}");
    }
    println!(
        "{name}: {} tests differ, {unexpected} of them not expected",
        differences.len()
    );
    unexpected
}
