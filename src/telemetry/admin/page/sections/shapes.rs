//! The sections on storage: bucket and outlier shapes, inserts, and the fill of pages.

use super::{READS, REJECTED, Span};
use crate::telemetry::admin::page::html::{self, Cell, GroupHeading, Table, Width};
use crate::telemetry::admin::page::rows::ShapeRow;
use crate::telemetry::admin::page::snapshot::as_float;

const DURATION: &str = "mongoshape_shape_duration_seconds";
const FILL: &str = "mongoshape_bucket_fill_items";

/// The metrics of a shape: those of observe mode have other names.
struct ShapeMetrics {
    items: &'static str,
    reads: &'static str,
    refused: &'static str,
}

impl ShapeMetrics {
    fn of(shape: &ShapeRow) -> Self {
        if shape.mode == "observe" {
            Self {
                items: "mongoshape_observed_items_inserted_total",
                reads: "mongoshape_observed_reads_total",
                refused: "mongoshape_observed_rejected_total",
            }
        } else {
            Self {
                items: "mongoshape_bucket_items_inserted_total",
                reads: READS,
                refused: REJECTED,
            }
        }
    }
}

pub(super) fn buckets(span: &Span<'_>, shapes: &[ShapeRow]) -> Table {
    let row = |shape: &ShapeRow| {
        let (metrics, namespace) = (ShapeMetrics::of(shape), ("namespace", shape.namespace.as_str()));
        let mut cells = described(shape);
        cells.push(span.number(metrics.items, &[namespace]));
        let paths = ["page", "index", "stream", "pipeline", "change_stream"];
        cells.extend(paths.map(|path| span.number(metrics.reads, &[namespace, ("strategy", path)])));
        cells.push(span.number(metrics.refused, &[namespace]));
        cells.extend(span.latency(DURATION, &[namespace]));
        cells
    };
    Table {
        id: "buckets",
        title: "Bucket shapes",
        width: Width::Whole,
        note: "`page` is the fastest access path and `pipeline` the slowest; `explain` shows that of a query. In observe mode, the counts are \
               of what the shape would do."
            .to_owned(),
        groups: &[GroupHeading("", 5), GroupHeading("Reads by access path, since the start", 5), GroupHeading("", 1), GroupHeading("Rewritten commands, last minute", 4)],
        head: &["Namespace", "Mode", "Key", "Stored as", "Items inserted", "page", "index", "stream", "pipeline", "change stream", "Refused", "Rate", "p50", "p95", "p99"],
        rows: of_pattern(shapes, "bucket").map(row).collect(),
    }
}

pub(super) fn outliers(span: &Span<'_>, shapes: &[ShapeRow]) -> Table {
    let row = |shape: &ShapeRow| {
        let namespace = ("namespace", shape.namespace.as_str());
        let mut cells = described(shape);
        cells.extend(
            [
                "mongoshape_outlier_spills_total",
                "mongoshape_outlier_merged_reads_total",
            ]
            .map(|name| span.number(name, &[namespace])),
        );
        cells.push(span.number(READS, &[namespace, ("strategy", "pipeline")]));
        cells.push(span.number(ShapeMetrics::of(shape).refused, &[namespace]));
        cells.extend(span.latency(DURATION, &[namespace]));
        cells
    };
    Table {
        id: "outliers",
        title: "Outlier shapes",
        width: Width::Whole,
        note: "Commands on documents without extras are relayed. If most replies are merged, the threshold is too low."
            .to_owned(),
        groups: &[
            GroupHeading("", 4),
            GroupHeading("Since the start", 4),
            GroupHeading("Rewritten commands, last minute", 4),
        ],
        head: &[
            "Namespace",
            "Mode",
            "Array",
            "Stored as",
            "Spills",
            "Merged replies",
            "Pipelines",
            "Refused",
            "Rate",
            "p50",
            "p95",
            "p99",
        ],
        rows: of_pattern(shapes, "outlier").map(row).collect(),
    }
}

fn of_pattern<'a>(shapes: &'a [ShapeRow], pattern: &'a str) -> impl Iterator<Item = &'a ShapeRow> {
    shapes.iter().filter(move |shape| shape.pattern == pattern)
}

fn described(shape: &ShapeRow) -> Vec<Cell> {
    vec![
        Cell::code(&shape.namespace),
        Cell::text(shape.mode),
        Cell::code(&shape.by),
        Cell::text(&shape.holds),
    ]
}

pub(super) fn fill(span: &Span<'_>) -> Table {
    let fill = span.now.distribution(FILL, &[]).unwrap_or_default();
    let mut below = 0;
    let mut rows = Vec::new();
    let mut add = |label: String, count: u64| {
        let share = as_float(count) / as_float(fill.count.max(1));
        if count > 0 {
            let number = Cell::Number(Some(as_float(count)), String::new());
            let percentage = Cell::text(format!("{:.0} %", share * 100.0));
            rows.push(vec![Cell::text(label), number, percentage, Cell::Bar(share)]);
        }
    };
    let mut last = 0.0;
    for &(bound, count) in &fill.buckets {
        let label = if bound - last > 1.0 {
            format!("{} to {}", html::count(last + 1.0), html::count(bound))
        } else {
            html::count(bound)
        };
        add(label, count.saturating_sub(below));
        (below, last) = (count, bound);
    }
    add(
        format!("more than {}", html::count(last)),
        fill.count.saturating_sub(below),
    );
    Table {
        id: "fill",
        title: "Fill of closed pages",
        width: Width::Half,
        note: "If most are below `max_items`, `max_bytes` closes the pages: raise it.".to_owned(),
        groups: &[],
        head: &["Items", "Pages", "Share", ""],
        rows,
    }
}

/// Nothing without a bucket shape that rewrites.
pub(super) fn pages(span: &Span<'_>, shapes: &[ShapeRow]) -> Table {
    let facts = [
        (
            "pages begun",
            "mongoshape_buckets_opened_total",
            "as many as items: each key has few items",
        ),
        (
            "conflicts",
            "mongoshape_bucket_conflicts_total",
            "many: several proxies write the same keys",
        ),
        (
            "out-of-order items",
            "mongoshape_out_of_order_items_total",
            "many: send the items of a key from one writer",
        ),
        (
            "items expired",
            "mongoshape_items_expired_total",
            "deleted by this proxy, for TTL indexes",
        ),
    ];
    let is_used = of_pattern(shapes, "bucket").any(|shape| shape.mode != "observe");
    let there = facts
        .iter()
        .filter(|(_, name, _)| is_used && span.now.sum(name, &[]).is_some());
    let row = |(words, name, meaning): &(&str, &str, &str)| {
        vec![
            Cell::text(*words),
            Cell::Rate(span.rate(name, &[])),
            span.number(name, &[]),
            Cell::text(*meaning),
        ]
    };
    Table {
        id: "pages",
        title: "Pages",
        width: Width::Half,
        note: "Of all bucket shapes.".to_owned(),
        groups: &[],
        head: &["What", "Rate", "Since the start", "Meaning"],
        rows: there.map(row).collect(),
    }
}
