//! Errors of commands that the proxy executes.

use super::upstream_connection::LinkError;
use crate::command::error::CommandError;

/// The reason why a command has no successful reply.
#[derive(Debug)]
pub(super) enum RunError {
    /// The reply is an error.
    Command(CommandError),
    /// The upstream connection is unusable.
    Link(LinkError),
    /// The client has closed its connection.
    ClientClosed,
    /// The collection of an automatic shape contains another layout than the command was planned for. Nothing
    /// was executed, or what was is found again by a retry record. Never reaches the client.
    LayoutChanged,
}

impl RunError {
    /// Converts the command's error and keeps any other.
    pub(super) fn map_command(self, map: impl FnOnce(CommandError) -> CommandError) -> Self {
        match self {
            Self::Command(error) => Self::Command(map(error)),
            other => other,
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
