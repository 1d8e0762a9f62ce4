//! A way back that is stopped before its swap: `--back` continues it, and `--finish` gives it up.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Binary, Document, doc};
use proto_tests::mongod;
use rustix::process::{Pid, Signal, kill_process};

use super::fixture::{COLLECTION, COPY, Fixture, KEPT, document, sorted_fields, with_time};

/// The longest wait for the way back to begin.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// A collection whose way back to plain documents was stopped.
struct Stopped {
    fixture: Fixture,
    /// The collection in its former layout.
    former: Binary,
    expected: Vec<Document>,
    printed: String,
}

impl Stopped {
    fn new() -> Result<Self> {
        let documents: Vec<Document> = (0..200).map(document).collect();
        let mut fixture = Fixture::with(mongod::shared_replica_set(), with_time(), &documents)?;
        fixture.convert(&[])?;
        fixture.run(doc! { "insert": COLLECTION, "documents": [{ "_id": "new", "k": 1, "n": 1000 }] })?;
        let expected = fixture.items()?;
        let former = fixture.uuid(KEPT)?.context("nothing is kept")?;
        // Slowly, so that it is stopped while documents are copied.
        let run = fixture.start_convert(&["--back", "--max-rate", "50"])?;
        let begun = Instant::now();
        while fixture.uuid(COPY)?.as_ref() != Some(&former) {
            ensure!(begun.elapsed() < MAX_WAIT, "the way back does not begin");
        }
        kill_process(Pid::from_child(&run), Signal::INT)?;
        let output = run.wait_with_output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(!output.status.success(), "{printed}");
        Ok(Self {
            fixture,
            former,
            expected,
            printed,
        })
    }
}

#[test]
fn a_way_back_that_was_stopped_is_continued() -> Result<()> {
    let Stopped {
        mut fixture,
        former,
        expected,
        printed,
    } = Stopped::new()?;
    let again = "run `mongoshape convert --back` again to continue";
    ensure!(printed.contains(again), "{printed}");
    let checked = fixture.proxy.run("check")?;
    let printed = String::from_utf8_lossy(&checked.stdout);
    let continues = "`mongoshape convert --back` continues it";
    ensure!(printed.contains(continues), "{printed}");
    for options in [&[] as &[&str], &["--follow"]] {
        let printed = fixture.convert_refused(options)?;
        let ends = "`mongoshape convert --finish` drops the former collection";
        ensure!(
            printed.contains(continues) && printed.contains(ends),
            "{options:?}: {printed}"
        );
    }
    let printed = fixture.convert(&["--back"])?;
    ensure!(
        printed.contains("continues with the copy of an earlier run"),
        "{printed}"
    );
    assert_eq!(sorted_fields(fixture.stored(COLLECTION)?), expected);
    ensure!(fixture.uuid(COLLECTION)? == Some(former), "it is another collection");
    Ok(())
}

#[test]
fn a_way_back_that_was_stopped_is_given_up() -> Result<()> {
    let mut stopped = Stopped::new()?;
    let fixture = &mut stopped.fixture;
    let printed = fixture.convert(&["--finish"])?;
    ensure!(
        printed.contains("the collection of plain documents was dropped"),
        "{printed}"
    );
    ensure!(fixture.collections()? == [COLLECTION], "{:?}", fixture.collections()?);
    ensure!(!fixture.stores_images(COLLECTION)?, "it stores images");
    fixture.check_pages()?;
    assert_eq!(fixture.items()?, stopped.expected);
    Ok(())
}
