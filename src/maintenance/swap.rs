//! The common part of `compact` and `setup --pack`: writing pages into a copy, and freezing a
//! collection until the copy replaces it.

mod commands;
pub(crate) mod concurrent_runs;
mod fencing;
mod frozen;
mod halt;
mod kind;
pub(crate) mod placeholder;
mod retry;
pub(crate) mod validator_fence;
mod writer;

use bson::{Bson, Document};

pub(crate) use self::commands::{CollectionRename, Freezing, concern_kept};
pub(crate) use self::fencing::take_down as take_fences_down;
pub(crate) use self::frozen::{Frozen, set_validator};
pub(crate) use self::halt::Halt;
pub(crate) use self::kind::{REPLICATION_TIMEOUT_MS, SwapKind, uuid_of};
pub(crate) use self::retry::Retry;
pub(crate) use self::writer::{Flushed, Writer};

use crate::command::collection::VALIDATION;

/// The options of a collection, without those that a freeze sets.
pub(crate) fn options_of(described: &Document) -> Document {
    let options = described.get_document("options").cloned().unwrap_or_default();
    let is_kept = |(option, _): &(String, Bson)| !VALIDATION.contains(&option.as_str());
    options.into_iter().filter(is_kept).collect()
}
