//! Reads that cannot name the UUID of a collection, while a swap is given up: they are executed in the gap, and the
//! name denotes the same collection again when it is checked.

use std::thread;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod;
use proto_tests::stopping_relay::{Moment, StoppingRelay};

use super::commands::code;
use super::fixture::{COLLECTION, Fixture, RECORD, item, shape};
use super::referencing_pipelines::{SOURCES, other_shapes};

/// Names the check of the collection's UUID.
fn is_check(command: &Document) -> Option<String> {
    let is_find = command.get_str("find").is_ok_and(|collection| collection == COLLECTION);
    (is_find && command.contains_key("collectionUUID")).then(|| "check".to_owned())
}

/// The number of documents or values in a reply.
fn found(reply: &Document) -> Option<usize> {
    let batch = || reply.get_document("cursor").ok()?.get_array("firstBatch").ok();
    let documents = reply.get_array("values").ok().or_else(batch);
    let counted = || reply.get_i32("n").ok().and_then(|n| usize::try_from(n).ok());
    documents.map(Vec::len).or_else(counted)
}

/// Executes a read in the gap. Its check follows when the collection has its name again.
fn in_gap(fixture: &Fixture, relay: &StoppingRelay, read: &Document) -> Result<Document> {
    // The layout is known.
    let before = fixture.run(0, read.clone())?;
    ensure!(found(&before) == Some(1), "{read}: {before}");
    fixture.begin_gap()?;
    relay.arm(Some((1, Moment::Before)));
    let reply = thread::scope(|scope| {
        let reading = scope.spawn(|| fixture.run(0, read.clone()));
        relay.wait_for_stop(|| reading.is_finished())?;
        let given_up = fixture.give_up();
        relay.go_on();
        let reply = reading.join().expect("the client panicked")?;
        given_up.map(|()| reply)
    })?;
    fixture.end_gap()?;
    Ok(reply)
}

#[test]
fn a_read_that_found_nothing_because_of_the_gap_is_repeated() -> Result<()> {
    let mongod = mongod::shared_replica_set();
    let relay = StoppingRelay::to(mongod.address(), is_check)?;
    let fixture = Fixture::with_others(mongod, &relay.uri(), other_shapes)?;
    fixture.store_plain(&[item(1, 1, 1)])?;
    let lookup = doc! { "$lookup": { "from": COLLECTION, "localField": "_id", "foreignField": "_id", "as": "items" } };
    let pipeline = vec![lookup, doc! { "$unwind": "$items" }];
    let strict = doc! { "apiVersion": "1", "apiStrict": true };
    let mut strict_find = doc! { "find": COLLECTION };
    strict_find.extend(strict);
    let mut reads = vec![
        doc! { "count": COLLECTION },
        doc! { "distinct": COLLECTION, "key": "_id" },
        strict_find,
    ];
    for source in SOURCES {
        let inserted = fixture.run(0, doc! { "insert": source, "documents": [{ "_id": 1, "k": 1 }] })?;
        ensure!(inserted.get_i32("n")? == 1, "{inserted}");
        reads.push(doc! { "aggregate": source, "pipeline": &pipeline, "cursor": {} });
    }
    for read in reads {
        let reply = in_gap(&fixture, &relay, &read)?;
        ensure!(code(&reply).is_none() && found(&reply) == Some(1), "{read}: {reply}");
    }
    Ok(())
}

/// A proxy without a command since before the conversion knows the collection that gets its name again.
#[test]
fn a_swap_back_has_a_number() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    fixture.store_plain(&[item(1, 1, 1)])?;
    let number = || -> Result<Option<i64>> {
        let records = fixture.direct()?.find(&fixture.database, RECORD, doc! {})?;
        Ok(records.first().and_then(|record| record.get_i64("given_up_swaps").ok()))
    };
    fixture.convert_to(&shape(), &[])?;
    ensure!(number()? == Some(0), "{:?}", number()?);
    fixture.convert_to(&shape(), &["--back"])?;
    ensure!(number()?.is_some_and(|number| number > 0), "{:?}", number()?);
    Ok(())
}

/// The proxy knows the collection from before its drop, with the number of swaps that were given up by then.
#[test]
fn an_insert_is_executed_once_if_the_number_changes_meanwhile() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    let record = doc! { "_id": 0, "given_up_swaps": 1 };
    fixture.past(doc! { "insert": RECORD, "documents": [record] })?;
    fixture.run(0, doc! { "insert": COLLECTION, "documents": [item(1, 1, 0)] })?;
    fixture.run(0, doc! { "drop": COLLECTION })?;
    fixture.past(doc! { "drop": RECORD })?;
    let reply = fixture.run(0, doc! { "insert": COLLECTION, "documents": [item(2, 1, 0)] })?;
    ensure!(
        reply.get_i32("n")? == 1 && !reply.contains_key("writeErrors"),
        "{reply}"
    );
    ensure!(fixture.items()?.len() == 1);
    Ok(())
}
