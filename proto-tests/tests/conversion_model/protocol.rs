//! The parts of the protocol, each of which can be left out, and the bounds of a search.

use super::clients::Operation;
use super::server::{Command, Layout, Name};

/// A part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A proxy's commands name the UUID of the collection for which they were planned.
    Uuid,
    /// A proxy waits while the collection is missing beside a copy.
    Hold,
    /// A collection is missing only if two lists in sequence say so.
    SecondList,
    /// An assumption: no copy is made, and the collection is not renamed then, between the beginning of the
    /// first of these two lists and the end of the second.
    QuickLists,
    /// An assumption: while mongod lists, not more than one name changes.
    ShortLists,
    /// The collection is frozen before it is renamed.
    Freeze,
    /// The copy of plain documents is renamed only after the event of the collection's rename.
    Sentinel,
    /// The collection is read with read concern `majority`.
    MajorityRead,
    /// A changed document is read not before the time of its event.
    TimeOfEvent,
    /// Documents are read not before the time at which the stream was opened.
    TimeOfOpening,
    /// A read of the kept collection is refused, or waits, where its name denotes another collection: by the
    /// UUID, or because mongod 6.0 waits until the majority has the last rename.
    ReadOfUuid,
    /// Writes to the copy wait for the majority.
    MajorityOfCopy,
    /// The collection's rename drops a placeholder. Before the collection gets its name back, the placeholder
    /// is dropped: a late rename fails.
    Placeholder,
    /// After a commit that has failed, or that may arrive late, the copy is dropped.
    DropOfCopy,
    /// The collection has its name again before the copy is dropped.
    NameBeforeDrop,
    /// The kept collection is thawed before the record says that the conversion is done.
    ThawBeforeDone,
    /// After the majority has a later write, the run looks again whether the copy has the name.
    SecondLook,
    /// All documents are compared once, and those that changed since then before the copy is renamed.
    Comparison,
    /// A run that finds another copy than that in the record makes a new one.
    NewCopyForAnother,
    /// After pages are renamed, the run reads the stream up to that event. If a change comes first, it gives up
    /// the swap.
    SentinelOfPages,
    /// A run takes only its own rename for the end of the changes. After another one, all documents are
    /// copied.
    OwnRename,
    /// If the comparison finds a difference, the next run copies all documents.
    CopyAgain,
    /// A swap is recovered whatever the record says, if the name does not denote the collection.
    RecoverByUuid,
    /// The kept collection and the record are dropped at the end.
    Finish,
    /// A program that writes directly ends while the collection is missing.
    EndOfDirectWriter,
}

/// How mongod lists the collection and its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lists {
    /// At one point in time.
    AtOnce,
    /// First the collection, later the copy: in the order of their names.
    OneByOne,
}

/// Which commands of a run may arrive late, or get no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// Renames, and the creation of placeholders.
    Swap,
    /// Also writes to the copy.
    SwapAndCopies,
    /// Also writes of the record.
    SwapAndRecords,
    /// Also drops of the copy.
    SwapAndDrops,
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
    /// Conversions back to the former layout, after the first has ended.
    pub(super) returns: u8,
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
    pub(super) lists: Lists,
    pub(super) late: Late,
    /// The most entries of the log that the majority does not have.
    pub(super) lag: usize,
    pub(super) without: &'static [Part],
    /// The kinds of fault that are looked for. None: all.
    pub(super) only: &'static [&'static str],
}

impl Protocol {
    pub(super) fn has(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }

    pub(super) fn without(self, without: &'static [Part]) -> Self {
        Self { without, ..self }
    }

    /// Looks for these kinds of fault only.
    pub(super) fn only(self, only: &'static [&'static str]) -> Self {
        Self { only, ..self }
    }

    /// The layout from which a conversion to this one begins.
    pub(super) fn from(&self, to: Layout) -> Layout {
        if to == self.to { self.from } else { self.to }
    }

    pub(super) fn may_be_late(&self, command: Command) -> bool {
        match command {
            Command::Rename { .. } | Command::Create { is_place: true, .. } => true,
            Command::Store { .. } => self.late == Late::SwapAndCopies,
            Command::Write(Some(_)) => self.late == Late::SwapAndRecords,
            Command::Drop { name: Name::Copy, .. } => self.late == Late::SwapAndDrops,
            _ => false,
        }
    }
}
