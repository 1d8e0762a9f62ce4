//! Each direction: plain documents to pages, pages to others, and pages to plain documents.

use anyhow::Result;
use bson::{Document, doc};
use proto_tests::mongod;

use super::fixture::{COLLECTION, Fixture, KEPT, RECORD, document, sorted_fields, with_time};

fn documents(count: i32) -> Vec<Document> {
    (0..count).map(document).collect()
}

#[test]
fn plain_documents_become_pages_and_plain_again() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents(3000))?;
    fixture.past(
        doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { "n": 1 }, "name": "n_1", "unique": true }] },
    )?;
    let plain = sorted_fields(fixture.stored(COLLECTION)?);
    let printed = fixture.convert(&[])?;
    assert!(printed.contains("compared 3000 documents"), "{printed}");
    fixture.check_pages()?;
    assert_eq!(fixture.items()?, plain);
    assert_eq!(fixture.collections()?, [COLLECTION, RECORD, KEPT]);
    let (is_well, printed) = fixture.try_verb("verify", &[])?;
    assert!(is_well, "{printed}");
    let of_range = |line: &&str| line.contains(" k from ") || line.contains(" k below ");
    assert!(printed.lines().filter(of_range).count() > 3, "{printed}");
    fixture.run(doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": { "$lt": 100 } }, "limit": 0 }] })?;
    fixture.convert(&["--finish"])?;
    assert_eq!(fixture.collections()?, [COLLECTION]);
    fixture.convert(&["--to", "plain"])?;
    let expected: Vec<Document> = plain
        .into_iter()
        .filter(|document| document.get_i32("n").unwrap() >= 100)
        .collect();
    assert_eq!(sorted_fields(fixture.stored(COLLECTION)?), expected);
    let indexes = fixture.past(doc! { "listIndexes": COLLECTION })?;
    assert!(
        indexes.to_string().contains("n_1") && !indexes.to_string().contains("mongoshape"),
        "{indexes}"
    );
    Ok(())
}
