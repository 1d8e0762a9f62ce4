//! An item of a key batch, and its state.

use crate::pattern::bucket::item::Item;

/// The state of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemState {
    /// Not stored yet.
    Pending,
    /// Not stored yet, and not part of the statements that are being planned.
    SetAside,
    /// Stored, by this attempt at the command or by an earlier one.
    Stored,
    /// Must not be stored.
    Refused,
}

/// An item of the batch.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) item: Item,
    /// The id of a statement whose first item this is.
    pub(super) statement_id: i32,
    pub(super) state: ItemState,
    /// Whether an earlier item of the command has the same `_id`, perhaps in another batch. The item is then
    /// no part of the retry chain.
    pub(super) is_repeated: bool,
}

impl Member {
    pub(super) fn new(item: Item, statement_id: i32) -> Self {
        Self {
            item,
            statement_id,
            state: ItemState::Pending,
            is_repeated: false,
        }
    }
}
