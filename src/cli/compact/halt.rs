//! Why a collection was not packed.

use mongodb::error::Error;

use crate::cli::finding::Finding;
use crate::cli::upstream::explain;

/// The ways to end early.
#[derive(Debug)]
pub(super) enum Halt {
    /// By a signal.
    Stopped,
    /// A document is no page.
    Misfit,
    /// A command failed.
    Failed(Error),
    /// Anything else, in words.
    Words(String),
}

impl Halt {
    pub(super) fn finding(&self, namespace: &str) -> Finding {
        let text = match self {
            Self::Stopped => "stopped; run `mongoshape compact` again to go on".to_owned(),
            Self::Misfit => "holds a document that is no page; `mongoshape check` names it".to_owned(),
            Self::Failed(error) => format!("cannot be packed: {}", explain(error)),
            Self::Words(words) => format!("cannot be packed: {words}"),
        };
        Finding::error(namespace, text)
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
