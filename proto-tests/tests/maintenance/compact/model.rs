//! A model of `compact`, `setup --pack` and their fences, and of writers beside them, all of whose states are
//! searched for one in which something is lost, done twice, missing or frozen for ever. What was once sent
//! may arrive late, twice or never.
//!
//! The protocols as they were are searched as well: a model in which what was wrong with them cannot be found
//! is of no use.
//!
//! `MONGOSHAPE_CRASHES=full` searches more states.

mod compact;
mod pack;
mod server;
mod system;
mod unfenced;
mod writers;

use compact::Compact;
use pack::Pack;
use proto_tests::measure::is_full;
use proto_tests::search::{Found, search};
use system::{Budget, FROZEN, LOST, MISSING, Protocol, System};
use unfenced::{CompactBefore, PackBefore};
use writers::{Decision, Kind, Writers};

const MAX_STATES: usize = 3_000_000;

#[expect(
    clippy::print_stderr,
    reason = "the test's own output, which the test runner captures"
)]
fn explore<P: Protocol>(protocol: P, budget: Budget, only: Option<&'static str>) -> Found {
    let begun = std::time::Instant::now();
    let system = System { protocol, budget, only };
    let found = search(&system, MAX_STATES);
    eprintln!(
        "{} states in {:?}: {:#?}",
        found.states,
        begun.elapsed(),
        found.counterexample
    );
    found
}

/// One run after the other: the first may be killed, and so much be late.
const IN_TURN: Budget = Budget {
    runs: 2,
    at_once: 1,
    cuts: 2,
    kills: 1,
    stops: 1,
    twice: 1,
    writes: 2,
};

/// Two at once, which do not know of each other.
const AT_ONCE: Budget = Budget {
    runs: 2,
    at_once: 2,
    cuts: 1,
    kills: 1,
    stops: 0,
    twice: 0,
    writes: 1,
};

/// Three, of which each takes over from the one before.
const THREE: Budget = Budget {
    runs: 3,
    at_once: 1,
    cuts: 2,
    kills: 2,
    stops: 0,
    twice: 0,
    writes: 1,
};

/// An ordinary run delays one command of two runs in turn instead of two. Those of [`THREE`] may delay two.
fn budgets() -> [Budget; 3] {
    let in_turn = if is_full("MONGOSHAPE_CRASHES") {
        IN_TURN
    } else {
        Budget { cuts: 1, ..IN_TURN }
    };
    [in_turn, AT_ONCE, THREE]
}

#[test]
fn model_of_compact_has_no_violation() {
    for budget in budgets() {
        assert_eq!(explore(Compact, budget, None).counterexample, None);
    }
}

#[test]
fn model_of_pack_has_no_violation() {
    for budget in budgets() {
        assert_eq!(explore(Pack, budget, None).counterexample, None);
    }
}

#[test]
fn model_finds_the_former_bug_in_compact() {
    // Point 23 of issue 20: a late renaming.
    for fault in [LOST, FROZEN] {
        let found = explore(CompactBefore, IN_TURN, Some(fault));
        assert!(found.counterexample.is_some(), "{fault}");
    }
}

#[test]
fn model_finds_the_former_bug_in_pack() {
    for fault in [FROZEN, MISSING] {
        let found = explore(PackBefore, IN_TURN, Some(fault));
        assert!(found.counterexample.is_some(), "{fault}");
    }
}

/// Every kind of command, of which mongod remembers what it has done, or does not.
fn writers(decision: Decision) -> impl Iterator<Item = Writers> {
    let kinds = [Kind::Update, Kind::Delete, Kind::Insert];
    kinds.into_iter().flat_map(move |kind| {
        [false, true].map(|is_retryable| Writers {
            kind,
            decision,
            is_retryable,
        })
    })
}

#[test]
fn model_of_writers_with_retry_records_has_no_violation() {
    for writers in writers(Decision::ByFact) {
        let found = search(&writers, MAX_STATES);
        assert_eq!(found.counterexample, None, "{:?}", writers.kind);
    }
}

#[test]
fn model_finds_the_bug_in_writers_that_rely_on_a_count() {
    // Point 21 of issue 20: a freeze between two parts of an update, or of a deletion.
    for writers in writers(Decision::ByCount).filter(|writers| !writers.is_retryable) {
        let found = search(&writers, MAX_STATES);
        assert!(found.counterexample.is_some(), "{:?}", writers.kind);
    }
}
