//! `cargo xtask dashboard`: a picture of the Grafana dashboard's panels under a workload, for the documents.
//!
//! It needs no Grafana server: the components that Grafana publishes (`xtask/dashboard`) draw the panels of
//! the dashboard's JSON with data of a real Prometheus.

mod bundle;

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use proto_tests::{Browser, Mongod, Prometheus, Scripts};
use serde_json::json;

use crate::deploy;
use crate::picture::PictureOptions;
use crate::{load, picture};

const WIDTH: u32 = 1500;
/// `answers.js` has the same value.
const SCRAPE_INTERVAL: &str = "5s";
/// Seconds of work before those that are shown: a rate wants some scrapes.
const WARM_UP: u64 = 60;

/// What `dashboard` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds of work that are shown
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    #[command(flatten)]
    picture: PictureOptions,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut browser = picture::browser()?;
    let page = bundle::made()?;
    let binary = options.picture.binary()?;
    let mongod = Mongod::replica_set(1)?;
    let proxy = load::proxy(&mongod, &binary)?;
    let mut prometheus = Prometheus::start(proxy.admin_address(), SCRAPE_INTERVAL)?;
    println!("{} s of work", options.seconds);
    let picture = load::during(&proxy, || {
        thread::sleep(Duration::from_secs(WARM_UP + options.seconds));
        prometheus.expect_running()?;
        draw(&mut browser, &prometheus, &page, options.seconds)
    })?;
    options.picture.write("dashboard.png", &picture)
}

fn draw(browser: &mut Browser, prometheus: &Prometheus, page: &bundle::Bundle, seconds: u64) -> Result<Vec<u8>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    // At 25 s or 55 s, so that the last time on an axis, a half or a quarter of a minute, has room for its
    // text.
    let now = now - (now + 5) % 30;
    let request = json!({
        "dashboard": deploy::dashboard()?,
        "prometheus": prometheus.address(),
        "from": now - seconds,
        "to": now,
    });
    browser.screen("dark", WIDTH)?;
    browser.open_url(&page.write(&request)?, Scripts::On)?;
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
