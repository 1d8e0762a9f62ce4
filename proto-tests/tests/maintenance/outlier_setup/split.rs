//! Documents with more elements than the threshold.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use bson::{Document, doc};
use proto_tests::books::{BUYERS, COLLECTION};
use proto_tests::raw::Connection;

use crate::outlier_setup::fixture::{Fixture, book, buyers, expect_output};

const SPLIT: &[&str] = &["--split"];

fn books() -> Vec<Document> {
    let counts = [0, 1, 5, 6, 12, 13, 500, 3_000];
    (0..).zip(counts).map(|(id, count)| book(id, count)).collect()
}

#[test]
fn long_array_is_reported_and_split() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let before = books();
    fixture.write(COLLECTION, &before)?;
    // Not arrays, so they are not split.
    let others = [
        doc! { "_id": 20, BUYERS: { "5": 1, "6": 2 } },
        doc! { "_id": 21, BUYERS: [{ "5": 1 }] },
        doc! { "_id": 22 },
    ];
    fixture.write(COLLECTION, &others)?;
    let before: Vec<Document> = before.into_iter().chain(others).collect();
    ensure!(fixture.read()? == before, "they read otherwise");
    expect_output(
        &fixture.proxy.run("check")?,
        0,
        &["5 documents have more elements than the threshold"],
    )?;
    expect_output(
        &fixture.proxy.run("setup")?,
        0,
        &["the indexes of extra_sales are created"],
    )?;
    expect_output(
        &fixture.proxy.run("check")?,
        0,
        &["5 documents have more elements than the threshold"],
    )?;
    expect_output(
        &fixture.proxy.run_with("setup", SPLIT)?,
        0,
        &["indexes of extra_sales are there", "5 documents split"],
    )?;
    ensure!(fixture.read()? == before, "they read otherwise");
    fixture.is_clean()?;
    expect_output(&fixture.proxy.run_with("setup", SPLIT)?, 0, &["0 documents split"])?;
    fixture.push(7, "new")?;
    ensure!(
        fixture.read()?[7].get_array(BUYERS)?.len() == 3_001,
        "a buyer is missing"
    );
    fixture.is_clean()
}

#[test]
fn outlier_with_a_long_base_array_is_split() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture.write(COLLECTION, &books())?;
    // The first push makes an outlier of it, whose elements stay where they are.
    for id in [4, 5, 7] {
        for number in 0..9 {
            fixture.push(id, &format!("new{number}"))?;
        }
    }
    let before = fixture.read()?;
    expect_output(&fixture.proxy.run_with("setup", SPLIT)?, 0, &["5 documents split"])?;
    ensure!(fixture.read()? == before, "they read otherwise");
    fixture.is_clean()
}

/// Pushes to all books in turn until that is over; how often.
fn push_until(mut shaped: Connection, database: &str, (name, is_over): (&str, &AtomicBool)) -> Result<i32> {
    for number in 0.. {
        for id in 0..8 {
            let statement = doc! { "q": { "_id": id }, "u": { "$push": { BUYERS: format!("{name}{number}") } } };
            let update = doc! { "update": COLLECTION, "updates": [statement], "$db": database };
            let reply = shaped.command_ok(&update)?;
            ensure!(reply.get_i32("nModified")? == 1, "{reply}");
            let book = shaped.find(database, COLLECTION, doc! { "_id": id })?;
            let last = format!("{name}{number}");
            let there = book.first().context("no book")?.get_array(BUYERS)?;
            let times = there.iter().filter(|buyer| buyer.as_str() == Some(&last)).count();
            ensure!(times == 1, "{last} is there {times} times");
        }
        if is_over.load(Ordering::Relaxed) {
            return Ok(number + 1);
        }
    }
    Ok(0)
}

#[test]
fn documents_are_split_while_clients_write() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let more: Vec<Document> = (100..120).map(|id| book(id, 200)).collect();
    fixture.write(COLLECTION, &books())?;
    fixture.write(COLLECTION, &more)?;
    let is_over = AtomicBool::new(false);
    let names = ["a", "b", "c"];
    let (database, address) = (fixture.books.database.clone(), fixture.proxy.address());
    let pushed = thread::scope(|scope| {
        let running: Vec<_> = names
            .iter()
            .map(|name| {
                let (database, is_over) = (&database, &is_over);
                scope.spawn(move || push_until(Connection::open(address)?, database, (name, is_over)))
            })
            .collect();
        let split = fixture.proxy.run_with("setup", SPLIT);
        is_over.store(true, Ordering::Relaxed);
        let pushed: Result<Vec<i32>> = running
            .into_iter()
            .map(|one| one.join().map_err(|_| anyhow!("a thread panicked"))?)
            .collect();
        expect_output(&split?, 0, &["documents split"])?;
        pushed
    })?;
    for (book, count) in fixture.read()?.iter().zip([0, 1, 5, 6, 12, 13, 500, 3_000]) {
        let there: Vec<&str> = book
            .get_array(BUYERS)?
            .iter()
            .filter_map(|buyer| buyer.as_str())
            .collect();
        let (first, rest) = there.split_at(usize::try_from(count)?);
        ensure!(*first == buyers(0..count), "{book} has lost its first buyers");
        for (name, pushed) in names.iter().zip(&pushed) {
            let own = rest.iter().filter(|buyer| buyer.starts_with(name));
            let expected = (0..*pushed).map(|number| format!("{name}{number}"));
            ensure!(own.copied().eq(expected), "{book}: not what {name} has pushed");
        }
    }
    fixture.is_clean()
}

#[test]
fn array_missing_in_all_documents_is_reported_as_misspelt() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture.write(
        COLLECTION,
        &[doc! { "_id": 1, "customer_purchased": [1, 2, 3, 4, 5, 6, 7] }],
    )?;
    expect_output(
        &fixture.proxy.run_with("setup", SPLIT)?,
        1,
        &[
            "no sampled document has the array field \"customers_purchased\"",
            "did you mean \"customer_purchased\"?",
        ],
    )?;
    Ok(())
}
