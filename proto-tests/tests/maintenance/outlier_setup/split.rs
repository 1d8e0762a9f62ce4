//! Documents with more elements than the threshold.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::books::{BUYERS, COLLECTION};
use proto_tests::measure::is_full;

use crate::outlier_setup::fixture::{Fixture, book, expect_output};

const SPLIT: &[&str] = &["--split"];

/// The lengths of the arrays.
const COUNTS: [i32; 8] = [0, 1, 5, 6, 12, 13, 500, 3_000];

fn books() -> Vec<Document> {
    (0..).zip(COUNTS).map(|(id, count)| book(id, count)).collect()
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

#[test]
fn documents_are_split_while_clients_write() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let last = if is_full("MONGOSHAPE_CRASHES") { 120 } else { 106 };
    let more: Vec<Document> = (100..last).map(|id| book(id, 200)).collect();
    fixture.write(COLLECTION, &books())?;
    fixture.write(COLLECTION, &more)?;
    fixture.while_clients_push(&COUNTS, |fixture| {
        expect_output(&fixture.proxy.run_with("setup", SPLIT)?, 0, &["documents split"]).map(|_| ())
    })?;
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
