//! The state that all sessions of a proxy share.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bson::Binary;
use tokio::sync::mpsc::Sender;

use super::automatic::guarded_cursors::GuardedCursors;
use super::automatic::stored::StoredCollection;
use super::collection_catalog::CollectionCatalog;
use super::command_trace::CommandTracer;
use super::cursor::CursorRegistry;
use super::dry_run::{DryRun, Observer};
use super::first_page_cache::FirstPages;
use super::head_page_cache::HeadPages;
use super::id_source::Timestamps;
use super::insert_groups::InsertGroups;
use super::key_length_cache::KeyLengths;
use super::many_values_cache::ManyValues;
use super::memory::MemoryBudget;
use super::metrics::SessionMetrics;
use super::namespace_cache::NamespaceCache;
use super::outlier::hot_documents::KnownOutliers;
use super::outlier::leftover_documents::Leftovers;
use super::outlier::limited_cursors::LimitedCursors;
use super::outlier::scratch_collection::Scratches;
use super::outlier_shape_markers::OutlierShapeMarkers;
use super::page_times_cache::RecentPages;
use super::refused_unique_indexes::RefusedUniqueIndexes;
use super::reserving_page_deletions::ReservingPageDeletions;
use super::shadow::ShadowRead;
use super::write_delay::WriteDelays;
use crate::command::namespace::Namespace;
use crate::pattern::shapes::{Shapes, StoredLayout};

/// Time and size limits of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// Maximum bytes of a message.
    pub max_message_bytes: usize,
    /// The memory budget of all sessions in bytes. A reload does not change it.
    pub memory_bytes: usize,
    /// Maximum time to receive a message, for each MiB of it.
    pub frame_timeout: Duration,
    /// Maximum time without progress while a reply is sent.
    pub send_timeout: Duration,
    /// Maximum time between two commands. `None`: no limit.
    pub idle_timeout: Option<Duration>,
    /// Maximum time to find the upstream and connect to it.
    pub connect_timeout: Duration,
    /// Commands that take at least this time are logged. `None`: no command is.
    pub slow_command: Option<Duration>,
}

/// Everything that a reload exchanges, with the caches that depend on it.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(super) shapes: Shapes,
    pub(super) limits: SessionLimits,
    /// The collections that were checked with these shapes.
    pub(super) catalog: Arc<CollectionCatalog>,
    pub(super) hints: Arc<HeadPages>,
    pub(super) first_pages: Arc<FirstPages>,
    pub(super) recent_pages: Arc<RecentPages>,
    pub(super) key_lengths: Arc<KeyLengths>,
    pub(super) many_values: Arc<ManyValues>,
    pub(super) reserving_page_deletions: Arc<ReservingPageDeletions>,
    pub(super) insert_groups: Arc<InsertGroups>,
    /// The UUIDs of outlier collections that have no default collation. A write that was evaluated
    /// in a scratch collection names the UUID, so mongod refuses it on a collection that was
    /// recreated.
    pub(super) without_collation: Arc<NamespaceCache<Binary>>,
    /// The outlier collections whose shape marker matches.
    pub(super) outlier_shape_markers: Arc<OutlierShapeMarkers>,
    pub(super) known_outliers: Arc<KnownOutliers>,
    pub(super) scratches: Arc<Scratches>,
    /// The dry run of the shapes in observe mode, if there are any.
    pub(super) observer: Option<Arc<Observer>>,
    /// The collections with an automatic shape, as last listed.
    pub(super) automatic: Arc<NamespaceCache<StoredCollection>>,
}

impl Settings {
    /// Settings with empty caches.
    #[must_use]
    pub fn new(shapes: Shapes, limits: SessionLimits) -> Self {
        Self {
            shapes,
            limits,
            catalog: Arc::default(),
            hints: Arc::default(),
            first_pages: Arc::default(),
            recent_pages: Arc::default(),
            key_lengths: Arc::default(),
            many_values: Arc::default(),
            reserving_page_deletions: Arc::default(),
            insert_groups: Arc::default(),
            without_collation: Arc::default(),
            outlier_shape_markers: Arc::default(),
            known_outliers: Arc::default(),
            scratches: Arc::default(),
            observer: None,
            automatic: Arc::default(),
        }
    }

    /// Adds the dry run of these settings, so that both are exchanged as one value.
    fn observing(mut self, metrics: &SessionMetrics) -> Self {
        self.observer = Observer::of(&self, metrics).map(Arc::new);
        self
    }

    /// The same settings and caches, with the layout of a collection that has an automatic shape. The
    /// catalog is a new one: a command that is still executed in the former layout must not find the new
    /// collection, which was checked with the other shape.
    fn with_layout(&self, namespace: Namespace<'_>, layout: &StoredLayout) -> Self {
        Self {
            shapes: self.shapes.with_layout(namespace, layout.clone()),
            catalog: Arc::default(),
            ..self.clone()
        }
    }
}

/// The state that all sessions of a proxy share.
#[derive(Debug)]
pub struct Shared {
    pub(super) settings: ArcSwap<Settings>,
    pub(super) metrics: SessionMetrics,
    pub(super) cursors: CursorRegistry,
    pub(super) guarded_cursors: GuardedCursors,
    pub(super) timestamps: Timestamps,
    pub(super) leftovers: Leftovers,
    pub(super) limited_cursors: LimitedCursors,
    pub(super) memory: MemoryBudget,
    /// The unique indexes that were refused. A dry run has its own.
    pub(super) refused_unique_indexes: RefusedUniqueIndexes,
    /// The recorder of an observer's dry run.
    pub(super) dry_run: Option<DryRun>,
    /// The reads that are compared in shadow mode. `None`: no task compares them.
    pub(super) shadow_reads: Option<Sender<ShadowRead>>,
    pub(super) write_delays: WriteDelays,
    /// `None`: commands have no spans.
    pub(super) tracer: Option<Arc<CommandTracer>>,
}

impl Shared {
    /// State for these settings.
    #[must_use]
    pub fn new(settings: Settings, metrics: SessionMetrics) -> Self {
        expect_namespaces(&settings, &metrics);
        Self::plain(settings.observing(&metrics), metrics, None)
    }

    /// State without an observer.
    pub(super) fn plain(settings: Settings, metrics: SessionMetrics, dry_run: Option<DryRun>) -> Self {
        let memory = MemoryBudget::new(settings.limits.memory_bytes);
        Self {
            settings: ArcSwap::from_pointee(settings),
            refused_unique_indexes: RefusedUniqueIndexes::new(metrics.refused_unique_indexes.clone()),
            metrics,
            cursors: CursorRegistry::new(memory.cursor_bytes / 2),
            guarded_cursors: GuardedCursors::default(),
            timestamps: Timestamps::default(),
            leftovers: Leftovers::new(memory.cursor_bytes / 2),
            limited_cursors: LimitedCursors::default(),
            memory,
            dry_run,
            shadow_reads: None,
            write_delays: WriteDelays::default(),
            tracer: None,
        }
    }

    /// The same state. Reads that are compared in shadow mode are put into this queue.
    #[must_use]
    pub fn with_shadow_reads(mut self, queue: Sender<ShadowRead>) -> Self {
        self.shadow_reads = Some(queue);
        self
    }

    /// The same state. Commands have spans of this tracer.
    #[must_use]
    pub fn with_tracer(mut self, tracer: Option<CommandTracer>) -> Self {
        self.tracer = tracer.map(Arc::new);
        self
    }

    /// Exchanges the settings. A running command keeps its settings. Limits apply to new
    /// connections.
    pub fn exchange(&self, settings: Settings) {
        expect_namespaces(&settings, &self.metrics);
        self.settings.store(Arc::new(settings.observing(&self.metrics)));
    }

    /// Records what a collection with an automatic shape contains.
    pub(super) fn learn_layout(&self, namespace: Namespace<'_>, layout: &StoredLayout) {
        self.settings.rcu(|settings| settings.with_layout(namespace, layout));
    }

    /// Forgets the collection that a name with an automatic shape denotes. The next command lists it.
    pub fn list_again(&self, namespace: Namespace<'_>) {
        self.settings().automatic.forget(namespace);
    }

    /// The delays of writes to collections that are being converted.
    #[must_use]
    pub fn write_delays(&self) -> &WriteDelays {
        &self.write_delays
    }

    /// The shapes for new commands.
    #[must_use]
    pub fn shapes(&self) -> Shapes {
        self.settings().shapes.clone()
    }

    /// The metrics of all sessions.
    #[must_use]
    pub fn metrics(&self) -> &SessionMetrics {
        &self.metrics
    }

    /// The unique indexes that were refused.
    #[must_use]
    pub fn refused_unique_indexes(&self) -> &RefusedUniqueIndexes {
        &self.refused_unique_indexes
    }

    pub(super) fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }
}

/// Creates every series of all shapes, so that it exists at zero.
fn expect_namespaces(settings: &Settings, metrics: &SessionMetrics) {
    let namespaces = settings.shapes.iter().map(|shape| shape.namespace().to_string());
    namespaces.for_each(|namespace| metrics.expect_namespace(&namespace));
    for shape in settings.shapes.shadows() {
        let namespace = shape.namespace().to_string();
        metrics.shadow.expect_namespace(&namespace);
        metrics.conversions.expect_namespace(&namespace);
    }
}
