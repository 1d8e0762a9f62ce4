//! A model of `mongoshape convert` and of proxies with `mode = "auto"` beside it. All states are searched for
//! one in which a write is lost, a command is executed in the wrong layout, a read misses a write, or no
//! further run completes the conversion.
//!
//! Modelled are the UUIDs and names of collections, the freeze, the record, the change stream, the part of
//! the log that the majority has, a failover, a run that is killed, and renames that arrive late. Plain
//! documents are renamed before their last changes are applied, pages afterwards. The copy is renamed then.
//!
//! Most searches are without the comparison of documents: what the comparison would find is a fault here.
//! Each other part of the protocol is left out once. A model that finds no fault then would be of no use.
//!
//! The tests `model_finds_*` are about what the program does not do, or not yet. The other searches assume
//! three of these parts: [`Part::NewCopyForAnother`], [`Part::SentinelOfPages`] and [`Part::OwnRename`].
//!
//! Not modelled: late freezes and thaws and their fence (see the model of `compact`), a fence that cannot be
//! created, commands of several statements and their retry records, transactions, commands that cannot name a
//! UUID, unique indexes of the copy, two runs at once, late creations of the copy, and `--back`.

mod clients;
mod protocol;
mod run;
mod server;
mod system;

use clients::Operation::{self, Delete, Insert, Read, Update};
use clients::{STALE, WRONG_LAYOUT};
use proto_tests::measure::is_full;
use proto_tests::search::{Found, search};
use protocol::{Budget, Late, Lists, Part, Protocol};
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
        returns: 0,
    },
    lists: Lists::OneByOne,
    late: Late::Swap,
    lag: 0,
    without: &[Part::Comparison],
    only: &[],
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

/// A second conversion follows, back to the former layout.
const RETURNED: Protocol = Protocol {
    clients: [&[Update(0), Read], &[Insert(1)]],
    direct: None,
    budget: Budget {
        runs: 2,
        returns: 1,
        ..UNDISTURBED.budget
    },
    ..UNDISTURBED
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
fn fails(protocol: Protocol, without: &'static [Part], fault: &'static [&'static str]) {
    let protocol = protocol.without(without).only(fault);
    assert!(explore(&protocol).counterexample.is_some(), "{protocol:?}");
}

/// From pages.
const fn from_pages(protocol: Protocol) -> Protocol {
    Protocol {
        from: Layout::Pages,
        to: Layout::Plain,
        direct: None,
        ..protocol
    }
}

#[test]
fn model_in_each_direction_has_no_violation() {
    for protocol in [UNDISTURBED, REFUSED, KILLED] {
        holds(&protocol);
        holds(&from_pages(protocol));
    }
    // Between pages, a run that is refused includes the undisturbed one. Its clients have fewer operations.
    let is_full = is_full("MONGOSHAPE_CRASHES");
    let between_pages: &[Protocol] = if is_full { &[UNDISTURBED, REFUSED] } else { &[REFUSED] };
    for protocol in between_pages {
        holds(&Protocol {
            to: Layout::OtherPages,
            ..from_pages(*protocol)
        });
    }
    let clients = if is_full { UNDISTURBED.clients } else { REFUSED.clients };
    for direct in [Insert(1), Update(0)] {
        holds(&Protocol {
            clients,
            direct: Some(direct),
            ..UNDISTURBED
        });
    }
}

#[test]
fn model_of_killed_runs_has_no_violation() {
    // An ordinary run has one operation and one late command less.
    let is_full = is_full("MONGOSHAPE_CRASHES");
    let reads: &[Operation] = if is_full { &[Delete(0), Read] } else { &[Read] };
    holds(&Protocol {
        clients: [&[Update(0)], reads],
        ..KILLED
    });
    holds(&Protocol {
        budget: Budget {
            cuts: if is_full { 2 } else { 1 },
            ..KILLED_TWICE.budget
        },
        ..KILLED_TWICE
    });
    // The kept collection and the record stay.
    holds(&KILLED.without(&[Part::Comparison, Part::Finish]));
}

#[test]
fn model_of_two_conversions_has_no_violation() {
    for lists in [Lists::OneByOne, Lists::AtOnce] {
        let protocol = Protocol { lists, ..RETURNED };
        holds(&protocol);
        holds(&protocol.without(&[Part::Comparison, Part::Finish]));
        holds(&from_pages(protocol));
    }
}

#[test]
fn model_with_a_failover_has_no_violation() {
    holds(&FAILOVER);
    holds(&FAILOVER_WITH_A_CUT);
    holds(&FAILOVER_WITH_A_KILL);
}

#[test]
fn model_with_a_failover_from_pages_has_no_violation() {
    holds(&from_pages(FAILOVER));
    holds(&from_pages(FAILOVER_WITH_A_CUT));
    holds(&from_pages(FAILOVER_WITH_A_KILL));
}

#[test]
fn model_with_the_comparison_has_no_violation() {
    holds(&KILLED.without(&[]));
    holds(&from_pages(KILLED).without(&[]));
    holds(&FAILOVER_WITH_A_CUT.without(&[]));
}

/// A late write of the record may overwrite a later one.
const LATE_RECORDS: Protocol = Protocol {
    late: Late::SwapAndRecords,
    clients: [&[Update(0)], &[]],
    budget: Budget {
        runs: 3,
        ..KILLED.budget
    },
    ..KILLED
};

#[test]
fn model_with_late_records_has_no_violation() {
    // The former collection is kept: see `model_finds_late_records_after_the_end`.
    holds(&LATE_RECORDS.without(&[Part::Finish]));
    holds(&from_pages(LATE_RECORDS).without(&[Part::Finish]));
    holds(&LATE_RECORDS.without(&[]).only(&[LOST, STALE, WRONG_LAYOUT]));
}

#[test]
fn model_needs_the_recovery_whatever_the_record_says() {
    fails(LATE_RECORDS, &[Part::RecoverByUuid, Part::Finish], &[STUCK]);
}

/// The stream is continued before the rename of an earlier run, and returns that event.
#[test]
fn model_finds_the_event_of_an_earlier_rename() {
    let protocol = Protocol {
        budget: Budget {
            kills: 0,
            refusals: 1,
            ..LATE_RECORDS.budget
        },
        ..LATE_RECORDS
    };
    holds(&protocol.without(&[]).only(&[LOST, STALE, WRONG_LAYOUT]));
    fails(protocol, &[Part::OwnRename], &[LOST]);
}

#[test]
fn model_needs_the_uuid() {
    for fault in [&[LOST], &[WRONG_LAYOUT]] {
        fails(UNDISTURBED, &[Part::Uuid, Part::Comparison], fault);
    }
}

#[test]
fn model_needs_the_hold_of_commands() {
    for fault in [&[LOST], &[STALE]] {
        fails(UNDISTURBED, &[Part::Hold, Part::Comparison], fault);
    }
}

/// mongod lists first the collection, then the copy. In between, the copy may take the name.
#[test]
fn model_needs_a_second_list_where_names_are_listed_one_by_one() {
    let protocol = from_pages(UNDISTURBED);
    fails(protocol, &[Part::SecondList, Part::Comparison], &[WRONG_LAYOUT]);
    let at_once = Protocol {
        lists: Lists::AtOnce,
        ..protocol
    };
    holds(&at_once.without(&[Part::SecondList, Part::Comparison]));
}

/// A proxy that lists more slowly than a conversion copies sees two gaps, and no copy after each.
#[test]
fn model_needs_lists_that_are_quicker_than_a_conversion() {
    fails(RETURNED, &[Part::QuickLists, Part::Comparison], &[WRONG_LAYOUT]);
    let at_once = Protocol {
        lists: Lists::AtOnce,
        ..RETURNED
    };
    holds(&at_once.without(&[Part::QuickLists, Part::Comparison]));
}

/// A failover undoes the copy's rename between two lists. The second one sees the gap again, and the copy no
/// more.
#[test]
fn model_needs_a_list_that_takes_less_time_than_a_command() {
    fails(FAILOVER, &[Part::ShortLists, Part::Comparison], &[WRONG_LAYOUT]);
    let at_once = Protocol {
        lists: Lists::AtOnce,
        ..FAILOVER
    };
    holds(&at_once.without(&[Part::SecondList, Part::Comparison]));
}

#[test]
fn model_needs_the_event_of_the_rename() {
    fails(UNDISTURBED, &[Part::Sentinel, Part::Comparison], &[LOST]);
}

#[test]
fn model_needs_majority_reads() {
    // A write that is rolled back is copied.
    fails(FAILOVER, &[Part::MajorityRead, Part::Comparison], &[LOST]);
    // A new primary does not know yet that the majority has the change.
    fails(FAILOVER, &[Part::TimeOfEvent, Part::Comparison], &[LOST]);
    // The stream begins behind a write that the first read does not return.
    fails(FAILOVER, &[Part::TimeOfOpening, Part::Comparison], &[LOST]);
}

#[test]
fn model_needs_the_fences_of_late_renames() {
    fails(KILLED, &[Part::Placeholder, Part::Comparison], &[STUCK]);
    // Without a comparison, and with it.
    fails(KILLED, &[Part::DropOfCopy, Part::Comparison], &[LOST]);
    fails(KILLED, &[Part::DropOfCopy], &[LOST]);
}

/// The copy holds commands as long as no collection has the name.
#[test]
fn model_needs_the_name_before_the_copy_is_dropped() {
    fails(KILLED, &[Part::NameBeforeDrop, Part::Comparison], &[WRONG_LAYOUT]);
}

/// Proxies name the UUID, so writes need not be refused before the rename of plain documents. The freeze is
/// for programs that write directly: it ends them before the name is free. Pages are renamed after their last
/// change.
#[test]
fn model_needs_the_freeze_of_pages_without_the_event_of_their_rename() {
    let proxies = Protocol {
        direct: None,
        ..UNDISTURBED
    };
    holds(&proxies.without(&[Part::Freeze, Part::Comparison]));
    holds(&KILLED.without(&[Part::Freeze, Part::Comparison]));
    let without = &[Part::Freeze, Part::SentinelOfPages, Part::Comparison];
    fails(from_pages(UNDISTURBED), without, &[LOST]);
    holds(&from_pages(UNDISTURBED).without(&[Part::Freeze, Part::Comparison]));
}

/// A direct insert between the renames creates a collection.
#[test]
fn model_needs_the_end_of_direct_writers() {
    let protocol = Protocol {
        clients: [&[], &[]],
        direct: Some(Insert(1)),
        ..UNDISTURBED
    };
    fails(protocol, &[Part::EndOfDirectWriter, Part::Comparison], &[LOST]);
}

/// A failover between the last comparison and the copy's rename loses a write to the copy.
#[test]
fn model_needs_writes_to_the_copy_that_wait_for_the_majority() {
    fails(FAILOVER, &[Part::MajorityOfCopy], &[LOST]);
}

/// A run that finds a difference ends, and so does the next one.
#[test]
fn model_needs_a_new_copy_after_a_difference() {
    fails(FAILOVER, &[Part::MajorityOfCopy, Part::CopyAgain], &[STUCK]);
}

/// The name of the kept collection denotes the placeholder for readers at a time before the rename.
#[test]
fn model_needs_reads_of_the_uuid() {
    fails(FAILOVER_WITH_A_CUT, &[Part::ReadOfUuid, Part::Comparison], &[LOST]);
}

/// The copy's rename is seen, and rolled back afterwards.
#[test]
fn model_needs_a_second_look_after_the_rename_of_the_copy() {
    fails(FAILOVER_WITH_A_CUT, &[Part::SecondLook], &[STUCK]);
}

#[test]
fn model_needs_the_thaw_before_the_end() {
    fails(KILLED, &[Part::ThawBeforeDone, Part::Comparison], &[FROZEN]);
}

/// A write of a killed run arrives at the copy after the next run has compared the document.
#[test]
fn model_finds_late_writes_to_the_copy() {
    let protocol = Protocol {
        late: Late::SwapAndCopies,
        ..KILLED
    };
    fails(protocol, &[], &[LOST]);
}

/// A run is killed after it has created a copy, and before it has recorded it.
#[test]
fn model_finds_a_copy_that_is_not_recorded() {
    fails(KILLED, &[Part::NewCopyForAnother, Part::Comparison], &[STUCK]);
}

/// A new primary does not know yet that the majority has the last changes, and returns no event.
#[test]
fn model_finds_an_empty_stream_of_a_new_primary() {
    for without in [&[Part::SentinelOfPages][..], &[Part::SentinelOfPages, Part::Comparison]] {
        fails(from_pages(FAILOVER), without, &[LOST]);
    }
}

/// A drop that names no UUID arrives after the next run has made its copy.
#[test]
fn model_finds_late_drops_of_the_copy() {
    let protocol = Protocol {
        late: Late::SwapAndDrops,
        ..KILLED
    };
    fails(protocol, &[Part::Comparison], &[WRONG_LAYOUT]);
}

/// A late write makes a record again, or changes it, after the conversion has ended.
#[test]
fn model_finds_late_records_after_the_end() {
    fails(LATE_RECORDS, &[], &[STUCK]);
}
