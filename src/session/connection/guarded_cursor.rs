//! `getMore` and `killCursors` on cursors that depend on the layout of collections with an automatic shape.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::execute::watched;
use super::{Closed, Message, Session};
use crate::command::arguments::{InheritedOptions, with_replaced};
use crate::command::document::{first_field, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::registry::Command;
use crate::command::reply::{CursorReply, with_cursor_id};
use crate::pattern::shapes::Shape;
use crate::session::automatic::guarded_cursors::{GuardedCollection, GuardedReferences, killed_by_client_ids, negated};
use crate::session::automatic::plain::whole_body;
use crate::session::automatic::{Identity, identity, listed};
use crate::session::bucket::BucketCommand;
use crate::session::change_stream::OF_DATABASE;
use crate::session::command_context::CommandContext;
use crate::session::cross_collection::CrossCollectionCommand;
use crate::session::error::RunError;
use crate::session::kill_cursors;
use crate::session::metrics::CommandOutcome;
use crate::session::route::{self, Route};
use crate::session::upstream_connection::UpstreamRequest;
use crate::wire::OpMsg;

/// A cursor that depends on the layout.
pub(super) enum Guard {
    /// The cursor with this id in mongod references collections.
    References(i64, GuardedReferences),
    /// The cursor is that of a change stream on pages that are not the collection any more.
    FormerPages(i64),
}

impl Session<'_> {
    /// The guard of the cursor of a `getMore`, if it has one.
    pub(super) fn guard_of(&self, head: &CommandHeader<'_>) -> Option<Guard> {
        let (_, id) = first_field(head.body()).filter(|_| head.command == Command::GetMore)?;
        let id = id.as_i64()?;
        if id >= 0 {
            return self.is_of_former_pages(head, id).then_some(Guard::FormerPages(id));
        }
        let id = negated(id);
        Some(Guard::References(id, self.shared.guarded_cursors.of(id)?))
    }

    /// Whether the cursor is that of a change stream on pages, and its collection is not known to contain
    /// pages any more. The stream of a renamed collection goes on up to the renaming.
    fn is_of_former_pages(&self, head: &CommandHeader<'_>, id: i64) -> bool {
        let settings = self.shared.settings();
        let shapes = &settings.shapes;
        let is_former = head.namespace().is_some_and(|namespace| {
            shapes.has_automatic() && shapes.automatic(namespace).is_some() && shapes.bucket(namespace).is_none()
        });
        is_former && self.keeps_stream(id)
    }

    /// Whether the cursor is that of a change stream of items.
    fn keeps_stream(&self, id: i64) -> bool {
        let owner = self.shared.cursors.owner(id);
        owner.is_some_and(|owner| owner.awaits_data)
    }

    /// Reads the next batch, and ends the cursor if a referenced collection was exchanged.
    pub(super) async fn guarded(
        &mut self,
        message: Message<'_>,
        head: &CommandHeader<'_>,
        guard: Guard,
    ) -> Result<CommandOutcome, Closed> {
        // mongod verifies the checksum of a relayed message only.
        OpMsg::parse(message.opened).map_err(|error| Closed::Protocol(error.to_string()))?;
        self.link.compress_with(self.compressor);
        let reply = match guard {
            Guard::References(id, references) => self.next_batch(head, id, references).await,
            Guard::FormerPages(id) => self.batch_of(head, id).await,
        };
        self.finish(message.opened, head, reply).await
    }

    async fn next_batch(
        &mut self,
        head: &CommandHeader<'_>,
        id: i64,
        mut references: GuardedReferences,
    ) -> Result<RawDocumentBuf, RunError> {
        head.validate()?;
        let body = with_replaced(head.body(), &[("getMore", Some(RawBsonRef::Int64(id)))]);
        let head = &CommandHeader::of_body(&body)?;
        let reply = self.batch_of(head, id).await;
        // An error, too, may be that of the other layout.
        if !matches!(reply, Ok(_) | Err(RunError::Command(_))) {
            return reply;
        }
        let mut is_another = false;
        for reference in &mut references.collections {
            let expected = reference.stored.expected();
            if identity(&mut self.link, head, reference.collection.namespace(), expected).await? == Identity::Same {
                continue;
            }
            is_another = true;
            if !(references.is_stream && self.has_same_layout(head, reference).await?) {
                self.end_guarded(head, id).await?;
                let message = format!(
                    "collection {} was exchanged by `mongoshape convert`: run the command again that opened the cursor",
                    reference.collection.namespace()
                );
                return Err(CommandError::new(ErrorCode::QueryPlanKilled, message).into());
            }
        }
        let reply = reply?;
        let Some(cursor) = CursorReply::parse(&reply) else {
            // An error, after which the cursor may still be open.
            return Ok(reply);
        };
        if cursor.id == 0 {
            self.shared.guarded_cursors.closed(id);
            return Ok(reply);
        }
        if is_another {
            self.shared.guarded_cursors.opened(id, references);
        }
        Ok(with_cursor_id(&reply, negated(id)))
    }

    /// Executes a `killCursors`. `body`: the command with mongod's ids.
    pub(super) async fn kill_guarded(
        &mut self,
        message: Message<'_>,
        head: &CommandHeader<'_>,
        body: &RawDocument,
    ) -> Result<CommandOutcome, Closed> {
        // mongod verifies the checksum of a relayed message only.
        OpMsg::parse(message.opened).map_err(|error| Closed::Protocol(error.to_string()))?;
        self.link.compress_with(self.compressor);
        let reply = match head.validate() {
            Ok(()) => self.killed(body).await,
            Err(error) => Err(error.into()),
        };
        let reply = reply.map(|reply| killed_by_client_ids(head.body(), &reply));
        self.finish(message.opened, head, reply).await
    }

    async fn killed(&mut self, body: &RawDocument) -> Result<RawDocumentBuf, RunError> {
        let head = CommandHeader::of_body(body)?;
        let settings = self.shared.settings();
        let route = route::decide(&settings, &head);
        if let Route::Reject(error, _) = route {
            return Err(error.into());
        }
        if let Route::Shaped(to) = &route
            && let Shape::Outlier(shape) = to.shape()
        {
            return self.outlier_reply(&head, to, shape).await;
        }
        let mut context = CommandContext::new(self.shared, &settings, &mut self.link, self.upstream, &head);
        kill_cursors::run(&mut context).await
    }

    /// Reads the next batch in the layout in which the cursor was opened.
    async fn batch_of(&mut self, head: &CommandHeader<'_>, id: i64) -> Result<RawDocumentBuf, RunError> {
        let settings = self.shared.settings();
        let route = route::decide(&settings, head);
        let keeps_stream = self.keeps_stream(id);
        let shape = match &route {
            Route::Shaped(to) => match to.shape() {
                Shape::Bucket(shape) => Some(shape),
                Shape::Outlier(_) => None,
            },
            Route::Relay if keeps_stream => {
                let namespace = head.namespace();
                namespace.and_then(|namespace| settings.shapes.automatic(namespace))
            }
            _ => None,
        };
        if let (Some(shape), Some(namespace)) = (shape, head.namespace()) {
            let context = CommandContext::new(self.shared, &settings, &mut self.link, self.upstream, head);
            let command = BucketCommand::new(context, shape, namespace);
            return Box::pin(watched(head, command.run(), &mut self.client)).await;
        }
        let is_of_database = head
            .namespace()
            .is_some_and(|namespace| namespace.collection == OF_DATABASE);
        if matches!(route, Route::CrossCollection(_)) || (keeps_stream && is_of_database) {
            let context = CommandContext::new(self.shared, &settings, &mut self.link, self.upstream, head);
            let run = CrossCollectionCommand { context }.run();
            return Box::pin(watched(head, run, &mut self.client)).await;
        }
        let body = whole_body(head);
        let call = self
            .link
            .call_reserving(UpstreamRequest::plain(&body), &mut self.reply_memory);
        watched(head, call, &mut self.client).await
    }

    /// Whether another collection with the name has the layout of the former one. It is the reference then.
    async fn has_same_layout(
        &mut self,
        head: &CommandHeader<'_>,
        reference: &mut GuardedCollection,
    ) -> Result<bool, RunError> {
        let Some(now) = listed(&mut self.link, head, reference.collection.namespace()).await? else {
            return Ok(false);
        };
        let settings = self.shared.settings();
        let namespace = reference.collection.namespace();
        let is_as_configured = |layout| settings.shapes.is_as_configured(namespace, layout);
        let before = &reference.stored;
        let is_same =
            now.layout == before.layout || (is_as_configured(&now.layout) && is_as_configured(&before.layout));
        if !is_same || now.swap_number != before.swap_number {
            return Ok(false);
        }
        reference.stored = now;
        Ok(true)
    }

    /// Ends a cursor that was opened in another layout.
    pub(super) async fn end_guarded(&mut self, head: &CommandHeader<'_>, id: i64) -> Result<(), RunError> {
        self.shared.guarded_cursors.closed(id);
        let later = self.shared.cursors.later_upstream_id(id);
        self.shared.cursors.closed(id);
        if id == 0 {
            return Ok(());
        }
        let collection = head.namespace().map_or(OF_DATABASE, |namespace| namespace.collection);
        let mut kill = single("killCursors", collection);
        let ids: RawArrayBuf = [id].into_iter().chain(later).map(RawBsonRef::Int64).collect();
        put(&mut kill, "cursors", &ids);
        InheritedOptions::of(head.body()).append_to_get_more(&mut kill);
        self.link.call(UpstreamRequest::plain(&kill)).await?;
        Ok(())
    }
}
