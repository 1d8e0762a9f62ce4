//! Collections with indexes of the application: sorted reads, and writes under a unique index. Writes under a
//! validator.

use anyhow::Result;
use proto_tests::differential::operation::{Family, NEAR, SORTED, UNIQUE, VALIDATORS};
use proto_tests::differential::{Coverage, Run};
use proto_tests::{ItemIds, Shape, mongod};

use super::{is_full, renamed, report_of, shapes_of_topology, small_pages_of_two_key_fields, with_time};

/// What an index answers on the plain side is not answered by a pipeline on the shaped one.
#[test]
fn sorted_reads_by_an_index() -> Result<()> {
    let shapes = [
        with_time(&["k"]),
        small_pages_of_two_key_fields(),
        Shape {
            item_ids: ItemIds::Dropped,
            max_items: 10,
            ..Shape::new(&["k"])
        },
    ];
    for (shape, seed) in shapes.into_iter().zip(301..) {
        let seeds = if is_full() { 10 } else { 1 };
        let run = Run {
            shape,
            outlier: None,
            seeds: (0..seeds).map(|number| seed + 100 * number).collect(),
            operations: if is_full() { 40 } else { 15 },
            moves: false,
            families: SORTED,
            coverage: Coverage::default(),
        };
        report_of(&run)?;
    }
    Ok(())
}

#[test]
fn unique_indexes() -> Result<()> {
    check_writes(mongod::shared(), false, UNIQUE)
}

#[test]
fn unique_indexes_in_sessions() -> Result<()> {
    check_writes(mongod::shared_replica_set(), true, UNIQUE)
}

#[test]
fn validators() -> Result<()> {
    check_writes(mongod::shared(), false, VALIDATORS)
}

#[test]
fn validators_in_sessions() -> Result<()> {
    check_writes(mongod::shared_replica_set(), true, VALIDATORS)
}

fn check_writes(upstream: &mongod::Mongod, moves: bool, families: &'static [Family]) -> Result<()> {
    let shapes = [
        renamed(with_time(&["k"])),
        small_pages_of_two_key_fields(),
        Shape {
            item_ids: ItemIds::Stored,
            max_items: 5,
            ..Shape::new(&["k"])
        },
        Shape {
            item_ids: ItemIds::Dropped,
            ..renamed(Shape::new(&["k"]))
        },
    ];
    for (shape, seed) in shapes_of_topology(shapes.into_iter().zip(401..), moves) {
        let seeds = if is_full() { 10 } else { 1 };
        let run = Run {
            shape: Shape {
                items_change: true,
                ..shape
            },
            outlier: None,
            seeds: (0..seeds).map(|number| seed + 100 * number).collect(),
            operations: if is_full() { 40 } else { 15 },
            moves,
            families,
            coverage: Coverage::default(),
        };
        let report = run.against(upstream)?;
        assert!(report.disagreements.is_empty(), "{report}");
    }
    Ok(())
}

#[test]
fn geospatial_indexes() -> Result<()> {
    let shapes = [
        renamed(with_time(&["k"])),
        small_pages_of_two_key_fields(),
        Shape {
            item_ids: ItemIds::Dropped,
            max_items: 5,
            ..Shape::new(&["k"])
        },
    ];
    for (shape, seed) in shapes.into_iter().zip(501..) {
        let seeds = if is_full() { 20 } else { 1 };
        let run = Run {
            shape,
            outlier: None,
            seeds: (0..seeds).map(|number| seed + 100 * number).collect(),
            operations: if is_full() { 20 } else { 6 },
            moves: false,
            families: NEAR,
            coverage: Coverage::default(),
        };
        report_of(&run)?;
    }
    Ok(())
}
