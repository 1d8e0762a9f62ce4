//! The rows of the operator's page for shapes, refusals, refused unique indexes and conversions.

use crate::maintenance::conversion_watch::WatchedConversion;
use crate::maintenance::convert::{ConversionFigures, ConversionStage};
use crate::pattern::shapes::{BucketShape, Mode, OutlierShape, Reads, Shape, Shapes};
use crate::session::metrics::{RefusalKind, SessionMetrics};
use crate::session::refused_unique_indexes::{RefusedUniqueIndex, RefusedUniqueIndexes};
use crate::telemetry::admin::{ConversionFiguresRow, ConversionRow, RefusalRow, ShapeRow, UniqueIndexRow};

/// One row for each shape, by namespace.
pub(super) fn shapes(shapes: &Shapes) -> Vec<ShapeRow> {
    let mut rows: Vec<_> = shapes.iter().chain(shapes.shadows()).map(|shape| row(shape)).collect();
    rows.sort_by(|one, other| one.namespace.cmp(&other.namespace));
    rows
}

/// One row for each kind of refusal, the latest first.
pub(super) fn refusals(metrics: &SessionMetrics) -> Vec<RefusalRow> {
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
pub(super) fn unique_indexes(refused: &RefusedUniqueIndexes) -> Vec<UniqueIndexRow> {
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
pub(super) fn conversions(watched: &[WatchedConversion]) -> Vec<ConversionRow> {
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
