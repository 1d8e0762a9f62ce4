//! A run of `mongoshape convert`, step by step: `maintenance/convert.rs`,
//! `maintenance/convert/swap_names.rs`.
//!
//! A batch of documents is one document here.

mod swap;

use self::swap::{completing, swapping, taking_back};
use super::protocol::{Part, Protocol};
use super::server::{Cluster, Command, DOCUMENTS, Documents, Event, Name, Phase, Record, SOURCE};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum At {
    Look,
    Open,
    DropOldCopy,
    CreateCopy,
    Created,
    RecordCopying,
    Fill(usize),
    RecordFollowing,
    Follow,
    CompareAll,
    RecordSwapping,
    KeepPlace,
    Kept,
    Freeze,
    MoveAway,
    DropPlace,
    KeepTarget,
    KeptTarget,
    HasBegun,
    Drain,
    CompareTouched,
    Commit,
    IsReplaced,
    DropCopy,
    IsReplacedAfterDrop,
    ThawKept,
    IsStillReplaced,
    RecordDone,
    Finish,
    DropKept,
    DropRecord,
    ClearPlace,
    ClearTarget,
    HasMoved,
    GiveBack,
    Thaw,
    RecordBack,
    /// The collection is as before.
    TakenBack,
    GiveUp,
    Done,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    Converted,
    /// Another run is needed.
    Unfinished,
}

/// What a run may do next.
pub(super) enum Step {
    Send {
        command: Command,
        then: Then,
    },
    /// It has read the server's state, or decided.
    Go(Run),
    /// It takes the next event from the stream.
    Deliver(Run),
    /// It opens the stream at the present time.
    Open(Run),
    End(Ending),
}

/// Where a run continues after a reply, or without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Then {
    pub(super) done: At,
    pub(super) refused: At,
    pub(super) silent: At,
    /// Whether the run waits until the majority has the change.
    pub(super) is_majority: bool,
}

/// A run that waits for the majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    /// Entries of the log that the majority still needs.
    pub(super) entries: usize,
    pub(super) then: Then,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Run {
    pub(super) at: At,
    pub(super) waits: Option<Waiting>,
    /// `None`: there is no copy, or it was dropped.
    copy: Option<u8>,
    place: Option<u8>,
    /// The placeholder with the collection's name.
    target: Option<u8>,
    /// A document whose event was delivered, and which was not read yet.
    pub(super) pending: Option<usize>,
    /// What was read of the document that is copied now.
    found: Option<u8>,
    /// Documents with events since the comparison.
    touched: [bool; DOCUMENTS],
    is_compared: bool,
    /// Whether the event of the rename was delivered.
    is_renamed: bool,
    is_recovering: bool,
}

fn or(command: Command, done: At, otherwise: At) -> Vec<Step> {
    let then = Then {
        done,
        refused: otherwise,
        silent: otherwise,
        is_majority: true,
    };
    vec![Step::Send { command, then }]
}

/// Creates a placeholder. One that exists already is as good.
fn keep(command: Command, kept: At) -> Vec<Step> {
    let then = Then {
        done: kept,
        refused: kept,
        silent: At::ClearPlace,
        is_majority: true,
    };
    vec![Step::Send { command, then }]
}

/// Repeats a command until it is answered.
fn insist(command: Command, at: At, done: At) -> Vec<Step> {
    let then = Then {
        done,
        refused: done,
        silent: at,
        is_majority: true,
    };
    vec![Step::Send { command, then }]
}

impl Run {
    pub(super) fn new() -> Self {
        Self {
            at: At::Look,
            waits: None,
            copy: None,
            place: None,
            target: None,
            pending: None,
            found: None,
            touched: [false; DOCUMENTS],
            is_compared: false,
            is_renamed: false,
            is_recovering: false,
        }
    }

    fn at(self, at: At) -> Self {
        Self { at, ..self }
    }

    fn go(self, at: At) -> Vec<Step> {
        vec![Step::Go(self.at(at))]
    }

    fn record(self, phase: Phase) -> Command {
        let copy = self.copy;
        Command::Write(Some(Record { phase, copy }))
    }

    /// The run after an event.
    pub(super) fn delivered(mut self, event: Event) -> Self {
        match event {
            Event::Document(document) => {
                self.pending = Some(document);
                self.touched[document] = true;
            }
            Event::Renamed => self.is_renamed = true,
        }
        self
    }

    /// Whether it has frozen or renamed the collection, and may still give up.
    pub(super) fn may_take_back(&self) -> bool {
        matches!(self.at, At::MoveAway | At::Drain | At::Commit)
    }
}

/// A read of the collection.
enum Answer {
    Found(Documents),
    /// The server has no answer yet.
    Pending,
    /// The name denotes another collection.
    Refused,
}

/// What a run reads of the collection's documents.
fn read(protocol: &Protocol, cluster: &Cluster, name: Name, time: Part) -> Answer {
    let is_majority = protocol.has(Part::MajorityRead);
    let stored = if is_majority { cluster.majority() } else { cluster.now() };
    if is_majority && cluster.is_behind() && protocol.has(time) {
        return Answer::Pending;
    }
    match stored.is(name, SOURCE) || !protocol.has(Part::ReadOfUuid) {
        true => Answer::Found(stored.documents(name)),
        false if cluster.now().is(name, SOURCE) => Answer::Pending,
        false => Answer::Refused,
    }
}

/// The write that makes a document of the copy equal. The run then finds that it is.
fn store(protocol: &Protocol, (document, value): (usize, u8), at: At) -> Vec<Step> {
    let command = Command::Store { document, value };
    let otherwise = if at == At::Drain { At::ClearPlace } else { At::GiveUp };
    let then = Then {
        done: at,
        refused: otherwise,
        silent: otherwise,
        is_majority: protocol.has(Part::MajorityOfCopy),
    };
    vec![Step::Send { command, then }]
}

/// The possible next steps. A run that nothing disturbs takes the first. None: it waits.
pub(super) fn steps(protocol: &Protocol, run: Run, cluster: &Cluster) -> Vec<Step> {
    match run.at {
        At::Look | At::Open | At::DropOldCopy | At::CreateCopy | At::Created | At::RecordCopying => {
            beginning(protocol, run, cluster)
        }
        At::Fill(_) | At::RecordFollowing | At::Follow | At::CompareAll => copying(protocol, run, cluster),
        At::RecordSwapping
        | At::KeepPlace
        | At::Kept
        | At::Freeze
        | At::MoveAway
        | At::DropPlace
        | At::HasBegun
        | At::KeepTarget
        | At::KeptTarget
        | At::Drain
        | At::CompareTouched
        | At::Commit => swapping(protocol, run, cluster),
        At::IsReplaced
        | At::DropCopy
        | At::IsReplacedAfterDrop
        | At::ThawKept
        | At::IsStillReplaced
        | At::RecordDone
        | At::Finish
        | At::DropKept
        | At::DropRecord
        | At::Done => completing(protocol, run, cluster),
        At::ClearPlace
        | At::ClearTarget
        | At::HasMoved
        | At::GiveBack
        | At::Thaw
        | At::RecordBack
        | At::TakenBack
        | At::GiveUp => taking_back(protocol, run, cluster),
    }
}

fn beginning(protocol: &Protocol, mut run: Run, cluster: &Cluster) -> Vec<Step> {
    let now = cluster.now();
    match run.at {
        At::Look => match now.record {
            None if now.is(Name::Main, SOURCE) => run.go(At::Open),
            None if now.main().is_some() => run.go(At::Done),
            None => run.go(At::GiveUp),
            Some(record) => {
                run.copy = record.copy;
                let is_copy_there = record.copy.is_none_or(|copy| now.is(Name::Copy, copy));
                let is_there = now.is(Name::Main, SOURCE) && is_copy_there;
                match record.phase {
                    Phase::Done => run.go(At::Finish),
                    Phase::Swapping => {
                        run.is_recovering = true;
                        run.go(At::IsReplaced)
                    }
                    Phase::Copying | Phase::Following if !is_there => run.go(At::GiveUp),
                    Phase::Copying => run.go(At::Open),
                    // The stream continues where the earlier run has left it.
                    Phase::Following => run.go(At::RecordFollowing),
                }
            }
        },
        At::Open => {
            let next = if run.copy.is_none() {
                At::DropOldCopy
            } else {
                At::RecordCopying
            };
            vec![Step::Open(run.at(next))]
        }
        At::DropOldCopy => {
            let (name, uuid) = (Name::Copy, None);
            insist(Command::Drop { name, uuid }, run.at, At::CreateCopy)
        }
        At::CreateCopy => {
            let (name, layout, is_place) = (Name::Copy, protocol.to, false);
            or(Command::Create { name, layout, is_place }, At::Created, At::GiveUp)
        }
        At::Created => match now.at(Name::Copy) {
            Some(copy) => {
                run.copy = Some(copy.uuid);
                run.go(At::RecordCopying)
            }
            None => run.go(At::GiveUp),
        },
        _ => or(run.record(Phase::Copying), At::Fill(0), At::GiveUp),
    }
}

fn copying(protocol: &Protocol, mut run: Run, cluster: &Cluster) -> Vec<Step> {
    let now = cluster.now();
    match run.at {
        At::Fill(document) => {
            let next = if document + 1 < DOCUMENTS {
                At::Fill(document + 1)
            } else {
                At::RecordFollowing
            };
            match (run.found, read(protocol, cluster, Name::Main, Part::TimeOfScan)) {
                (Some(value), _) if value == now.documents(Name::Copy)[document] => {
                    run.found = None;
                    run.go(next)
                }
                (Some(value), _) => store(protocol, (document, value), run.at),
                (None, Answer::Found(documents)) => {
                    run.found = Some(documents[document]);
                    run.go(run.at)
                }
                (None, Answer::Pending) => Vec::new(),
                (None, Answer::Refused) => run.go(At::GiveUp),
            }
        }
        At::RecordFollowing => or(run.record(Phase::Following), At::Follow, At::GiveUp),
        At::Follow => {
            let mut steps = match apply(protocol, run, cluster, Name::Main) {
                Some(steps) => return steps,
                None => deliver(run, cluster),
            };
            // The copy is never quite up to date: it may go on although there are events.
            let next = if protocol.has(Part::Comparison) && !run.is_compared {
                At::CompareAll
            } else {
                At::RecordSwapping
            };
            steps.push(Step::Go(run.at(next)));
            steps
        }
        _ => {
            let copy = now.documents(Name::Copy);
            // Documents that seem to be equal are not compared again.
            let is_equal = now.documents(Name::Main) == copy || cluster.majority().documents(Name::Main) == copy;
            if is_equal {
                run.touched = [false; DOCUMENTS];
                run.is_compared = true;
                return run.go(At::Follow);
            }
            let is_settled = !cluster.has_tail() && !cluster.is_behind();
            if is_settled && cluster.stream.as_ref().is_none_or(Vec::is_empty) {
                return run.go(At::GiveUp);
            }
            run.go(At::Follow)
        }
    }
}

/// Applies the pending document. `None`: there is none.
fn apply(protocol: &Protocol, mut run: Run, cluster: &Cluster, source: Name) -> Option<Vec<Step>> {
    let document = run.pending?;
    match (run.found, read(protocol, cluster, source, Part::TimeOfEvent)) {
        (Some(value), _) if value == cluster.now().documents(Name::Copy)[document] => {
            (run.found, run.pending) = (None, None);
        }
        (Some(value), _) => return Some(store(protocol, (document, value), run.at)),
        (None, Answer::Found(documents)) => run.found = Some(documents[document]),
        (None, Answer::Pending) => return Some(Vec::new()),
        (None, Answer::Refused) if source == Name::Main => return Some(run.go(At::GiveUp)),
        (None, Answer::Refused) => return Some(run.go(At::ClearPlace)),
    }
    Some(run.go(run.at))
}

fn deliver(run: Run, cluster: &Cluster) -> Vec<Step> {
    let has_events = cluster.stream.as_ref().is_some_and(|stream| !stream.is_empty());
    if has_events && !cluster.is_behind() {
        vec![Step::Deliver(run)]
    } else {
        Vec::new()
    }
}
