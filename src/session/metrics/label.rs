//! Values of labels. They are closed sets, so their series exist before the first event.

use crate::command::change_stream;
use crate::command::header::CommandHeader;
use crate::command::registry::{Command, CommandClass};

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// Relayed as it came.
    Relayed,
    /// Executed for a shape.
    Rewritten,
    /// Refused by the proxy.
    Rejected,
    /// Not answered, because a peer disconnected.
    Failed,
}

impl CommandOutcome {
    pub(super) const ALL: [Self; 4] = [Self::Relayed, Self::Rewritten, Self::Rejected, Self::Failed];

    /// The value of the label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Relayed => "relayed",
            Self::Rewritten => "rewritten",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
        }
    }
}

/// The access path of a read, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// By reading the pages that contain the result.
    Page,
    /// By merging buckets in the order of an index.
    Index,
    /// By unpacking buckets batch by batch.
    Stream,
    /// By a pipeline that unpacks buckets in mongod.
    Pipeline,
    /// By a change stream of pages.
    ChangeStream,
}

impl Strategy {
    pub(super) const ALL: [Self; 5] = [
        Self::Page,
        Self::Index,
        Self::Stream,
        Self::Pipeline,
        Self::ChangeStream,
    ];

    /// The value of the label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Index => "index",
            Self::Stream => "stream",
            Self::Pipeline => "pipeline",
            Self::ChangeStream => "change_stream",
        }
    }
}

/// The limit because of which a connection was closed or a message refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Number of connections.
    Connections,
    /// Bytes in one message.
    MessageBytes,
    /// Bytes in one decompressed message.
    InflatedBytes,
    /// Memory for long messages of all clients.
    LongMessages,
    /// Time until the first message, or of the TLS handshake.
    HandshakeTimeout,
    /// Time to receive a message.
    FrameTimeout,
    /// Time between two messages.
    IdleTimeout,
    /// Time without progress while a reply is sent.
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

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteDirection {
    /// From clients.
    Received,
    /// To clients.
    Sent,
}

/// The category of a refusal on a shaped collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// A read, or an option of a read.
    Read,
    /// A write, or an option of a write.
    Write,
    /// An index command.
    Index,
    /// A command on the collection as a whole.
    Collection,
    /// A command that shapes do not support.
    Command,
    /// A reference in a command on another collection or database.
    Mention,
    /// A change stream of the database or the cluster.
    ChangeStream,
    /// A reference by UUID.
    Uuid,
    /// A feature that is not supported behind a mongos.
    Cluster,
    /// A read or write of a collection with content that does not fit the shape.
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

    /// The reason for a refused command on the collection itself.
    #[must_use]
    pub fn of(head: &CommandHeader<'_>) -> Self {
        if change_stream::scope(head).is_some() {
            return Self::ChangeStream;
        }
        Self::of_command(head.command)
    }

    /// The reason for a command other than a change stream.
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

    /// The reasons for which the command can be refused, except by a client that gives the name of a
    /// collection to a command that has none.
    pub(super) fn possible(command: Command) -> impl Iterator<Item = Self> {
        let names_collection = command.class() != CommandClass::Other
            || matches!(command, Command::BulkWrite | Command::MapReduce | Command::Other);
        let may_be = move |reason: &Self| match reason {
            Self::ChangeStream => command == Command::Aggregate,
            Self::Mention | Self::Uuid | Self::Cluster | Self::Misfit => names_collection,
            own => names_collection && *own == Self::of_command(command),
        };
        Self::ALL.into_iter().filter(may_be)
    }

    /// What to do instead, for a person.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Read | Self::Write | Self::Collection | Self::Command => {
                "change the command as docs/support.md describes (docs/support-outlier.md for outliers)"
            }
            Self::Index => "create another index or none, as docs/refused-indexes.md describes",
            Self::Mention => {
                "read the collection by a command of its own, or change the stage as docs/support.md describes"
            }
            Self::ChangeStream => "set `change_streams = true` in the shape of the collection",
            Self::Uuid => "name the collection",
            Self::Cluster => {
                "connect the proxy to a replica set, or do without the feature, as docs/support.md describes for a mongos"
            }
            Self::Misfit => "run `mongoshape check`, which names the documents or options",
        }
    }

    /// The value of the label.
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
