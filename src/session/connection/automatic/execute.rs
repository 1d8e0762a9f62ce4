//! Executes a command in the layouts that its collections have now.

use super::{CurrentLayouts, Step, own};
use crate::command::change_stream;
use crate::command::document::get;
use crate::command::error::ErrorCode;
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::registry::{Command, CommandClass};
use crate::command::reply::{CursorReply, with_cursor_id};
use crate::pattern::shapes::{BucketShape, Shape};
use crate::session::automatic::guarded_cursors::{GuardedCollection, GuardedReferences, negated};
use crate::session::automatic::plain::{PlainCommand, PlainOutcome, whole_body};
use crate::session::automatic::stored::{ExpectedCollection, StoredCollection};
use crate::session::automatic::touched::TouchedCollection;
use crate::session::automatic::{Identity, identity, merge_interrupted, not_executed};
use crate::session::bucket::BucketCommand;
use crate::session::change_stream::without_maintenance;
use crate::session::command_context::CommandContext;
use crate::session::connection::execute::watched;
use crate::session::connection::{Message, Session};
use crate::session::cross_collection::CrossCollectionCommand;
use crate::session::error::RunError;
use crate::session::fence::{LeftToCheck, UuidFence};
use crate::session::merge;
use crate::session::metrics::CommandOutcome;
use crate::session::route::{self, Route};
use crate::session::shared::Settings;
use crate::session::upstream_connection::UpstreamRequest;

/// The command's own collection.
struct OwnCollection<'a> {
    namespace: Namespace<'a>,
    stored: &'a StoredCollection,
}

/// The error of a pipeline on a collection that it names by its UUID, unless the collection was exchanged.
fn unless_exchanged(head: &CommandHeader<'_>, namespace: Namespace<'_>, error: RunError) -> RunError {
    let RunError::Command(error) = error else {
        return error;
    };
    let is_renamed = error.is(ErrorCode::CollectionUuidMismatch) && get(head.body(), "collectionUUID").is_none();
    // A renamed collection ends the queries on it.
    let is_ended = error.is(ErrorCode::QueryPlanKilled);
    if is_renamed || (is_ended && head.only_reads()) {
        RunError::LayoutChanged
    } else if is_ended {
        merge_interrupted(namespace).into()
    } else {
        error.into()
    }
}

impl Session<'_> {
    /// Executes a command, and checks that no collection that it references was exchanged meanwhile.
    pub(super) async fn in_layouts(
        &mut self,
        message: Message<'_>,
        head: &CommandHeader<'_>,
        touched: &[TouchedCollection],
        layouts: &CurrentLayouts,
    ) -> Result<Step, RunError> {
        let others = usize::from(own(touched, head).is_some());
        let step = match (own(touched, head), layouts.collections.first()) {
            (Some(own), Some(stored)) => {
                self.on_own(message, head, OwnCollection { namespace: own, stored }, layouts)
                    .await
            }
            _ => self.on_other(message, head, layouts).await,
        };
        // An error, too, may be that of stages that were planned for the other layout.
        let is_checked = matches!(step, Ok(Step::Answered(..)) | Err(RunError::Command(_)));
        if !is_checked || !head.only_reads() {
            return step;
        }
        let referenced = || touched.iter().zip(&layouts.collections).skip(others);
        let cursor = match &step {
            Ok(Step::Answered(reply, _)) => CursorReply::parse(reply).map_or(0, |cursor| cursor.id),
            _ => 0,
        };
        for (touched, stored) in referenced() {
            let is_view = stored.uuid.is_none() && stored.layout.is_plain();
            if !is_view
                && identity(&mut self.link, head, touched.namespace(), stored.expected()).await? == Identity::Changed
            {
                self.end_guarded(head, cursor).await?;
                return Ok(Step::Exchanged(None));
            }
        }
        match step {
            Ok(Step::Answered(reply, outcome))
                if head.command == Command::Aggregate && cursor != 0 && referenced().next().is_some() =>
            {
                let guarded = referenced().map(|(touched, stored)| GuardedCollection {
                    collection: touched.clone(),
                    stored: stored.clone(),
                });
                let guard = GuardedReferences {
                    collections: guarded.collect(),
                    is_stream: change_stream::scope(head).is_some(),
                };
                self.shared.guarded_cursors.opened(cursor, guard);
                Ok(Step::Answered(with_cursor_id(&reply, negated(cursor)), outcome))
            }
            step => step,
        }
    }

    /// Executes a command on a collection with an automatic shape.
    async fn on_own(
        &mut self,
        message: Message<'_>,
        head: &CommandHeader<'_>,
        own: OwnCollection<'_>,
        layouts: &CurrentLayouts,
    ) -> Result<Step, RunError> {
        let OwnCollection { namespace, stored } = own;
        let route = route::decide(&layouts.settings, head);
        match route {
            Route::Relay => {
                let mut command = PlainCommand {
                    link: &mut self.link,
                    head,
                    namespace,
                    expected: stored.expected(),
                    upstream: self.upstream.kind(),
                    memory: &mut self.reply_memory,
                };
                let outcome = Box::pin(watched(head, command.run(), &mut self.client)).await?;
                Ok(match outcome {
                    PlainOutcome::Answered(reply) => Step::Answered(reply, CommandOutcome::Relayed),
                    PlainOutcome::MayHaveExchanged(reply) => {
                        layouts.settings.automatic.forget(namespace);
                        Step::Answered(reply, CommandOutcome::Relayed)
                    }
                    PlainOutcome::Exchanged(executed) => Step::Exchanged(executed),
                })
            }
            Route::Shaped(to) => match to.shape() {
                Shape::Bucket(shape) => self.on_pages(head, &own, shape, &layouts.settings).await,
                Shape::Outlier(_) => Ok(Step::Exchanged(None)),
            },
            route => {
                let mut fence = UuidFence::new(namespace);
                fence.set(stored.uuid.clone());
                self.link.set_fence(Some(fence));
                let executed = self.by_route(message, head, route).await;
                executed.map_err(|error| unless_exchanged(head, namespace, error))
            }
        }
    }

    async fn on_pages(
        &mut self,
        head: &CommandHeader<'_>,
        own: &OwnCollection<'_>,
        shape: &BucketShape,
        settings: &Settings,
    ) -> Result<Step, RunError> {
        let OwnCollection { namespace: own, stored } = *own;
        self.link.set_fence(Some(UuidFence::new(own)));
        let context = CommandContext::new(self.shared, settings, &mut self.link, self.upstream, head);
        let mut command = BucketCommand::new(context, shape, own);
        let answer = Box::pin(watched(head, command.execute(), &mut self.client)).await;
        let (is_interrupted, has_changed) = (command.is_interrupted, command.executed > 0);
        let fence = self.link.set_fence(None);
        if matches!(answer, Err(RunError::LayoutChanged)) {
            return Err(RunError::LayoutChanged);
        }
        if let Ok(reply) = &answer
            && is_interrupted
            && !not_executed(reply).is_empty()
        {
            return Ok(Step::Exchanged(Some(reply.clone())));
        }
        let expected = match fence.map_or(LeftToCheck::Nothing, UuidFence::left_to_check) {
            LeftToCheck::Collection(uuid) => Some(uuid),
            LeftToCheck::Missing if !head.in_transaction() => None,
            LeftToCheck::Missing | LeftToCheck::Nothing => {
                return Ok(Step::Answered(answer?, CommandOutcome::Rewritten));
            }
        };
        // What a transaction has changed is not committed yet.
        let is_checked = (!has_changed || head.in_transaction())
            && !matches!(answer, Err(RunError::Link(_) | RunError::ClientClosed))
            && !changes_identity(head);
        let expected = ExpectedCollection {
            uuid: expected.as_ref(),
            ..stored.expected()
        };
        if is_checked && identity(&mut self.link, head, own, expected).await? == Identity::Changed {
            return Err(RunError::LayoutChanged);
        }
        Ok(Step::Answered(answer?, CommandOutcome::Rewritten))
    }

    /// Executes a command on another collection or a database.
    async fn on_other(
        &mut self,
        message: Message<'_>,
        head: &CommandHeader<'_>,
        layouts: &CurrentLayouts,
    ) -> Result<Step, RunError> {
        let route = route::decide(&layouts.settings, head);
        if let Route::Relay = route
            && head.only_reads()
        {
            let mut body = whole_body(head);
            if change_stream::scope(head).is_some() {
                body = without_maintenance(&layouts.settings.shapes, &body);
            }
            let call = self
                .link
                .call_reserving(UpstreamRequest::plain(&body), &mut self.reply_memory);
            let reply = watched(head, call, &mut self.client).await?;
            return Ok(Step::Answered(reply, CommandOutcome::Relayed));
        }
        if let Route::Merge(into) = &route {
            self.link.set_fence(Some(UuidFence::new(into.namespace)));
        }
        self.by_route(message, head, route).await
    }

    async fn by_route(
        &mut self,
        message: Message<'_>,
        head: &CommandHeader<'_>,
        route: Route<'_>,
    ) -> Result<Step, RunError> {
        let reply = match route {
            Route::CrossCollection(settings) => {
                let context = CommandContext::new(self.shared, &settings, &mut self.link, self.upstream, head);
                let run = CrossCollectionCommand { context }.run();
                Box::pin(watched(head, run, &mut self.client)).await?
            }
            Route::Merge(into) => {
                let context = CommandContext::new(self.shared, &into.settings, &mut self.link, self.upstream, head);
                match Box::pin(merge::run(context, &into)).await {
                    Err(RunError::LayoutChanged) => return Err(merge_interrupted(into.namespace).into()),
                    merged => merged?,
                }
            }
            Route::Shaped(to) => match to.shape() {
                Shape::Bucket(shape) => self.bucket_reply(head, &to, shape).await?,
                Shape::Outlier(shape) => self.outlier_reply(head, &to, shape).await?,
            },
            // A refusal, or a command that is relayed and does not only read: it is not checked afterwards.
            route => {
                let outcome = Box::pin(self.dispatch(message, head, route)).await;
                return Ok(Step::Replied(outcome));
            }
        };
        Ok(Step::Answered(reply, CommandOutcome::Rewritten))
    }
}

/// The command's collection may be dropped, renamed or created by the command itself.
fn changes_identity(head: &CommandHeader<'_>) -> bool {
    !head.only_reads() && head.command.class() != CommandClass::Write
}
