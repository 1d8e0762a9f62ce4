//! The swap of a run, its end, and what is done if it fails.

use super::{Answer, At, Ending, Run, Step, Then, apply, deliver, insist, keep, or, read};
use crate::protocol::{CopyFence, Part, Protocol};
use crate::server::{Cluster, Command, DOCUMENTS, Layout, Name, Phase, SOURCE};

pub(super) fn swapping(protocol: &Protocol, run: Run, cluster: &Cluster) -> Vec<Step> {
    match run.at {
        At::RecordSwapping | At::KeepPlace | At::Kept | At::Freeze => freezing(protocol, run, cluster),
        At::Drain | At::CompareTouched | At::Commit => exchanging(protocol, run, cluster),
        _ => moving(protocol, run, cluster),
    }
}

/// Writes are refused.
fn freezing(protocol: &Protocol, mut run: Run, cluster: &Cluster) -> Vec<Step> {
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
                _ => At::MoveAway,
            })
        }
        _ => {
            let command = Command::Freeze {
                name: Name::Main,
                uuid: SOURCE,
                is_frozen: true,
            };
            or(command, At::MoveAway, At::ClearPlace)
        }
    }
}

/// The collection is renamed.
fn moving(protocol: &Protocol, mut run: Run, cluster: &Cluster) -> Vec<Step> {
    let now = cluster.now();
    let moved = match protocol.fence {
        CopyFence::Placeholder => At::KeepTarget,
        CopyFence::DropOfCopy | CopyFence::Nothing => At::Drain,
    };
    match run.at {
        At::MoveAway => {
            let command = Command::Rename {
                from: Name::Main,
                uuid: SOURCE,
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
        At::HasBegun if now.is(Name::Kept, SOURCE) => run.go(moved),
        At::HasBegun => run.go(At::ClearPlace),
        At::KeepTarget => {
            let (name, layout, is_place) = (Name::Main, Layout::Plain, true);
            keep(Command::Create { name, layout, is_place }, At::KeptTarget)
        }
        _ => {
            run.target = now.place(Name::Main);
            run.go(if run.target.is_some() {
                At::Drain
            } else {
                At::ClearPlace
            })
        }
    }
}

/// The last changes are applied, and the copy is renamed.
fn exchanging(protocol: &Protocol, run: Run, cluster: &Cluster) -> Vec<Step> {
    let now = cluster.now();
    match run.at {
        At::Drain => drain(protocol, run, cluster),
        At::CompareTouched => {
            let copy = now.documents(Name::Copy);
            let is_equal = match read(protocol, cluster, Name::Kept, Part::TimeOfEvent) {
                Answer::Found(kept) => (0..DOCUMENTS).all(|at| !run.touched[at] || kept[at] == copy[at]),
                Answer::Pending => return Vec::new(),
                Answer::Refused => false,
            };
            run.go(if is_equal { At::Commit } else { At::ClearPlace })
        }
        _ => {
            let Some(uuid) = run.copy else {
                return run.go(At::ClearPlace);
            };
            let command = Command::Rename {
                from: Name::Copy,
                uuid,
                to: Name::Main,
                dropped: run.target,
            };
            or(command, At::IsReplaced, At::IsReplaced)
        }
    }
}

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

pub(super) fn completing(protocol: &Protocol, mut run: Run, cluster: &Cluster) -> Vec<Step> {
    let is_replaced = run.copy.is_some_and(|copy| cluster.now().is(Name::Main, copy));
    match run.at {
        At::IsReplaced | At::IsReplacedAfterDrop if is_replaced => run.go(if protocol.has(Part::ThawBeforeDone) {
            At::ThawKept
        } else {
            At::RecordDone
        }),
        // After the copy is dropped, a late rename fails.
        At::IsReplaced if protocol.fence == CopyFence::DropOfCopy => run.go(At::DropCopy),
        At::IsReplaced => run.go(At::ClearPlace),
        At::DropCopy => {
            let (name, uuid) = (Name::Copy, run.copy);
            insist(Command::Drop { name, uuid }, run.at, At::IsReplacedAfterDrop)
        }
        At::IsReplacedAfterDrop => {
            run.copy = None;
            run.go(At::ClearPlace)
        }
        At::ThawKept => {
            let command = Command::Freeze {
                name: Name::Kept,
                uuid: SOURCE,
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
        At::IsStillReplaced if !is_replaced && protocol.has(Part::SecondLook) => run.go(At::IsReplaced),
        At::IsStillReplaced if !protocol.has(Part::ThawBeforeDone) => run.go(At::Finish),
        At::IsStillReplaced => run.go(At::RecordDone),
        At::RecordDone => {
            let next = if protocol.has(Part::ThawBeforeDone) {
                At::Finish
            } else {
                At::ThawKept
            };
            or(run.record(Phase::Done), next, At::GiveUp)
        }
        At::Finish if protocol.has(Part::Finish) => run.go(At::DropKept),
        At::Finish => run.go(At::Done),
        At::DropKept => {
            let (name, uuid) = (Name::Kept, Some(SOURCE));
            insist(Command::Drop { name, uuid }, run.at, At::DropRecord)
        }
        At::DropRecord => insist(Command::Write(None), run.at, At::Done),
        _ => vec![Step::End(Ending::Converted)],
    }
}

/// Drops the placeholder with that name, if there is one.
fn clear(name: Name, run: Run, then: At, cluster: &Cluster) -> Vec<Step> {
    match cluster.now().place(name) {
        Some(uuid) => insist(Command::Drop { name, uuid: Some(uuid) }, run.at, then),
        None => run.go(then),
    }
}

pub(super) fn taking_back(protocol: &Protocol, run: Run, cluster: &Cluster) -> Vec<Step> {
    let now = cluster.now();
    match run.at {
        At::ClearPlace => clear(Name::Kept, run, At::ClearTarget, cluster),
        At::ClearTarget => clear(Name::Main, run, At::HasMoved, cluster),
        At::HasMoved if !now.is(Name::Kept, SOURCE) => run.go(At::Thaw),
        At::HasMoved if now.at(Name::Main).is_some() => run.go(At::GiveUp),
        At::HasMoved => run.go(At::GiveBack),
        At::GiveBack => {
            let command = Command::Rename {
                from: Name::Kept,
                uuid: SOURCE,
                to: Name::Main,
                dropped: None,
            };
            or(command, At::Thaw, At::GiveUp)
        }
        At::Thaw => {
            let command = Command::Freeze {
                name: Name::Main,
                uuid: SOURCE,
                is_frozen: false,
            };
            insist(command, run.at, At::RecordBack)
        }
        At::RecordBack if run.copy.is_none() && !protocol.has(Part::KeptRecord) => {
            or(Command::Write(None), At::TakenBack, At::GiveUp)
        }
        At::RecordBack => or(run.record(Phase::Copying), At::TakenBack, At::GiveUp),
        // A run that has recovered begins anew.
        At::TakenBack if run.is_recovering => vec![Step::Go(Run::new())],
        _ => vec![Step::End(Ending::Unfinished)],
    }
}
