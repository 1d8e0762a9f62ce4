//! Plans an observed command.

use bson::raw::RawDocumentBuf;

use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::referenced_namespaces;
use crate::command::registry::Command;
use crate::pattern::shapes::{Mode, Shape};
use crate::session::bucket::BucketCommand;
use crate::session::command_context::CommandContext;
use crate::session::cross_collection::CrossCollectionCommand;
use crate::session::error::RunError;
use crate::session::memory::Reservation;
use crate::session::merge;
use crate::session::metrics::RefusalReason;
use crate::session::outlier::{CommandState, DeferredSpills, OutlierCommand, OutlierRoute, passage};
use crate::session::refusal::RefusalRecorder;
use crate::session::route::{self, Route, ShapedTarget};
use crate::session::shared::Settings;
use crate::session::upstream::Upstream;
use crate::session::upstream_connection::UpstreamConnection;

use super::Observer;

/// The end of a dry run.
enum DryRunEnd {
    /// The plan needs a reply of mongod.
    Asked,
    /// Refused by the shape, or invalid.
    Refused(CommandError),
    /// It would be relayed.
    Relayed,
}

impl Observer {
    /// Counts a command by the result that its execution would have if the observed shapes were active.
    pub(in crate::session) async fn observe(
        &self,
        head: &CommandHeader<'_>,
        link: &mut UpstreamConnection,
        upstream: &Upstream,
    ) {
        let settings = self.shared.settings();
        let route = route::decide(&settings, head);
        let end = match route {
            Route::Relay | Route::Handshake | Route::Reject(_, None) => return,
            Route::Reject(error, Some((namespace, reason))) => {
                let (metrics, command) = (&self.shared.metrics, head.command);
                let refused = match reason {
                    RefusalReason::ChangeStream => self.in_stream(head.database),
                    _ => vec![namespace],
                };
                let end = DryRunEnd::Refused(error);
                for namespace in refused {
                    if let DryRunEnd::Refused(error) = &end {
                        RefusalRecorder { metrics, command }.record(&namespace, reason, error.message());
                    }
                    self.record(&namespace, head, &end);
                }
                return;
            }
            Route::Shaped(to) => {
                link.set_dry_run(true);
                Box::pin(self.rewrite(head, &to, link, upstream)).await
            }
            Route::Merge(into) => {
                link.set_dry_run(true);
                let context = CommandContext::new(&self.shared, &into.settings, link, upstream, head);
                DryRunEnd::of(Box::pin(merge::run(context, &into)).await)
            }
            Route::CrossCollection(settings) => {
                link.set_dry_run(true);
                Box::pin(self.rewrite_across(head, &settings, link, upstream)).await
            }
        };
        link.set_dry_run(false);
        for namespace in self.named(head) {
            self.record(&namespace, head, &end);
        }
    }

    async fn rewrite(
        &self,
        head: &CommandHeader<'_>,
        to: &ShapedTarget<'_>,
        link: &mut UpstreamConnection,
        upstream: &Upstream,
    ) -> DryRunEnd {
        let context = CommandContext::new(&self.shared, &to.settings, link, upstream, head);
        match to.shape() {
            // In observe mode, all cursors are mongod's.
            Shape::Bucket(_) if matches!(head.command, Command::GetMore | Command::KillCursors) => DryRunEnd::Asked,
            Shape::Bucket(shape) => DryRunEnd::of(BucketCommand::new(context, shape, to.namespace).run().await),
            Shape::Outlier(shape) => {
                match passage(shape, head, upstream.kind()) {
                    // Whether a reply contains outliers depends on the stored documents.
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
        link: &mut UpstreamConnection,
        upstream: &Upstream,
    ) -> DryRunEnd {
        let context = CommandContext::new(&self.shared, settings, link, upstream, head);
        DryRunEnd::of(CrossCollectionCommand { context }.run().await)
    }

    /// The observed shapes without change streams that a change stream on a database, or in `admin` on the
    /// cluster, includes, as configured.
    fn in_stream(&self, database: &str) -> Vec<String> {
        let observed = self.shapes.iter().filter(|shape| shape.mode() == Mode::Observe);
        let refusing = observed.filter(|shape| !shape.has_change_streams());
        let namespaces = refusing.map(|shape| shape.namespace());
        let included = namespaces.filter(|of| database == "admin" || of.database().is_none_or(|of| of == database));
        included.map(ToString::to_string).collect()
    }

    /// The observed shapes that a command references, as configured.
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

    fn record(&self, namespace: &str, head: &CommandHeader<'_>, end: &DryRunEnd) {
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
                    // A refusal contains no values of documents.
                    CommandError::Own { code, message } if *code == ErrorCode::CommandNotSupported => message.as_str(),
                    // The error of an invalid command may quote the command.
                    CommandError::Own { code, .. } => code.name(),
                    CommandError::Upstream(_) => "as mongod would",
                };
                tracing::debug!(namespace, command, reason, "observed: would be answered with an error");
            }
        }
    }

    /// Whether the observed shapes change how the command is handled.
    pub(in crate::session) fn concerns(&self, head: &CommandHeader<'_>) -> bool {
        !matches!(
            route::decide(&self.shared.settings(), head),
            Route::Relay | Route::Handshake
        )
    }
}

/// Whether the command may be refused after replies of mongod.
fn depends_on_what_is_stored(command: Command) -> bool {
    matches!(
        RefusalReason::of_command(command),
        RefusalReason::Write | RefusalReason::Index | RefusalReason::Collection
    ) && command != Command::Insert
}

impl DryRunEnd {
    fn of(answer: Result<RawDocumentBuf, RunError>) -> Self {
        match answer {
            // The upstream connection is intact, because nothing was sent.
            Ok(_) | Err(RunError::Link(_) | RunError::ClientClosed | RunError::LayoutChanged) => Self::Asked,
            Err(RunError::Command(error)) => Self::Refused(error),
        }
    }
}
