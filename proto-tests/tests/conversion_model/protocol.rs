//! The parts of the protocol, each of which can be left out, and the bounds of a search.

use super::clients::Operation;
use super::server::{Command, Layout};

/// A part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A proxy's commands name the UUID of the collection for which they were planned.
    Uuid,
    /// A proxy waits while the collection is missing beside a record.
    Hold,
    /// A collection is missing only if two lists in sequence say so.
    SecondList,
    /// The collection is frozen before it is renamed.
    Freeze,
    /// The copy is renamed only after the event of the collection's rename.
    Sentinel,
    /// The collection is read with read concern `majority`.
    MajorityRead,
    /// A changed document is read not before the time of its event.
    TimeOfEvent,
    /// A read of the collection is refused, or waits, where its name denotes another collection: by the UUID,
    /// or because mongod 6.0 waits until the majority has the last rename.
    ReadOfUuid,
    /// Documents are first read not before the time at which the stream was opened.
    TimeOfScan,
    /// Writes to the copy wait for the majority.
    MajorityOfCopy,
    /// The collection's rename drops a placeholder. Before the collection gets its name back, the placeholder
    /// is dropped: a late rename fails.
    Placeholder,
    /// A run that drops the copy keeps the record.
    KeptRecord,
    /// The kept collection is thawed before the record says that the conversion is done.
    ThawBeforeDone,
    /// After the majority has a later write, the run looks again whether the copy has the name.
    SecondLook,
    /// All documents are compared once, and those that changed since then before the copy is renamed.
    Comparison,
    /// The kept collection and the record are dropped at the end.
    Finish,
    /// A program that writes directly ends while the collection is missing.
    EndOfDirectWriter,
}

/// What makes a late rename of the copy fail before the collection gets its name back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyFence {
    /// The copy is dropped. The next run makes another.
    DropOfCopy,
    /// While the collection is renamed, a placeholder has its name, which the copy's rename drops. The
    /// placeholder is dropped. Proxies take it for a missing collection.
    Placeholder,
    /// Nothing: the rename fails because the name is not free.
    Nothing,
}

/// Which commands of a run may arrive late, or get no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// Renames, and the creation of placeholders.
    Swap,
    /// Also writes to the copy.
    SwapAndCopies,
}

/// How much may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Runs that begin, one after the other.
    pub(super) runs: u8,
    pub(super) kills: u8,
    /// Commands of a run without a reply.
    pub(super) cuts: u8,
    /// Swaps that a run gives up.
    pub(super) refusals: u8,
    pub(super) failovers: u8,
}

/// What is searched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Protocol {
    pub(super) from: Layout,
    pub(super) to: Layout,
    /// The operations of the client of each proxy, in this order.
    pub(super) clients: [&'static [Operation]; 2],
    /// A write that names no UUID.
    pub(super) direct: Option<Operation>,
    pub(super) budget: Budget,
    pub(super) fence: CopyFence,
    pub(super) late: Late,
    /// The most entries of the log that the majority does not have.
    pub(super) lag: usize,
    pub(super) without: &'static [Part],
    /// The one kind of fault that is looked for. `None`: all.
    pub(super) only: Option<&'static str>,
}

impl Protocol {
    pub(super) fn has(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }

    pub(super) fn without(self, without: &'static [Part]) -> Self {
        Self { without, ..self }
    }

    /// Looks for this kind of fault only.
    pub(super) fn only(self, fault: &'static str) -> Self {
        Self {
            only: Some(fault),
            ..self
        }
    }

    pub(super) fn may_be_late(&self, command: Command) -> bool {
        match command {
            Command::Rename { .. } | Command::Create { is_place: true, .. } => true,
            Command::Store { .. } => self.late == Late::SwapAndCopies,
            _ => false,
        }
    }
}
