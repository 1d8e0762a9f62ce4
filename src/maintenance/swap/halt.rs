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
                format!("stopped, and left as it was; run `{}` again", work.command())
            }
            Self::Stopped => format!("stopped; run `{}` again to go on", work.command()),
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
