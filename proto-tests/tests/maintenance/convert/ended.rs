//! Conversions that are refused, ended, taken back, or done on a standalone.

use anyhow::Result;
use bson::{Document, doc};
use proto_tests::{ItemIds, Shape, mongod};

use super::fixture::{COLLECTION, COPY, Fixture, KEPT, RECORD, document, sorted_fields, with_time};

fn documents(count: i32) -> Vec<Document> {
    (0..count).map(document).collect()
}

#[test]
fn nothing_is_written_by_a_dry_run_or_after_a_refusal() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(100))?;
    let printed = fixture.convert(&["--dry-run"])?;
    assert!(
        printed.contains("inspected 100 documents: all can be packed"),
        "{printed}"
    );
    assert!(
        fixture
            .convert_refused(&["--back"])?
            .contains("there is no conversion to undo")
    );
    assert!(
        fixture
            .convert_refused(&["--finish"])?
            .contains("there is no conversion to finish")
    );
    assert!(
        fixture
            .convert(&["--to", "plain"])?
            .contains("contains plain documents already")
    );
    fixture.past(doc! { "insert": COLLECTION, "documents": [{ "_id": "array", "k": [1] }] })?;
    let printed = fixture.convert_refused(&[])?;
    assert!(
        printed.contains("1 of 101 documents cannot be items of this shape"),
        "{printed}"
    );
    assert_eq!(fixture.collections()?, [COLLECTION]);
    Ok(())
}

#[test]
fn a_field_that_no_document_has_is_refused_unless_it_is_allowed() -> Result<()> {
    let plain: Vec<Document> = (0..20).map(|n| doc! { "_id": n, "K": n % 3, "n": n }).collect();
    let mut fixture = Fixture::with(mongod::shared_replica_set(), Shape::new(&["k"]), &plain)?;
    let printed = fixture.convert_refused(&[])?;
    assert!(
        printed.contains("no sampled document has the key field \"k\"; did you mean \"K\"?"),
        "{printed}"
    );
    assert_eq!(fixture.collections()?, [COLLECTION]);
    fixture.convert(&["--allow-missing-key"])?;
    assert_eq!(fixture.items()?.len(), 20);
    for option in ["--back", "--finish"] {
        let printed = fixture.convert_refused(&["--dry-run", option])?;
        assert!(printed.contains("cannot be used with"), "{printed}");
    }
    assert_eq!(fixture.collections()?, [COLLECTION, RECORD, KEPT]);
    Ok(())
}

#[test]
fn documents_without_unique_ids_are_refused() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::Stored,
        ..Shape::new(&["k"])
    };
    let mut fixture = Fixture::with(mongod::shared_replica_set(), shape, &documents(10))?;
    assert!(
        fixture
            .convert_refused(&[])?
            .contains("that requires item_ids = \"unique\"")
    );
    assert_eq!(fixture.collections()?, [COLLECTION]);
    Ok(())
}

#[test]
fn a_document_that_cannot_be_packed_ends_the_conversion() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(20_000))?;
    let mut run = fixture.start_convert(&[])?;
    while !fixture.collections()?.contains(&COPY.to_owned()) {}
    fixture.past(doc! { "insert": COLLECTION, "documents": [{ "_id": "array", "k": [1] }] })?;
    assert!(!run.wait()?.success());
    assert_eq!(fixture.stored(COLLECTION)?.len(), 20_001);
    fixture.convert(&["--back"])?;
    assert_eq!(fixture.collections()?, [COLLECTION]);
    fixture.past(doc! { "insert": COLLECTION, "documents": [{ "_id": "another" }] })?;
    Ok(())
}

#[test]
fn the_conversion_of_a_collection_that_was_dropped_is_ended() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(300))?;
    for options in [&[] as &[&str], &["--to", "plain"]] {
        if !options.is_empty() {
            // Pages.
            fixture.run(doc! { "insert": COLLECTION, "documents": documents(300) })?;
        }
        let mut run = fixture.start_convert(&[options, &["--max-rate", "50"]].concat())?;
        while !fixture.collections()?.contains(&COPY.to_owned()) {}
        run.kill()?;
        run.wait()?;
        fixture.past(doc! { "drop": COLLECTION })?;
        assert!(fixture.convert_refused(options)?.contains("does not exist"));
        fixture.convert(&["--back"])?;
        assert_eq!(fixture.collections()?, [""; 0]);
    }
    Ok(())
}

#[test]
fn the_way_back_has_all_later_writes() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(500))?;
    fixture.convert(&[])?;
    assert_eq!(fixture.collections()?, [COLLECTION, RECORD, KEPT]);
    fixture.run(doc! { "insert": COLLECTION, "documents": [{ "_id": "new", "k": 1, "n": 1000 }] })?;
    fixture.run(doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": 7 }, "limit": 1 }] })?;
    fixture
        .run(doc! { "update": COLLECTION, "updates": [{ "q": { "n": 8 }, "u": { "$set": { "k": 100, "x": 1 } } }] })?;
    let expected = fixture.items()?;
    let (is_well, printed) = fixture.try_verb("verify", &[])?;
    assert!(!is_well && printed.contains("3 of 500 documents differ"), "{printed}");
    fixture.convert(&["--back"])?;
    assert_eq!(sorted_fields(fixture.stored(COLLECTION)?), expected);
    fixture.convert(&["--finish"])?;
    assert_eq!(fixture.collections()?, [COLLECTION]);
    Ok(())
}

#[test]
fn the_former_collection_follows_later_writes() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(500))?;
    assert!(
        fixture
            .convert_refused(&["--follow"])?
            .contains("no former collection is kept")
    );
    fixture.convert(&[])?;
    let write = |fixture: &mut Fixture, id: &str| {
        fixture.run(doc! { "insert": COLLECTION, "documents": [{ "_id": id, "k": 1, "n": 1000 }] })?;
        fixture
            .run(doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": i32::try_from(id.len())? }, "limit": 1 }] })?;
        let update = doc! { "q": { "n": { "$gt": 300 } }, "u": { "$inc": { "n": 1 } }, "multi": true };
        fixture.run(doc! { "update": COLLECTION, "updates": [update] })
    };
    write(&mut fixture, "before")?;
    for id in ["meanwhile", "in the second run"] {
        let run = fixture.start_convert(&["--follow"])?;
        write(&mut fixture, id)?;
        fixture.end_when_equal(run)?;
    }
    let output = fixture.proxy.run_with("check", &[])?;
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        printed.contains("the former collection of plain documents is kept"),
        "{printed}"
    );
    write(&mut fixture, "afterwards, at last")?;
    let expected = fixture.items()?;
    let printed = fixture.convert(&["--back"])?;
    assert!(!printed.contains("copied"), "{printed}");
    assert_eq!(sorted_fields(fixture.stored(COLLECTION)?), expected);
    Ok(())
}

#[test]
fn the_end_of_the_way_back_ends_the_storage_of_images() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(100))?;
    fixture.convert(&[])?;
    let run = fixture.start_convert(&["--follow"])?;
    fixture.run(doc! { "insert": COLLECTION, "documents": [{ "_id": "new", "k": 1 }] })?;
    fixture.end_when_equal(run)?;
    assert!(fixture.stores_images(COLLECTION)?);
    fixture.convert(&["--finish"])?;
    assert_eq!(fixture.collections()?, [COLLECTION]);
    assert!(!fixture.stores_images(COLLECTION)?);
    fixture.check_pages()
}

#[test]
fn the_next_conversion_ends_a_way_back_that_is_up_to_date() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(100))?;
    fixture.convert(&[])?;
    fixture.run(doc! { "insert": COLLECTION, "documents": [{ "_id": "new", "k": 1 }] })?;
    let run = fixture.start_convert(&["--follow"])?;
    fixture.end_when_equal(run)?;
    let expected = fixture.items()?;
    let printed = fixture.convert(&["--to", "plain"])?;
    assert!(
        printed.contains("ends the way back of the earlier conversion"),
        "{printed}"
    );
    assert_eq!(sorted_fields(fixture.stored(COLLECTION)?), expected);
    assert_eq!(fixture.collections()?, [COLLECTION, RECORD, KEPT]);
    assert!(!fixture.stores_images(KEPT)?);
    Ok(())
}

#[test]
fn a_collection_is_converted_again_after_the_way_back() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(100))?;
    for options in [&[] as &[&str], &["--back"], &[], &["--back"], &["--finish"], &[]] {
        fixture.convert(options)?;
    }
    fixture.check_pages()?;
    let listed = fixture.past(doc! { "listCollections": 1, "filter": { "name": COLLECTION } })?;
    assert!(!listed.to_string().contains("validator"), "{listed}");
    Ok(())
}

#[test]
fn a_standalone_is_converted_offline() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents(500))?;
    assert!(fixture.convert_refused(&[])?.contains("use --offline"));
    let expected = sorted_fields(fixture.stored(COLLECTION)?);
    fixture.convert(&["--offline"])?;
    fixture.check_pages()?;
    assert_eq!(fixture.items()?, expected);
    let printed = fixture.convert(&["--to", "plain", "--offline"])?;
    assert!(
        printed.contains("ends the way back of the earlier conversion"),
        "{printed}"
    );
    assert_eq!(sorted_fields(fixture.stored(COLLECTION)?), expected);
    assert_eq!(fixture.collections()?, [COLLECTION, RECORD, KEPT]);
    Ok(())
}
