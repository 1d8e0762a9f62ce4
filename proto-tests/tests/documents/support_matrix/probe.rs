//! A command that tries one row of a document.

use bson::{Bson, Document};

/// How much of two answers must be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    /// All that is not a server's own.
    Whole,
    /// Whether it succeeds, or else the code. The difference is in the note or in the error text.
    Success,
    /// All, where items have unique `_id`s; it is not tried where they have not.
    WholeIfUnique,
    /// All of mongod's own error, which both sides give.
    Error,
    /// The code of that.
    Code,
    /// All. The command fails on some versions of the server.
    OnEachVersion,
    /// Nothing: this is the part of an option that is refused.
    Refused,
}

/// A command that tries an option.
#[derive(Debug)]
pub(crate) struct Probe {
    pub command: &'static str,
    pub option: &'static str,
    pub sent: Document,
    pub compared: Compared,
}

/// Those of one command.
pub(crate) struct Of {
    command: &'static str,
    base: Document,
    compared: Compared,
    pub probes: Vec<Probe>,
}

impl Of {
    pub(crate) fn new(command: &'static str, base: Document) -> Self {
        Self {
            command,
            base,
            compared: Compared::Whole,
            probes: Vec::new(),
        }
    }

    pub(crate) fn compared(mut self, compared: Compared) -> Self {
        self.compared = compared;
        self
    }

    /// An option given this value.
    pub(crate) fn with(self, option: &'static str, value: impl Into<Bson>) -> Self {
        let mut sent = self.base.clone();
        sent.insert(option, value);
        self.sent(option, sent)
    }

    /// An option given beside others.
    pub(crate) fn beside(self, option: &'static str, others: Document) -> Self {
        let mut sent = self.base.clone();
        sent.extend(others);
        self.sent(option, sent)
    }

    pub(crate) fn sent(self, option: &'static str, sent: Document) -> Self {
        let compared = self.compared;
        self.compared_by(option, sent, compared)
    }

    /// Several commands that try one option.
    pub(crate) fn sent_all<const N: usize>(self, option: &'static str, all: [Document; N]) -> Self {
        all.into_iter().fold(self, |of, sent| of.sent(option, sent))
    }

    /// Only the success or the error code of its replies is comparable.
    pub(crate) fn loosely(self, option: &'static str, others: Document) -> Self {
        let mut sent = self.base.clone();
        sent.extend(others);
        self.compared_by(option, sent, Compared::Success)
    }

    /// Which is an error on both sides.
    pub(crate) fn wrong(self, option: &'static str, others: Document) -> Self {
        let mut sent = self.base.clone();
        sent.extend(others);
        self.compared_by(option, sent, Compared::Error)
    }

    /// Which is an error on some versions of the server.
    pub(crate) fn wrong_on_some(self, option: &'static str, others: Document) -> Self {
        let mut sent = self.base.clone();
        sent.extend(others);
        self.compared_by(option, sent, Compared::OnEachVersion)
    }

    /// The same error with another text.
    pub(crate) fn wrong_loosely(self, option: &'static str, others: Document) -> Self {
        let mut sent = self.base.clone();
        sent.extend(others);
        self.compared_by(option, sent, Compared::Code)
    }

    /// A part of an option that is refused.
    pub(crate) fn but(self, option: &'static str, others: Document) -> Self {
        let mut sent = self.base.clone();
        sent.extend(others);
        self.compared_by(option, sent, Compared::Refused)
    }

    pub(crate) fn compared_by(mut self, option: &'static str, sent: Document, compared: Compared) -> Self {
        let command = self.command;
        self.probes.push(Probe {
            command,
            option,
            sent,
            compared,
        });
        self
    }
}

/// One that no collection has.
pub(crate) fn uuid() -> bson::Binary {
    bson::Binary {
        subtype: bson::spec::BinarySubtype::Uuid,
        bytes: vec![7; 16],
    }
}
