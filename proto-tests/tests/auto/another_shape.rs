//! Programs that find a collection with an automatic shape in pages of another shape than the configured one.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::{Shape, invariants, mongod};

use super::fixture::{COLLECTION, Fixture, item, shape};

fn other_shape() -> Shape {
    Shape {
        max_items: 7,
        items: "docs".to_owned(),
        ..Shape::new(&["k", "at"])
    }
}

/// Runs a verb of the first proxy's configuration, which must succeed. Returns its output.
fn succeeds(fixture: &Fixture, verb: &str) -> Result<String> {
    let output = fixture.proxies[0].run(verb)?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{verb}: {printed}");
    Ok(printed)
}

#[test]
fn pages_of_another_shape_fit_an_automatic_shape() -> Result<()> {
    let mut fixture = Fixture::start(mongod::shared_replica_set())?;
    let documents: Vec<Document> = (0..60).map(|n| item(n, n % 4, i64::from(n % 3))).collect();
    fixture.store_plain(&documents)?;
    fixture.convert_to(&shape(), &[])?;
    fixture.convert_to(&other_shape(), &[])?;
    // A proxy whose collection does not fit would log an error.
    fixture.proxies[0].stop()?;
    fixture.proxies[0].restart()?;
    for verb in ["check", "setup", "compact", "check"] {
        let printed = succeeds(&fixture, verb)?;
        ensure!(!printed.contains("another shape"), "{verb}: {printed}");
    }
    fixture.run(0, doc! { "insert": COLLECTION, "documents": [item(60, 1, 0)] })?;
    ensure!(fixture.items()?.len() == 61, "{}", fixture.items()?.len());
    invariants::check(&mut fixture.direct()?, &fixture.database, COLLECTION, &other_shape())
}
