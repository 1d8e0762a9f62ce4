//! Random operations on a plain collection through a router, and on a shaped one through proxies before both
//! routers. The plain one is not sharded. The shaped one is sharded in tests that say so: its ranges move between
//! the shards meanwhile, and the shards step down.
//!
//! An ordinary run takes the first seed of each test, and few operations; `MONGOSHAPE_DIFFERENTIAL=full` all:
//! 20,000 operations over 40 seeds, and as many on sharded collections.

use anyhow::Result;
use proto_tests::cluster::{self, Cluster};
use proto_tests::differential::operation::{
    ALL, ALL_IN_SESSIONS, Family, SHARDED, SHARDED_IN_SESSIONS, SHARDED_STREAMS, STREAMS,
};
use proto_tests::differential::{Coverage, Deployment, Outcome, RangesMove, Report, Run};
use proto_tests::measure::is_full;
use proto_tests::{ItemIds, Shape};

/// The shaped collection is not sharded.
fn check(shape: Shape, seeds: impl IntoIterator<Item = u64>, families: &'static [Family]) -> Result<()> {
    let servers = Deployment::from(cluster::shared());
    check_by(shape, seeds, families, |run| run.against(servers))
}

/// The shaped collection is sharded, and its ranges move.
fn check_sharded(
    shape: Shape,
    seeds: impl IntoIterator<Item = u64>,
    families: &'static [Family],
    when: RangesMove,
) -> Result<()> {
    // A shard that steps down concerns only this test.
    let alone;
    let cluster = match when {
        RangesMove::AtAnyTime => cluster::shared(),
        RangesMove::BetweenOperations => {
            alone = Cluster::start(2, 2)?;
            &alone
        }
    };
    check_by(shape, seeds, families, |run| run.against_moving(cluster, when))
}

#[expect(
    clippy::print_stderr,
    reason = "the test's own output, which the test runner captures"
)]
fn check_by(
    shape: Shape,
    seeds: impl IntoIterator<Item = u64>,
    families: &'static [Family],
    execute: impl FnOnce(&Run) -> Result<Report>,
) -> Result<()> {
    let is_full = is_full("MONGOSHAPE_DIFFERENTIAL");
    let are_streams = families.iter().all(|family| family.name == "stream");
    let run = Run {
        shape: Shape {
            items_change: true,
            ..shape
        },
        outlier: None,
        seeds: seeds.into_iter().take(if is_full { usize::MAX } else { 1 }).collect(),
        // A stream has eight writes.
        operations: if is_full { 500 } else { 60 } / if are_streams { 10 } else { 1 },
        moves: false,
        families,
        coverage: Coverage::default(),
    };
    let report = execute(&run)?;
    eprintln!("{report}");
    assert!(report.disagreements.is_empty(), "there are disagreements");
    // A stream counts as failed or refused if one of its writes does.
    assert!(
        are_streams || report.of(Outcome::Done) * 10 > report.operations() * 2,
        "few did anything: {report}"
    );
    Ok(())
}

fn with_time() -> Shape {
    Shape {
        time: Some("date".to_owned()),
        ..Shape::new(&["k"])
    }
}

#[test]
fn all_with_time_on_small_pages() -> Result<()> {
    let shape = Shape {
        max_items: 3,
        rename: vec![("quantity".to_owned(), "qty".to_owned())],
        ..with_time()
    };
    check(shape, 601..=610, ALL)
}

#[test]
fn all_with_stored_ids() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::Stored,
        max_items: 4,
        ..Shape::new(&["k", "region"])
    };
    check(shape, 611..=620, ALL)
}

#[test]
fn all_in_sessions_with_time() -> Result<()> {
    let shape = Shape {
        max_items: 3,
        ..with_time()
    };
    check(shape, 621..=630, ALL_IN_SESSIONS)
}

#[test]
fn all_in_sessions_with_dropped_ids() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::Dropped,
        max_bytes: 1024,
        ..Shape::new(&["k"])
    };
    check(shape, 631..=640, ALL_IN_SESSIONS)
}

#[test]
fn sharded_with_time_and_stored_ids() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::Stored,
        max_items: 3,
        rename: vec![("quantity".to_owned(), "qty".to_owned())],
        ..with_time()
    };
    check_sharded(shape, 701..=710, SHARDED, RangesMove::AtAnyTime)
}

#[test]
fn sharded_with_time_and_ids_unique_in_key() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::UniqueInKey,
        max_items: 3,
        ..with_time()
    };
    check_sharded(shape, 741..=750, SHARDED, RangesMove::AtAnyTime)
}

#[test]
fn sharded_by_two_fields_with_dropped_ids() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::Dropped,
        max_items: 4,
        ..Shape::new(&["k", "region"])
    };
    check_sharded(shape, 711..=720, SHARDED, RangesMove::AtAnyTime)
}

#[test]
fn sharded_in_sessions_with_time() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::UniqueInKey,
        max_items: 3,
        ..with_time()
    };
    check_sharded(shape, 751..=760, SHARDED_IN_SESSIONS, RangesMove::BetweenOperations)
}

#[test]
fn sharded_in_sessions_with_dropped_ids() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::Dropped,
        max_bytes: 1024,
        ..Shape::new(&["k"])
    };
    check_sharded(shape, 731..=740, SHARDED_IN_SESSIONS, RangesMove::BetweenOperations)
}

fn with_change_streams() -> Shape {
    Shape {
        item_ids: ItemIds::UniqueInKey,
        max_items: 3,
        change_streams: true,
        ..with_time()
    }
}

#[test]
fn streams() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::Unique,
        ..with_change_streams()
    };
    // A stream of the cluster must not read collections of other tests, which may have no images.
    let alone = Cluster::start(2, 2)?;
    check_by(shape, 761..=770, STREAMS, |run| run.against(Deployment::from(&alone)))
}

#[test]
fn sharded_streams() -> Result<()> {
    let alone = Cluster::start(2, 2)?;
    check_by(with_change_streams(), 771..=780, SHARDED_STREAMS, |run| {
        run.against_moving(&alone, RangesMove::AtAnyTime)
    })
}

#[test]
fn sharded_streams_in_sessions() -> Result<()> {
    check_sharded(with_change_streams(), 781..=790, STREAMS, RangesMove::BetweenOperations)
}
