//! Compaction: short pages are packed again, in a copy that is swapped in.
//!
//! Items cannot move between pages while others read (see
//! `docs/decisions/0016-pages-are-packed-in-a-copy.md`). So each key's items are stored on new pages in a
//! copy, as if one client had inserted them in their order ([`Packer`]); stored items keep every bit. Before
//! the swap the collection is *frozen*: a validator that no document meets refuses every insert and update.
//! No statement that removes a bucket removes an item (see [`super::delete`]), so a frozen collection keeps
//! its items.

mod packer;
mod page_chain;
#[cfg(test)]
mod tests;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

pub use self::packer::{Given, Packed, Packer, UnreadablePage};
pub use self::page_chain::PageChain;
use crate::command::document::{get, single};

/// What the copy's name ends with.
const SUFFIX: &str = ".mongoshape_compact";
/// What its name ends with while no run works on it.
const STOPPED: &str = ".mongoshape_compact_stopped";
/// The field that a frozen collection's documents would need.
const MARKER: &str = "mongoshape_compact";
/// The option of a collection that freezes it.
pub const VALIDATOR: &str = "validator";

/// The name of a collection's copy, in the same database.
#[must_use]
pub fn copy_name(collection: &str) -> String {
    format!("{collection}{SUFFIX}")
}

/// The name that a copy has which a run was stopped at: nothing that was sent to it under its other name is
/// on its way.
#[must_use]
pub fn stopped_name(collection: &str) -> String {
    format!("{collection}{STOPPED}")
}

/// The validator of a frozen collection.
#[must_use]
pub fn freeze() -> RawDocumentBuf {
    single(MARKER, single("$exists", true))
}

/// Whether a collection with these options, as `listCollections` tells them, is frozen.
#[must_use]
pub fn is_frozen(options: &RawDocument) -> bool {
    get(options, VALIDATOR).and_then(RawBsonRef::as_document) == Some(&freeze())
}
