//! What the application writes, and which errors are its own affair.

use anyhow::Result;
use bson::raw::RawDocumentBuf;
use bson::{Document, doc};
use mongodb::options::{ClientOptions, WriteConcern};
use proto_tests::raw::Connection;
use proto_tests::{Shape, buckets, invariants};

pub(crate) const DOCUMENTS: &str = "documents";
pub(crate) const COUNTERS: &str = "counters";

/// The field that a shaped collection's documents are grouped by.
const KEY: &str = "k";

/// What an application sees that does not retry: seen in runs on the set itself, with `retryWrites=false`.
const SEEN_WITHOUT_RETRIES: &[&str] = &[
    "I/O: ",
    "command: NotWritablePrimary",
    "insertMany: InterruptedDueToReplStateChange",
    "write concern: InterruptedDueToReplStateChange",
    // PrimarySteppedDown.
    "write: 189",
];

/// What was seen behind the proxy only, in this version: it reads and updates where the application inserts, and mongod
/// refuses that in other words. Drivers treat them all alike.
const SEEN_BEHIND_THE_PROXY_ONLY: &[&str] = &[
    "ConnectionPoolCleared",
    "command: InterruptedDueToReplStateChange",
    "insertMany: 189",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Documents and counters, with the driver's default: retryable writes.
    Plain,
    /// Documents of a shaped collection, each sent once: such a collection takes no retryable writes in this version.
    Shaped,
}

impl Workload {
    fn shape() -> Shape {
        Shape::new(&[KEY])
    }

    /// Tables for the proxy's configuration.
    pub(crate) fn config(self) -> String {
        match self {
            Self::Plain => String::new(),
            Self::Shaped => Self::shape().toml(&format!("*.{DOCUMENTS}")),
        }
    }

    pub(crate) fn configure(self, options: &mut ClientOptions) {
        options.write_concern = Some(WriteConcern::majority());
        if self == Self::Shaped {
            options.retry_writes = Some(false);
        }
    }

    /// Writers share keys, and with them pages.
    pub(crate) fn document(id: &str) -> Document {
        let key = i32::try_from(id.len() % 3).unwrap_or_default();
        doc! { "_id": id, KEY: key }
    }

    /// Whether an error is one that the application would see without the proxy too, or else a known one.
    pub(crate) fn may_see(self, kind: &str) -> bool {
        let mut known = SEEN_WITHOUT_RETRIES.iter().chain(SEEN_BEHIND_THE_PROXY_ONLY);
        self == Self::Shaped && known.any(|seen| kind.starts_with(seen))
    }

    /// The documents that the set holds, as a majority of it has them, and what is wrong with how it holds them.
    pub(crate) fn stored(self, primary: &mut Connection, database: &str) -> Result<(Vec<Document>, Vec<String>)> {
        let concern = doc! { "level": "majority" };
        let stored = primary.all(&doc! { "find": DOCUMENTS, "readConcern": concern, "$db": database })?;
        if self == Self::Plain {
            return Ok((stored, Vec::new()));
        }
        let raw = stored
            .iter()
            .map(RawDocumentBuf::try_from)
            .collect::<Result<Vec<_>, _>>()?;
        let violations = invariants::of_buckets(&raw, &Self::shape());
        Ok((stored.iter().flat_map(buckets::items).collect(), violations))
    }
}
