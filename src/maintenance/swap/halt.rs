//! The reasons why a swap was not done.

use mongodb::error::Error;

use super::kind::SwapKind;
use crate::maintenance::finding::Finding;
use crate::maintenance::upstream::explain;

#[derive(Debug)]
pub(crate) enum Halt {
    /// A signal.
    Stopped,
    /// A document that is not a page.
    Misfit,
    /// A failed command.
    Failed(Error),
    /// Any other reason, as text.
    Words(String),
}

impl Halt {
    pub(crate) fn finding(&self, work: SwapKind, namespace: &str) -> Finding {
        let text = match self {
            Self::Stopped if work == SwapKind::Pack => {
                format!("stopped; the collection is unchanged; run `{}` again", work.command())
            }
            Self::Stopped => format!("stopped; run `{}` again to continue", work.command()),
            Self::Misfit => "contains a document that is not a page; `mongoshape check` names it".to_owned(),
            Self::Failed(error) => format!("cannot be {}: {}", work.participle(), explain(error)),
            Self::Words(words) => format!("cannot be {}: {words}", work.participle()),
        };
        Finding::error(namespace, text)
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
