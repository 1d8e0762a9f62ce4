//! `bulkWrite` (MongoDB 8.0) if one of its collections has a shape. Consecutive operations on a collection
//! are executed as a command of their own, in the layout of that collection.

use bson::raw::{RawArrayBuf, RawDocumentBuf};

use super::reply::ReplyTarget;
use super::{Closed, Message, Session};
use crate::command::bulk_write::{BulkWrite, BulkWriteResults};
use crate::command::document::{put, single};
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::header::CommandHeader;
use crate::command::referenced_namespaces;
use crate::command::registry::Command;
use crate::command::reply::succeeded;
use crate::pattern::shapes::{Mode, Shapes};
use crate::session::automatic::touched::touched;
use crate::session::metrics::CommandOutcome;
use crate::session::route::{self, Route};
use crate::session::upstream_connection::{LinkError, UpstreamRequest};
use crate::wire::{Frame, OpMsg};

/// Whether a command is a `bulkWrite` on a shaped collection.
pub(super) fn is_on_shapes(shapes: &Shapes, head: &CommandHeader<'_>) -> bool {
    let mut found = false;
    if head.command == Command::BulkWrite {
        referenced_namespaces::for_each(head, &mut |namespace| {
            let is_rewritten = shapes
                .lookup(namespace)
                .is_some_and(|shape| shape.mode() == Mode::Rewrite);
            found |= is_rewritten || shapes.automatic(namespace).is_some();
        });
    }
    found
}

impl Session<'_> {
    pub(super) async fn bulk_write(
        &mut self,
        message: Message<'_>,
        head: &CommandHeader<'_>,
    ) -> Result<CommandOutcome, Closed> {
        let frame = message.opened;
        OpMsg::parse(frame).map_err(|error| Closed::Protocol(error.to_string()))?;
        self.link.compress_with(self.compressor);
        if let Some(refusal) = self.bulk_write_refusal().await? {
            return self.finish(frame, head, Err(refusal.into())).await;
        }
        let answer = match head.validate().and_then(|()| BulkWrite::parse(head)) {
            Ok(bulk) => Ok(self.execute_bulk(head, &bulk).await?),
            Err(error) => Err(error.into()),
        };
        self.finish(frame, head, answer).await
    }

    /// The error of a server that does not have the command. The client's command is never relayed, because a
    /// server that has it would write to raw buckets.
    async fn bulk_write_refusal(&mut self) -> Result<Option<CommandError>, Closed> {
        if self.has_bulk_write {
            return Ok(None);
        }
        let mut without_operations = single("bulkWrite", 1);
        for field in ["ops", "nsInfo"] {
            put(&mut without_operations, field, RawArrayBuf::new());
        }
        put(&mut without_operations, "$db", "admin");
        let reply = self.link.call(UpstreamRequest::plain(&without_operations)).await?;
        let unknown = [ErrorCode::CommandNotFound, ErrorCode::CommandNotSupported];
        match succeeded(reply) {
            Err(error) if unknown.iter().any(|code| error.is(*code)) => Ok(Some(error)),
            Err(error) if error.is(ErrorCode::Unauthorized) => Ok(Some(error)),
            _ => {
                self.has_bulk_write = true;
                Ok(None)
            }
        }
    }

    /// Executes the parts, and returns the reply.
    async fn execute_bulk(&mut self, head: &CommandHeader<'_>, bulk: &BulkWrite<'_>) -> Result<RawDocumentBuf, Closed> {
        let mut results = BulkWriteResults::default();
        for (number, part) in bulk.parts().iter().enumerate() {
            if results.is_full() {
                results.add_too_many(part);
                break;
            }
            let frame = bulk.message(head, part, number == 0).map_err(LinkError::from)?;
            match succeeded(self.execute_part(&frame).await?) {
                Ok(reply) => results.add(bulk, part, reply),
                Err(error) => match WriteError::of_command(&error) {
                    Some(failed) if !head.in_transaction() => results.add_failure(bulk, part, &failed),
                    _ => return Ok(error.into_reply()),
                },
            }
            if bulk.ends_with_first_failure && results.has_failed() {
                break;
            }
        }
        Ok(results.into_document(head))
    }

    /// Executes a command that is a part of the client's, and returns its reply.
    async fn execute_part(&mut self, frame: &Frame) -> Result<RawDocumentBuf, Closed> {
        self.reply_target = ReplyTarget::Whole(None);
        let executed = Box::pin(self.execute_message(frame)).await;
        let target = std::mem::take(&mut self.reply_target);
        executed?;
        match target {
            ReplyTarget::Whole(Some(reply)) => Ok(reply),
            ReplyTarget::Whole(None) | ReplyTarget::Client => {
                Err(Closed::Protocol("a part of a bulkWrite has no reply".to_owned()))
            }
        }
    }

    async fn execute_message(&mut self, frame: &Frame) -> Result<(), Closed> {
        let opened = OpMsg::parse_unverified(frame).map_err(LinkError::from)?;
        let head = match CommandHeader::of(opened) {
            Ok(head) => head,
            Err(error) => return self.reply_in_kind(frame, error).await,
        };
        let message = Message::plain(frame);
        let settings = self.shared.settings();
        let touched = touched(&settings.shapes, &head);
        if !touched.is_empty() {
            return Box::pin(self.automatic(message, &head, &touched)).await.map(drop);
        }
        match route::decide(&settings, &head) {
            Route::Relay => self.relay_part(frame, &head).await,
            route => self.dispatch(message, &head, route).await.map(drop),
        }
    }

    /// Sends a part to the server as it is.
    pub(super) async fn relay_part(&mut self, frame: &Frame, head: &CommandHeader<'_>) -> Result<(), Closed> {
        let statements: Vec<_> = head
            .message
            .sequences
            .iter()
            .flat_map(|of| of.documents().flatten())
            .collect();
        let field = head.command.statements_field();
        let request = UpstreamRequest {
            body: head.body(),
            sequence: field.map(|field| (field, statements.as_slice())),
        };
        let answer = self.link.call_reserving(request, &mut self.reply_memory).await;
        match answer {
            Ok(reply) => self.reply(frame, reply).await,
            Err(error) => {
                let error = Closed::unless_replied(error)?;
                self.reply(frame, error.into_reply()).await
            }
        }
    }
}
