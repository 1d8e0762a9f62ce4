//! A collection that cannot be packed is reported before any change.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::shaped::Shaped;
use proto_tests::{Shape, mongod};

use super::fixture::{COLLECTION, Fixture, KEPT, documents, with_time};

/// Fails unless it is refused with these texts, and nothing has changed.
fn check(fixture: &mut Fixture, words: &[&str]) -> Result<()> {
    let (catalog, stored) = (fixture.catalog()?, fixture.stored(COLLECTION)?);
    let printed = fixture.refused()?;
    for words in words {
        ensure!(printed.contains(words), "{words}: {printed}");
    }
    ensure!(fixture.catalog()? == catalog, "{printed}: {:?}", fixture.catalog()?);
    ensure!(fixture.stored(COLLECTION)? == stored, "{printed}");
    Ok(())
}

fn with(documents: &[Document]) -> Result<Fixture> {
    Fixture::with(mongod::shared(), with_time(), documents)
}

#[test]
fn documents_that_are_no_items() -> Result<()> {
    let bad = [
        doc! { "_id": 1, "k": 1 },
        doc! { "_id": "array", "k": [1] },
        doc! { "_id": "symbol", "k": bson::Bson::Symbol("s".to_owned()) },
    ];
    let words = [
        "document with _id \"array\": mongoshape groups this collection's items by 'k': a value of type array cannot be a key",
        "document with _id \"symbol\"",
        "2 of 3 documents cannot be items of this shape",
    ];
    check(&mut with(&bad)?, &words)
}

#[test]
fn indexes_and_options_all_at_once() -> Result<()> {
    let mut fixture = Fixture::open(mongod::shared(), with_time())?;
    let validator = doc! { "n": { "$exists": true } };
    fixture.past(doc! { "create": COLLECTION, "validator": validator, "validationLevel": "moderate" })?;
    fixture.past(doc! { "insert": COLLECTION, "documents": documents(10, 2) })?;
    let indexes = [
        doc! { "key": { "n": 1 }, "name": "n_sparse", "unique": true, "sparse": true },
        doc! { "key": { "at": 1 }, "name": "at_ttl", "expireAfterSeconds": 1_000_000_000 },
        doc! { "key": { "t": "text" }, "name": "t_text" },
        doc! { "key": { "n": -1 }, "name": "fine" },
    ];
    fixture.past(doc! { "createIndexes": COLLECTION, "indexes": indexes.to_vec() })?;
    let words = [
        "is created with a validator, which the bucket pattern does not support",
        "index n_sparse cannot be kept: it is a sparse unique index (it would omit whole pages, not items); drop it",
        "index at_ttl cannot be kept: it is an index with expireAfterSeconds",
        "index t_text cannot be kept",
    ];
    check(&mut fixture, &words)?;
    ensure!(!fixture.refused()?.contains("index fine"), "it is");
    Ok(())
}

#[test]
fn capped_collections_and_collations() -> Result<()> {
    for (option, words) in [
        (doc! { "capped": true, "size": 1_000_000 }, "is capped"),
        (doc! { "collation": { "locale": "de" } }, "is created with a collation"),
    ] {
        let mut fixture = Fixture::open(mongod::shared(), with_time())?;
        let mut create = doc! { "create": COLLECTION };
        create.extend(option);
        fixture.past(create)?;
        fixture.past(doc! { "insert": COLLECTION, "documents": documents(10, 2) })?;
        check(&mut fixture, &[words])?;
    }
    Ok(())
}

#[test]
fn pages_and_plain_documents_together() -> Result<()> {
    let mut fixture = Fixture::open(mongod::shared(), Shape::new(&["k"]))?;
    fixture.run(doc! { "insert": COLLECTION, "documents": documents(10, 2) })?;
    fixture.past(doc! { "insert": COLLECTION, "documents": [{ "_id": "plain", "k": "x" }] })?;
    let words = [
        "document with _id \"plain\"",
        "1 document is not a bucket of layout version 1, and cannot be adopted",
        "move it to another collection and insert it through the proxy",
    ];
    check(&mut fixture, &words)
}

#[test]
fn pack_refuses_documents_that_may_be_buckets() -> Result<()> {
    let other_version = doc! { "_id": 1, "k": 1, "control": { "v": 2 } };
    check(
        &mut with(&[other_version])?,
        &["1 document is not a bucket of layout version 1"],
    )?;
    let by_hand = doc! { "_id": 1, "k": [1], "count": 1, "history": [{ "_id": 1 }] };
    check(
        &mut with(&[by_hand])?,
        &["1 document is not a bucket of layout version 1"],
    )
}

#[test]
fn a_name_that_is_taken() -> Result<()> {
    let mut fixture = with(&documents(10, 2))?;
    fixture.past(doc! { "create": KEPT })?;
    check(&mut fixture, &["items.mongoshape_plain of an earlier run still exists"])
}

#[test]
fn a_shape_that_only_observes() -> Result<()> {
    let observing = Shaped::start("mode = \"observe\"\n")?;
    let output = observing.proxy.run_with("setup", &["--pack"])?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.code() == Some(1) && printed.contains("nothing was done: no collection has a shape"),
        "{printed}"
    );
    ensure!(observing.proxy.run("setup")?.status.success());
    Ok(())
}

#[test]
fn a_key_or_a_time_that_no_document_has() -> Result<()> {
    let misspelt_key = Shape {
        key: vec!["custmerId".to_owned()],
        ..with_time()
    };
    let document = |n: i32| doc! { "_id": n, "customerId": n % 3, "at": bson::DateTime::from_millis(i64::from(n)) };
    let documents: Vec<Document> = (0..30).map(document).collect();
    let mut fixture = Fixture::with(mongod::shared(), misspelt_key, &documents)?;
    let words = ["no sampled document has the key field \"custmerId\"; did you mean \"customerId\"?"];
    check(&mut fixture, &words)?;
    let printed = fixture.output("check")?;
    ensure!(printed.contains("did you mean \"customerId\"?"), "{printed}");
    let misspelt_time = Shape {
        time: Some("when".to_owned()),
        ..Shape::new(&["customerId"])
    };
    let mut fixture = Fixture::with(mongod::shared(), misspelt_time, &documents)?;
    let words = [
        "no sampled document has the time field \"when\"",
        "the sampled documents have the fields \"at\", \"customerId\"",
    ];
    check(&mut fixture, &words)
}
