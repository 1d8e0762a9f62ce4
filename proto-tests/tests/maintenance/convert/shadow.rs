//! Shadow mode: a run keeps a copy up to date, and the proxy compares reads of clients with it.

use std::collections::BTreeMap;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::measure::is_full;
use proto_tests::{Level, mongod};
use rustix::process::{Pid, Signal, kill_process};

use super::fixture::{COLLECTION, COPY, Fixture, RECORD, document, sorted_fields, with_time};

/// The longest wait for a count.
const MAX_WAIT: Duration = Duration::from_secs(90);
const COMPARES_ALL: &str = "mode = \"shadow\"\nshadow_share = 100\n";
const RESULTS: [&str; 8] = [
    "equal",
    "different",
    "refused",
    "changing",
    "behind",
    "undefined_order",
    "too_large",
    "dropped",
];
/// A value that no log may contain.
const SECRET: &str = "swordfish";

fn shadow(count: i32) -> Result<Fixture> {
    let mut fixture = Fixture::configured(mongod::shared_replica_set(), with_time(), COMPARES_ALL)?;
    let documents: Vec<Document> = (0..count).map(document).collect();
    fixture.past(doc! { "insert": COLLECTION, "documents": documents })?;
    Ok(fixture)
}

impl Fixture {
    fn compared(&self, command: &str, result: &str) -> f64 {
        let namespace = format!("{}.{COLLECTION}", self.database);
        self.proxy.metric(&format!(
            "mongoshape_shadow_reads_total{{command=\"{command}\",namespace=\"{namespace}\",result=\"{result}\"}}"
        ))
    }

    /// The comparisons of all commands, by result.
    fn all_compared(&self) -> BTreeMap<&'static str, f64> {
        let commands = ["find", "aggregate", "count", "distinct"];
        let of = |result| commands.iter().map(|command| self.compared(command, result)).sum();
        RESULTS.iter().map(|result| (*result, of(result))).collect()
    }

    /// Repeats a read until a comparison has this result.
    fn read_until(&self, read: &Document, result: &str) -> Result<()> {
        let (command, _) = read.iter().next().context("a command")?;
        let begun = Instant::now();
        while self.compared(command, result) < 1.0 {
            ensure!(begun.elapsed() < MAX_WAIT, "{result}: {:?}", self.all_compared());
            self.run(read.clone())?;
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// Waits until so many reads were compared.
    fn wait_for_comparisons(&self, reads: f64) -> Result<BTreeMap<&'static str, f64>> {
        let begun = Instant::now();
        loop {
            let all = self.all_compared();
            if all.values().sum::<f64>() >= reads {
                return Ok(all);
            }
            ensure!(begun.elapsed() < MAX_WAIT, "{all:?} of {reads}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Serves the same shape in another mode.
    fn change_mode(&mut self, from: &str, to: &str) -> Result<()> {
        let file = self.proxy.config_file();
        let text = std::fs::read_to_string(&file)?;
        ensure!(text.contains(from), "{text}");
        std::fs::write(&file, text.replace(from, to))?;
        self.proxy.signal(Signal::HUP)?;
        self.proxy.wait_for_log("\"reloaded\"")?;
        Ok(())
    }
}

/// Ends a run. Returns its output.
fn end(run: Child) -> Result<String> {
    kill_process(Pid::from_child(&run), Signal::TERM)?;
    let output = run.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{text}");
    Ok(text)
}

fn write(fixture: &Fixture, n: i32) -> Result<()> {
    let update = doc! { "q": { "k": n % 7 }, "u": { "$inc": { "n": 1 }, "$set": { "text": "x".repeat(100) } } };
    fixture.run(doc! { "update": COLLECTION, "updates": [update] })?;
    fixture.run(doc! { "insert": COLLECTION, "documents": [document(10_000 + n)] })?;
    fixture.run(doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": n * 3 }, "limit": 1 }] })?;
    Ok(())
}

/// Changes documents and, the next time, back: two equal results of the collection prove nothing about the time
/// between them.
fn toggle(fixture: &Fixture) -> Result<()> {
    let update = doc! { "q": { "k": 5 }, "u": [{ "$set": { "is_on": { "$not": ["$is_on"] } } }], "multi": true };
    fixture.run(doc! { "update": COLLECTION, "updates": [update] })?;
    Ok(())
}

#[test]
fn reads_are_equal_while_clients_write() -> Result<()> {
    let mut fixture = shadow(700)?;
    let by_key = doc! { "find": COLLECTION, "filter": { "k": 3 }, "sort": { "at": 1 } };
    fixture.read_until(&by_key, "behind")?;
    let run = fixture.start_convert(&["--shadow"])?;
    fixture.read_until(&by_key, "equal")?;
    let before: f64 = fixture.all_compared().values().sum();
    let mut reads = 0.0;
    let seconds = if is_full("MONGOSHAPE_CRASHES") { 8 } else { 3 };
    let begun = Instant::now();
    for n in 0.. {
        if begun.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        write(&fixture, n)?;
        for read in [
            doc! { "find": COLLECTION, "filter": { "k": n % 7 }, "sort": { "at": 1, "_id": 1 }, "limit": 5 },
            doc! { "aggregate": COLLECTION, "pipeline": [{ "$group": { "_id": "$k", "n": { "$sum": "$quantity" } } }], "cursor": {} },
            doc! { "count": COLLECTION, "query": { "k": n % 7 } },
            doc! { "distinct": COLLECTION, "key": "tags" },
            doc! { "find": COLLECTION, "filter": { "is_on": true } },
            doc! { "count": COLLECTION, "query": { "is_on": true } },
        ] {
            toggle(&fixture)?;
            fixture.run(read)?;
            reads += 1.0;
        }
    }
    let all = fixture.wait_for_comparisons(before + reads)?;
    ensure!(all["equal"] > 5.0, "{all:?}");
    for result in ["different", "refused", "undefined_order", "too_large"] {
        ensure!(all[result] <= 0.0, "{all:?}");
    }
    let namespace = format!("{}.{COLLECTION}", fixture.database);
    for layout in ["plain", "pages"] {
        let series = format!("mongoshape_shadow_read_seconds_count{{layout=\"{layout}\",namespace=\"{namespace}\"}}");
        ensure!(fixture.proxy.metric(&series) >= all["equal"], "{series}");
    }
    let printed = end(run)?;
    ensure!(printed.contains("the copy is up to date"), "{printed}");
    ensure!(fixture.collections()? == [COLLECTION, RECORD, COPY]);
    Ok(())
}

#[test]
fn differences_and_refusals_are_counted_and_logged_without_values() -> Result<()> {
    let mut fixture = shadow(300)?;
    let run = fixture.start_convert(&["--shadow"])?;
    let by_text = doc! { "find": COLLECTION, "filter": { "n": { "$gte": 0 }, "text": { "$ne": SECRET } } };
    fixture.read_until(&by_text, "equal")?;
    let unordered = doc! { "find": COLLECTION, "filter": { "k": 3 }, "limit": 3 };
    fixture.read_until(&unordered, "undefined_order")?;
    fixture
        .proxy
        .expect_log(Level::Warn, "a read has an error on the copy in pages");
    fixture.read_until(&doc! { "find": COLLECTION, "showRecordId": true }, "refused")?;
    fixture
        .proxy
        .expect_log(Level::Warn, "a read has another result on the copy in pages");
    // Past the run and all proxies.
    fixture.past(doc! { "update": COPY, "updates": [{ "q": { "count": { "$gt": 0 } }, "u": { "$set": { "history.0.text": SECRET } } }] })?;
    fixture.read_until(&by_text, "different")?;
    fixture.read_until(&doc! { "count": COLLECTION, "query": { "text": SECRET } }, "different")?;
    let group = doc! { "$group": { "_id": "$text", "n": { "$sum": 1 } } };
    fixture.read_until(
        &doc! { "aggregate": COLLECTION, "pipeline": [group], "cursor": {} },
        "different",
    )?;
    // The line of the last read is written after it is counted.
    fixture.proxy.wait_for_log("$group")?;
    let log = fixture.proxy.log();
    let lines: Vec<&str> = log.iter().map(|line| line.text.as_str()).collect();
    ensure!(lines.iter().all(|line| !line.contains(SECRET)), "{lines:#?}");
    let has = |parts: [&str; 3]| lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    ensure!(has(["another result", "\"find\"", "n, text"]), "{lines:#?}");
    ensure!(has(["another result", "\"aggregate\"", "$group"]), "{lines:#?}");
    ensure!(has(["has an error", "\"find\"", "115"]), "{lines:#?}");
    end(run)?;
    // The comparison of all documents finds the difference, too.
    let (is_well, printed) = fixture.try_verb("verify", &[])?;
    ensure!(!is_well && printed.contains("differ"), "{printed}");
    Ok(())
}

#[test]
fn a_killed_run_continues_and_a_conversion_takes_the_copy() -> Result<()> {
    let mut fixture = shadow(500)?;
    let by_key = doc! { "find": COLLECTION, "filter": { "k": 3 } };
    let mut killed = fixture.start_convert(&["--shadow"])?;
    fixture.read_until(&by_key, "equal")?;
    kill_process(Pid::from_child(&killed), Signal::KILL)?;
    killed.wait()?;
    let copy = fixture.uuid(COPY)?;
    fixture.run(doc! { "insert": COLLECTION, "documents": [document(1000)] })?;
    let run = fixture.start_convert(&["--shadow"])?;
    let equal = fixture.compared("count", "equal");
    fixture.read_until(&doc! { "count": COLLECTION, "query": { "n": 1000 } }, "equal")?;
    ensure!(fixture.compared("count", "equal") > equal);
    let printed = end(run)?;
    ensure!(
        printed.contains("continues with the copy of an earlier run"),
        "{printed}"
    );
    ensure!(copy.is_some() && fixture.uuid(COPY)? == copy);
    let printed = fixture.convert_refused(&[])?;
    ensure!(printed.contains("set `mode = \"auto\"`"), "{printed}");
    ensure!(fixture.collections()? == [COLLECTION, RECORD, COPY]);
    let plain = sorted_fields(fixture.stored(COLLECTION)?);
    fixture.change_mode(COMPARES_ALL, "mode = \"auto\"\n")?;
    let printed = fixture.convert(&[])?;
    ensure!(
        printed.contains("continues with the copy of an earlier run"),
        "{printed}"
    );
    fixture.check_pages()?;
    ensure!(fixture.uuid(COLLECTION)? == copy);
    ensure!(fixture.items()? == plain);
    let printed = fixture.convert(&["--shadow"])?;
    ensure!(printed.contains("contains pages of 10 items by k already"), "{printed}");
    Ok(())
}

#[test]
fn the_end_of_a_conversion_drops_the_copy() -> Result<()> {
    let mut fixture = shadow(100)?;
    for options in [
        &["--shadow", "--to", "plain"] as &[&str],
        &["--shadow", "--back"],
        &["--shadow", "--offline"],
    ] {
        let printed = fixture.convert_refused(options)?;
        ensure!(printed.contains("cannot be used with"), "{printed}");
    }
    // The server has refused it, so the proxy must not execute it with other rights.
    let invalid = doc! { "find": COLLECTION, "filter": { "$bad": 1 }, "$db": &fixture.database };
    ensure!(fixture.application()?.command(&invalid)?.get_i32("code")? == 2);
    fixture.read_until(&doc! { "count": COLLECTION }, "behind")?;
    ensure!(
        fixture.compared("find", "behind") <= 0.0,
        "{:?}",
        fixture.all_compared()
    );
    let run = fixture.start_convert(&["--shadow"])?;
    let by_key = doc! { "find": COLLECTION, "filter": { "k": 3 } };
    fixture.read_until(&by_key, "equal")?;
    end(run)?;
    let checked = fixture.proxy.run("check")?;
    let printed = String::from_utf8_lossy(&checked.stdout).into_owned();
    ensure!(printed.contains("`mongoshape convert --back` ends it"), "{printed}");
    fixture.convert(&["--back"])?;
    ensure!(fixture.collections()? == [COLLECTION]);
    let behind = fixture.compared("find", "behind");
    fixture.run(by_key)?;
    let begun = Instant::now();
    while fixture.compared("find", "behind") <= behind {
        ensure!(begun.elapsed() < MAX_WAIT, "{:?}", fixture.all_compared());
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
