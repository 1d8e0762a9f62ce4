//! An explanation: the internal command and its access path.

use bson::raw::{RawDocumentBuf, cstr};

use crate::command::document::{put, single};
use crate::session::metrics::Strategy;

/// The internal command that answers a client's command.
pub(super) struct Explained {
    /// The access path.
    pub(super) strategy: Strategy,
    /// The command on buckets. If there are several, the one that returns items.
    pub(super) command: RawDocumentBuf,
}

impl Explained {
    /// Adds the access path and the internal command to mongod's explanation.
    pub(super) fn added_to(&self, mut reply: RawDocumentBuf) -> RawDocumentBuf {
        let mut explanation = single("strategy", self.strategy.label());
        explanation.append(cstr!("command"), &self.command);
        put(&mut reply, FIELD, &explanation);
        reply
    }
}

/// The field of an explanation that describes what the proxy does.
const FIELD: &str = "mongoshape";
