//! Writes on one key through each of two proxies in turn.

use anyhow::Result;
use proto_tests::differential::operation::ONE_KEY;
use proto_tests::differential::{Coverage, Run};
use proto_tests::{ItemIds, Mongod, Shape, mongod};

use super::{is_full, renamed, with_time};

#[test]
fn writes_on_one_key() -> Result<()> {
    check(mongod::shared())
}

#[test]
fn writes_on_one_key_in_a_replica_set() -> Result<()> {
    check(mongod::shared_replica_set())
}

fn runs() -> Vec<Run> {
    let shapes = [
        with_time(&["k"]),
        Shape {
            max_items: 4,
            item_ids: ItemIds::Stored,
            ..with_time(&["k"])
        },
        Shape {
            item_ids: ItemIds::Dropped,
            max_items: 5,
            ..renamed(Shape::new(&["k"]))
        },
    ];
    let seeds = if is_full() { 10 } else { 1 };
    let run = |(shape, seed): (Shape, u64)| Run {
        shape: Shape {
            items_change: true,
            ..shape
        },
        outlier: None,
        seeds: (0..seeds).map(|number| seed + 100 * number).collect(),
        operations: if is_full() { 80 } else { 30 },
        moves: false,
        families: ONE_KEY,
        coverage: Coverage::default(),
    };
    shapes.into_iter().zip(1501..).map(run).collect()
}

fn check(upstream: &Mongod) -> Result<()> {
    for run in runs() {
        let report = run.against(upstream)?;
        assert!(report.disagreements.is_empty(), "{report}");
    }
    Ok(())
}

/// What the runs generate, which depends on no server.
pub(crate) fn generated() -> Coverage {
    let mut coverage = Coverage::default();
    for run in runs() {
        run.generate(run.seeds[0], &mut coverage);
    }
    coverage
}
