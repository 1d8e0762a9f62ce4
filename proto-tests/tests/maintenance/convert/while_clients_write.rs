//! Conversions while clients write.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::measure::is_full;
use proto_tests::{Shape, mongod};

use super::fixture::{COLLECTION, Fixture, document, sorted_fields, with_time};
use super::writers::{Place, Writers};

fn directly(fixture: &mut Fixture) -> Result<Place> {
    Ok(Place {
        address: mongod::shared_replica_set().address(),
        database: fixture.database.clone(),
        uuid: fixture.uuid(COLLECTION)?,
    })
}

fn by_proxy(fixture: &Fixture) -> Place {
    Place {
        address: fixture.proxy.address(),
        database: fixture.database.clone(),
        uuid: None,
    }
}

/// Checks the stored documents: those from the beginning, and those of the writers.
fn check(stored: Vec<Document>, first: i32, written: BTreeMap<i32, Document>) -> Result<()> {
    let mut expected: BTreeMap<i32, Document> = (0..first).map(|n| (n, document(n))).collect();
    expected.extend(written);
    let by_n = |documents: Vec<Document>| -> BTreeMap<i32, Document> {
        let documents = sorted_fields(documents).into_iter();
        documents
            .map(|document| (document.get_i32("n").unwrap(), document))
            .collect()
    };
    let count = stored.len();
    ensure!(
        count == expected.len(),
        "{count} documents are stored, {} expected",
        expected.len()
    );
    let (stored, expected) = (by_n(stored), by_n(expected.into_values().collect()));
    for (n, expected) in expected {
        ensure!(
            stored.get(&n) == Some(&expected),
            "{n}: {:?}, expected {expected}",
            stored.get(&n)
        );
    }
    Ok(())
}

#[test]
fn nothing_is_lost_from_plain_documents_to_pages() -> Result<()> {
    let documents: Vec<Document> = (0..5000).map(document).collect();
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents)?;
    let writers = Writers::start(&directly(&mut fixture)?, 3);
    let printed = fixture.convert(&[])?;
    let written = writers.join()?;
    check(fixture.items()?, 5000, written)?;
    assert!(printed.contains("swapped: writes were held for"), "{printed}");
    fixture.shape.items_change = true;
    fixture.check_pages()
}

#[test]
fn nothing_is_lost_from_pages_to_plain_documents() -> Result<()> {
    let mut fixture = Fixture::open(mongod::shared_replica_set(), with_time())?;
    for part in (0..3000).map(document).collect::<Vec<_>>().chunks(1000) {
        fixture.run(doc! { "insert": COLLECTION, "documents": part })?;
    }
    let writers = Writers::start(&by_proxy(&fixture), 4);
    fixture.convert(&["--to", "plain"])?;
    let written = writers.join()?;
    let stored = fixture.stored(COLLECTION)?;
    check(stored, 3000, written)
}

#[test]
fn killed_runs_are_continued() -> Result<()> {
    // So many that no run ends before it is killed.
    let (count, kills) = if is_full("MONGOSHAPE_CRASHES") {
        (8000, [300, 900, 1600])
    } else {
        (4000, [300, 600, 900])
    };
    let documents: Vec<Document> = (0..count).map(document).collect();
    let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents)?;
    let writers = Writers::start(&directly(&mut fixture)?, 2);
    for milliseconds in kills {
        let mut run = fixture.start_convert(&[])?;
        std::thread::sleep(Duration::from_millis(milliseconds));
        run.kill()?;
        run.wait()?;
    }
    fixture.convert(&[])?;
    let written = writers.join()?;
    check(fixture.items()?, count, written)
}

#[test]
fn pages_get_another_shape() -> Result<()> {
    let mut fixture = Fixture::open(mongod::shared_replica_set(), with_time())?;
    for part in (0..2000).map(document).collect::<Vec<_>>().chunks(1000) {
        fixture.run(doc! { "insert": COLLECTION, "documents": part })?;
    }
    let shape = Shape {
        max_items: 50,
        items: "docs".to_owned(),
        ..Shape::new(&["quantity"])
    };
    let writers = Writers::start(&by_proxy(&fixture), 3);
    fixture.reshape(shape)?;
    let written = writers.join()?;
    check(fixture.items()?, 2000, written)?;
    fixture.shape.items_change = true;
    fixture.check_pages()
}
