//! TTL indexes of the former plain collection: mongod deletes nothing from it before it has its name again,
//! whatever time they had when it was converted.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::Mongod;
use proto_tests::mongod::Options;

use super::fixture::{COLLECTION, Fixture, KEPT, sorted_fields, with_time};

const SECONDS_OF_DAY: i32 = 86_400;
/// Two passes of mongod that delete expired documents.
const TWO_PASSES: Duration = Duration::from_millis(2500);

/// A server that deletes expired documents every second.
fn server() -> Result<Mongod> {
    Options::default().parameter("ttlMonitorSleepSecs=1").replica_set(1)
}

/// Documents with these numbers, and a time so many days ago.
fn documents(numbers: std::ops::Range<i32>, days: i32) -> Vec<Document> {
    let now = DateTime::now().timestamp_millis();
    let at = DateTime::from_millis(now - i64::from(days) * i64::from(SECONDS_OF_DAY) * 1000);
    numbers
        .map(|n| doc! { "_id": n, "n": n, "k": n % 7, "at": at, "quantity": n })
        .collect()
}

/// Converts a collection whose documents live for a day. Then they live for 30 days, and some are two days
/// old.
fn converted(server: &Mongod) -> Result<Fixture> {
    let mut fixture = Fixture::with(server, with_time(), &documents(0..50, 0))?;
    let index = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": SECONDS_OF_DAY };
    fixture.past(doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    fixture.convert(&[])?;
    let raised = doc! { "name": "at_1", "expireAfterSeconds": 30 * SECONDS_OF_DAY };
    fixture.run(doc! { "collMod": COLLECTION, "index": raised })?;
    fixture.run(doc! { "insert": COLLECTION, "documents": documents(50..200, 2) })?;
    Ok(fixture)
}

/// The TTL index of a collection of the server itself. `None`: no index expires documents.
fn expiring(fixture: &mut Fixture, collection: &str) -> Result<Option<Document>> {
    let list = doc! { "listIndexes": collection, "$db": &fixture.database };
    let indexes = fixture.direct.all(&list)?;
    Ok(indexes
        .into_iter()
        .find(|index| index.contains_key("expireAfterSeconds")))
}

/// Checks the collection after the way back.
fn check(fixture: &mut Fixture, expected: &[Document]) -> Result<()> {
    ensure!(expected.len() == 200, "{} documents before", expected.len());
    let index = expiring(fixture, COLLECTION)?.unwrap_or_default();
    let seconds = 30 * SECONDS_OF_DAY;
    ensure!(index.to_string().contains(&seconds.to_string()), "{index}");
    thread::sleep(TWO_PASSES);
    assert_eq!(sorted_fields(fixture.stored(COLLECTION)?), expected);
    Ok(())
}

#[test]
fn documents_that_live_longer_by_now_are_not_deleted_on_the_way_back() -> Result<()> {
    let server = server()?;
    let mut fixture = converted(&server)?;
    let expected = fixture.items()?;
    // The copy is slow, so the TTL monitor runs before it ends.
    fixture.convert(&["--back", "--max-rate", "100"])?;
    check(&mut fixture, &expected)
}

#[test]
fn documents_that_live_longer_by_now_are_not_deleted_while_the_former_collection_follows() -> Result<()> {
    let server = server()?;
    let mut fixture = converted(&server)?;
    let expected = fixture.items()?;
    let run = fixture.start_convert(&["--follow"])?;
    fixture.end_when_equal(run)?;
    let index = expiring(&mut fixture, KEPT)?;
    ensure!(index.is_none(), "{index:?}");
    thread::sleep(TWO_PASSES);
    let printed = fixture.convert(&["--back"])?;
    ensure!(!printed.contains("copied"), "{printed}");
    check(&mut fixture, &expected)
}
