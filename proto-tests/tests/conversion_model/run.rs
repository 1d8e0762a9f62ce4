//! A run of `mongoshape convert`, step by step: `maintenance/convert.rs`,
//! `maintenance/convert/swap_names.rs`.
//!
//! A batch of documents is one document here.

mod swap;

use self::swap::{completing, swapping, taking_back};
use super::protocol::{Late, Part, Protocol};
use super::server::{Cluster, Command, DOCUMENTS, Documents, Event, Layout, Name, Phase, Record, SOURCE};

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
    /// The copy is not equal.
    RecordUnequal,
    RecordSwapping,
    KeepPlace,
    Kept,
    Freeze,
    /// Pages are frozen.
    RecordFrozen,
    MoveAway,
    DropPlace,
    HasBegun,
    /// Pages are renamed.
    AwaitRename,
    Drain,
    CompareTouched,
    Commit,
    IsReplaced,
    ThawKept,
    IsStillReplaced,
    RecordDone,
    Finish,
    DropKept,
    DropRecord,
    ClearPlace,
    HasMoved,
    GiveBack,
    DropCopy,
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

/// What is known of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Progress {
    Copying,
    /// The run continues one that had copied all documents.
    Filled,
    Compared,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Run {
    pub(super) at: At,
    pub(super) waits: Option<Waiting>,
    /// The layout to which it converts.
    to: Layout,
    source: u8,
    /// `None`: it makes a new one.
    copy: Option<u8>,
    place: Option<u8>,
    /// The position at which it has opened the stream.
    position: u8,
    /// The time of the last event, or of the opening of the stream.
    pub(super) last: u8,
    /// A document whose event was delivered, and which was not read yet.
    pub(super) pending: Option<usize>,
    /// What was read of the document that is copied now.
    found: Option<u8>,
    /// Documents with events since the comparison.
    touched: [bool; DOCUMENTS],
    progress: Progress,
    /// Whether the event of the rename was delivered.
    is_renamed: bool,
    is_recovering: bool,
    /// Whether the rename of the copy was sent, and the copy is dropped.
    is_dropping: bool,
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
    pub(super) fn new(to: Layout) -> Self {
        Self {
            at: At::Look,
            waits: None,
            to,
            source: SOURCE,
            copy: None,
            place: None,
            position: 0,
            last: 0,
            pending: None,
            found: None,
            touched: [false; DOCUMENTS],
            progress: Progress::Copying,
            is_renamed: false,
            is_recovering: false,
            is_dropping: false,
        }
    }

    fn at(self, at: At) -> Self {
        Self { at, ..self }
    }

    fn go(self, at: At) -> Vec<Step> {
        vec![Step::Go(self.at(at))]
    }

    fn record(self, phase: Phase) -> Command {
        let Self { source, position, .. } = self;
        Command::Write(self.copy.map(|copy| Record {
            phase,
            source,
            copy,
            position,
        }))
    }

    fn is_from_plain(&self, protocol: &Protocol) -> bool {
        protocol.from(self.to) == Layout::Plain
    }

    /// The run after the stream was opened at the present time, or where an earlier run has left it.
    pub(super) fn opened(mut self, protocol: &Protocol, cluster: &mut Cluster) -> Self {
        cluster.watched = self.source;
        let has_past = protocol.late == Late::SwapAndRecords;
        if has_past {
            cluster.past.extend(cluster.stream.take().into_iter().flatten());
        }
        let is_filled = self.progress == Progress::Filled;
        if is_filled && has_past {
            cluster.stream = Some(cluster.past.split_off(usize::from(self.position)));
        } else if !is_filled {
            cluster.stream = Some(Vec::new());
            self.position = u8::try_from(cluster.past.len()).unwrap_or(u8::MAX);
        }
        if protocol.has(Part::TimeOfOpening) {
            self.last = cluster.now().changes;
        }
        self
    }

    /// The run after an event.
    pub(super) fn delivered(mut self, protocol: &Protocol, event: Event) -> Self {
        match event {
            Event::Document(document, change) => {
                self.pending = Some(document);
                self.touched[document] = true;
                if protocol.has(Part::TimeOfEvent) {
                    self.last = self.last.max(change);
                }
            }
            Event::Renamed(dropped) if protocol.has(Part::OwnRename) => match self.at {
                At::Drain | At::AwaitRename if dropped == self.place => self.is_renamed = true,
                At::Drain | At::AwaitRename => self.at = At::ClearPlace,
                _ => self.at = At::RecordUnequal,
            },
            Event::Renamed(_) => self.is_renamed = true,
        }
        self
    }

    /// Whether it has frozen or renamed the collection, and may still give up.
    pub(super) fn may_take_back(&self) -> bool {
        matches!(self.at, At::MoveAway | At::AwaitRename | At::Drain | At::Commit)
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
fn read(protocol: &Protocol, run: &Run, cluster: &Cluster, name: Name) -> Answer {
    let is_majority = protocol.has(Part::MajorityRead);
    let stored = if is_majority { cluster.majority() } else { cluster.now() };
    if is_majority && stored.changes < run.last {
        return Answer::Pending;
    }
    match stored.is(name, run.source) || name == Name::Main || !protocol.has(Part::ReadOfUuid) {
        true => Answer::Found(stored.documents(name)),
        false if cluster.now().is(name, run.source) => Answer::Pending,
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
        At::Fill(_) | At::RecordFollowing | At::Follow | At::CompareAll | At::RecordUnequal => {
            copying(protocol, run, cluster)
        }
        At::RecordSwapping
        | At::KeepPlace
        | At::Kept
        | At::Freeze
        | At::RecordFrozen
        | At::MoveAway
        | At::DropPlace
        | At::HasBegun
        | At::AwaitRename
        | At::Drain
        | At::CompareTouched
        | At::Commit => swapping(protocol, run, cluster),
        At::IsReplaced
        | At::ThawKept
        | At::IsStillReplaced
        | At::RecordDone
        | At::Finish
        | At::DropKept
        | At::DropRecord
        | At::Done => completing(protocol, run, cluster),
        At::ClearPlace
        | At::HasMoved
        | At::GiveBack
        | At::DropCopy
        | At::Thaw
        | At::RecordBack
        | At::TakenBack
        | At::GiveUp => taking_back(protocol, run, cluster),
    }
}

fn beginning(protocol: &Protocol, mut run: Run, cluster: &Cluster) -> Vec<Step> {
    let now = cluster.now();
    match run.at {
        At::Look => look(protocol, run, cluster),
        At::Open => {
            let next = match run.copy {
                None => At::DropOldCopy,
                Some(_) if run.progress == Progress::Filled => At::RecordFollowing,
                Some(_) => At::RecordCopying,
            };
            vec![Step::Open(run.at(next))]
        }
        At::DropOldCopy => {
            let (name, uuid) = (Name::Copy, None);
            insist(Command::Drop { name, uuid }, run.at, At::CreateCopy)
        }
        At::CreateCopy => {
            let (name, layout, is_place) = (Name::Copy, run.to, false);
            or(Command::Create { name, layout, is_place }, At::Created, At::GiveUp)
        }
        At::Created => match now.at(Name::Copy) {
            Some(copy) => {
                run.copy = Some(copy.uuid);
                run.go(if run.progress == Progress::Filled {
                    At::RecordFollowing
                } else {
                    At::RecordCopying
                })
            }
            None => run.go(At::GiveUp),
        },
        _ => or(run.record(Phase::Copying), At::Fill(0), At::GiveUp),
    }
}

/// Finds out what an earlier run has left.
fn look(protocol: &Protocol, mut run: Run, cluster: &Cluster) -> Vec<Step> {
    let now = cluster.now();
    let Some(main) = now.main().filter(|_| now.record.is_none()) else {
        return match now.record {
            Some(record) => {
                (run.source, run.copy) = (record.source, Some(record.copy));
                run.position = record.position;
                resume(protocol, run, cluster, record.phase)
            }
            None => run.go(At::GiveUp),
        };
    };
    run.source = main.uuid;
    run.go(if main.layout == run.to { At::Done } else { At::Open })
}

fn resume(protocol: &Protocol, mut run: Run, cluster: &Cluster, phase: Phase) -> Vec<Step> {
    let now = cluster.now();
    let is_there = now.is(Name::Main, run.source);
    let copy = now.at(Name::Copy).map(|copy| copy.uuid);
    match phase {
        // A new conversion ends the former one.
        Phase::Done if now.main().is_none_or(|main| main.layout != run.to) => run.go(At::DropKept),
        Phase::Done => run.go(At::Finish),
        Phase::Copying | Phase::Following if is_there || !protocol.has(Part::RecoverByUuid) => {
            let is_another = copy.is_some_and(|copy| Some(copy) != run.copy);
            if !is_there || (is_another && !protocol.has(Part::NewCopyForAnother)) {
                return run.go(At::GiveUp);
            }
            run.copy = copy.filter(|_| !is_another);
            if phase == Phase::Following && !is_another {
                run.progress = Progress::Filled;
            }
            run.go(At::Open)
        }
        Phase::Swapping | Phase::Copying | Phase::Following => {
            run.is_recovering = true;
            run.go(At::IsReplaced)
        }
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
            match (run.found, read(protocol, &run, cluster, Name::Main)) {
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
            let next = if protocol.has(Part::Comparison) && run.progress != Progress::Compared {
                At::CompareAll
            } else {
                At::RecordSwapping
            };
            steps.push(Step::Go(run.at(next)));
            steps
        }
        At::CompareAll => {
            let copy = now.documents(Name::Copy);
            match read(protocol, &run, cluster, Name::Main) {
                Answer::Found(documents) if documents == copy => {
                    run.touched = [false; DOCUMENTS];
                    run.progress = Progress::Compared;
                    return run.go(At::Follow);
                }
                Answer::Found(_) => {}
                Answer::Pending => return Vec::new(),
                Answer::Refused => return run.go(At::GiveUp),
            }
            // Documents that differ are compared again after all changes were applied.
            let is_settled = !cluster.has_tail() && !cluster.is_behind();
            if is_settled && cluster.stream.as_ref().is_none_or(Vec::is_empty) {
                let is_again = protocol.has(Part::CopyAgain);
                return run.go(if is_again { At::RecordUnequal } else { At::GiveUp });
            }
            run.go(At::Follow)
        }
        _ => or(run.record(Phase::Copying), At::GiveUp, At::GiveUp),
    }
}

/// Applies the pending document. `None`: there is none.
fn apply(protocol: &Protocol, mut run: Run, cluster: &Cluster, source: Name) -> Option<Vec<Step>> {
    let document = run.pending?;
    match (run.found, read(protocol, &run, cluster, source)) {
        (Some(value), _) if value == cluster.now().documents(Name::Copy)[document] => {
            (run.found, run.pending) = (None, None);
        }
        (Some(value), _) => return Some(store(protocol, (document, value), run.at)),
        (None, Answer::Found(documents)) => run.found = Some(documents[document]),
        (None, Answer::Pending) => return Some(Vec::new()),
        (None, Answer::Refused) if run.at == At::Drain => return Some(run.go(At::ClearPlace)),
        (None, Answer::Refused) => return Some(run.go(At::GiveUp)),
    }
    Some(run.go(run.at))
}

fn deliver(run: Run, cluster: &Cluster) -> Vec<Step> {
    match cluster.event() {
        Some(_) if !run.is_renamed => vec![Step::Deliver(run)],
        _ => Vec::new(),
    }
}
