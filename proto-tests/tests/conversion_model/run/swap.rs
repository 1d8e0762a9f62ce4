//! The swap of a run, its end, and what is done if it fails.

use super::{Answer, At, Ending, Run, Step, Then, apply, deliver, insist, keep, or, read};
use crate::protocol::{Part, Protocol};
use crate::server::{Cluster, Command, DOCUMENTS, Layout, Name, Phase};

pub(super) fn swapping(protocol: &Protocol, run: Run, cluster: &Cluster) -> Vec<Step> {
    match run.at {
        At::RecordSwapping | At::KeepPlace | At::Kept | At::Freeze | At::RecordFrozen => {
            freezing(protocol, run, cluster)
        }
        At::Drain | At::CompareTouched | At::Commit => exchanging(protocol, run, cluster),
        _ => moving(protocol, run, cluster),
    }
}

/// Writes are refused.
fn freezing(protocol: &Protocol, mut run: Run, cluster: &Cluster) -> Vec<Step> {
    let frozen = if run.is_from_plain(protocol) {
        At::MoveAway
    } else {
        At::RecordFrozen
    };
    match run.at {
        At::RecordSwapping => {
            let next = if protocol.has(Part::Placeholder) {
                At::KeepPlace
            } else {
                At::Kept
            };
            or(run.record(Phase::Swapping), next, At::GiveUp)
        }
        At::KeepPlace => {
            let (name, layout, is_place) = (Name::Kept, Layout::Plain, true);
            keep(Command::Create { name, layout, is_place }, At::Kept)
        }
        At::Kept => {
            run.place = cluster.now().place(Name::Kept);
            run.go(match run.place {
                None if protocol.has(Part::Placeholder) => At::ClearPlace,
                _ if protocol.has(Part::Freeze) => At::Freeze,
                _ => frozen,
            })
        }
        At::Freeze => {
            let command = Command::Freeze {
                name: Name::Main,
                uuid: run.source,
                is_frozen: true,
            };
            or(command, frozen, At::ClearPlace)
        }
        _ => or(run.record(Phase::Swapping), At::Drain, At::ClearPlace),
    }
}

/// The collection is renamed.
fn moving(protocol: &Protocol, run: Run, cluster: &Cluster) -> Vec<Step> {
    let moved = if run.is_from_plain(protocol) {
        At::Drain
    } else if protocol.has(Part::SentinelOfPages) {
        At::AwaitRename
    } else {
        At::Commit
    };
    match run.at {
        At::MoveAway => {
            let command = Command::Rename {
                from: Name::Main,
                uuid: run.source,
                to: Name::Kept,
                dropped: run.place,
            };
            let otherwise = if protocol.has(Part::Placeholder) {
                At::DropPlace
            } else {
                At::HasBegun
            };
            or(command, moved, otherwise)
        }
        At::DropPlace => {
            let (name, uuid) = (Name::Kept, run.place);
            insist(Command::Drop { name, uuid }, run.at, At::HasBegun)
        }
        At::AwaitRename if run.is_renamed => run.go(At::Commit),
        At::AwaitRename => {
            let steps = deliver(run, cluster);
            let may_come = !steps.is_empty() || cluster.has_tail() || cluster.is_behind();
            if run.pending.is_some() || !may_come {
                return run.go(At::ClearPlace);
            }
            steps
        }
        _ if cluster.now().is(Name::Kept, run.source) => run.go(moved),
        _ => run.go(At::ClearPlace),
    }
}

/// The last changes are applied, and the copy is renamed.
fn exchanging(protocol: &Protocol, run: Run, cluster: &Cluster) -> Vec<Step> {
    let now = cluster.now();
    let is_from_plain = run.is_from_plain(protocol);
    match run.at {
        At::Drain if is_from_plain => drain(protocol, run, cluster),
        At::Drain => drain_frozen(protocol, run, cluster),
        At::CompareTouched => {
            let copy = now.documents(Name::Copy);
            let name = if is_from_plain { Name::Kept } else { Name::Main };
            let is_equal = match read(protocol, &run, cluster, name) {
                Answer::Found(kept) => (0..DOCUMENTS).all(|at| !run.touched[at] || kept[at] == copy[at]),
                Answer::Pending => return Vec::new(),
                Answer::Refused => false,
            };
            run.go(match is_equal {
                true if is_from_plain => At::Commit,
                true => At::MoveAway,
                false => At::ClearPlace,
            })
        }
        _ => {
            let Some(uuid) = run.copy else {
                return run.go(At::ClearPlace);
            };
            let command = Command::Rename {
                from: Name::Copy,
                uuid,
                to: Name::Main,
                dropped: None,
            };
            or(command, At::IsReplaced, At::IsReplaced)
        }
    }
}

/// Up to the event of the rename.
fn drain(protocol: &Protocol, run: Run, cluster: &Cluster) -> Vec<Step> {
    if let Some(steps) = apply(protocol, run, cluster, Name::Kept) {
        return steps;
    }
    let mut steps = Vec::new();
    if run.is_renamed || !protocol.has(Part::Sentinel) {
        let next = if protocol.has(Part::Comparison) {
            At::CompareTouched
        } else {
            At::Commit
        };
        steps.extend(run.go(next));
    }
    if !run.is_renamed {
        steps.extend(deliver(run, cluster));
        let may_come = cluster.has_tail() || cluster.is_behind();
        if steps.is_empty() && !may_come {
            // It waits for a limited time.
            return run.go(At::ClearPlace);
        }
    }
    steps
}

/// Until the stream of a frozen collection is empty.
fn drain_frozen(protocol: &Protocol, run: Run, cluster: &Cluster) -> Vec<Step> {
    if let Some(steps) = apply(protocol, run, cluster, Name::Main) {
        return steps;
    }
    let steps = deliver(run, cluster);
    if !steps.is_empty() {
        return steps;
    }
    run.go(if protocol.has(Part::Comparison) {
        At::CompareTouched
    } else {
        At::MoveAway
    })
}

/// Whether the copy has the name, or had it before the new collection was replaced.
fn is_replaced(run: &Run, cluster: &Cluster) -> bool {
    let now = cluster.now();
    let was_replaced = now.main().is_some() && now.at(Name::Copy).is_none() && now.is(Name::Kept, run.source);
    was_replaced || run.copy.is_some_and(|copy| now.is(Name::Main, copy))
}

pub(super) fn completing(protocol: &Protocol, mut run: Run, cluster: &Cluster) -> Vec<Step> {
    let is_replaced = is_replaced(&run, cluster);
    let (thawed, recorded) = if protocol.has(Part::ThawBeforeDone) {
        (At::RecordDone, At::Finish)
    } else {
        (At::Finish, At::ThawKept)
    };
    match run.at {
        At::IsReplaced if is_replaced && protocol.has(Part::ThawBeforeDone) => run.go(At::ThawKept),
        At::IsReplaced if is_replaced => run.go(At::RecordDone),
        At::IsReplaced => {
            // After the copy is dropped, a late rename fails.
            run.is_dropping = protocol.has(Part::DropOfCopy);
            run.go(if run.is_dropping && !protocol.has(Part::NameBeforeDrop) {
                At::DropCopy
            } else {
                At::ClearPlace
            })
        }
        At::ThawKept => {
            let command = Command::Freeze {
                name: Name::Kept,
                uuid: run.source,
                is_frozen: false,
            };
            let then = Then {
                done: At::IsStillReplaced,
                refused: At::IsStillReplaced,
                silent: At::GiveUp,
                is_majority: true,
            };
            vec![Step::Send { command, then }]
        }
        // The rename that was seen may have been rolled back before the majority had the thaw.
        At::IsStillReplaced if !is_replaced && protocol.has(Part::SecondLook) => run.go(At::GiveUp),
        At::IsStillReplaced => run.go(thawed),
        At::RecordDone => or(run.record(Phase::Done), recorded, At::GiveUp),
        At::Finish if protocol.has(Part::Finish) => run.go(At::DropKept),
        At::Finish => run.go(At::Done),
        At::DropKept => {
            let (name, uuid) = (Name::Kept, Some(run.source));
            insist(Command::Drop { name, uuid }, run.at, At::DropRecord)
        }
        At::DropRecord => insist(Command::Write(None), run.at, At::Done),
        _ if cluster.now().main().is_none_or(|main| main.layout != run.to) => vec![Step::Go(Run::new(run.to))],
        _ => vec![Step::End(Ending::Converted)],
    }
}

pub(super) fn taking_back(protocol: &Protocol, run: Run, cluster: &Cluster) -> Vec<Step> {
    let now = cluster.now();
    let is_first = protocol.has(Part::NameBeforeDrop);
    let restored = if run.is_dropping && is_first {
        At::DropCopy
    } else {
        At::Thaw
    };
    match run.at {
        At::ClearPlace => match now.place(Name::Kept) {
            Some(uuid) => {
                let (name, uuid) = (Name::Kept, Some(uuid));
                insist(Command::Drop { name, uuid }, run.at, At::HasMoved)
            }
            None => run.go(At::HasMoved),
        },
        At::HasMoved if !now.is(Name::Kept, run.source) => run.go(restored),
        At::HasMoved if now.at(Name::Main).is_some() => run.go(At::GiveUp),
        At::HasMoved => run.go(At::GiveBack),
        At::GiveBack => {
            let command = Command::Rename {
                from: Name::Kept,
                uuid: run.source,
                to: Name::Main,
                dropped: None,
            };
            or(command, restored, At::GiveUp)
        }
        At::DropCopy => {
            let (name, uuid) = (Name::Copy, run.copy);
            insist(
                Command::Drop { name, uuid },
                run.at,
                if is_first { At::Thaw } else { At::ClearPlace },
            )
        }
        At::Thaw if now.main().is_none() => run.go(At::GiveUp),
        At::Thaw => {
            let command = Command::Freeze {
                name: Name::Main,
                uuid: run.source,
                is_frozen: false,
            };
            insist(command, run.at, At::RecordBack)
        }
        At::RecordBack => or(run.record(Phase::Copying), At::TakenBack, At::GiveUp),
        // A run that has recovered begins anew.
        At::TakenBack if run.is_recovering => vec![Step::Go(Run::new(run.to))],
        _ => vec![Step::End(Ending::Unfinished)],
    }
}
