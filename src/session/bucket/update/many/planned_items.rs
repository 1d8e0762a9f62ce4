//! The planned changes of an update of many, with a bound on their memory.
//!
//! All items may have to be planned before the first is changed, and a planned change can be many times as
//! long as its item. So only some of them are kept. Each of the others is made again when it is its turn.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::error::CommandError;
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::update_by_position::{Elsewhere, InPlace};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::item_update::ItemUpdate;

/// Bytes of items that are planned together.
const MAX_MADE_AT_ONCE: usize = 1 << 20;
/// Bytes of statements that are kept.
const MAX_STATEMENT_BYTES: usize = 16 << 20;
/// Bytes of other planned changes that are kept.
const MAX_CHANGE_BYTES: usize = 32 << 20;

/// An item that is changed in place.
pub(super) struct ItemStatement {
    /// Its position among all items of the update.
    pub(super) order: usize,
    pub(super) found: LocatedItem,
    pub(super) kept: KeptPlan,
}

/// The kept part of an item's planned change.
pub(super) enum KeptPlan {
    Statement(RawDocumentBuf),
    Change(InPlace),
    Nothing,
}

/// An item with a new key or time.
pub(super) struct Away {
    /// Its position among all items of the update.
    pub(super) order: usize,
    pub(super) found: LocatedItem,
    pub(super) changes_key: bool,
    /// The changed item. `None`: it is not kept.
    pub(super) to: Option<Elsewhere>,
}

impl ItemStatement {
    /// The statement, if it is kept.
    pub(super) fn statement(&self) -> Option<&RawDocument> {
        match &self.kept {
            KeptPlan::Statement(statement) => Some(statement),
            KeptPlan::Change(_) | KeptPlan::Nothing => None,
        }
    }

    /// Makes the statement of a change that is kept.
    pub(super) fn make_statement(&mut self, run: &BucketCommand<'_>) -> Result<(), CommandError> {
        if let KeptPlan::Change(change) = &self.kept {
            self.kept = KeptPlan::Statement(statement(run, change, &self.found)?);
        }
        Ok(())
    }
}

/// The statement that changes an item, or fails if the item has changed.
pub(super) fn statement(
    run: &BucketCommand<'_>,
    change: &InPlace,
    found: &LocatedItem,
) -> Result<RawDocumentBuf, CommandError> {
    let statement = change.statement_or_miss(run.shape, found);
    statement.map_err(|what| run.unsupported(&what))
}

/// Memory for planned changes.
pub(super) struct PlanMemory {
    for_statements: usize,
    for_changes: usize,
}

impl PlanMemory {
    pub(super) fn new() -> Self {
        Self {
            for_statements: MAX_STATEMENT_BYTES,
            for_changes: MAX_CHANGE_BYTES,
        }
    }

    /// Keeps what there is memory for.
    pub(super) fn keep(&mut self, change: InPlace, statement: RawDocumentBuf) -> KeptPlan {
        if take(&mut self.for_statements, statement.as_bytes().len()) {
            KeptPlan::Statement(statement)
        } else if take(&mut self.for_changes, change.bytes()) {
            KeptPlan::Change(change)
        } else {
            KeptPlan::Nothing
        }
    }

    /// Keeps a changed item if there is memory for it.
    pub(super) fn keep_item(&mut self, to: Elsewhere) -> Option<Elsewhere> {
        let (Elsewhere::Key(item) | Elsewhere::Time(item)) = &to;
        take(&mut self.for_changes, item.as_bytes().len()).then_some(to)
    }
}

/// Takes memory. Returns whether there was enough. If not, there is none for later items, so the items that
/// are kept are the first ones.
fn take(memory: &mut usize, bytes: usize) -> bool {
    *memory = memory.saturating_sub(bytes);
    *memory > 0
}

/// The number of items that are planned together, from the beginning. mongod evaluates an update once
/// for them.
pub(super) fn together<'i>(task: &ItemUpdate<'_>, items: impl Iterator<Item = &'i LocatedItem>) -> usize {
    // A planned change can contain the client's whole update.
    let of_update = match task.asked.change {
        RawBsonRef::Document(change) => change.as_bytes().len(),
        RawBsonRef::Array(stages) => stages.as_bytes().len(),
        _ => 0,
    };
    let mut bytes = 0_usize;
    let fits = |found: &&LocatedItem| {
        let is_first = bytes == 0;
        bytes = bytes.saturating_add(found.bytes().max(of_update));
        is_first || bytes <= MAX_MADE_AT_ONCE
    };
    items.take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn kept_items_are_the_first_ones() {
        let long = rawdoc! { "text": "x".repeat(1 << 20) };
        let mut memory = PlanMemory::new();
        let mut keep = |item: &RawDocument| memory.keep_item(Elsewhere::Key(item.to_owned())).is_some();
        assert_eq!((0..100).filter(|_| keep(&long)).count(), 31);
        assert!(!keep(&rawdoc! {}));
    }
}
