//! Commands on outlier collections. Most are relayed; replies of reads are inspected.

use std::sync::Arc;

use bson::raw::RawDocumentBuf;

use super::execute::watched;
use super::reply::ReplyTarget;
use super::{Closed, Message, Session};
use crate::command::cursor::GetMore;
use crate::command::error::CommandError;
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::registry::Command;
use crate::command::reply::says_not_primary;
use crate::pattern::shapes::{OutlierShape, Shape};
use crate::session::command_context::CommandContext;
use crate::session::error::RunError;
use crate::session::metrics::{ByteDirection, CommandOutcome};
use crate::session::outlier::reply_inspection::shows_outliers;
use crate::session::outlier::{CommandState, DeferredSpills, OutlierCommand, OutlierRoute, Tail, passage};
use crate::session::relay::{RelayedRequest, RequestBytes, opened};
use crate::session::route::ShapedTarget;
use crate::session::shared::Settings;
use crate::session::upstream_connection::LinkError;
use crate::wire::OpMsg;

/// The result of relaying a read.
enum Passed {
    /// The reply was sent to the client.
    Sent,
    /// The reply contains outliers, or their pages were missing. It was not sent.
    Held(RawDocumentBuf),
    /// No memory was free for the reply.
    Refused(CommandError),
}

impl Session<'_> {
    /// Handles a command on an outlier collection. Its checksum has been verified.
    pub(super) async fn outlier(
        &mut self,
        message: Message<'_>,
        head: &CommandHeader<'_>,
        to: &ShapedTarget<'_>,
        shape: &OutlierShape,
    ) -> Result<CommandOutcome, Closed> {
        self.link.compress_with(self.compressor);
        if let Err(error) = self.check_unknown(head, to, shape).await {
            return self.finish(message.opened, head, Err(error)).await;
        }
        let passage = match passage(shape, head, self.upstream.kind()) {
            Ok(passage) => passage,
            Err(error) => return self.finish(message.opened, head, Err(error.into())).await,
        };
        // mongod does not know the id of a cursor with a leftover, nor the limit of a `find` by a pipeline.
        let is_known = |id| self.shared.leftovers.contains(id) || self.shared.limited_cursors.contains(id);
        let is_own =
            head.command == Command::GetMore && GetMore::parse(head.body()).is_ok_and(|more| is_known(more.id));
        let passage = if is_own { OutlierRoute::Rewrite } else { passage };
        let shown = match passage {
            OutlierRoute::PassThrough if matches!(self.reply_target, ReplyTarget::Whole(_)) => {
                self.relay_part(message.opened, head).await?;
                return Ok(CommandOutcome::Relayed);
            }
            OutlierRoute::PassThrough => {
                let request = RelayedRequest {
                    sent: RequestBytes::Whole(message.received),
                    flags: head.message.flags,
                };
                return self.relay(request, self.look()).await;
            }
            OutlierRoute::InspectReply => match self.look_for_outliers(message, shape).await? {
                Passed::Sent => return Ok(CommandOutcome::Relayed),
                Passed::Held(reply) => Some(reply),
                Passed::Refused(error) => return self.finish(message.opened, head, Err(error.into())).await,
            },
            OutlierRoute::Rewrite => None,
        };
        // Boxed, because most commands are relayed.
        let answer = Box::pin(self.rewrite_outlier(head, to, shape, shown)).await;
        self.finish(message.opened, head, answer).await
    }

    /// Executes a command on an outlier collection, and returns its reply. Nothing is relayed.
    pub(super) async fn outlier_reply(
        &mut self,
        head: &CommandHeader<'_>,
        to: &ShapedTarget<'_>,
        shape: &OutlierShape,
    ) -> Result<RawDocumentBuf, RunError> {
        self.check_unknown(head, to, shape).await?;
        head.validate()?;
        Box::pin(self.rewrite_outlier(head, to, shape, None)).await
    }

    /// Checks the shape marker of a collection that is not known to match its shape.
    async fn check_unknown(
        &mut self,
        head: &CommandHeader<'_>,
        to: &ShapedTarget<'_>,
        shape: &OutlierShape,
    ) -> Result<(), RunError> {
        if to.settings.outlier_shape_markers.knows(to.namespace) {
            return Ok(());
        }
        Box::pin(self.check_stored(&to.settings, head, to.namespace, shape)).await
    }

    /// Refuses a collection whose shape marker records another shape.
    async fn check_stored(
        &mut self,
        settings: &Settings,
        head: &CommandHeader<'_>,
        namespace: Namespace<'_>,
        shape: &OutlierShape,
    ) -> Result<(), RunError> {
        let mut context = CommandContext::new(self.shared, settings, &mut self.link, self.upstream, head);
        context.check_stored_shape(shape, namespace).await
    }

    /// Executes a command that is not relayed. `shown`: mongod's reply if the command was relayed
    /// and the reply contains outliers.
    async fn rewrite_outlier(
        &mut self,
        head: &CommandHeader<'_>,
        to: &ShapedTarget<'_>,
        shape: &OutlierShape,
        shown: Option<RawDocumentBuf>,
    ) -> Result<RawDocumentBuf, RunError> {
        let mut context = CommandContext::new(self.shared, &to.settings, &mut self.link, self.upstream, head);
        // The relayed command has begun the transaction.
        context.txn_started = shown.is_some().into();
        let run = OutlierCommand {
            context,
            shape,
            namespace: to.namespace,
            held: shown,
            reply_memory: &mut self.reply_memory,
            tails: &mut self.tails,
            facts: CommandState::default(),
        };
        watched(head, run.run(), &mut self.client).await
    }

    /// Spills the connection's deferred tails. A tail that could not be spilled is deferred again.
    pub(super) async fn move_tails(&mut self) -> Result<(), Closed> {
        let mut failed = Vec::new();
        for tail in self.tails.take() {
            // Boxed, so that an idle connection does not reserve memory for it.
            if !Box::pin(self.move_tail(&tail)).await? {
                failed.push(tail);
            }
        }
        self.tails.leave_again(failed);
        Ok(())
    }

    /// Spills one tail. Returns true if it must not be tried again.
    async fn move_tail(&mut self, Tail { command, id }: &Tail) -> Result<bool, Closed> {
        let settings = Arc::clone(self.settings.load());
        let Ok(head) = CommandHeader::of_body(command) else {
            return Ok(true);
        };
        let Some(namespace) = head.namespace() else {
            return Ok(true);
        };
        // The collection may have another shape now.
        let Some(Shape::Outlier(shape)) = settings.shapes.lookup(namespace).map(AsRef::as_ref) else {
            return Ok(true);
        };
        self.link.compress_with(None);
        if let Err(error) = self.check_stored(&settings, &head, namespace, shape).await {
            // The tail stays. It is correct for the shape under which it was written.
            return Closed::unless_replied(error).map(|_| true);
        }
        let mut run = OutlierCommand {
            context: CommandContext::new(self.shared, &settings, &mut self.link, self.upstream, &head),
            shape,
            namespace,
            held: None,
            reply_memory: &mut self.reply_memory,
            tails: &mut DeferredSpills::default(),
            facts: CommandState::default(),
        };
        match run.move_tail(id.as_raw_bson_ref()).await {
            Ok(()) => Ok(true),
            Err(error) => Closed::unless_replied(error).map(|_| false),
        }
    }

    /// Relays a read, and its reply unless the reply contains outliers.
    async fn look_for_outliers(&mut self, message: Message<'_>, shape: &OutlierShape) -> Result<Passed, Closed> {
        self.link.forward(message.received).await?;
        let arrived = tokio::select! {
            biased;
            arrived = self.link.arrive() => arrived?,
            // mongod cancels the client's command when the upstream connection is closed.
            () = self.client.closed() => return Err(Closed::ByClient),
        };
        let received = match self.link.reserving(arrived, &mut self.reply_memory).await {
            Ok(received) => received,
            Err(error) => return Closed::unless_replied(error).map(Passed::Refused),
        };
        let inflated = opened(&received).map_err(LinkError::from)?;
        let reply = OpMsg::parse_unverified(inflated.as_ref().unwrap_or(&received)).map_err(LinkError::from)?;
        if shows_outliers(shape, reply.body) {
            let body = OpMsg::into_body(inflated.unwrap_or(received)).map_err(LinkError::from)?;
            return Ok(Passed::Held(body));
        }
        let is_gone = self.presentation.promises_primary() && says_not_primary(reply.body);
        self.shared.metrics.bytes(ByteDirection::Sent, received.len());
        self.client.send(&received).await?;
        if is_gone {
            self.see_to_primary().await?;
        }
        Ok(Passed::Sent)
    }
}
