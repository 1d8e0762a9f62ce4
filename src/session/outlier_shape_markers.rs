//! Compares the shape with the shape marker of an outlier collection, which is an index on its
//! extras.

use std::time::{Duration, Instant};

use bson::raw::RawDocumentBuf;

use super::error::RunError;
use super::namespace_cache::NamespaceCache;
use super::refusal::RefusalRecorder;
use super::upstream_connection::UpstreamConnection;
use crate::command::arguments::InheritedOptions;
use crate::command::document::single;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::namespace::Namespace;
use crate::command::reply::CursorReply;
use crate::pattern::shape_marker;
use crate::pattern::shapes::OutlierShape;

/// The time for which the absence of extras is cached. Another proxy may create extras at any time, but
/// checking for each command is too expensive.
const WITHOUT_EXTRAS: Duration = Duration::from_secs(1);

/// The outlier collections whose shape marker was checked.
#[derive(Debug, Default)]
pub(super) struct OutlierShapeMarkers(NamespaceCache<MarkerState>);

/// The cached result.
#[derive(Clone, Copy, Debug)]
enum MarkerState {
    /// The marker matches the shape.
    Same,
    /// There was no marker at this time.
    NothingAt(Instant),
}

/// The connection and rights for a check.
pub(super) struct MarkerCheck<'a> {
    pub(super) refusals: RefusalRecorder<'a>,
    pub(super) link: &'a mut UpstreamConnection,
    pub(super) shape: &'a OutlierShape,
    pub(super) namespace: Namespace<'a>,
    pub(super) carried: InheritedOptions<'a>,
}

impl OutlierShapeMarkers {
    /// Whether a cached result is valid.
    pub(super) fn knows(&self, namespace: Namespace<'_>) -> bool {
        match self.0.get(namespace) {
            Some(MarkerState::Same) => true,
            Some(MarkerState::NothingAt(at)) => at.elapsed() < WITHOUT_EXTRAS,
            None => false,
        }
    }

    /// Refuses a collection whose shape marker records another shape.
    pub(super) async fn check(&self, check: MarkerCheck<'_>) -> Result<(), RunError> {
        if check.link.is_dry_run() || self.knows(check.namespace) {
            return Ok(());
        }
        let mut command = single("listIndexes", check.shape.extras_collection());
        check.carried.append_to_inspect(&mut command);
        let seen = match check.link.run(&command).await {
            Ok(reply) => check.seen(&reply)?,
            Err(RunError::Command(error)) if error.is(ErrorCode::NamespaceNotFound) => {
                MarkerState::NothingAt(Instant::now())
            }
            // A command of a user without `listIndexes` is not refused. The result is not cached, because
            // other users have that right.
            Err(RunError::Command(error)) if error.is(ErrorCode::Unauthorized) => return Ok(()),
            Err(error) => return Err(error),
        };
        self.0.put(check.namespace, seen);
        Ok(())
    }

    /// Drops the cached result of a dropped collection.
    pub(super) fn forget(&self, namespace: Namespace<'_>) {
        self.0.forget(namespace);
    }
}

impl MarkerCheck<'_> {
    fn seen(&self, reply: &RawDocumentBuf) -> Result<MarkerState, CommandError> {
        let indexes = CursorReply::parse(reply);
        let Some(marker) = shape_marker::among(indexes.iter().flat_map(CursorReply::documents)) else {
            // No marker: extras were written by hand, or are being created.
            return Ok(MarkerState::NothingAt(Instant::now()));
        };
        let differing = shape_marker::differing(self.shape.stored_as(), marker);
        if differing.is_empty() {
            return Ok(MarkerState::Same);
        }
        let (namespace, remedy) = (self.namespace, shape_marker::REMEDY);
        self.refusals.misfit(self.shape.namespace());
        let message = format!(
            "mongoshape is configured to store {namespace} in the outlier pattern, but it has the layout of another shape: {}: {remedy}",
            differing.join(", ")
        );
        Err(CommandError::new(ErrorCode::InvalidOptions, message))
    }
}
