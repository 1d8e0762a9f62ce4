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

/// What sessions observe with.
#[derive(Debug)]
pub(super) struct Observer {
    /// As a proxy would have them that rewrites what is observed. Its metrics count as observed.
    pub(super) shared: Shared,
    /// The shapes as they are.
    pub(super) shapes: Shapes,
    pub(super) metrics: ObservedMetrics,
}

/// Records the plans of a dry run, which gets no replies.
#[derive(Debug, Default)]
pub(super) struct DryRun {
    pages: OpenPages,
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
}

impl DryRun {
    /// Counts what an insert would have made.
    pub(super) fn insert(&self, shared: &Shared, shape: &BucketShape, groups: &[KeyBatch]) {
        let items: usize = groups.iter().map(|group| group.pending().count()).sum();
        let pages = groups.iter().map(|group| self.pages.place(shape, group)).sum();
        let items = u64::try_from(items).unwrap_or(u64::MAX);
        shared
            .metrics
            .would_insert(&shape.namespace().to_string(), shape, items, pages);
    }
}
