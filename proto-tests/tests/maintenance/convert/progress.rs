//! The pace of a conversion, and its progress: in the output, in the record, and at a proxy's admin address.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::{Shape, mongod};

use super::fixture::{COLLECTION, Fixture, RECORD, document, with_time};

/// The time for which a run is observed.
const MAX_WAIT: Duration = Duration::from_mins(2);

fn documents(count: i32) -> Vec<Document> {
    (0..count).map(document).collect()
}

fn progress(fixture: &mut Fixture) -> Result<Option<Document>> {
    let record = fixture.stored(RECORD)?;
    let record = record.first();
    Ok(record.and_then(|record| record.get_document("progress").ok().cloned()))
}

fn gauge(fixture: &Fixture, name: &str) -> f64 {
    let namespace = format!("{}.{COLLECTION}", fixture.database);
    fixture
        .proxy
        .metric(&format!("mongoshape_conversion_{name}{{namespace=\"{namespace}\"}}"))
}

/// The progress of a run in its record and at a proxy's admin address.
#[derive(Default)]
struct Seen {
    phases: Vec<String>,
    /// Whether the record had a part of the documents.
    part_recorded: bool,
    /// Whether the metrics and the page had a part of the documents.
    part_shown: bool,
}

impl Seen {
    fn look(&mut self, fixture: &mut Fixture) -> Result<()> {
        let Some(progress) = progress(fixture)? else {
            return Ok(());
        };
        let phase = progress.get_str("phase")?.to_owned();
        let (done, total) = (progress.get_i64("done")?, progress.get_i64("total")?);
        ensure!(done <= total, "{progress}");
        ensure!(progress.get_datetime("updated_at").is_ok(), "{progress}");
        if phase == "copying" && done > 0 && done < total {
            ensure!(progress.get_i64("remaining_seconds")? > 0, "{progress}");
            ensure!(progress.get_i64("lag_seconds").is_ok(), "{progress}");
            self.part_recorded = true;
        }
        if self.phases.last() != Some(&phase) {
            self.phases.push(phase);
        }
        let ratio = gauge(fixture, "progress_ratio");
        if !self.part_shown && ratio > 0.0 && ratio < 1.0 && gauge(fixture, "remaining_seconds") > 0.0 {
            let page = fixture.proxy.admin_get("/")?.body;
            ensure!(page.contains("<h2>Conversions</h2>"), "{page}");
            ensure!(page.contains("from plain documents to pages of"), "{page}");
            self.part_shown = true;
        }
        Ok(())
    }
}

#[test]
fn a_limited_run_is_slow_and_its_progress_is_shown() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(2400))?;
    ensure!(gauge(&fixture, "progress_ratio") <= 0.0);
    ensure!(!fixture.proxy.admin_get("/")?.body.contains("<h2>Conversions</h2>"));
    let begun = Instant::now();
    let mut run = fixture.start_convert(&["--max-rate", "200"])?;
    let mut seen = Seen::default();
    while run.try_wait()?.is_none() {
        seen.look(&mut fixture)?;
        ensure!(begun.elapsed() < MAX_WAIT, "the run has not ended");
        std::thread::sleep(Duration::from_millis(200));
    }
    let took = begun.elapsed();
    let output = run.wait_with_output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{printed}");
    // 2400 documents are copied and compared, with no pause after the last ones.
    ensure!(took >= Duration::from_secs(20), "{took:?}\n{printed}");
    let line = printed
        .lines()
        .find(|line| line.contains("copied") && line.contains("of about 2400 documents"));
    let line = line.with_context(|| printed.to_string())?;
    for part in [" %), ", " documents/s", " s behind", " s left"] {
        ensure!(line.contains(part), "{line}");
    }
    let is_compared = |line: &str| line.contains("compared") && line.contains("of about 2400 documents");
    ensure!(printed.lines().any(is_compared), "{printed}");
    ensure!(
        seen.phases.first().is_some_and(|phase| phase == "copying"),
        "{:?}",
        seen.phases
    );
    ensure!(
        seen.phases.iter().any(|phase| phase == "comparing"),
        "{:?}",
        seen.phases
    );
    ensure!(seen.part_recorded && seen.part_shown);
    is_kept(&mut fixture)
}

/// Checks the record, the page and the metrics after a conversion.
fn is_kept(fixture: &mut Fixture) -> Result<()> {
    let last = progress(fixture)?.context("the record has progress")?;
    ensure!(last.get_str("phase")? == "swapping", "{last}");
    ensure!(
        last.get_i64("compared")? == 2400 && last.get_i64("differing")? == 0,
        "{last}"
    );
    let begun = Instant::now();
    loop {
        let page = fixture.proxy.admin_get("/")?.body;
        if page.contains("kept, `--back` possible") && gauge(fixture, "progress_ratio") <= 0.0 {
            break;
        }
        ensure!(begun.elapsed() < Duration::from_secs(20), "{page}");
        std::thread::sleep(Duration::from_millis(200));
    }
    fixture.convert(&["--finish"])?;
    let begun = Instant::now();
    while fixture.proxy.admin_get("/")?.body.contains("<h2>Conversions</h2>") {
        ensure!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Waits until a gauge of the conversion satisfies a condition.
fn wait_for_gauge(fixture: &Fixture, name: &str, is_met: impl Fn(f64) -> bool) -> Result<()> {
    let begun = Instant::now();
    while !is_met(gauge(fixture, name)) {
        ensure!(begun.elapsed() < MAX_WAIT, "{name} is {}", gauge(fixture, name));
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

#[test]
fn proxies_delay_writes_as_long_as_a_run_records_it() -> Result<()> {
    let mut fixture = Fixture::open(mongod::shared_replica_set(), with_time())?;
    fixture.run(doc! { "insert": COLLECTION, "documents": documents(600) })?;
    let mut run = fixture.start_convert(&["--to", "plain", "--max-rate", "100"])?;
    wait_for_gauge(&fixture, "progress_ratio", |ratio| ratio > 0.0)?;
    run.kill()?;
    run.wait()?;
    let progress = doc! { "progress.write_delay_ms": 80_i64, "progress.updated_at": DateTime::now() };
    let update = doc! { "q": { "_id": 0 }, "u": { "$set": progress } };
    fixture.past(doc! { "update": RECORD, "updates": [update] })?;
    wait_for_gauge(&fixture, "write_delay_seconds", |delay| delay > 0.0)?;
    let begun = Instant::now();
    fixture.run(doc! { "insert": COLLECTION, "documents": [document(600), document(601)] })?;
    ensure!(begun.elapsed() >= Duration::from_millis(160), "{:?}", begun.elapsed());
    // The run has been killed, so its progress does not change.
    wait_for_gauge(&fixture, "write_delay_seconds", |delay| delay <= 0.0)?;
    fixture.convert(&["--to", "plain"])?;
    ensure!(fixture.stored(COLLECTION)?.len() == 602);
    Ok(())
}

#[test]
fn pages_are_counted_by_their_items() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(3000))?;
    fixture.convert(&[])?;
    fixture.convert(&["--finish"])?;
    let printed = fixture.convert(&["--to", "plain", "--dry-run"])?;
    ensure!(printed.contains("reading 3000 documents takes"), "{printed}");
    ensure!(printed.contains("the copy needs about"), "{printed}");
    let before = fixture.collections()?;
    ensure!(before == [COLLECTION], "{before:?}");
    fixture.convert(&["--to", "plain"])?;
    let last = progress(&mut fixture)?.context("the record has progress")?;
    ensure!(last.get_i64("total")? == 3000, "{last}");
    Ok(())
}

#[test]
fn bad_limits_are_refused_before_anything_is_read() -> Result<()> {
    let fixture = Fixture::open(mongod::shared_replica_set(), Shape::new(&["k"]))?;
    for (option, value, problem) in [
        ("--max-rate", "0", "0 is not in 1..=1000000"),
        ("--max-rate", "fast", "invalid digit"),
        ("--max-lag", "-1", "-1 is not in 1..=86400"),
        ("--max-lag", "0", "0 is not in 1..=86400"),
        ("--max-latency", "100000", "100000 is not in 1..=60000"),
    ] {
        let printed = fixture.convert_refused(&[option, value])?;
        ensure!(
            printed.contains(problem) && printed.contains(option.trim_start_matches('-')),
            "{printed}"
        );
    }
    Ok(())
}

#[test]
fn a_dry_run_tells_time_and_room() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(100))?;
    let printed = fixture.convert(&["--dry-run", "--max-rate", "1"])?;
    ensure!(printed.contains("reading 100 documents takes 100 s"), "{printed}");
    ensure!(
        printed.contains("the copy needs at most 1 MiB for documents"),
        "{printed}"
    );
    let collections = fixture.collections()?;
    ensure!(collections == [COLLECTION], "{collections:?}");
    Ok(())
}
