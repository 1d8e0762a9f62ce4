//! Remains of crashes.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use proto_tests::books::{BUYERS, COLLECTION, CONTROL, EXTRA_BUYERS, EXTRAS};

use crate::outlier_setup::fixture::{Fixture, book, buyers, expect_output};

const HOUR: u64 = 3600;

/// One that was made so many seconds ago.
fn made(seconds_ago: u64) -> Result<ObjectId> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut bytes = ObjectId::new().bytes();
    bytes[..4].copy_from_slice(&u32::try_from(now - seconds_ago)?.to_be_bytes());
    Ok(ObjectId::from_bytes(bytes))
}

fn page(of: impl Into<Bson>, generation: ObjectId, from: i64) -> Document {
    let control = doc! { "v": 1, "generation": generation, "from": from };
    let id = format!("{generation}_{from}");
    doc! { "_id": id, "book_id": of, EXTRA_BUYERS: ["user77"], "count": 1, "control": control }
}

#[test]
fn old_orphan_pages_are_removed() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let insert = doc! { "insert": COLLECTION, "documents": [book(1, 20), book(2, 3)], "$db": &fixture.books.database };
    fixture.shaped.command_ok(&insert)?;
    fixture.is_clean()?;
    let before = fixture.read()?;
    let (old, young) = (made(2 * HOUR)?, made(HOUR / 2)?);
    let left_over = [
        page(1, old, 0),
        page(1, old, 1),
        page(2, made(3 * HOUR)?, 0),
        page(3, made(HOUR + 60)?, 0),
        page(1, young, 0),
    ];
    fixture.write(EXTRAS, &left_over)?;
    ensure!(fixture.read()? == before, "they read otherwise");
    expect_output(&fixture.proxy.run("check")?, 0, &["crashes have left orphans"])?;
    expect_output(&fixture.proxy.run("setup")?, 0, &["4 orphans"])?;
    let found = fixture.books.look(&mut fixture.direct)?;
    ensure!(
        found.wrong.is_empty() && found.uncounted == [format!("{young}_0")],
        "{found:?}"
    );
    ensure!(fixture.read()? == before, "they read otherwise");
    expect_output(&fixture.proxy.run("check")?, 0, &["no orphans"]).map(|_| ())
}

#[test]
fn referenced_old_generation_is_kept() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let generation = made(48 * HOUR)?;
    let mut base = book(1, 5);
    base.extend(doc! { "has_extras": true, CONTROL: { "v": 1, "generation": generation, "count": 1_i64, "tail": [] } });
    fixture.write(COLLECTION, &[base])?;
    fixture.write(EXTRAS, &[page(1, generation, 0)])?;
    let before = fixture.read()?;
    ensure!(before[0].get_array(BUYERS)?.len() == 6, "{before:?}");
    expect_output(&fixture.proxy.run("setup")?, 0, &[])?;
    ensure!(fixture.read()? == before, "it reads otherwise");
    fixture.is_clean()
}

#[test]
fn tails_are_moved() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let insert = doc! { "insert": COLLECTION, "documents": [book(1, 20), book(2, 6)], "$db": &fixture.books.database };
    fixture.shaped.command_ok(&insert)?;
    // As a proxy leaves it that dies before it moves what it has pushed.
    let pushed = doc! { "$push": { format!("{CONTROL}.tail"): { "$each": buyers(40..49) } } };
    let update = doc! { "update": COLLECTION, "updates": [{ "q": {}, "u": pushed, "multi": true }], "$db": &fixture.books.database };
    fixture.direct.command_ok(&update)?;
    let before = fixture.read()?;
    ensure!(before[0].get_array(BUYERS)?.len() == 29, "{before:?}");
    expect_output(&fixture.proxy.run("check")?, 0, &["tails that were not spilled"])?;
    expect_output(&fixture.proxy.run("setup")?, 0, &["2 tails spilled"])?;
    ensure!(fixture.read()? == before, "they read otherwise");
    fixture.is_clean()
}

#[test]
fn old_scratch_collections_are_removed() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture
        .shaped
        .command_ok(&doc! { "insert": COLLECTION, "documents": [book(1, 20)], "$db": &fixture.books.database })?;
    let hours = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / HOUR;
    let (old, young) = (made(2 * HOUR)?, made(60)?);
    let name = |part: &str| format!("{EXTRAS}_scratch_{part}");
    let hourly = |ago: u64| name(&format!("{:08x}", hours - ago));
    for gone in [name(&old.to_hex()), hourly(3)] {
        fixture.write(&gone, &[book(1, 2)])?;
    }
    let stay = [
        name(&young.to_hex()),
        hourly(0),
        hourly(1),
        format!("{EXTRAS}_scratches"),
        name("of_mine"),
    ];
    for stays in &stay {
        fixture.write(stays, &[book(1, 2)])?;
    }
    expect_output(&fixture.proxy.run("check")?, 0, &["scratch collections"])?;
    expect_output(&fixture.proxy.run("setup")?, 0, &["and 2 scratch collections removed"])?;
    let list = doc! { "listCollections": 1, "nameOnly": true, "$db": &fixture.books.database };
    let there = fixture.direct.all(&list)?;
    let mut names: Vec<&str> = there.iter().filter_map(|one| one.get_str("name").ok()).collect();
    names.retain(|name| name.contains("scratch"));
    names.sort_unstable();
    let mut expected: Vec<&str> = stay.iter().map(String::as_str).collect();
    expected.sort_unstable();
    ensure!(names == expected, "{names:?}");
    Ok(())
}
