//! Random operations on a plain and on a shaped collection, one shape per test. See
//! [`proto_tests::differential`].

mod covering;
mod indexes;
mod merge;
mod one_key;
mod streams;

use anyhow::Result;
use proto_tests::differential::operation::{ALL, ALL_IN_SESSIONS, FAMILIES, READS, WRITES};
use proto_tests::differential::{Coverage, Outcome, Report, Run};
use proto_tests::{ItemIds, Mongod, Shape, mongod};

use covering::{cover, generated};

const OPERATIONS: u32 = 250;

#[expect(
    clippy::print_stderr,
    reason = "the test's own output, which the test runner captures"
)]
fn report_of(run: &Run) -> Result<Report> {
    let report = run.against(mongod::shared())?;
    eprintln!("{report}");
    assert!(report.disagreements.is_empty(), "there are disagreements");
    Ok(report)
}

/// Runs the seeds, and makes sure that they did something.
fn check(shape: Shape, seeds: impl IntoIterator<Item = u64>) -> Result<()> {
    let run = Run {
        shape,
        outlier: None,
        seeds: seeds.into_iter().take(if is_full() { usize::MAX } else { 1 }).collect(),
        operations: OPERATIONS,
        moves: false,
        families: FAMILIES,
        coverage: Coverage::default(),
    };
    let report = report_of(&run)?;
    if std::env::var_os("MONGOSHAPE_OPERATIONS").is_none() {
        assert!(
            report.of(Outcome::Done) * 10 > report.operations() * 4,
            "few did anything: {report}"
        );
        assert!(
            report.of(Outcome::Refused) * 5 < report.operations(),
            "many were refused: {report}"
        );
    }
    Ok(())
}

fn with_time(key: &[&str]) -> Shape {
    Shape {
        time: Some("date".to_owned()),
        ..Shape::new(key)
    }
}

fn renamed(shape: Shape) -> Shape {
    Shape {
        rename: vec![("quantity".to_owned(), "qty".to_owned())],
        ..shape
    }
}

/// Two key fields, a renamed field, and pages of three items.
fn small_pages_of_two_key_fields() -> Shape {
    Shape {
        max_items: 3,
        ..renamed(with_time(&["k", "region"]))
    }
}

#[test]
fn unique_ids_with_time_and_rename() -> Result<()> {
    check(renamed(with_time(&["k"])), 1..=2)
}

#[test]
fn unique_ids_on_small_pages() -> Result<()> {
    check(
        Shape {
            max_items: 3,
            reject_direct_writes: true,
            ..with_time(&["k"])
        },
        11..=12,
    )
}

#[test]
fn unique_ids_without_time() -> Result<()> {
    check(Shape::new(&["k"]), 21..=22)
}

#[test]
fn a_key_of_two_fields() -> Result<()> {
    check(small_pages_of_two_key_fields(), 31..=32)
}

#[test]
fn pages_that_close_short() -> Result<()> {
    check(
        Shape {
            max_bytes: 1024,
            ..with_time(&["k"])
        },
        41..=42,
    )
}

#[test]
fn stored_ids() -> Result<()> {
    check(
        Shape {
            item_ids: ItemIds::Stored,
            ..with_time(&["k"])
        },
        51..=52,
    )
}

#[test]
fn ids_unique_in_key() -> Result<()> {
    check(
        Shape {
            item_ids: ItemIds::UniqueInKey,
            max_items: 4,
            ..with_time(&["k"])
        },
        53..=54,
    )
}

#[test]
fn dropped_ids() -> Result<()> {
    check(
        Shape {
            item_ids: ItemIds::Dropped,
            max_items: 3,
            ..renamed(with_time(&["k"]))
        },
        61..=62,
    )
}

#[test]
fn dropped_ids_without_time_that_close_short() -> Result<()> {
    check(
        Shape {
            item_ids: ItemIds::Dropped,
            max_bytes: 1024,
            reject_direct_writes: true,
            ..Shape::new(&["k"])
        },
        71..=72,
    )
}

/// Mostly reads. An ordinary run takes the first of the seeds; `MONGOSHAPE_DIFFERENTIAL=full` all: 12,000
/// operations over 24 seeds.
#[expect(
    clippy::print_stderr,
    reason = "the test's own output, which the test runner captures"
)]
fn check_reads(shape: Shape, seeds: impl IntoIterator<Item = u64>) -> Result<()> {
    let run = Run {
        shape,
        outlier: None,
        seeds: seeds.into_iter().take(if is_full() { usize::MAX } else { 1 }).collect(),
        operations: if is_full() { 2 * OPERATIONS } else { OPERATIONS },
        moves: false,
        families: READS,
        coverage: Coverage::default(),
    };
    let report = run.against(mongod::shared())?;
    eprintln!("{report}");
    assert!(report.disagreements.is_empty(), "there are disagreements");
    Ok(())
}

/// The shapes for one topology: all with `MONGOSHAPE_DIFFERENTIAL=full`. In an ordinary run a standalone has every
/// other shape, and a replica set the rest.
fn shapes_of_topology<T>(shapes: impl Iterator<Item = T>, in_sessions: bool) -> impl Iterator<Item = T> {
    let (first, step) = if is_full() {
        (0, 1)
    } else {
        (usize::from(in_sessions), 2)
    };
    shapes.skip(first).step_by(step)
}

fn is_full() -> bool {
    std::env::var("MONGOSHAPE_DIFFERENTIAL").is_ok_and(|measure| measure == "full" || measure == "collect")
}

#[test]
fn reads_by_time() -> Result<()> {
    check_reads(renamed(with_time(&["k"])), 201..=206)
}

#[test]
fn reads_of_small_pages_by_time() -> Result<()> {
    let shape = with_time(&["k"]);
    check_reads(Shape { max_items: 3, ..shape }, 211..=216)
}

#[test]
fn reads_of_pages_that_close_short() -> Result<()> {
    let shape = with_time(&["k"]);
    check_reads(
        Shape {
            max_bytes: 1024,
            ..shape
        },
        221..=226,
    )
}

#[test]
fn reads_of_two_key_fields_and_stored_ids() -> Result<()> {
    check_reads(
        Shape {
            item_ids: ItemIds::Stored,
            max_items: 4,
            ..with_time(&["k", "region"])
        },
        231..=236,
    )
}

/// Inserts, many of them retryable and sent more than once, and transactions. An ordinary run takes the first
/// of the seeds; `MONGOSHAPE_DIFFERENTIAL=full` all: 5,000 operations over 20 seeds.
#[expect(
    clippy::print_stderr,
    reason = "the test's own output, which the test runner captures"
)]
fn check_writes(shape: Shape, seeds: impl IntoIterator<Item = u64>) -> Result<()> {
    let run = Run {
        shape,
        outlier: None,
        seeds: seeds.into_iter().take(if is_full() { usize::MAX } else { 1 }).collect(),
        operations: OPERATIONS,
        moves: false,
        families: WRITES,
        coverage: Coverage::default(),
    };
    let report = run.against(mongod::shared_replica_set())?;
    eprintln!("{report}");
    assert!(report.disagreements.is_empty(), "there are disagreements");
    if std::env::var_os("MONGOSHAPE_OPERATIONS").is_none() {
        assert!(
            report.of(Outcome::Done) * 10 > report.operations() * 2,
            "few did anything: {report}"
        );
    }
    Ok(())
}

#[test]
fn writes_with_unique_ids() -> Result<()> {
    check_writes(renamed(with_time(&["k"])), 101..=104)
}

#[test]
fn writes_with_unique_ids_on_small_pages() -> Result<()> {
    let shape = with_time(&["k"]);
    check_writes(Shape { max_items: 3, ..shape }, 111..=114)
}

#[test]
fn writes_on_pages_that_close_short() -> Result<()> {
    let shape = Shape::new(&["k"]);
    check_writes(
        Shape {
            max_bytes: 1024,
            ..shape
        },
        121..=124,
    )
}

#[test]
fn writes_with_a_key_of_two_fields_and_stored_ids() -> Result<()> {
    check_writes(
        Shape {
            item_ids: ItemIds::Stored,
            reject_direct_writes: true,
            ..with_time(&["k", "region"])
        },
        131..=134,
    )
}

#[test]
fn writes_with_dropped_ids() -> Result<()> {
    check_writes(
        Shape {
            item_ids: ItemIds::Dropped,
            max_items: 3,
            ..Shape::new(&["k"])
        },
        141..=144,
    )
}

/// How many of a thousand writes may be refused. Over all seeds it is 70, and 100 in the one of the tests
/// that has most: two in three of them are inserts with an item that has no key, or a `findAndModify` with an
/// expression in its projection. Of the few writes of an ordinary run it is 166 in one.
fn most_refused_writes() -> u32 {
    if is_full() { 120 } else { 200 }
}

/// All operations, on a standalone or a replica set. An ordinary run takes the first of the seeds, and few
/// operations; `MONGOSHAPE_DIFFERENTIAL=full` all: 20,000 operations over 40 seeds.
#[expect(
    clippy::print_stderr,
    reason = "the test's own output, which the test runner captures"
)]
fn check_all(shape: Shape, seeds: impl IntoIterator<Item = u64>, upstream: &mongod::Mongod, moves: bool) -> Result<()> {
    let run = Run {
        shape: Shape {
            items_change: true,
            ..shape
        },
        outlier: None,
        seeds: seeds.into_iter().take(if is_full() { usize::MAX } else { 1 }).collect(),
        operations: if is_full() { 500 } else { 80 },
        moves,
        families: if moves { ALL_IN_SESSIONS } else { ALL },
        coverage: Coverage::default(),
    };
    let report = run.against(upstream)?;
    eprintln!("{report}");
    assert!(report.disagreements.is_empty(), "there are disagreements");
    if std::env::var_os("MONGOSHAPE_OPERATIONS").is_none() {
        assert!(
            report.of(Outcome::Done) * 10 > report.operations() * 3,
            "few did anything: {report}"
        );
        assert!(
            report.refused_writes() < most_refused_writes(),
            "many writes were refused: {report}"
        );
    }
    Ok(())
}

#[test]
fn all_with_time_and_rename() -> Result<()> {
    let shape = renamed(with_time(&["k"]));
    check_all(shape, 301..=304, mongod::shared(), false)
}

#[test]
fn all_on_small_pages() -> Result<()> {
    let shape = Shape {
        max_items: 3,
        ..with_time(&["k"])
    };
    check_all(shape, 311..=314, mongod::shared(), false)
}

#[test]
fn all_on_pages_that_close_short() -> Result<()> {
    let shape = Shape {
        max_bytes: 1024,
        ..Shape::new(&["k"])
    };
    check_all(shape, 321..=324, mongod::shared(), false)
}

#[test]
fn all_of_two_key_fields_and_stored_ids() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::Stored,
        max_items: 4,
        ..renamed(with_time(&["k", "region"]))
    };
    check_all(shape, 331..=334, mongod::shared(), false)
}

#[test]
fn all_of_dropped_ids() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::Dropped,
        max_items: 3,
        ..renamed(with_time(&["k"]))
    };
    check_all(shape, 341..=344, mongod::shared(), false)
}

#[test]
fn all_in_sessions_with_time_and_rename() -> Result<()> {
    let shape = renamed(with_time(&["k"]));
    check_all(shape, 351..=354, mongod::shared_replica_set(), true)
}

#[test]
fn all_in_sessions_on_small_pages() -> Result<()> {
    let shape = Shape {
        max_items: 3,
        ..with_time(&["k"])
    };
    check_all(shape, 361..=364, mongod::shared_replica_set(), true)
}

#[test]
fn all_in_sessions_on_pages_that_close_short() -> Result<()> {
    let shape = Shape {
        max_bytes: 1024,
        ..Shape::new(&["k"])
    };
    check_all(shape, 371..=374, mongod::shared_replica_set(), true)
}

#[test]
fn all_in_sessions_of_two_key_fields_and_stored_ids() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::Stored,
        max_items: 4,
        ..renamed(with_time(&["k", "region"]))
    };
    check_all(shape, 381..=384, mongod::shared_replica_set(), true)
}

#[test]
fn all_of_a_clustered_collection() -> Result<()> {
    let shape = Shape {
        max_items: 3,
        is_clustered: true,
        ..renamed(with_time(&["k"]))
    };
    check_all(shape, 401..=404, mongod::shared(), false)
}

#[test]
fn all_in_sessions_of_a_clustered_collection() -> Result<()> {
    let shape = Shape {
        max_items: 4,
        is_clustered: true,
        ..with_time(&["k", "region"])
    };
    check_all(shape, 411..=411, mongod::shared_replica_set(), true)
}

#[test]
fn all_in_sessions_of_dropped_ids() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::Dropped,
        max_items: 3,
        ..renamed(with_time(&["k"]))
    };
    check_all(shape, 391..=394, mongod::shared_replica_set(), true)
}

#[test]
fn covering() -> Result<()> {
    cover(mongod::shared())
}

#[test]
fn covering_in_sessions() -> Result<()> {
    // A stream of the cluster must not read collections of other tests, which may have no images.
    cover(&Mongod::replica_set(1)?)
}

#[test]
#[expect(
    clippy::print_stderr,
    reason = "the test's own output, which the test runner captures"
)]
fn every_production_is_covered() {
    let coverage = generated();
    eprintln!("{coverage}");
    let uncovered = coverage.uncovered(|_| true);
    assert!(uncovered.is_empty(), "never generated: {uncovered:#?}");
}

#[test]
fn every_mongodb_feature_is_generated_or_excluded_with_a_reason() {
    let missing = proto_tests::differential::mongodb::not_generated(generated());
    assert!(missing.is_empty(), "neither generated nor excluded: {missing:?}");
}
