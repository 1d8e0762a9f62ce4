//! `getMore` on a cursor of a pipeline that references collections with an automatic shape.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};

use super::execute::watched;
use super::{Closed, Message, Session};
use crate::command::arguments::InheritedOptions;
use crate::command::document::{as_whole_number, first_field, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::registry::Command;
use crate::command::reply::CursorReply;
use crate::pattern::shapes::Shape;
use crate::session::automatic::guarded_cursors::GuardedCollection;
use crate::session::automatic::plain::whole_body;
use crate::session::automatic::stored::ExpectedCollection;
use crate::session::automatic::{Identity, identity};
use crate::session::bucket::BucketCommand;
use crate::session::command_context::CommandContext;
use crate::session::error::RunError;
use crate::session::metrics::CommandOutcome;
use crate::session::route::{self, Route};
use crate::session::upstream_connection::UpstreamRequest;

/// A cursor and the collections that its pipeline references.
pub(super) struct Guard {
    id: i64,
    references: Vec<GuardedCollection>,
}

impl Session<'_> {
    /// The guard of the cursor of a `getMore`, if it has one.
    pub(super) fn guard_of(&self, head: &CommandHeader<'_>) -> Option<Guard> {
        let (_, id) = first_field(head.body()).filter(|_| head.command == Command::GetMore)?;
        let id = as_whole_number(id)?;
        let references = self.shared.guarded_cursors.of(id)?;
        Some(Guard { id, references })
    }

    /// Reads the next batch, and ends the cursor if a referenced collection was exchanged.
    pub(super) async fn guarded(
        &mut self,
        message: Message<'_>,
        head: &CommandHeader<'_>,
        guard: &Guard,
    ) -> Result<CommandOutcome, Closed> {
        self.link.compress_with(self.compressor);
        let reply = self.next_batch(head, guard).await;
        self.finish(message.opened, head, reply).await
    }

    async fn next_batch(&mut self, head: &CommandHeader<'_>, guard: &Guard) -> Result<RawDocumentBuf, RunError> {
        let id = guard.id;
        let settings = self.shared.settings();
        let route = route::decide(&settings, head);
        let reply = match &route {
            Route::Shaped(to) if let Shape::Bucket(shape) = to.shape() => {
                let context = CommandContext::new(self.shared, &settings, &mut self.link, self.upstream, head);
                let command = BucketCommand::new(context, shape, to.namespace);
                Box::pin(watched(head, command.run(), &mut self.client)).await?
            }
            _ => {
                let body = whole_body(head);
                let call = self
                    .link
                    .call_reserving(UpstreamRequest::plain(&body), &mut self.reply_memory);
                watched(head, call, &mut self.client).await?
            }
        };
        let is_open = CursorReply::parse(&reply).is_some_and(|cursor| cursor.id != 0);
        for reference in &guard.references {
            let namespace = reference.collection.namespace();
            let expected = ExpectedCollection {
                uuid: reference.uuid.as_ref(),
                given_up: Some(reference.given_up),
            };
            if identity(&mut self.link, head, namespace, expected).await? == Identity::Changed {
                self.shared.guarded_cursors.closed(id);
                self.kill(head, id).await?;
                let message = format!("collection {namespace} was exchanged by `mongoshape convert`");
                return Err(CommandError::new(ErrorCode::QueryPlanKilled, message).into());
            }
        }
        if !is_open {
            self.shared.guarded_cursors.closed(id);
        }
        Ok(reply)
    }

    async fn kill(&mut self, head: &CommandHeader<'_>, id: i64) -> Result<(), RunError> {
        let collection = head.namespace().map(|namespace| namespace.collection);
        let mut kill = single("killCursors", collection.unwrap_or_default());
        let ids: RawArrayBuf = [RawBsonRef::Int64(id)].into_iter().collect();
        put(&mut kill, "cursors", &ids);
        InheritedOptions::of(head.body()).append_to_get_more(&mut kill);
        self.link.call(UpstreamRequest::plain(&kill)).await?;
        Ok(())
    }
}
