//! OP_QUERY: the handshake. Anything else is refused.

use bson::raw::RawDocument;

use super::command_timer::Awaited;
use super::{Closed, Session};
use crate::command::document::first_field;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::registry::Command;
use crate::session::handshake;
use crate::session::relay::{RelayedRequest, ReplyInspection, RequestBytes};
use crate::session::upstream_connection::LinkError;
use crate::wire::{Frame, OpMsgFlags, OpQuery, OpReply};

/// Bit 3 of an OP_REPLY's flags, which mongod always sets.
const AWAIT_CAPABLE: i32 = 8;

/// Commands that mongod still accepts as OP_QUERY (`checkAllowedOpQueryCommand`).
const LEGACY_COMMANDS: &[&str] = &[
    "_isSelf",
    "authenticate",
    "buildInfo",
    "buildinfo",
    "hello",
    "isMaster",
    "ismaster",
    "saslContinue",
    "saslStart",
];

impl Session<'_> {
    /// Handles an OP_QUERY.
    pub(super) async fn query(&mut self, frame: &Frame) -> Result<(), Closed> {
        let query = OpQuery::parse(frame).map_err(|error| Closed::Protocol(error.to_string()))?;
        let (name, command) = legacy_command(&query).unwrap_or(("", query.query));
        if !query.full_collection_name.ends_with(".$cmd") || !LEGACY_COMMANDS.contains(&name) {
            let message = format!("Unsupported OP_QUERY command: {name}. The client driver may require an upgrade.");
            let error = CommandError::new(ErrorCode::UnsupportedOpQueryCommand, message);
            return self.reply_in_kind(frame, error).await;
        }
        let kind = Command::of(name);
        if let Err(error) = handshake::check_mechanism(kind, command) {
            return self.reply_in_kind(frame, error).await;
        }
        let begun = self.begin(kind, Awaited::by(kind, command), None);
        let flags = OpMsgFlags::default();
        let done = if kind.is_handshake() {
            let edited = handshake::edit_query(
                frame,
                &OpQuery {
                    query: command,
                    ..query
                },
            )
            .map_err(LinkError::from)?;
            let frame = edited.as_ref().unwrap_or(frame);
            self.relay(
                RelayedRequest {
                    sent: RequestBytes::Whole(frame),
                    flags,
                },
                ReplyInspection::Handshake(self.presentation),
            )
            .await
        } else {
            self.relay(
                RelayedRequest {
                    sent: RequestBytes::Whole(frame),
                    flags,
                },
                ReplyInspection::Passing,
            )
            .await
        };
        self.count(&begun, done)
    }
}

/// Encodes an error as OP_REPLY.
pub(super) fn error_reply(request: &Frame, error: CommandError) -> Result<Frame, LinkError> {
    let body = error.into_reply();
    let reply = OpReply {
        response_flags: AWAIT_CAPABLE,
        cursor_id: 0,
        starting_from: 0,
        documents: vec![&body],
    };
    Ok(reply.encode(0, request.header().request_id)?)
}

/// The command in an OP_QUERY and its name. mongod unwraps `$query` (`upconvertRequest`), so the
/// check must see the wrapped command.
fn legacy_command<'a>(query: &OpQuery<'a>) -> Option<(&'a str, &'a RawDocument)> {
    let (name, value) = first_field(query.query)?;
    match (name, value.as_document()) {
        ("$query" | "query", Some(wrapped)) => first_field(wrapped).map(|(name, _)| (name, wrapped)),
        _ => Some((name, query.query)),
    }
}
