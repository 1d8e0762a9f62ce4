//! Executes commands on shaped collections, and sends the replies.

use bson::raw::{RawBson, RawDocumentBuf, cstr};

use super::{Closed, Message, Session};
use crate::command::arguments::InheritedOptions;
use crate::command::document::{get, single};
use crate::command::error::{CommandError, ErrorCode, without_empty_labels};
use crate::command::find_and_modify::is_contradiction;
use crate::command::header::CommandHeader;
use crate::command::registry::Command;
use crate::command::reply::says_not_primary;
use crate::pattern::shapes::BucketShape;
use crate::session::bucket::BucketCommand;
use crate::session::command_context::CommandContext;
use crate::session::cross_collection::CrossCollectionCommand;
use crate::session::error::RunError;
use crate::session::merge;
use crate::session::metrics::CommandOutcome;
use crate::session::route;
use crate::session::shared::Settings;
use crate::session::stream::FrameStream;
use crate::session::upstream_connection::{LinkError, UpstreamRequest};
use crate::wire::{Frame, OpMsg};

impl Session<'_> {
    pub(super) async fn bucket(
        &mut self,
        message: Message<'_>,
        head: &CommandHeader<'_>,
        to: &route::ShapedTarget<'_>,
        shape: &BucketShape,
    ) -> Result<CommandOutcome, Closed> {
        self.link.compress_with(self.compressor);
        let answer = self.bucket_reply(head, to, shape).await;
        self.finish(message.opened, head, answer).await
    }

    /// Executes a command on a bucket collection, and returns its reply.
    pub(super) async fn bucket_reply(
        &mut self,
        head: &CommandHeader<'_>,
        to: &route::ShapedTarget<'_>,
        shape: &BucketShape,
    ) -> Result<RawDocumentBuf, RunError> {
        let context = CommandContext::new(self.shared, &to.settings, &mut self.link, self.upstream, head);
        let command = BucketCommand::new(context, shape, to.namespace);
        // Boxed, so that an idle connection does not reserve memory for the largest command.
        Box::pin(watched(head, command.run(), &mut self.client)).await
    }

    pub(super) async fn rewrite_across(
        &mut self,
        frame: &Frame,
        head: &CommandHeader<'_>,
        settings: &Settings,
    ) -> Result<CommandOutcome, Closed> {
        self.link.compress_with(self.compressor);
        // A rewritten message's checksum is verified only here.
        OpMsg::parse(frame).map_err(|error| Closed::Protocol(error.to_string()))?;
        let context = CommandContext::new(self.shared, settings, &mut self.link, self.upstream, head);
        let answer = watched(head, CrossCollectionCommand { context }.run(), &mut self.client).await;
        self.finish(frame, head, answer).await
    }

    /// Executes an `aggregate` that merges into a shaped collection.
    pub(super) async fn merge(
        &mut self,
        message: Message<'_>,
        head: &CommandHeader<'_>,
        into: &route::ShapedTarget<'_>,
    ) -> Result<CommandOutcome, Closed> {
        self.link.compress_with(self.compressor);
        // A rewritten message's checksum is verified only here.
        OpMsg::parse(message.opened).map_err(|error| Closed::Protocol(error.to_string()))?;
        let context = CommandContext::new(self.shared, &into.settings, &mut self.link, self.upstream, head);
        let answer = Box::pin(merge::run(context, into)).await;
        self.finish(message.opened, head, answer).await
    }

    pub(super) async fn finish(
        &mut self,
        frame: &Frame,
        head: &CommandHeader<'_>,
        answer: Result<RawDocumentBuf, RunError>,
    ) -> Result<CommandOutcome, Closed> {
        self.shared.refused_unique_indexes.note(head, &answer);
        let (reply, outcome) = match answer {
            // An error from mongod is a reply like any other.
            Ok(reply) | Err(RunError::Command(CommandError::Upstream(reply))) if head.is_retryable_write() => {
                (without_empty_labels(reply), CommandOutcome::Rewritten)
            }
            Ok(reply) | Err(RunError::Command(CommandError::Upstream(reply))) => (reply, CommandOutcome::Rewritten),
            Err(error) => {
                let error = Closed::unless_replied(error)?;
                if ends_transaction(head, &error) {
                    self.end_transaction(head).await?;
                }
                (error.into_reply(), CommandOutcome::Rejected)
            }
        };
        if let Some(trace) = self.link.trace() {
            trace.reply(&reply);
        }
        let gone = self.presentation.promises_primary() && says_not_primary(&reply);
        if !head.expects_no_reply {
            self.reply(frame, reply).await?;
        }
        if gone {
            self.see_to_primary().await?;
        }
        Ok(outcome)
    }

    /// Aborts the transaction of a command that the proxy failed, as mongod does for a command that
    /// it fails.
    async fn end_transaction(&mut self, head: &CommandHeader<'_>) -> Result<(), LinkError> {
        let carried = InheritedOptions::of(head.body());
        if get(head.body(), "startTransaction").is_some() {
            // Begins the transaction if no command has, so that a later command gets the error that the
            // transaction was aborted, not that it is missing.
            let mut find = single("find", "$cmd");
            find.append(cstr!("filter"), single("$mongoshape", RawBson::Null));
            carried.append_to_internal_read(&mut find);
            self.link.call(UpstreamRequest::plain(&find)).await?;
        }
        let mut command = single("abortTransaction", 1);
        carried.begun(true).append_to_abort(&mut command);
        command.append(cstr!("$db"), "admin");
        self.link.call(UpstreamRequest::plain(&command)).await?;
        Ok(())
    }
}

/// Whether an error of the proxy aborts the command's transaction. mongod finds most mistakes
/// before it executes a command in the transaction. The exception are contradicting options of a
/// `findAndModify`. A refusal also aborts, so that nothing of the transaction is committed.
fn ends_transaction(head: &CommandHeader<'_>, error: &CommandError) -> bool {
    let contradicts_itself = head.command == Command::FindAndModify && is_contradiction(error);
    head.in_transaction() && (contradicts_itself || error.is(ErrorCode::CommandNotSupported))
}

/// Executes a command. A read is cancelled when the client closes its connection.
pub(super) async fn watched<T>(
    head: &CommandHeader<'_>,
    run: impl Future<Output = Result<T, RunError>>,
    client: &mut FrameStream,
) -> Result<T, RunError> {
    if !head.only_reads() {
        return run.await;
    }
    tokio::select! {
        biased;
        answer = run => answer,
        () = client.closed() => Err(RunError::ClientClosed),
    }
}
