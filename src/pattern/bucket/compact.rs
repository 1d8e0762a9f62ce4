//! Compaction: short pages are packed again, in a copy that is swapped in.
//!
//! Items cannot move between pages while others read (see
//! `docs/decisions/0016-short-pages-are-packed-in-a-copy.md`). So each key's items are stored on new
//! pages in a copy, as if one client had inserted them in their order ([`Packer`]). Stored items
//! keep every bit. Before the swap the collection is *frozen*: a validator that no document
//! satisfies refuses every insert and update. No statement that removes a bucket removes an item
//! (see [`super::delete`]), so a frozen collection keeps its items.

mod packer;
mod page_chain;
#[cfg(test)]
mod tests;

pub use self::packer::{Given, Packed, Packer, UnreadablePage};
pub use self::page_chain::PageChain;
pub use super::freeze::{VALIDATOR, freeze, is_frozen, is_refused_by_freeze};

/// The suffix of the copy's name.
const SUFFIX: &str = ".mongoshape_compact";
/// The suffix of the copy's name while no run works on it.
const STOPPED: &str = ".mongoshape_compact_stopped";
/// The name of a collection's copy, in the same database.
#[must_use]
pub fn copy_name(collection: &str) -> String {
    format!("{collection}{SUFFIX}")
}

/// The name of the copy of a stopped run. Statements that are still in flight were sent to the
/// other name, so none of them reaches the copy.
#[must_use]
pub fn stopped_name(collection: &str) -> String {
    format!("{collection}{STOPPED}")
}
