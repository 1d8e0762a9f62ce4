//! Setup that is interrupted, run concurrently, or run beside a writer.
//!
//! `MONGOSHAPE_CRASHES=full` adopts four times as many buckets.

use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::Names;
use proto_tests::measure::is_full;
use proto_tests::shaped::COLLECTION;

use crate::adopt::hand_written::{self, BucketWriter, bare, bucket, text, trade};

const KEYS: i32 = 40;

/// Buckets of a key.
fn buckets_of_key() -> i32 {
    if is_full("MONGOSHAPE_CRASHES") { 60 } else { 15 }
}

/// Many buckets of many keys, not all of them full.
fn leave_many(writer: &mut BucketWriter) -> Result<Vec<Vec<Document>>> {
    for key in 0..KEYS {
        let buckets = (0..buckets_of_key()).map(|number| {
            let seconds = i64::from(number) * 100;
            let items: Vec<Document> = (0..=(key + number) % 10)
                .map(|item| trade(item, seconds * 1000 + i64::from(item)))
                .collect();
            bucket(format!("{key}_{}", 1_698_335_223 + seconds), key, &items)
        });
        writer.write(&buckets.collect::<Vec<_>>())?;
    }
    (0..KEYS).map(|key| writer.items_by_hand(&Bson::Int32(key))).collect()
}

fn check_items(writer: &mut BucketWriter, expected: &[Vec<Document>]) -> Result<()> {
    writer.check_layout()?;
    for (key, items) in (0..).zip(expected) {
        assert_eq!(&writer.items(&Bson::Int32(key))?, items, "key {key}");
    }
    Ok(())
}

/// The number of buckets that match.
fn count(writer: &mut BucketWriter, query: Document) -> Result<i32> {
    let count = doc! { "count": COLLECTION, "query": query, "$db": &writer.shaped.database };
    Ok(writer.direct.command_ok(&count)?.get_i32("n")?)
}

/// Waits until more buckets are adopted than were before, or setup has ended; whether it has.
fn wait_for_progress(writer: &mut BucketWriter, setup: &mut Child, before: i32) -> Result<bool> {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        if setup.try_wait()?.is_some() {
            return Ok(true);
        }
        if count(writer, doc! { "control": { "$exists": true } })? > before {
            return Ok(false);
        }
        ensure!(Instant::now() < deadline, "setup does nothing");
    }
}

#[test]
fn setup_may_be_killed_at_any_moment_and_run_again() -> Result<()> {
    let mut writer = BucketWriter::start(bare())?;
    let expected = leave_many(&mut writer)?;
    let mut adopted = 0;
    let mut kills = 0;
    loop {
        let mut setup = writer.spawn_setup()?;
        if wait_for_progress(&mut writer, &mut setup, adopted)? {
            let output = setup.wait_with_output()?;
            ensure!(output.status.success(), "{}", text(&output));
            break;
        }
        setup.kill()?;
        setup.wait()?;
        kills += 1;
        // What it had sent may still be executed; the proxy serves all of the collection, or nothing of it.
        let refusal = writer.refusal()?;
        let left = count(&mut writer, doc! { "control": { "$exists": false } })?;
        if refusal.is_empty() {
            ensure!(left == 0, "served with {left} buckets to adopt");
        } else {
            assert!(refusal.contains("mongoshape setup"), "{refusal}");
        }
        adopted = count(&mut writer, doc! { "control": { "$exists": true } })?;
    }
    ensure!(kills > 0, "setup was never killed at work");
    check_items(&mut writer, &expected)
}

#[test]
fn several_may_run_at_once() -> Result<()> {
    let mut writer = BucketWriter::start(bare())?;
    let expected = leave_many(&mut writer)?;
    let setups: Vec<Child> = (0..3).map(|_| writer.spawn_setup()).collect::<Result<_>>()?;
    for setup in setups {
        let output = setup.wait_with_output()?;
        ensure!(output.status.success(), "{}", text(&output));
    }
    check_items(&mut writer, &expected)
}

#[test]
fn proxies_keep_serving_during_adoption() -> Result<()> {
    const ROUNDS: i32 = 4;
    let mut writer = BucketWriter::start(bare())?;
    let insert = |writer: &BucketWriter, key: i32, number: i32| {
        let item = doc! { "k": key, "quantity": number, "at": hand_written::at(i64::from(number)) };
        writer.shaped.insert(&[item])
    };
    for key in 0..KEYS {
        let command = insert(&writer, key, 0);
        writer.shaped.application()?.command_ok(&command)?;
    }
    let mut application = writer.shaped.application()?;
    let mut number = 0;
    for round in 0..ROUNDS {
        let by_hand = (0..KEYS).map(|key| bucket(format!("{key}_{round}"), key, &[trade(-1, 0), trade(-1, 0)]));
        writer.write(&by_hand.collect::<Vec<_>>())?;
        let mut setup = writer.spawn_setup()?;
        while setup.try_wait()?.is_none() {
            number += 1;
            let reply = application.command_ok(&insert(&writer, number % KEYS, number))?;
            ensure!(reply.get_i32("n")? == 1, "{reply}");
        }
        let output = setup.wait_with_output()?;
        ensure!(output.status.success(), "{}", text(&output));
    }
    writer.shape.names = Names::Any;
    writer.check_layout()?;
    let mut items = Vec::new();
    for key in 0..KEYS {
        items.extend(writer.items(&Bson::Int32(key))?);
    }
    ensure!(
        items.len() == usize::try_from(KEYS + 2 * KEYS * ROUNDS + number)?,
        "{number}"
    );
    Ok(())
}

#[test]
fn concurrent_writer_loses_nothing_during_adoption() -> Result<()> {
    let mut writer = BucketWriter::start(bare())?;
    let push =
        |writer: &mut BucketWriter, number: i32| writer.push(number % 50, &trade(number, i64::from(number) * 1000));
    for number in 0..500 {
        push(&mut writer, number)?;
    }
    let mut setup = writer.spawn_setup()?;
    let mut number = 500;
    while setup.try_wait()?.is_none() {
        push(&mut writer, number)?;
        number += 1;
    }
    let output = setup.wait_with_output()?;
    let printed = text(&output);
    if !output.status.success() {
        // It reports the concurrent change. Setup can be run again.
        ensure!(printed.contains("error: "), "{printed}");
        ensure!(
            printed.contains("document with _id") || printed.contains("was changed while"),
            "{printed}"
        );
    }
    begin_again(&mut writer)?;
    writer.check_layout()?;
    let mut seen = Vec::new();
    for key in 0..50 {
        let items = writer.items(&Bson::Int32(key))?;
        seen.extend(items.iter().map(|item| item.get_i32("quantity").unwrap()));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..number).collect::<Vec<i32>>(), "{printed}");
    Ok(())
}

/// The documented repair of pages that were changed by hand: they become hand-written buckets again.
fn begin_again(writer: &mut BucketWriter) -> Result<()> {
    let drop = doc! { "dropIndexes": COLLECTION, "index": "*", "$db": &writer.shaped.database };
    writer.direct.command_ok(&drop)?;
    let unset = doc! { "q": {}, "u": { "$unset": { "control": "" } }, "multi": true };
    writer
        .direct
        .command_ok(&doc! { "update": COLLECTION, "updates": [unset], "$db": &writer.shaped.database })?;
    writer.set_up()?;
    Ok(())
}
