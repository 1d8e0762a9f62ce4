//! `$merge` into collections of each kind.

use anyhow::Result;
use proto_tests::differential::operation::MERGE;
use proto_tests::differential::{Coverage, Run};
use proto_tests::{ItemIds, Shape, mongod};

use crate::{is_full, renamed, small_pages_of_two_key_fields, with_time};

#[test]
fn merges() -> Result<()> {
    check_merges(mongod::shared(), false)
}

#[test]
fn merges_in_sessions() -> Result<()> {
    check_merges(mongod::shared_replica_set(), true)
}

fn check_merges(upstream: &mongod::Mongod, moves: bool) -> Result<()> {
    let mut coverage = Coverage::default();
    for mut run in runs(moves) {
        run.coverage = coverage;
        let report = run.against(upstream)?;
        assert!(report.disagreements.is_empty(), "{report}");
        coverage = report.coverage;
    }
    Ok(())
}

/// What the runs generate, which depends on no server.
pub(crate) fn generated() -> Coverage {
    let mut all = Coverage::default();
    for moves in [false, true] {
        let mut coverage = Coverage::default();
        for run in runs(moves) {
            run.generate(run.seeds[0], &mut coverage);
        }
        all.add(&coverage);
    }
    all
}

/// Runs that hand on what they have covered, each of another shape.
fn runs(moves: bool) -> impl Iterator<Item = Run> {
    let shapes = [
        renamed(with_time(&["k"])),
        small_pages_of_two_key_fields(),
        Shape {
            is_clustered: true,
            max_items: 3,
            ..Shape::new(&["k"])
        },
        Shape {
            item_ids: ItemIds::Stored,
            ..Shape::new(&["k"])
        },
    ];
    shapes.into_iter().zip(501..).map(move |(shape, seed)| {
        let seeds = if is_full() { 10 } else { 1 };
        Run {
            shape: Shape {
                items_change: true,
                ..shape
            },
            outlier: None,
            seeds: (0..seeds).map(|number| seed + 100 * number).collect(),
            operations: if is_full() { 60 } else { OPERATIONS },
            moves,
            families: MERGE,
            coverage: Coverage::default(),
        }
    })
}

/// Enough for all productions.
const OPERATIONS: u32 = 26;
