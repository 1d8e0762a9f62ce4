//! The two commands that swap a collection, and constants of both.

use bson::{Binary, Bson, Document};

use super::halt::Halt;
use crate::maintenance::check::collection;
use crate::maintenance::inspect;

/// The longest wait for the majority of the members, in milliseconds.
pub(crate) const REPLICATION_TIMEOUT_MS: i64 = 60_000;

/// The server's code for a missing collection.
pub(super) const NAMESPACE_NOT_FOUND: i32 = 26;

/// The command that swaps a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwapKind {
    Compact,
    Pack,
    /// A conversion of plain documents, by this command line.
    ConvertPlain(&'static str),
    /// A conversion of pages, by this command line.
    ConvertPages(&'static str),
}

impl SwapKind {
    /// The command line to run again.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Compact => "mongoshape compact",
            Self::Pack => "mongoshape setup --pack",
            Self::ConvertPlain(command) | Self::ConvertPages(command) => command,
        }
    }

    /// What the command does with a collection.
    pub(super) fn participle(self) -> &'static str {
        match self {
            Self::Compact | Self::Pack => "packed",
            Self::ConvertPlain(_) | Self::ConvertPages(_) => "converted",
        }
    }

    /// Whether the swapped collection contains pages.
    pub(super) fn is_of_pages(self) -> bool {
        matches!(self, Self::Compact | Self::ConvertPages(_))
    }

    /// Whether a listed collection was frozen by this command.
    pub(super) fn has_frozen(self, described: &Document) -> bool {
        if self.is_of_pages() {
            collection::is_frozen(described)
        } else {
            inspect::is_frozen(described)
        }
    }

    /// The beginning of the application's name that the server lists.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Compact => "mongoshape compact ",
            Self::Pack => "mongoshape pack ",
            Self::ConvertPlain(_) | Self::ConvertPages(_) => "mongoshape convert ",
        }
    }
}

/// The UUID of a listed collection.
pub(crate) fn uuid_of(described: &Document) -> Result<Binary, Halt> {
    let info = described.get_document("info").ok();
    match info.and_then(|info| info.get("uuid")) {
        Some(Bson::Binary(uuid)) => Ok(uuid.clone()),
        _ => Err(Halt::Words("the server did not return its UUID".to_owned())),
    }
}
