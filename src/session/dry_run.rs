//! Observe mode: a command is planned by the code that executes it, after it was relayed and answered,
//! without a command to mongod.
//!
//! The code gets settings in which observed shapes are active, metrics that count as `observed`, and an
//! [upstream connection](super::upstream_connection) that sends nothing: the first internal command ends the
//! dry run. Collections are assumed to be checked and empty.

mod pages;

use bson::raw::RawDocumentBuf;

use self::pages::OpenPages;
use super::bucket::BucketCommand;
use super::command_context::CommandContext;
use super::cross_collection::CrossCollectionCommand;
use super::error::RunError;
use super::memory::Reservation;
use super::metrics::{ObservedMetrics, RefusalReason, SessionMetrics};
use super::outlier::{CommandState, DeferredSpills, OutlierCommand, OutlierRoute, passage};
use super::route::{self, Route, ShapedTarget};
use super::upstream::Upstream;
use super::upstream_connection::UpstreamConnection;
use super::{Settings, Shared};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::referenced_namespaces;
use crate::command::registry::Command;
use crate::pattern::bucket::insert::KeyBatch;
use crate::pattern::shapes::{BucketShape, Mode, Shape, Shapes};

/// What sessions observe with.
#[derive(Debug)]
pub(super) struct Observer {
    /// As a proxy would have them that rewrites what is observed. Its metrics count as observed.
    shared: Shared,
    /// The shapes as they are.
    shapes: Shapes,
    metrics: ObservedMetrics,
}

/// Records the plans of a dry run, which gets no replies.
#[derive(Debug, Default)]
pub(super) struct DryRun {
    pages: OpenPages,
}

/// How a dry run ended.
enum DryRunEnd {
    /// mongod would have to be asked.
    Asked,
    /// It is refused by the shape, or as a mistake of the client's.
    Refused(CommandError),
    /// It would be relayed.
    Relayed,
}

impl Observer {
    /// Of these settings; `None` where nothing is observed.
    pub(super) fn of(settings: &Settings, metrics: &SessionMetrics) -> Option<Self> {
        let shapes = settings.shapes.clone();
        let observed: Vec<String> = shapes
            .iter()
            .filter(|shape| shape.mode() == Mode::Observe)
            .map(|shape| shape.namespace().to_string())
            .collect();
        if observed.is_empty() {
            return None;
        }
        let counting = metrics.of_dry_run()?;
        let metrics = metrics.observed();
        for namespace in &observed {
            metrics.expect_namespace(namespace);
        }
        let settings = Settings::new(shapes.for_dry_run(), settings.limits);
        Some(Self {
            shared: Shared::plain(settings, counting, Some(DryRun::default())),
            shapes,
            metrics: metrics.clone(),
        })
    }

    /// Whether a command that is relayed would be anything else.
    pub(super) fn concerns(&self, head: &CommandHeader<'_>) -> bool {
        !matches!(
            route::decide(&self.shared.settings(), head),
            Route::Relay | Route::Handshake
        )
    }

    /// Counts what would have become of a command that was relayed.
    pub(super) async fn observe(
        &self,
        head: &CommandHeader<'_>,
        (link, upstream): (&mut UpstreamConnection, &Upstream),
    ) {
        let settings = self.shared.settings();
        let route = route::decide(&settings, head);
        let end = match route {
            Route::Relay | Route::Handshake | Route::Reject(_, None) => return,
            Route::Reject(error, Some((namespace, reason))) => {
                self.shared.metrics.rejected(&namespace, reason, error.message());
                return self.tell(&namespace, head, &DryRunEnd::Refused(error));
            }
            Route::Shaped(to) => {
                link.set_dry_run(true);
                Box::pin(self.rewrite(head, &to, (link, upstream))).await
            }
            Route::CrossCollection(settings) => {
                link.set_dry_run(true);
                Box::pin(self.rewrite_across(head, &settings, (link, upstream))).await
            }
        };
        link.set_dry_run(false);
        for namespace in self.named(head) {
            self.tell(&namespace, head, &end);
        }
    }

    async fn rewrite(
        &self,
        head: &CommandHeader<'_>,
        to: &ShapedTarget<'_>,
        (link, upstream): (&mut UpstreamConnection, &Upstream),
    ) -> DryRunEnd {
        let context = CommandContext::new(&self.shared, &to.settings, link, upstream, head);
        match to.shape() {
            // Their cursors are mongod's own.
            Shape::Bucket(_) if matches!(head.command, Command::GetMore | Command::KillCursors) => DryRunEnd::Asked,
            Shape::Bucket(shape) => DryRunEnd::of(BucketCommand::new(context, shape, to.namespace).run().await),
            Shape::Outlier(shape) => {
                match passage(shape, head, upstream.kind()) {
                    // Whether a reply shows outliers depends on what is stored.
                    Ok(OutlierRoute::PassThrough | OutlierRoute::InspectReply) => return DryRunEnd::Relayed,
                    Ok(OutlierRoute::Rewrite) => {}
                    Err(error) => return DryRunEnd::Refused(error),
                }
                let run = OutlierCommand {
                    context,
                    shape,
                    namespace: to.namespace,
                    held: None,
                    reply_memory: &mut Reservation::of(&self.shared.memory.replies),
                    tails: &mut DeferredSpills::default(),
                    facts: CommandState::default(),
                };
                DryRunEnd::of(run.run().await)
            }
        }
    }

    async fn rewrite_across(
        &self,
        head: &CommandHeader<'_>,
        settings: &Settings,
        (link, upstream): (&mut UpstreamConnection, &Upstream),
    ) -> DryRunEnd {
        let context = CommandContext::new(&self.shared, settings, link, upstream, head);
        DryRunEnd::of(CrossCollectionCommand { context }.run().await)
    }

    /// The observed shapes that a command names, as configured.
    fn named(&self, head: &CommandHeader<'_>) -> Vec<String> {
        let mut named = Vec::new();
        let mut add = |namespace: Namespace<'_>| {
            let shape = self
                .shapes
                .lookup(namespace)
                .filter(|shape| shape.mode() == Mode::Observe);
            let label = shape.map(|shape| shape.namespace().to_string());
            if let Some(label) = label.filter(|label| !named.contains(label)) {
                named.push(label);
            }
        };
        if let Some(namespace) = head.namespace() {
            add(namespace);
        }
        referenced_namespaces::for_each(head, &mut add);
        named
    }

    fn tell(&self, namespace: &str, head: &CommandHeader<'_>, end: &DryRunEnd) {
        let command = head.name;
        match end {
            DryRunEnd::Relayed => {}
            DryRunEnd::Asked => {
                self.metrics.rewritten(namespace, head.command);
                if depends_on_what_is_stored(head.command) {
                    self.metrics.unplanned(namespace);
                }
                tracing::debug!(namespace, command, "observed: would be rewritten");
            }
            DryRunEnd::Refused(error) => {
                self.metrics.rewritten(namespace, head.command);
                let reason = match error {
                    // What a shape cannot do: in the proxy's own words.
                    CommandError::Own { code, message } if *code == ErrorCode::CommandNotSupported => message.as_str(),
                    // What is wrong with a command may quote it.
                    CommandError::Own { code, .. } => code.name(),
                    CommandError::Upstream(_) => "as mongod would",
                };
                tracing::debug!(namespace, command, reason, "observed: would be answered with an error");
            }
        }
    }
}

/// Whether a command may still be refused when mongod has been asked.
fn depends_on_what_is_stored(command: Command) -> bool {
    matches!(
        RefusalReason::of_command(command),
        RefusalReason::Write | RefusalReason::Index | RefusalReason::Collection
    ) && command != Command::Insert
}

impl DryRunEnd {
    fn of(answer: Result<RawDocumentBuf, RunError>) -> Self {
        match answer {
            // Nothing is wrong with the link: nothing was sent.
            Ok(_) | Err(RunError::Link(_)) => Self::Asked,
            Err(RunError::Command(error)) => Self::Refused(error),
        }
    }
}

impl DryRun {
    /// Counts what an insert would have made.
    pub(super) fn insert(&self, shared: &Shared, shape: &BucketShape, groups: &[KeyBatch]) {
        let items: usize = groups.iter().map(|group| group.pending().count()).sum();
        let pages = groups.iter().map(|group| self.pages.place(shape, group)).sum();
        let items = u64::try_from(items).unwrap_or(u64::MAX);
        shared
            .metrics
            .would_insert(&shape.namespace().to_string(), shape, (items, pages));
    }
}
