//! `cargo xtask dashboard`: the Grafana dashboard's panels under a workload, as a picture for the documents.
//!
//! Without a Grafana server, which a fresh machine does not have: the components that Grafana publishes (`xtask/dashboard`) draw what the
//! dashboard's JSON asks of a real Prometheus.

mod bundle;

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use proto_tests::proxy::{Profile, build_binary};
use proto_tests::{Browser, Mongod, Prometheus, Scripts, browser, paths};
use serde_json::json;

use crate::deploy;
use crate::load;

const WIDTH: u32 = 1500;
/// `answers.js` knows it, too.
const SCRAPE_INTERVAL: &str = "5s";
/// Seconds of work before those that are shown: a rate wants some scrapes.
const WARM_UP: u64 = 60;

/// What `dashboard` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds of work that are shown
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// A proxy to take, not one built for release
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Where to write the picture
    #[arg(long)]
    output: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut browser = Browser::start()?.with_context(|| format!("there is no Chromium here: {}", browser::INSTALL))?;
    let page = bundle::made()?;
    let binary = options.binary.clone();
    let binary = binary.map_or_else(|| build_binary(Profile::Release), Ok)?;
    let mongod = Mongod::replica_set(1)?;
    let proxy = load::proxy(&mongod, &binary)?;
    let mut prometheus = Prometheus::start(proxy.admin_address(), SCRAPE_INTERVAL)?;
    println!("{} s of work", options.seconds);
    let picture = load::during(&proxy, || {
        thread::sleep(Duration::from_secs(WARM_UP + options.seconds));
        prometheus.expect_running()?;
        draw(&mut browser, &prometheus, &page, options.seconds)
    })?;
    let output = options.output.clone();
    let output = output.unwrap_or_else(|| paths::workspace().join("docs/images/dashboard.png"));
    fs::create_dir_all(output.parent().context("a folder")?)?;
    fs::write(&output, picture)?;
    println!("{}", output.display());
    Ok(())
}

fn draw(browser: &mut Browser, prometheus: &Prometheus, page: &bundle::Bundle, seconds: u64) -> Result<Vec<u8>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    // At 25 s or 55 s, so that the last time on an axis, a half or a quarter of a minute, has room for its text.
    let now = now - (now + 5) % 30;
    let asked = json!({
        "dashboard": deploy::dashboard()?,
        "prometheus": prometheus.address(),
        "from": now - seconds,
        "to": now,
    });
    browser.screen("dark", WIDTH)?;
    browser.open_url(&page.write(&asked)?, Scripts::On)?;
    browser.wait("window.drawn !== undefined || window.failed !== undefined")?;
    let failed = browser.evaluate("window.failed")?;
    ensure!(failed.is_null(), "{failed}");
    let empty = browser.evaluate("window.drawn.join(', ')")?;
    if empty != "" {
        println!("no data: {empty}");
    }
    // uPlot draws in a task of its own.
    browser.wait("document.querySelectorAll('canvas').length > 0")?;
    thread::sleep(Duration::from_secs(2));
    browser.screenshot()
}
