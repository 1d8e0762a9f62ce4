//! The two commands that swap a collection, and what both ask of mongod.

use bson::{Binary, Bson, Document};

use super::halt::Halt;
use crate::maintenance::check::collection;
use crate::maintenance::inspect;

/// How long a set's members may take to have what is written.
pub(crate) const REPLICATION_TIMEOUT_MS: i64 = 60_000;

/// The server's code for a collection that is not there.
pub(super) const NAMESPACE_NOT_FOUND: i32 = 26;

/// Who replaces a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwapKind {
    Compact,
    Pack,
}

impl SwapKind {
    /// What is to be run again.
    pub(super) fn command(self) -> &'static str {
        match self {
            Self::Compact => "mongoshape compact",
            Self::Pack => "mongoshape setup --pack",
        }
    }

    /// Whether a collection, as `listCollections` describes it, is frozen for this.
    pub(super) fn has_frozen(self, described: &Document) -> bool {
        match self {
            Self::Compact => collection::is_frozen(described),
            Self::Pack => inspect::is_frozen(described),
        }
    }

    /// What the name begins with under which it is known to the server.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Compact => "mongoshape compact ",
            Self::Pack => "mongoshape pack ",
        }
    }
}

/// The UUID of a collection, as `listCollections` describes it.
pub(crate) fn uuid_of(described: &Document) -> Result<Binary, Halt> {
    let info = described.get_document("info").ok();
    match info.and_then(|info| info.get("uuid")) {
        Some(Bson::Binary(uuid)) => Ok(uuid.clone()),
        _ => Err(Halt::Words("its UUID is not told".to_owned())),
    }
}
