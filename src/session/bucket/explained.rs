//! An explanation: the internal command and its access path.

use bson::raw::{RawDocumentBuf, cstr};

use crate::command::document::{put, single};
use crate::session::metrics::Strategy;

/// What is sent for a client's command.
pub(super) struct Explained {
    /// Which way it goes.
    pub(super) strategy: Strategy,
    /// The command on buckets; where there are several, that which brings items.
    pub(super) command: RawDocumentBuf,
}

impl Explained {
    /// mongod's explanation, and what the proxy does.
    pub(super) fn told_in(&self, mut reply: RawDocumentBuf) -> RawDocumentBuf {
        let mut told = single("strategy", self.strategy.label());
        told.append(cstr!("command"), &self.command);
        put(&mut reply, FIELD, &told);
        reply
    }
}

/// The field of an explanation that tells what the proxy does.
const FIELD: &str = "mongoshape";
