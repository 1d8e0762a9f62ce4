//! Indexes and validators that change between two runs: the copy of an earlier run, or the former collection, gets
//! the present ones.

use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::{Shape, mongod};

use super::fixture::{COLLECTION, COPY, Fixture, RECORD, document, sorted_fields, with_time};

/// mongod's code for an equal value of a unique index.
const DUPLICATE_KEY: i32 = 11000;
/// mongod's code for a document that does not satisfy the validator.
const DOCUMENT_VALIDATION_FAILURE: i32 = 121;
/// The longest time of a run that fails.
const MAX_RUN: Duration = Duration::from_mins(1);

fn documents(count: i32) -> Vec<Document> {
    (0..count).map(document).collect()
}

fn unique() -> Document {
    doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { "n": 1 }, "name": "n_1", "unique": true }] }
}

/// Creates indexes that differ from each other in options.
fn create_indexes(fixture: &mut Fixture) -> Result<()> {
    let indexes = [
        doc! { "key": { "k": 1, "n": -1 }, "name": "stays" },
        doc! { "key": { "quantity": 1 }, "name": "is dropped" },
        doc! { "key": { "tags": 1 }, "name": "changes" },
        doc! { "key": { "at": 1 }, "name": "expires", "expireAfterSeconds": 1_000_000_000 },
    ];
    let indexes: Vec<Document> = indexes.into_iter().collect();
    fixture
        .past(doc! { "createIndexes": COLLECTION, "indexes": indexes })
        .map(drop)
}

/// Changes them as an application does.
fn change_indexes(run: &mut dyn FnMut(Document) -> Result<Document>) -> Result<()> {
    run(doc! { "dropIndexes": COLLECTION, "index": "is dropped" })?;
    run(doc! { "dropIndexes": COLLECTION, "index": "changes" })?;
    let other = doc! { "key": { "more.a": 1 }, "name": "changes" };
    run(doc! { "createIndexes": COLLECTION, "indexes": [other] })?;
    let expires = doc! { "name": "expires", "expireAfterSeconds": 2_000_000_000 };
    run(doc! { "collMod": COLLECTION, "index": expires })?;
    run(unique()).map(drop)
}

/// The indexes as applications see them, by name.
fn indexes(listed: &Document) -> Result<Vec<Document>> {
    let batch = listed.get_document("cursor")?.get_array("firstBatch")?;
    let mut indexes: Vec<Document> = batch.iter().filter_map(|index| index.as_document().cloned()).collect();
    indexes.sort_by_key(|index| index.get_str("name").unwrap_or_default().to_owned());
    Ok(indexes)
}

fn list() -> Document {
    doc! { "listIndexes": COLLECTION }
}

/// The code of the error of an insert.
fn refused(fixture: &mut Fixture, document: Document) -> Result<i32> {
    let insert = doc! { "insert": COLLECTION, "documents": [document], "$db": &fixture.database };
    let reply = fixture.direct.command(&insert)?;
    let errors = reply.get_array("writeErrors").with_context(|| reply.to_string())?;
    Ok(errors[0].as_document().context("no error")?.get_i32("code")?)
}

/// Whether a run ends with an error, and not only when it is stopped.
fn has_failed(run: &mut Child) -> Result<bool> {
    let begun = Instant::now();
    while begun.elapsed() < MAX_RUN {
        if let Some(status) = run.try_wait()? {
            return Ok(!status.success());
        }
        thread::sleep(Duration::from_millis(20));
    }
    run.kill()?;
    run.wait()?;
    Ok(false)
}

#[test]
fn the_way_back_has_the_indexes_of_the_pages() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(300))?;
    create_indexes(&mut fixture)?;
    fixture.convert(&[])?;
    change_indexes(&mut |command| fixture.run(command))?;
    let expected = indexes(&fixture.run(list())?)?;
    ensure!(expected.len() == 5, "{expected:?}");
    let printed = fixture.convert(&["--back"])?;
    ensure!(!printed.contains("new copy"), "{printed}");
    assert_eq!(indexes(&fixture.past(list())?)?, expected);
    assert_eq!(refused(&mut fixture, doc! { "_id": "equal", "n": 7 })?, DUPLICATE_KEY);
    Ok(())
}

#[test]
fn a_run_that_continues_has_the_indexes_of_the_collection() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(300))?;
    create_indexes(&mut fixture)?;
    let mut run = fixture.start_convert(&["--max-rate", "50"])?;
    // From its first documents on, the record names the copy.
    while fixture.stored(COPY)?.is_empty() {}
    run.kill()?;
    run.wait()?;
    change_indexes(&mut |command| fixture.past(command))?;
    let expected = indexes(&fixture.past(list())?)?;
    let printed = fixture.convert(&[])?;
    ensure!(printed.contains("continues with the copy"), "{printed}");
    assert_eq!(indexes(&fixture.run(list())?)?, expected);
    fixture.check_pages()
}

/// Indexes that pages cannot have.
fn unsupported() -> [Document; 3] {
    let filter = doc! { "n": { "$gt": 0 } };
    let expires = 1_000_000_000;
    let collation = doc! { "locale": "en" };
    [
        doc! { "key": { "at": 1 }, "name": "partial_ttl", "expireAfterSeconds": expires, "partialFilterExpression": filter },
        doc! { "key": { "n": 1 }, "name": "sparse_unique", "unique": true, "sparse": true },
        doc! { "key": { "quantity": 1 }, "name": "collated_unique", "unique": true, "collation": collation },
    ]
}

#[test]
fn indexes_that_pages_cannot_have_are_refused_before_the_first_write() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(100))?;
    fixture.past(doc! { "createIndexes": COLLECTION, "indexes": unsupported().to_vec() })?;
    for options in [&["--dry-run"] as &[&str], &[]] {
        let printed = fixture.convert_refused(options)?;
        for index in unsupported() {
            let text = format!("index {} cannot be kept: it is ", index.get_str("name")?);
            ensure!(printed.contains(&text), "{printed}");
        }
        assert_eq!(fixture.collections()?, [COLLECTION]);
    }
    fixture.past(doc! { "dropIndexes": COLLECTION, "index": "*" })?;
    create_indexes(&mut fixture)?;
    fixture.convert(&["--dry-run"]).map(drop)
}

#[test]
fn a_collection_with_a_collation_is_refused_before_the_first_write() -> Result<()> {
    let mut fixture = Fixture::open(mongod::shared_replica_set(), with_time())?;
    fixture.past(doc! { "create": COLLECTION, "collation": { "locale": "en" } })?;
    fixture.past(doc! { "insert": COLLECTION, "documents": documents(20) })?;
    for options in [&["--dry-run"] as &[&str], &[]] {
        let printed = fixture.convert_refused(options)?;
        ensure!(printed.contains("is created with a collation"), "{printed}");
        assert_eq!(fixture.collections()?, [COLLECTION]);
    }
    Ok(())
}

#[test]
fn a_run_that_continues_refuses_a_new_index_before_it_copies() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(300))?;
    let mut run = fixture.start_convert(&["--max-rate", "50"])?;
    while fixture.stored(COPY)?.is_empty() {}
    run.kill()?;
    run.wait()?;
    let [partial, ..] = unsupported();
    fixture.past(doc! { "createIndexes": COLLECTION, "indexes": [partial] })?;
    let printed = fixture.convert_refused(&[])?;
    ensure!(
        printed.contains("index partial_ttl cannot be kept") && !printed.contains("copied"),
        "{printed}"
    );
    fixture.past(doc! { "dropIndexes": COLLECTION, "index": "partial_ttl" })?;
    fixture.convert(&[])?;
    fixture.check_pages()
}

#[test]
fn a_new_unique_index_that_refuses_former_documents_makes_a_new_copy() -> Result<()> {
    let mut with_equal = documents(300);
    with_equal.push(doc! { "_id": "equal", "k": 1, "n": 7 });
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &with_equal)?;
    fixture.convert(&[])?;
    fixture.run(doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": "equal" }, "limit": 1 }] })?;
    fixture.run(unique())?;
    let expected = fixture.items()?;
    let mut run = fixture.start_convert(&["--follow"])?;
    ensure!(has_failed(&mut run)?, "the former collection follows without the index");
    let printed = fixture.convert(&["--back"])?;
    ensure!(printed.contains("begins with a new copy"), "{printed}");
    assert_eq!(sorted_fields(fixture.stored(COLLECTION)?), expected);
    assert_eq!(refused(&mut fixture, doc! { "_id": "equal", "n": 7 })?, DUPLICATE_KEY);
    Ok(())
}

#[test]
fn the_way_back_has_the_validator_of_the_collection() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(50))?;
    fixture.convert(&[])?;
    let validator = |validator: Document| doc! { "collMod": COLLECTION, "validator": validator };
    fixture.run(validator(doc! { "n": { "$gte": 0 } }))?;
    fixture.convert(&["--back"])?;
    let refused_code = refused(&mut fixture, doc! { "_id": "negative", "n": -1 })?;
    assert_eq!(refused_code, DOCUMENT_VALIDATION_FAILURE);
    Ok(())
}

#[test]
fn a_validator_that_pages_cannot_have_is_refused_before_the_swap() -> Result<()> {
    let mut fixture = Fixture::open(mongod::shared_replica_set(), with_time())?;
    fixture.run(doc! { "insert": COLLECTION, "documents": documents(50) })?;
    fixture.convert(&["--to", "plain"])?;
    let validator = |validator: Document| doc! { "collMod": COLLECTION, "validator": validator };
    fixture.past(validator(doc! { "$expr": { "$gte": ["$n", 0] } }))?;
    let printed = fixture.convert_refused(&["--back"])?;
    ensure!(printed.contains("its validator cannot be kept"), "{printed}");
    fixture.past(validator(doc! {}))?;
    fixture.past(doc! { "insert": COLLECTION, "documents": [{ "_id": "negative", "n": -1 }] })?;
    fixture.past(validator(doc! { "n": { "$gte": 0 } }))?;
    let printed = fixture.convert_refused(&["--back"])?;
    ensure!(printed.contains("existing documents do not satisfy"), "{printed}");
    let record = fixture.stored(RECORD)?.pop().context("there is no record")?;
    ensure!(record.get_i64("given_up_swaps")? == 0, "{record}");
    fixture.past(doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": "negative" }, "limit": 1 }] })?;
    fixture.convert(&["--back"])?;
    assert_eq!(fixture.items()?.len(), 50);
    Ok(())
}

#[test]
fn a_copy_that_is_filled_offline_gets_its_validator_afterwards() -> Result<()> {
    let mut fixture = Fixture::open(mongod::shared(), with_time())?;
    fixture.run(doc! { "insert": COLLECTION, "documents": documents(50) })?;
    fixture.convert(&["--to", "plain", "--offline"])?;
    fixture.past(doc! { "insert": COLLECTION, "documents": [{ "_id": "negative", "n": -1 }] })?;
    fixture.past(doc! { "collMod": COLLECTION, "validator": { "n": { "$gte": 0 } } })?;
    let printed = fixture.convert_refused(&["--back", "--offline"])?;
    ensure!(printed.contains("existing documents do not satisfy"), "{printed}");
    fixture.past(doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": "negative" }, "limit": 1 }] })?;
    fixture.convert(&["--back", "--offline"])?;
    assert_eq!(fixture.items()?.len(), 50);
    let refused_code = refused(&mut fixture, doc! { "_id": "negative", "n": -1 })?;
    assert_eq!(refused_code, DOCUMENT_VALIDATION_FAILURE);
    Ok(())
}

#[test]
fn a_validator_that_was_removed_does_not_return() -> Result<()> {
    let mut fixture = Fixture::open(mongod::shared_replica_set(), with_time())?;
    fixture.run(doc! { "create": COLLECTION, "validator": { "n": { "$gte": 0 } } })?;
    fixture.run(doc! { "insert": COLLECTION, "documents": documents(50) })?;
    fixture.convert(&["--to", "plain"])?;
    fixture.past(doc! { "collMod": COLLECTION, "validator": {} })?;
    fixture.past(doc! { "insert": COLLECTION, "documents": [{ "_id": "before", "n": -1 }] })?;
    fixture.convert(&["--back"])?;
    fixture.run(doc! { "insert": COLLECTION, "documents": [{ "_id": "after", "n": -1 }] })?;
    fixture.check_pages()
}

#[test]
fn a_validator_that_was_removed_from_pages_of_another_shape_does_not_return() -> Result<()> {
    let shape = with_time();
    let mut fixture = Fixture::open(mongod::shared_replica_set(), shape.clone())?;
    fixture.run(doc! { "create": COLLECTION, "validator": { "n": { "$gte": 0 } } })?;
    fixture.run(doc! { "insert": COLLECTION, "documents": documents(50) })?;
    fixture.reshape(Shape {
        items: "entries".to_owned(),
        max_items: 3,
        ..shape.clone()
    })?;
    fixture.run(doc! { "collMod": COLLECTION, "validator": {} })?;
    fixture.run(doc! { "insert": COLLECTION, "documents": [{ "_id": "negative", "n": -1 }] })?;
    fixture.convert(&["--back"])?;
    fixture.shape = shape;
    fixture.check_pages()
}

#[test]
fn a_validator_that_is_set_during_a_run_is_not_lost() -> Result<()> {
    let mut fixture = Fixture::open(mongod::shared_replica_set(), with_time())?;
    fixture.run(doc! { "insert": COLLECTION, "documents": documents(100) })?;
    let mut run = fixture.start_convert(&["--to", "plain", "--max-rate", "50"])?;
    while fixture.stored(COPY)?.is_empty() {}
    fixture.run(doc! { "collMod": COLLECTION, "validator": { "n": { "$gte": 0 } } })?;
    ensure!(has_failed(&mut run)?, "the copy takes the name without the validator");
    fixture.convert(&["--to", "plain"])?;
    let refused_code = refused(&mut fixture, doc! { "_id": "negative", "n": -1 })?;
    assert_eq!(refused_code, DOCUMENT_VALIDATION_FAILURE);
    Ok(())
}
