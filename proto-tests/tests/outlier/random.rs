//! Random operations on a plain collection and on an outlier collection. See [`proto_tests::differential`].
//!
//! An ordinary run uses the first seed, few operations and few conversions. `MONGOSHAPE_DIFFERENTIAL=full`
//! runs 10,000 operations over 20 seeds.

use anyhow::Result;
use proto_tests::differential::operation::{OUTLIERS, OUTLIERS_IN_SESSIONS};
use proto_tests::differential::{Coverage, Outcome, Report, Run};
use proto_tests::{Mongod, Outlier, Shape, mongod};

fn check(outlier: Outlier, seeds: impl IntoIterator<Item = u64>, upstream: &Mongod) -> Result<()> {
    judge(&run(outlier, seeds, upstream).against(upstream)?);
    Ok(())
}

fn is_full() -> bool {
    std::env::var("MONGOSHAPE_DIFFERENTIAL").is_ok_and(|measure| measure == "full" || measure == "collect")
}

fn run(outlier: Outlier, seeds: impl IntoIterator<Item = u64>, upstream: &Mongod) -> Run {
    let is_full = is_full();
    let in_sessions = upstream.is_replica_set();
    Run {
        shape: Shape {
            time: Some("date".to_owned()),
            ..Shape::new(&["k"])
        },
        outlier: Some(outlier),
        seeds: seeds.into_iter().take(if is_full { usize::MAX } else { 1 }).collect(),
        operations: if is_full { 500 } else { 150 },
        moves: in_sessions,
        families: if in_sessions { OUTLIERS_IN_SESSIONS } else { OUTLIERS },
        coverage: Coverage::default(),
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the test's own output, which the test runner captures"
)]
fn judge(report: &Report) {
    eprintln!("{report}");
    assert!(report.disagreements.is_empty(), "there are disagreements");
    if std::env::var_os("MONGOSHAPE_OPERATIONS").is_none() {
        assert!(
            report.of(Outcome::Done) * 3 > report.operations(),
            "few did anything: {report}"
        );
        assert!(report.refused_writes() < 150, "many writes were refused: {report}");
    }
}

#[test]
fn random_operations_with_a_small_threshold() -> Result<()> {
    check(Outlier::new("tags", (5, 7)), 501..=505, mongod::shared())
}

#[test]
fn random_operations_with_a_small_threshold_in_sessions() -> Result<()> {
    check(Outlier::new("tags", (5, 7)), 511..=515, mongod::shared_replica_set())
}

#[test]
fn random_operations_with_a_threshold_of_50() -> Result<()> {
    check(Outlier::new("tags", (50, 1000)), 521..=525, mongod::shared())
}

#[test]
fn random_operations_with_a_threshold_of_50_in_sessions() -> Result<()> {
    check(Outlier::new("tags", (50, 60)), 531..=535, mongod::shared_replica_set())
}

/// Conversions to plain documents and back: proxies split no document in between.
#[test]
fn random_operations_between_conversions() -> Result<()> {
    check_converted(541..=545, mongod::shared())
}

#[test]
fn random_operations_between_conversions_in_sessions() -> Result<()> {
    check_converted(551..=555, mongod::shared_replica_set())
}

fn check_converted(seeds: impl IntoIterator<Item = u64>, upstream: &Mongod) -> Result<()> {
    let run = run(Outlier::new("tags", (5, 7)), seeds, upstream);
    // To plain documents, back, and so on.
    let every = run.operations / if is_full() { 6 } else { 3 };
    judge(&run.against_converted(upstream, every)?);
    Ok(())
}
