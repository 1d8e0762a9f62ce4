//! Relays long messages whose beginning shows that they touch no shaped collection.

use super::command_timer::Awaited;
use super::{Closed, Session};
use crate::command::error::CommandError;
use crate::command::header::CommandHeader;
use crate::command::registry::Command;
use crate::session::automatic::touched::touched;
use crate::session::command_trace::CommandTrace;
use crate::session::memory::{Reservation, not_logged_in};
use crate::session::metrics::{ByteDirection, Limit};
use crate::session::relay::{RelayedRequest, RequestBytes};
use crate::session::route::{self, Route};
use crate::session::stream::LongFrame;
use crate::session::upstream_connection::LinkError;
use crate::wire::limits::MAX_MESSAGE_BYTES;
use crate::wire::{Frame, MessageHeader, OpCode, OpCompressed, OpMsgBuilder, OpMsgFlags, OpMsgHead};

/// Commands that are always read completely. `bulkWrite` may name namespaces in a document
/// sequence. The others may have to be edited.
const READ_WHOLE: &[Command] = &[
    Command::AbortTransaction,
    Command::BulkWrite,
    Command::CommitTransaction,
];

/// The beginning of a message that can be relayed.
pub(super) struct Beginning {
    command: Command,
    flags: OpMsgFlags,
    trace: Option<Box<CommandTrace>>,
}

impl Session<'_> {
    /// Relays a long message while it arrives. If its beginning does not permit that, reserves
    /// memory, reads the whole message and returns it.
    pub(super) async fn relay_long(&mut self, long: LongFrame) -> Result<Option<Frame>, Closed> {
        let header = long.header();
        let beginning = long.payload();
        if header.op_code == OpCode::Msg
            && let Some(command) = self.beginning_to_relay(&beginning)
        {
            self.shared
                .metrics
                .bytes(ByteDirection::Received, header.message_length);
            self.relay_beginning(RequestBytes::Long(long), command).await?;
            return Ok(None);
        }
        // The compressed and the decompressed bytes are reserved together: a session that waits for the
        // second part would block others with the first.
        let opened = match header.op_code {
            OpCode::Compressed => OpCompressed::declared_bytes(&beginning).min(MAX_MESSAGE_BYTES),
            _ => 0,
        };
        drop(beginning);
        if let Some(error) = self
            .reserve_request(header.message_length.saturating_add(opened))
            .await?
        {
            return self.refuse_long(long, error).await.map(|()| None);
        }
        let memory = &self.request_memory;
        let whole = self.client.complete(long, || memory.is_waited_for()).await?;
        Ok(Some(whole.ok_or(Closed::ByClient)?))
    }

    /// Reserves memory for a request of `bytes`, or returns the error for the client. Unauthenticated
    /// clients of a server that requires authentication share a small budget.
    pub(super) async fn reserve_request(&mut self, bytes: usize) -> Result<Option<CommandError>, Closed> {
        let memory = &self.shared.memory;
        let is_stranger = self.link.is_stranger().await?;
        let share = if is_stranger {
            &memory.strangers
        } else {
            &memory.requests
        };
        if is_stranger && share.is_exceeded_by(bytes) {
            return Ok(Some(not_logged_in()));
        }
        self.request_memory = Reservation::of(share);
        Ok(self.request_memory.reserve_request(bytes).await.err())
    }

    /// Reads and discards a long message for which no memory was free, and replies with the error.
    async fn refuse_long(&mut self, long: LongFrame, error: CommandError) -> Result<(), Closed> {
        let header = long.header();
        let flags = OpMsgHead::flags_of_beginning(&long.payload());
        let is_answered = flags.is_some_and(|flags| !flags.contains(OpMsgFlags::MORE_TO_COME));
        if header.op_code != OpCode::Msg || !is_answered {
            // Without the flags it is unknown whether the client expects a reply.
            return Err(Closed::NoRoom);
        }
        self.client.discard(long).await?;
        self.report_no_memory(header, error).await
    }

    async fn report_no_memory(&mut self, header: MessageHeader, error: CommandError) -> Result<(), Closed> {
        self.shared.metrics.limit_hit(Limit::LongMessages);
        let body = error.into_reply();
        let reply = OpMsgBuilder::new(0, header.request_id).body(&body).build();
        self.send(&reply.map_err(LinkError::from)?).await
    }

    /// The command if its first bytes prove that it can be relayed. `beginning`: the bytes after
    /// the message header.
    pub(super) fn beginning_to_relay(&mut self, beginning: &[u8]) -> Option<Beginning> {
        let opened = OpMsgHead::of_beginning(beginning)?;
        let flags = opened.flags;
        let head = CommandHeader::of(opened.without_sequences()).ok()?;
        if READ_WHOLE.contains(&head.command) {
            return None;
        }
        let settings = self.settings.load();
        if !touched(&settings.shapes, &head).is_empty() {
            return None;
        }
        let route = route::decide(settings, &head);
        // An observed command is read completely.
        let is_observed = settings
            .observer
            .as_ref()
            .is_some_and(|observer| observer.concerns(&head));
        (matches!(route, Route::Relay) && !is_observed).then(|| Beginning {
            command: head.command,
            flags,
            trace: self.trace(&head),
        })
    }

    pub(super) async fn relay_beginning(&mut self, sent: RequestBytes<'_>, command: Beginning) -> Result<(), Closed> {
        let begun = self.begin(command.command, Awaited::Answer, command.trace);
        let flags = command.flags;
        let relayed = self.relay(RelayedRequest { sent, flags }, self.look()).await;
        self.count(&begun, relayed)
    }
}
