//! Observe mode: a command is planned by the code that executes it, after it was relayed and answered,
//! without a command to mongod.
//!
//! The code gets settings in which observed shapes are active, metrics that count as `observed`, and an
//! [upstream connection](super::upstream_connection) that sends nothing: the first internal command ends the
//! dry run. Collections are assumed to be checked and empty.

mod execute;
mod pages;

use self::pages::OpenPages;
use super::metrics::{ObservedMetrics, SessionMetrics};
use super::shared::{Settings, Shared};
use crate::pattern::bucket::insert::KeyBatch;
use crate::pattern::shapes::{BucketShape, Mode, Shapes};

/// The dry run's view of the proxy.
#[derive(Debug)]
pub(super) struct Observer {
    /// The state as if observed shapes were active. Its metrics count as observed.
    pub(super) shared: Shared,
    /// The shapes with their configured modes.
    pub(super) shapes: Shapes,
    pub(super) metrics: ObservedMetrics,
}

/// Records what a dry run would have stored, because it gets no replies.
#[derive(Debug, Default)]
pub(super) struct DryRun {
    pages: OpenPages,
}

impl Observer {
    /// The observer of these settings. `None` if no shape is in observe mode.
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
}

impl DryRun {
    /// Counts the items and pages that an insert would have stored.
    pub(super) fn insert(&self, shared: &Shared, shape: &BucketShape, groups: &[KeyBatch]) {
        let items: usize = groups.iter().map(|group| group.pending().count()).sum();
        let pages = groups.iter().map(|group| self.pages.place(shape, group)).sum();
        let items = u64::try_from(items).unwrap_or(u64::MAX);
        shared
            .metrics
            .would_insert(&shape.namespace().to_string(), shape, items, pages);
    }
}
