//! The rows of the operator's page for the upstream, shapes, refusals, refused unique indexes and conversions.

use std::sync::Arc;

use mongodb::event::sdam::TopologyDescription;
use mongodb::{ServerType, TopologyType};
use tokio_util::sync::CancellationToken;

use crate::maintenance::conversion_watch::{WatchedConversion, WatchedConversions};
use crate::maintenance::convert::{ConversionFigures, ConversionStage};
use crate::maintenance::shape_fit::{Fit, SharedFit};
use crate::pattern::shapes::{BucketShape, Mode, OutlierShape, Reads, Shape, Shapes};
use crate::server::topology::{self, WatchedUpstream};
use crate::session::Shared;
use crate::session::metrics::{RefusalKind, SessionMetrics};
use crate::session::refused_unique_indexes::{RefusedUniqueIndex, RefusedUniqueIndexes};
use crate::telemetry::admin::{
    ConversionFiguresRow, ConversionRow, PageRows, RefusalRow, ServerRow, ShapeRow, UniqueIndexRow, UpstreamRow,
};

/// What the page reads whenever it is rendered.
pub(super) struct Shown {
    pub(super) shared: Arc<Shared>,
    pub(super) conversions: WatchedConversions,
    pub(super) fit: SharedFit,
    pub(super) watched: WatchedUpstream,
    pub(super) stopping: CancellationToken,
}

impl Shown {
    pub(super) fn rows(&self) -> PageRows {
        let misfits = match &**self.fit.load() {
            Fit::Misfits(lines) => lines.clone(),
            Fit::Unknown | Fit::Fits => Vec::new(),
        };
        let found = self.watched.found.borrow().clone();
        PageRows {
            is_draining: self.stopping.is_cancelled(),
            misfits,
            upstream: found.map(|found| upstream(&found, self.watched.upstreams.address().as_deref())),
            shapes: shapes(&self.shared.shapes()),
            refusals: refusals(self.shared.metrics()),
            unique_indexes: unique_indexes(self.shared.refused_unique_indexes()),
            conversions: conversions(&self.conversions.load()),
        }
    }
}

/// The driver's finding. `current`: the address of the server for new sessions.
fn upstream(found: &TopologyDescription, current: Option<&str>) -> UpstreamRow {
    let servers = found.servers();
    let set = found.set_name().cloned();
    let set = set.or_else(|| {
        servers
            .values()
            .find_map(|server| Some(server.replica_set_name()?.to_owned()))
    });
    let kind = match found.topology_type() {
        TopologyType::Sharded => "sharded cluster",
        TopologyType::Single if set.is_some() => "one member of the replica set",
        TopologyType::Single
            if servers
                .values()
                .any(|server| server.server_type() == ServerType::Mongos) =>
        {
            "one mongos"
        }
        TopologyType::Single
            if servers
                .values()
                .any(|server| server.server_type() == ServerType::Standalone) =>
        {
            "standalone"
        }
        TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary => "replica set",
        _ => "not known yet",
    };
    let mut rows: Vec<_> = servers
        .iter()
        .map(|(address, server)| ServerRow {
            address: address.to_string(),
            role: role(server.server_type()),
            is_current: current.is_some() && topology::dial_address(address).as_deref() == current,
            error: server.error().map(topology::reason),
        })
        .collect();
    rows.sort_by(|one, other| (!one.is_current, &one.address).cmp(&(!other.is_current, &other.address)));
    UpstreamRow {
        kind,
        set,
        servers: rows,
    }
}

fn role(server: ServerType) -> &'static str {
    match server {
        ServerType::Standalone => "standalone",
        ServerType::Mongos => "mongos",
        ServerType::RsPrimary => "primary",
        ServerType::RsSecondary => "secondary",
        ServerType::RsArbiter => "arbiter",
        ServerType::RsGhost => "in no replica set yet",
        ServerType::Unknown => "unreachable",
        _ => "neither primary nor secondary",
    }
}

/// One row for each shape, by namespace.
fn shapes(shapes: &Shapes) -> Vec<ShapeRow> {
    let mut rows: Vec<_> = shapes.iter().chain(shapes.shadows()).map(|shape| row(shape)).collect();
    rows.sort_by(|one, other| one.namespace.cmp(&other.namespace));
    rows
}

/// One row for each kind of refusal, the latest first.
fn refusals(metrics: &SessionMetrics) -> Vec<RefusalRow> {
    let kinds = metrics.refusals().into_iter();
    let row = |(kind, count): (RefusalKind, u64)| RefusalRow {
        namespace: kind.class.namespace,
        command: kind.class.command.name(),
        reason: kind.class.reason.label(),
        instead: kind.class.reason.remedy(),
        what: kind.what,
        is_observed: kind.class.is_observed,
        count,
    };
    kinds.map(row).collect()
}

/// One row for each refused unique index, the latest first.
fn unique_indexes(refused: &RefusedUniqueIndexes) -> Vec<UniqueIndexRow> {
    let row = |index: RefusedUniqueIndex| UniqueIndexRow {
        namespace: index.id.namespace,
        name: index.id.name,
        key: index.key,
        message: index.message,
        at: index.at,
    };
    refused.all().into_iter().map(row).collect()
}

/// One row for each conversion.
fn conversions(watched: &[WatchedConversion]) -> Vec<ConversionRow> {
    let row = |one: &WatchedConversion| {
        let figures = match &one.status.stage {
            ConversionStage::Running(figures) => figures.as_ref(),
            ConversionStage::Kept => None,
        };
        let phase = match (&one.status.stage, figures) {
            (ConversionStage::Kept, _) => "kept, `--back` possible".to_owned(),
            (_, Some(figures)) => figures.phase.clone(),
            (_, None) => "begins, or was stopped".to_owned(),
        };
        ConversionRow {
            namespace: one.namespace.clone(),
            direction: one.status.direction.clone(),
            phase,
            figures: figures.map(figures_row),
        }
    };
    watched.iter().map(row).collect()
}

fn figures_row(figures: &ConversionFigures) -> ConversionFiguresRow {
    let comparison = figures.compared.map(|compared| match figures.differing {
        Some(differing) if differing > 0 => format!("{compared} documents, {differing} differ"),
        _ => format!("{compared} documents, equal"),
    });
    ConversionFiguresRow {
        ratio: figures.ratio,
        lag: figures.lag,
        remaining: figures.remaining,
        write_delay: figures.write_delay,
        comparison,
        recorded: figures.updated_at,
    }
}

fn row(shape: &Shape) -> ShapeRow {
    let (by, holds) = match shape {
        Shape::Bucket(bucket) => (bucket.key().join(", "), of_bucket(bucket)),
        Shape::Outlier(outlier) => (outlier.array().to_owned(), of_outlier(outlier)),
    };
    ShapeRow {
        namespace: shape.namespace().to_string(),
        pattern: shape.pattern(),
        mode: match shape.mode() {
            Mode::Rewrite => "rewrite",
            Mode::Observe => "observe",
            Mode::Auto => "auto",
            Mode::Shadow => "shadow",
            Mode::Off => "off",
        },
        by,
        holds,
    }
}

fn of_bucket(shape: &BucketShape) -> String {
    let order = shape.time().map_or(String::new(), |time| format!(", by {time}"));
    format!("pages of {}{order}", shape.max_items())
}

fn of_outlier(shape: &OutlierShape) -> String {
    let reads = match shape.reads() {
        Reads::Merged => "",
        Reads::Base => "; reads base",
    };
    format!("{}, then pages of {}{reads}", shape.threshold(), shape.max_items())
}
