//! An error reply, on its way to the client.

use std::fmt;

use bson::{Document, doc};

/// An error reply of the router or of a shard. It travels as an error until the reply is sent.
#[derive(Debug)]
pub(super) struct Refusal {
    reply: Document,
}

impl Refusal {
    /// An error of the router.
    pub(super) fn new(code: i32, name: &str, message: impl Into<String>) -> Self {
        let message: String = message.into();
        Self {
            reply: doc! { "ok": 0.0, "errmsg": message, "code": code, "codeName": name },
        }
    }

    /// What the model does not do, though mongos does.
    pub(super) fn not_modelled(what: &str) -> Self {
        Self::new(20, "IllegalOperation", format!("the model of a cluster has no {what}"))
    }

    /// The command is not known for this namespace.
    pub(super) fn no_command(name: &str, namespace: &str) -> Self {
        let message = format!("the model of a cluster has no command '{name}' on {namespace}");
        Self::new(59, "CommandNotFound", message)
    }

    /// The error reply of a shard.
    pub(super) fn of(reply: Document) -> Self {
        Self { reply }
    }

    /// The same error, after which a driver begins the transaction again.
    pub(super) fn transient(mut self) -> Self {
        self.reply.insert("errorLabels", vec!["TransientTransactionError"]);
        self
    }

    /// The whole reply.
    pub(super) fn into_reply(self) -> Document {
        self.reply
    }

    /// The error as one of the `writeErrors`.
    pub(super) fn write_error(&self, index: i32) -> Document {
        let mut error = doc! { "index": index };
        let fields = self.reply.iter();
        error.extend(
            fields
                .filter(|(name, _)| ["code", "errmsg"].contains(&name.as_str()))
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        error
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reply.fmt(formatter)
    }
}

impl std::error::Error for Refusal {}
