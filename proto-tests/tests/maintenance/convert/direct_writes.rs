//! The clause that refuses direct writes, of the shape that a collection is converted to.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::{Shape, mongod};

use super::fixture::{COLLECTION, Fixture, document, with_time};

fn is_refused(fixture: &mut Fixture) -> Result<bool> {
    let insert = doc! { "insert": COLLECTION, "documents": [document(-1)], "$db": &fixture.database };
    let reply = fixture.direct.command(&insert)?;
    fixture.past(doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": -1 }, "limit": 1 }] })?;
    Ok(reply.to_string().contains("mongoshape_direct_writes"))
}

/// To pages, to other pages, back, and to plain documents.
#[test]
fn a_converted_collection_has_the_clause_of_its_shape() -> Result<()> {
    let documents: Vec<Document> = (1..=300).map(document).collect();
    let shape = Shape {
        reject_direct_writes: true,
        ..with_time()
    };
    let mut fixture = Fixture::with(mongod::shared_replica_set(), shape.clone(), &documents)?;
    ensure!(!is_refused(&mut fixture)?, "plain documents are refused");
    fixture.convert(&[])?;
    fixture.check_pages()?;
    ensure!(is_refused(&mut fixture)?, "not refused");
    fixture.convert(&["--finish"])?;
    fixture.reshape(Shape {
        items: "entries".to_owned(),
        max_items: 3,
        ..shape.clone()
    })?;
    fixture.check_pages()?;
    ensure!(is_refused(&mut fixture)?, "not refused");
    let checked = fixture.proxy.run("check")?;
    let printed = String::from_utf8_lossy(&checked.stdout).into_owned();
    ensure!(
        checked.status.success() && !printed.contains("direct writes"),
        "{printed}"
    );
    fixture.convert(&["--back"])?;
    fixture.shape = shape;
    fixture.check_pages()?;
    ensure!(is_refused(&mut fixture)?, "not refused");
    fixture.convert(&["--finish"])?;
    fixture.convert(&["--to", "plain"])?;
    ensure!(!is_refused(&mut fixture)?, "refused");
    Ok(())
}
