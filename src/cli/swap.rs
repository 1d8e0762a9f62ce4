//! What `compact` and `setup --pack` have in common: pages written into a copy, and a collection that is
//! frozen until the copy has its place. Which pages, and when, is theirs.

pub(super) mod concurrent_runs;
mod fencing;
mod frozen;
mod halt;
mod send;
mod writer;

use bson::{Binary, Bson, Document};

pub(super) use self::fencing::take_down as take_fences_down;
pub(super) use self::frozen::Frozen;
pub(super) use self::halt::Halt;
pub(super) use self::send::{CollectionRename, Freezing, concern_kept};
pub(super) use self::writer::{Flushed, Writer};
use super::check::collection;
use super::inspect;

/// How long a set's members may take to have what is written.
pub(super) const REPLICATION_TIMEOUT_MS: i64 = 60_000;
/// The server's code for a collection that is not there.
const NAMESPACE_NOT_FOUND: i32 = 26;
/// Of a collection that is frozen, or has been.
const VALIDATION: [&str; 3] = ["validator", "validationLevel", "validationAction"];

/// Who replaces a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwapKind {
    Compact,
    Pack,
}

impl SwapKind {
    /// What is to be run again.
    fn command(self) -> &'static str {
        match self {
            Self::Compact => "mongoshape compact",
            Self::Pack => "mongoshape setup --pack",
        }
    }

    /// Whether a collection, as `listCollections` describes it, is frozen for this.
    fn has_frozen(self, described: &Document) -> bool {
        match self {
            Self::Compact => collection::is_frozen(described),
            Self::Pack => inspect::is_frozen(described),
        }
    }

    /// What the name begins with under which it is known to the server.
    fn name(self) -> &'static str {
        match self {
            Self::Compact => "mongoshape compact ",
            Self::Pack => "mongoshape pack ",
        }
    }
}

/// The UUID of a collection, as `listCollections` describes it.
pub(super) fn uuid_of(described: &Document) -> Result<Binary, Halt> {
    let info = described.get_document("info").ok();
    match info.and_then(|info| info.get("uuid")) {
        Some(Bson::Binary(uuid)) => Ok(uuid.clone()),
        _ => Err(Halt::Words("its UUID is not told".to_owned())),
    }
}

/// The options of a collection, without those of one that is frozen.
pub(super) fn options_of(described: &Document) -> Document {
    let options = described.get_document("options").cloned().unwrap_or_default();
    let is_kept = |(option, _): &(String, Bson)| !VALIDATION.contains(&option.as_str());
    options.into_iter().filter(is_kept).collect()
}
