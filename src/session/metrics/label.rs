//! Values of labels: closed sets, whose series exist before their first event.

use crate::command::document::{first_field, get};
use crate::command::header::CommandHeader;
use crate::command::registry::{Command, CommandClass};
use crate::pattern::pipeline::documents;

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// Its bytes were passed on.
    Relayed,
    /// It was rewritten and answered.
    Rewritten,
    /// It was refused by the proxy.
    Rejected,
    /// It could not be answered: a peer went away.
    Failed,
}

impl CommandOutcome {
    pub(super) const ALL: [Self; 4] = [Self::Relayed, Self::Rewritten, Self::Rejected, Self::Failed];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Relayed => "relayed",
            Self::Rewritten => "rewritten",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
        }
    }
}

/// The way a read was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// By looking at the pages that hold the answer.
    Page,
    /// By merging buckets in the order of an index.
    Index,
    /// By unpacking buckets as they come, batch after batch.
    Stream,
    /// By a pipeline that unpacks in mongod.
    Pipeline,
}

impl Strategy {
    pub(super) const ALL: [Self; 4] = [Self::Page, Self::Index, Self::Stream, Self::Pipeline];

    /// What it is called.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Index => "index",
            Self::Stream => "stream",
            Self::Pipeline => "pipeline",
        }
    }
}

/// What a peer wanted more of than it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Connections at a time.
    Connections,
    /// Bytes in one message.
    MessageBytes,
    /// Bytes in one message once it is inflated.
    InflatedBytes,
    /// Room for long messages, which all clients share.
    LongMessages,
    /// Time until the first message, or for the TLS handshake.
    HandshakeTimeout,
    /// Time for a message that has begun.
    FrameTimeout,
    /// Time between two messages.
    IdleTimeout,
    /// Time in which a reply is not read.
    SendTimeout,
}

impl Limit {
    pub(super) const ALL: [Self; 8] = [
        Self::Connections,
        Self::MessageBytes,
        Self::InflatedBytes,
        Self::LongMessages,
        Self::HandshakeTimeout,
        Self::FrameTimeout,
        Self::IdleTimeout,
        Self::SendTimeout,
    ];

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::MessageBytes => "message_bytes",
            Self::InflatedBytes => "inflated_bytes",
            Self::LongMessages => "long_messages",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::FrameTimeout => "frame_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::SendTimeout => "send_timeout",
        }
    }
}

/// Which way bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteDirection {
    /// From clients.
    Received,
    /// To clients.
    Sent,
}

/// What of a shaped collection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// A question, or an option of one.
    Read,
    /// A change of items or documents, or an option of one.
    Write,
    /// Something about indexes.
    Index,
    /// Something about the collection as a whole.
    Collection,
    /// A command that no shape has.
    Command,
    /// To be named by a command on another collection, or on none.
    Mention,
    /// A change stream of the database or the cluster.
    ChangeStream,
    /// To be named by its UUID.
    Uuid,
    /// To be sharded.
    Cluster,
    /// To be read or written, as it holds what is not of the shape.
    Misfit,
}

impl RefusalReason {
    pub(super) const ALL: [Self; 10] = [
        Self::Read,
        Self::Write,
        Self::Index,
        Self::Collection,
        Self::Command,
        Self::Mention,
        Self::ChangeStream,
        Self::Uuid,
        Self::Cluster,
        Self::Misfit,
    ];

    /// What is refused of a command on the collection itself.
    #[must_use]
    pub fn of(head: &CommandHeader<'_>) -> Self {
        if opens_change_stream(head) {
            return Self::ChangeStream;
        }
        Self::of_command(head.command)
    }

    /// The reason for a command that opens no change stream.
    #[must_use]
    pub fn of_command(command: Command) -> Self {
        match command.class() {
            CommandClass::Read => Self::Read,
            CommandClass::Write => Self::Write,
            CommandClass::Index => Self::Index,
            CommandClass::Collection => Self::Collection,
            CommandClass::Other => Self::Command,
        }
    }

    /// What it is called.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Index => "index",
            Self::Collection => "collection",
            Self::Command => "command",
            Self::Mention => "mention",
            Self::ChangeStream => "change_stream",
            Self::Uuid => "uuid",
            Self::Cluster => "cluster",
            Self::Misfit => "misfit",
        }
    }
}

/// Whether an `aggregate` begins with `$changeStream`.
fn opens_change_stream(head: &CommandHeader<'_>) -> bool {
    let stages = documents(get(head.body(), "pipeline"));
    let first = stages.as_deref().and_then(|stages| first_field(stages.first()?));
    head.command == Command::Aggregate && first.is_some_and(|(name, _)| name == "$changeStream")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_in_their_places() {
        for (place, outcome) in CommandOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, place);
        }
    }
}
