//! The covering runs: each continues with the productions that earlier runs have not used.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use anyhow::Result;
use proto_tests::differential::operation::{ALL, ALL_IN_SESSIONS};
use proto_tests::differential::{Coverage, Run};
use proto_tests::{ItemIds, Shape, mongod};

use crate::{is_full, renamed, shapes_of_topology, with_time};

/// The shapes of the covering runs: each begins where the one before has left productions untaken.
fn covering_shapes() -> Vec<Shape> {
    let timed = || Shape {
        items_change: true,
        ..with_time(&["k"])
    };
    vec![
        timed(),
        Shape {
            max_items: 3,
            reject_direct_writes: true,
            ..timed()
        },
        Shape {
            item_ids: ItemIds::Stored,
            max_items: 4,
            ..renamed(timed())
        },
        Shape {
            max_bytes: 1024,
            ..timed()
        },
        Shape {
            items_change: true,
            max_items: 4,
            ..with_time(&["k", "region"])
        },
        Shape {
            item_ids: ItemIds::Dropped,
            max_items: 3,
            reject_direct_writes: true,
            ..renamed(timed())
        },
        Shape {
            is_clustered: true,
            max_items: 3,
            ..timed()
        },
        Shape {
            items_change: true,
            max_items: 3,
            reject_direct_writes: true,
            ..Shape::new(&["k"])
        },
    ]
}

/// Runs that hand on what they have covered, each of another shape. `MONGOSHAPE_DIFFERENTIAL=full` does 25,000
/// operations over 50 seeds on each topology, or the number in `MONGOSHAPE_RUNS`; `collect` does as many and
/// lists all disagreements.
fn covering_runs(in_sessions: bool) -> Vec<Run> {
    let first_seed = if in_sessions { 2001 } else { 1001 };
    let runs = std::env::var("MONGOSHAPE_RUNS").ok().and_then(|runs| runs.parse().ok());
    let runs = runs.unwrap_or(if is_full() { 50 } else { COVERING_RUNS });
    let shapes = shapes_of_topology(covering_shapes().into_iter().cycle(), in_sessions);
    let run = |(seed, shape): (u64, Shape)| Run {
        shape: Shape {
            change_streams: in_sessions && shape.item_ids == ItemIds::Unique,
            ..shape
        },
        outlier: None,
        seeds: vec![seed],
        operations: if is_full() { 500 } else { COVERING_OPERATIONS },
        moves: in_sessions,
        families: if in_sessions { ALL_IN_SESSIONS } else { ALL },
        coverage: Coverage::default(),
    };
    (first_seed..).zip(shapes).map(run).take(runs).collect()
}

#[expect(
    clippy::print_stderr,
    reason = "the test's own output, which the test runner captures"
)]
pub(crate) fn cover(upstream: &mongod::Mongod) -> Result<()> {
    let only: Option<u64> = std::env::var("MONGOSHAPE_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut coverage = covered_before(upstream.is_replica_set());
    let mut disagreements = 0;
    let mut access_paths = BTreeMap::new();
    for mut run in covering_runs(upstream.is_replica_set()) {
        if only.is_some_and(|only| !run.seeds.contains(&only)) {
            run.generate(run.seeds[0], &mut coverage);
            continue;
        }
        run.coverage = coverage;
        let report = run.against(upstream)?;
        eprintln!("{report}");
        disagreements += report.disagreements.len();
        for (path, count) in &report.access_paths {
            *access_paths.entry(*path).or_insert(0.0) += count;
        }
        coverage = report.coverage;
    }
    eprintln!("{coverage}");
    assert!(disagreements == 0, "{disagreements} disagreements");
    if only.is_none() {
        assert!(
            access_paths.values().all(|count| *count > 0.0),
            "an access path answered nothing: {access_paths:?}"
        );
    }
    Ok(())
}

const COVERING_RUNS: usize = 4;
const COVERING_OPERATIONS: u32 = 480;

/// What the covering runs generate, which depends on no server. Computed once, in some seconds.
pub(crate) fn generated() -> &'static Coverage {
    static GENERATED: OnceLock<Coverage> = OnceLock::new();
    GENERATED.get_or_init(generate)
}

fn generate() -> Coverage {
    let mut all = crate::merge::generated();
    all.add(&crate::one_key::generated());
    all.add(generated_on_a_standalone());
    all.add(&generated_by_runs(true));
    all
}

fn generated_by_runs(in_sessions: bool) -> Coverage {
    let mut coverage = covered_before(in_sessions);
    for run in covering_runs(in_sessions) {
        run.generate(run.seeds[0], &mut coverage);
    }
    coverage
}

fn generated_on_a_standalone() -> &'static Coverage {
    static GENERATED: OnceLock<Coverage> = OnceLock::new();
    GENERATED.get_or_init(|| generated_by_runs(false))
}

/// What a replica set need not repeat in an ordinary run, because a standalone has it.
fn covered_before(in_sessions: bool) -> Coverage {
    if in_sessions && !is_full() {
        generated_on_a_standalone().clone()
    } else {
        Coverage::default()
    }
}
