//! The state that all sessions of a proxy share.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bson::Binary;

use super::collection_catalog::CollectionCatalog;
use super::cursor::CursorRegistry;
use super::dry_run::{DryRun, Observer};
use super::first_page_cache::FirstPages;
use super::head_page_cache::HeadPages;
use super::id_source::Timestamps;
use super::memory::MemoryBudget;
use super::metrics::SessionMetrics;
use super::namespace_cache::NamespaceCache;
use super::outlier::hot_documents::KnownOutliers;
use super::outlier::leftover::Leftovers;
use super::outlier::scratch_collection::Scratches;
use super::stored_shapes::StoredShapes;
use crate::pattern::shapes::Shapes;

/// How long a session waits for its peers, and how much it takes from them.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// The longest message, in bytes.
    pub max_message_bytes: usize,
    /// The memory budget of all sessions together, in bytes; what it is at the start holds.
    pub memory_bytes: usize,
    /// How long a client may take over a message that it has begun, for each MiB of it.
    pub frame_timeout: Duration,
    /// How long a client may leave unread what is sent to it.
    pub send_timeout: Duration,
    /// How long a client may send nothing between two commands; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// How long finding and connecting to the upstream may take.
    pub connect_timeout: Duration,
}

/// What can be exchanged while sessions run.
#[derive(Debug)]
pub struct Settings {
    pub(super) shapes: Shapes,
    pub(super) limits: SessionLimits,
    /// What was found under these shapes.
    pub(super) catalog: CollectionCatalog,
    pub(super) hints: HeadPages,
    pub(super) first_pages: FirstPages,
    /// The UUIDs of the outlier collections that have no collation of their own. Every write that was
    /// evaluated elsewhere names the UUID, so that mongod refuses it on another collection of the name.
    pub(super) without_collation: NamespaceCache<Binary>,
    /// The outlier collections that are stored in these shapes.
    pub(super) stored_shapes: StoredShapes,
    pub(super) known_outliers: KnownOutliers,
    pub(super) scratches: Scratches,
    /// The dry run of the shapes in observe mode, if there are any.
    pub(super) observer: Option<Observer>,
}

impl Settings {
    /// Settings under which nothing has been found yet.
    #[must_use]
    pub fn new(shapes: Shapes, limits: SessionLimits) -> Self {
        Self {
            shapes,
            limits,
            catalog: CollectionCatalog::default(),
            hints: HeadPages::default(),
            first_pages: FirstPages::default(),
            without_collation: NamespaceCache::default(),
            stored_shapes: StoredShapes::default(),
            known_outliers: KnownOutliers::default(),
            scratches: Scratches::default(),
            observer: None,
        }
    }

    /// These settings with the observer of their own shapes: both are exchanged as one value.
    fn observing(mut self, metrics: &SessionMetrics) -> Self {
        self.observer = Observer::of(&self, metrics);
        self
    }
}

/// What all sessions of a proxy share.
#[derive(Debug)]
pub struct Shared {
    pub(super) settings: ArcSwap<Settings>,
    pub(super) metrics: SessionMetrics,
    pub(super) cursors: CursorRegistry,
    pub(super) timestamps: Timestamps,
    pub(super) leftovers: Leftovers,
    pub(super) memory: MemoryBudget,
    /// Of an observer: what it writes down.
    pub(super) dry_run: Option<DryRun>,
}

impl Shared {
    /// Gathers it.
    #[must_use]
    pub fn new(settings: Settings, metrics: SessionMetrics) -> Self {
        expect_namespaces(&settings, &metrics);
        Self::plain(settings.observing(&metrics), metrics, None)
    }

    /// Without an observer.
    pub(super) fn plain(settings: Settings, metrics: SessionMetrics, dry_run: Option<DryRun>) -> Self {
        let memory = MemoryBudget::new(settings.limits.memory_bytes);
        Self {
            settings: ArcSwap::from_pointee(settings),
            metrics,
            cursors: CursorRegistry::new(memory.cursor_bytes / 2),
            timestamps: Timestamps::default(),
            leftovers: Leftovers::new(memory.cursor_bytes / 2),
            memory,
            dry_run,
        }
    }

    /// Exchanges the settings: commands that begin from now on run under these, running ones end under the
    /// old. Limits hold for new connections.
    pub fn exchange(&self, settings: Settings) {
        expect_namespaces(&settings, &self.metrics);
        self.settings.store(Arc::new(settings.observing(&self.metrics)));
    }

    /// The shapes that commands begin with now.
    #[must_use]
    pub fn shapes(&self) -> Shapes {
        self.settings().shapes.clone()
    }

    /// The handles that sessions count with.
    #[must_use]
    pub fn metrics(&self) -> &SessionMetrics {
        &self.metrics
    }

    pub(super) fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }
}

/// Every series exists at zero before its first event.
fn expect_namespaces(settings: &Settings, metrics: &SessionMetrics) {
    let namespaces = settings.shapes.iter().map(|shape| shape.namespace().to_string());
    namespaces.for_each(|namespace| metrics.expect_namespace(&namespace));
}
