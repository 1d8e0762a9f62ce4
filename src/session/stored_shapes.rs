//! Compares the shape marker of an outlier collection, which is on its extras, with the shape.

use std::time::{Duration, Instant};

use bson::raw::RawDocumentBuf;

use super::error::RunError;
use super::metrics::SessionMetrics;
use super::namespace_cache::NamespaceCache;
use super::upstream_connection::UpstreamConnection;
use crate::command::arguments::InheritedOptions;
use crate::command::document::single;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::namespace::Namespace;
use crate::command::reply::CursorReply;
use crate::pattern::shape_marker;
use crate::pattern::shapes::OutlierShape;

/// How long a collection is taken to have no extras, once that was seen: another proxy may make the first at
/// any time, and a collection without any is not to be looked at for each of its commands.
const WITHOUT_EXTRAS: Duration = Duration::from_secs(1);

/// The collections that were seen to be stored in their shape.
#[derive(Debug, Default)]
pub(super) struct StoredShapes(NamespaceCache<MarkerState>);

/// What was seen.
#[derive(Clone, Copy, Debug)]
enum MarkerState {
    /// It says that it is stored in this shape.
    Same,
    /// It says nothing yet.
    NothingAt(Instant),
}

/// Someone who is about to read or write a collection.
pub(super) struct StoredAsker<'a> {
    pub(super) metrics: &'a SessionMetrics,
    pub(super) link: &'a mut UpstreamConnection,
    pub(super) shape: &'a OutlierShape,
    pub(super) namespace: Namespace<'a>,
    pub(super) carried: InheritedOptions<'a>,
}

impl StoredShapes {
    /// Whether nothing has to be looked at.
    pub(super) fn knows(&self, namespace: Namespace<'_>) -> bool {
        match self.0.get(namespace) {
            Some(MarkerState::Same) => true,
            Some(MarkerState::NothingAt(at)) => at.elapsed() < WITHOUT_EXTRAS,
            None => false,
        }
    }

    /// Refuses a collection that is stored in another shape.
    pub(super) async fn check(&self, asker: StoredAsker<'_>) -> Result<(), RunError> {
        if asker.link.is_dry_run() || self.knows(asker.namespace) {
            return Ok(());
        }
        let mut command = single("listIndexes", asker.shape.extras_collection());
        asker.carried.append_to_inspect(&mut command);
        let seen = match asker.link.run(&command).await {
            Ok(reply) => asker.seen(&reply)?,
            Err(RunError::Command(error)) if error.is(ErrorCode::NamespaceNotFound) => {
                MarkerState::NothingAt(Instant::now())
            }
            // Who may not ask is not kept from the collection, and has nothing to tell others.
            Err(RunError::Command(error)) if error.is(ErrorCode::Unauthorized) => return Ok(()),
            Err(error) => return Err(error),
        };
        self.0.put(asker.namespace, seen);
        Ok(())
    }

    /// Forgets what was seen of a collection that is dropped.
    pub(super) fn forget(&self, namespace: Namespace<'_>) {
        self.0.forget(namespace);
    }
}

impl StoredAsker<'_> {
    fn seen(&self, reply: &RawDocumentBuf) -> Result<MarkerState, CommandError> {
        let indexes = CursorReply::parse(reply);
        let Some(said) = shape_marker::among(indexes.iter().flat_map(CursorReply::documents)) else {
            // None but by hand, or in the moment in which they are made.
            return Ok(MarkerState::NothingAt(Instant::now()));
        };
        let differing = shape_marker::differing(self.shape.stored_as(), said);
        if differing.is_empty() {
            return Ok(MarkerState::Same);
        }
        let (namespace, remedy) = (self.namespace, shape_marker::REMEDY);
        self.metrics.misfit(&self.shape.namespace().to_string());
        let message = format!(
            "mongoshape is configured to store {namespace} in the outlier pattern, but it is stored in another shape: {}: {remedy}",
            differing.join(", ")
        );
        Err(CommandError::new(ErrorCode::InvalidOptions, message))
    }
}
