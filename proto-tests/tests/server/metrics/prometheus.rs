//! `promtool` and a real Prometheus, of Debian's package `prometheus`. If it is not installed, the tests
//! print so and pass. `.ci/run` installs it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bson::doc;
use proto_tests::Prometheus;
use proto_tests::prometheus::INSTALL;
use proto_tests::shaped::Shaped;
use serde_json::Value;

/// How long Prometheus may take to start and to scrape.
const LIMIT: Duration = Duration::from_mins(1);

/// Whether this program is installed. If not, prints that.
fn is_installed(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        let words = format!("NOT TESTED: {program} is not installed ({INSTALL})\n");
        // The output of a passing test is hidden.
        let _ = std::io::stderr().write_all(words.as_bytes());
    }
    is_there
}

#[test]
fn promtool_accepts_the_exposition() -> Result<()> {
    if !is_installed("promtool") {
        return Ok(());
    }
    let shaped = Shaped::start("")?;
    let text = shaped.proxy.admin_get("/metrics")?.body;
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    promtool.stdin.take().context("no pipe")?.write_all(text.as_bytes())?;
    let output = promtool.wait_with_output()?;
    let words = [output.stdout, output.stderr].concat();
    let words = String::from_utf8_lossy(&words);
    ensure!(output.status.success() && words.trim().is_empty(), "promtool: {words}");
    Ok(())
}

#[test]
fn prometheus_scrapes_the_proxy() -> Result<()> {
    if !is_installed("prometheus") {
        return Ok(());
    }
    let shaped = Shaped::start("")?;
    let items: Vec<_> = (0..25).map(|id| doc! { "_id": id, "k": 1 }).collect();
    shaped.application()?.command_ok(&shaped.insert(&items))?;
    let mut prometheus = Prometheus::start(shaped.proxy.admin_address(), "200ms")?;
    let inserted = format!(
        "mongoshape_bucket_items_inserted_total{{namespace=\"{}.items\"}}",
        shaped.database
    );
    ensure!(value(&mut prometheus, &inserted)? == "25", "of the items inserted");
    ensure!(
        value(&mut prometheus, "mongoshape_buckets_opened_total")? == "3",
        "of the buckets"
    );
    ensure!(value(&mut prometheus, "up")? == "1", "of the target");
    // As a histogram, not as numbers that look like one.
    let quantile = "histogram_quantile(0.99, sum by (le) (mongoshape_proxy_overhead_seconds_bucket))";
    let seconds: f64 = value(&mut prometheus, quantile)?.parse()?;
    ensure!(seconds > 0.0 && seconds <= 0.1, "an overhead of {seconds} s");
    Ok(())
}

/// The one value of a query, as soon as there is one.
fn value(prometheus: &mut Prometheus, query: &str) -> Result<String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        prometheus.expect_running()?;
        let answer = ask(prometheus, query).unwrap_or_default();
        let results = &answer["data"]["result"];
        if let Some(value) = results[0]["value"][1].as_str().filter(|value| *value != "NaN") {
            return Ok(value.to_owned());
        }
        if Instant::now() > deadline {
            bail!("Prometheus has no {query}: {answer}");
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn ask(prometheus: &Prometheus, query: &str) -> Result<Value> {
    let encoded: Vec<String> = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let encoded = encoded.concat();
    let mut stream = TcpStream::connect(prometheus.address())?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET /api/v1/query?query={encoded} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    Ok(serde_json::from_str(body)?)
}
