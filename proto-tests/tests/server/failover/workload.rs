//! The writes of the application.

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Documents and counters, with the driver's default: retryable writes.
    Plain,
    /// Documents of a shaped collection, with the same default.
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

    pub(crate) fn configure(options: &mut ClientOptions) {
        options.write_concern = Some(WriteConcern::majority());
    }

    /// Writers share keys, and with them pages.
    pub(crate) fn document(id: &str) -> Document {
        let key = i32::try_from(id.len() % 3).unwrap_or_default();
        doc! { "_id": id, KEY: key }
    }

    /// The documents that the set holds, as a majority of it has them, and what is wrong with how it holds
    /// them.
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
