//! A model of `mongoshape convert` and of proxies with `mode = "auto"` beside it. All states are searched for
//! one in which a write is lost, a command is executed in the wrong layout, a read misses a write, or no
//! further run completes the conversion.
//!
//! Modelled are the UUIDs and names of collections, the freeze, the record, the change stream, the part of
//! the log that the majority has, a failover, a run that is killed, and renames that arrive late. In every
//! direction the collection is renamed before its last changes are applied, and its copy is renamed then.
//!
//! Most searches are without the comparison of documents: what the comparison would find is a fault here.
//! Each other part of the protocol is left out once. A model that finds no fault then would be of no use.
//!
//! Not modelled: late freezes and thaws and their fence (see the model of `compact`), commands of several
//! statements and their retry records, transactions, commands that cannot name a UUID, unique indexes of the
//! copy, two runs at once, late writes of the record, and `--back`.

mod clients;
mod protocol;
mod run;
mod server;
mod system;

use clients::Operation::{Delete, Insert, Read, Update};
use clients::{STALE, WRONG_LAYOUT};
use proto_tests::search::{Found, search};
use protocol::{Budget, CopyFence, Late, Part, Protocol};
use server::Layout;
use system::{FROZEN, LOST, STUCK};

const MAX_STATES: usize = 3_000_000;

/// One run that nothing disturbs.
const UNDISTURBED: Protocol = Protocol {
    from: Layout::Plain,
    to: Layout::Pages,
    clients: [&[Update(0), Delete(0)], &[Insert(1), Read]],
    direct: Some(Delete(0)),
    budget: Budget {
        runs: 1,
        kills: 0,
        cuts: 0,
        refusals: 0,
        failovers: 0,
    },
    fence: CopyFence::DropOfCopy,
    late: Late::Swap,
    lag: 0,
    without: &[Part::Comparison],
    only: None,
};

/// A run gives up its swap.
const REFUSED: Protocol = Protocol {
    clients: [&[Update(0)], &[Insert(1), Read]],
    budget: Budget {
        runs: 2,
        refusals: 1,
        ..UNDISTURBED.budget
    },
    ..UNDISTURBED
};

/// A run is killed, and a command of the swap arrives late.
const KILLED: Protocol = Protocol {
    clients: [&[Update(0)], &[Delete(0)]],
    direct: None,
    budget: Budget {
        runs: 2,
        kills: 1,
        cuts: 1,
        ..UNDISTURBED.budget
    },
    ..UNDISTURBED
};

/// Two runs are killed, and two commands arrive late.
const KILLED_TWICE: Protocol = Protocol {
    clients: [&[Update(0)], &[]],
    budget: Budget {
        runs: 3,
        kills: 2,
        cuts: 2,
        ..UNDISTURBED.budget
    },
    ..KILLED
};

/// Another member becomes primary, and what the majority does not have is lost.
const FAILOVER: Protocol = Protocol {
    clients: [&[Update(0)], &[Insert(1)]],
    direct: None,
    budget: Budget {
        runs: 2,
        failovers: 1,
        ..UNDISTURBED.budget
    },
    lag: 2,
    ..UNDISTURBED
};

/// The same, with a command that has no reply.
const FAILOVER_WITH_A_CUT: Protocol = Protocol {
    clients: [&[Update(0)], &[]],
    budget: Budget {
        cuts: 1,
        ..FAILOVER.budget
    },
    ..FAILOVER
};

/// The same, with a run that is killed.
const FAILOVER_WITH_A_KILL: Protocol = Protocol {
    clients: [&[Update(0)], &[]],
    budget: Budget {
        kills: 1,
        ..FAILOVER.budget
    },
    ..FAILOVER
};

#[expect(
    clippy::print_stderr,
    reason = "the test's own output, which the test runner captures"
)]
fn explore(protocol: &Protocol) -> Found {
    let begun = std::time::Instant::now();
    let found = search(protocol, MAX_STATES);
    eprintln!(
        "{} states in {:?}: {:#?}",
        found.states,
        begun.elapsed(),
        found.counterexample
    );
    found
}

fn holds(protocol: &Protocol) {
    assert_eq!(explore(protocol).counterexample, None, "{protocol:?}");
}

/// The search finds this fault.
fn fails(protocol: Protocol, without: &'static [Part], fault: &'static str) {
    let protocol = protocol.without(without).only(fault);
    assert!(explore(&protocol).counterexample.is_some(), "{protocol:?}");
}

#[test]
fn model_in_each_direction_has_no_violation() {
    for (from, to) in [
        (Layout::Plain, Layout::Pages),
        (Layout::Pages, Layout::Plain),
        (Layout::Pages, Layout::OtherPages),
    ] {
        let direct = UNDISTURBED.direct.filter(|_| from == Layout::Plain);
        for protocol in [UNDISTURBED, REFUSED, KILLED] {
            let direct = direct.filter(|_| protocol.direct.is_some());
            holds(&Protocol {
                from,
                to,
                direct,
                ..protocol
            });
        }
    }
    for direct in [Insert(1), Update(0)] {
        holds(&Protocol {
            direct: Some(direct),
            ..UNDISTURBED
        });
    }
}

#[test]
fn model_of_killed_runs_has_no_violation() {
    holds(&Protocol {
        clients: [&[Update(0)], &[Delete(0), Read]],
        ..KILLED
    });
    holds(&KILLED_TWICE);
    // The kept collection and the record stay.
    holds(&KILLED.without(&[Part::Comparison, Part::Finish]));
}

/// The copy is kept, and a placeholder makes its late rename fail.
#[test]
fn model_with_a_placeholder_for_the_copy_has_no_violation() {
    for protocol in [REFUSED, KILLED, FAILOVER_WITH_A_CUT] {
        holds(&Protocol {
            fence: CopyFence::Placeholder,
            ..protocol
        });
    }
}

#[test]
fn model_with_a_failover_has_no_violation() {
    holds(&FAILOVER);
    holds(&FAILOVER_WITH_A_CUT);
    holds(&FAILOVER_WITH_A_KILL);
}

#[test]
fn model_with_the_comparison_has_no_violation() {
    holds(&KILLED.without(&[]));
    holds(&FAILOVER_WITH_A_CUT.without(&[]));
}

#[test]
fn model_needs_the_uuid() {
    for fault in [LOST, WRONG_LAYOUT] {
        fails(UNDISTURBED, &[Part::Uuid, Part::Comparison], fault);
    }
}

#[test]
fn model_needs_the_hold_of_commands() {
    for fault in [LOST, STALE] {
        fails(UNDISTURBED, &[Part::Hold, Part::Comparison], fault);
    }
}

#[test]
fn model_needs_a_second_list() {
    let protocol = Protocol {
        from: Layout::Pages,
        to: Layout::Plain,
        direct: None,
        ..UNDISTURBED
    };
    fails(protocol, &[Part::SecondList, Part::Comparison], WRONG_LAYOUT);
}

#[test]
fn model_needs_the_event_of_the_rename() {
    fails(UNDISTURBED, &[Part::Sentinel, Part::Comparison], LOST);
}

#[test]
fn model_needs_majority_reads() {
    // A write that is rolled back is copied.
    fails(FAILOVER, &[Part::MajorityRead, Part::Comparison], LOST);
    // A new primary does not know yet that the majority has the change.
    fails(FAILOVER, &[Part::TimeOfEvent, Part::Comparison], LOST);
    // The stream begins behind a write that the first read does not return.
    fails(FAILOVER, &[Part::TimeOfScan, Part::Comparison], LOST);
}

#[test]
fn model_needs_the_fences_of_late_renames() {
    fails(KILLED, &[Part::Placeholder, Part::Comparison], STUCK);
    // Without a comparison, and with it.
    let unfenced = Protocol {
        fence: CopyFence::Nothing,
        ..KILLED
    };
    fails(unfenced, &[Part::Comparison], LOST);
    fails(unfenced, &[], LOST);
}

/// Proxies name the UUID, so writes need not be refused before the rename. The freeze is for programs that
/// write directly: it ends them before the name is free.
#[test]
fn model_needs_no_freeze_where_all_writers_use_proxies() {
    let proxies = Protocol {
        direct: None,
        ..UNDISTURBED
    };
    holds(&proxies.without(&[Part::Freeze, Part::Comparison]));
    holds(&KILLED.without(&[Part::Freeze, Part::Comparison]));
}

/// A direct insert between the renames creates a collection.
#[test]
fn model_needs_the_end_of_direct_writers() {
    let protocol = Protocol {
        clients: [&[], &[]],
        direct: Some(Insert(1)),
        ..UNDISTURBED
    };
    fails(protocol, &[Part::EndOfDirectWriter, Part::Comparison], LOST);
}

/// A failover between the last comparison and the copy's rename loses a write to the copy. A run that finds a
/// difference ends, and so does the next one.
#[test]
fn model_needs_writes_to_the_copy_that_wait_for_the_majority() {
    for fault in [LOST, STUCK] {
        fails(FAILOVER, &[Part::MajorityOfCopy], fault);
    }
}

/// The name of the kept collection denotes the placeholder for readers at a time before the rename.
#[test]
fn model_needs_reads_of_the_uuid() {
    fails(FAILOVER_WITH_A_CUT, &[Part::ReadOfUuid, Part::Comparison], LOST);
    holds(&FAILOVER_WITH_A_CUT.without(&[Part::ReadOfUuid]));
}

/// The copy's rename is seen, and rolled back afterwards.
#[test]
fn model_needs_a_second_look_after_the_rename_of_the_copy() {
    fails(FAILOVER_WITH_A_CUT, &[Part::SecondLook], STUCK);
}

#[test]
fn model_needs_the_thaw_before_the_end() {
    fails(KILLED, &[Part::ThawBeforeDone, Part::Comparison], FROZEN);
}

/// A proxy that lists slowly sees two gaps, and no record between them.
#[test]
fn model_needs_a_record_from_one_swap_to_the_next() {
    fails(KILLED, &[Part::KeptRecord, Part::Comparison], WRONG_LAYOUT);
}

/// A write of a killed run arrives at the copy after the next run has compared the document.
#[test]
fn model_finds_late_writes_to_the_copy() {
    let protocol = Protocol {
        late: Late::SwapAndCopies,
        ..KILLED
    };
    fails(protocol, &[], LOST);
}
