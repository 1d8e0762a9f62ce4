//! Why a rewritten command was not answered with success.

use super::link::LinkError;
use crate::command::error::CommandError;

/// The two ways to fail.
#[derive(Debug)]
pub(super) enum RunError {
    /// It is answered with an error.
    Command(CommandError),
    /// The upstream connection cannot be used any more.
    Link(LinkError),
}

impl RunError {
    /// See [`CommandError::of_write`].
    pub(super) fn of_write(self) -> Self {
        match self {
            Self::Command(error) => Self::Command(error.of_write()),
            link @ Self::Link(_) => link,
        }
    }
}

impl From<CommandError> for RunError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl From<LinkError> for RunError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}
