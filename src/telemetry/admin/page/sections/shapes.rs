//! The section on storage: shapes, the fill of pages, inserts and outliers.

use super::{REJECTED, Span};
use crate::telemetry::admin::page::html::{self, Cell, Table, Width};
use crate::telemetry::admin::page::rows::ShapeRow;
use crate::telemetry::admin::page::snapshot::as_float;

const FILL: &str = "mongoshape_bucket_fill_items";
const SPILLS: &str = "mongoshape_outlier_spills_total";
const MERGED: &str = "mongoshape_outlier_merged_reads_total";

pub(super) fn shapes(span: &Span<'_>, rows: &[ShapeRow]) -> Table {
    let row = |shape: &ShapeRow| {
        let namespace = [("namespace", shape.namespace.as_str())];
        // A metric of the other pattern has no value, not 0.
        let own = |pattern: &str, name: &str| {
            if shape.pattern == pattern {
                span.number(name, &namespace)
            } else {
                Cell::Number(None, String::new())
            }
        };
        let mut cells = vec![
            Cell::code(&shape.namespace),
            Cell::text(shape.pattern),
            Cell::text(shape.mode),
            Cell::code(&shape.by),
            Cell::text(&shape.holds),
            own("bucket", "mongoshape_bucket_items_inserted_total"),
        ];
        for strategy in ["page", "index", "stream", "pipeline"] {
            cells.push(span.number("mongoshape_reads_total", &[namespace[0], ("strategy", strategy)]));
        }
        cells.extend([own("outlier", SPILLS), own("outlier", MERGED)]);
        cells.extend([
            span.number(REJECTED, &namespace),
            span.number("mongoshape_observed_total", &namespace),
        ]);
        cells
    };
    Table {
        title: "Shapes",
        width: Width::Whole,
        note: "Since the start: items inserted; reads by access path; spills, and outliers merged; commands refused, and refusals only \
               observed."
            .to_owned(),
        head: vec![
            "Namespace", "Pattern", "Mode", "Key or array", "Holds", "Inserted", "Page", "Index", "Stream", "Pipeline", "Spills", "Merged",
            "Refused", "Observed",
        ],
        rows: rows.iter().map(row).collect(),
        empty: "There are no shapes.",
    }
}

pub(super) fn fill(span: &Span<'_>) -> Table {
    let fill = span.now.distribution(FILL, &[]).unwrap_or_default();
    let mut below = 0;
    let mut rows = Vec::new();
    let mut add = |label: String, count: u64| {
        let share = as_float(count) / as_float(fill.count.max(1));
        if count > 0 {
            let number = Cell::Number(Some(as_float(count)), String::new());
            rows.push(vec![
                Cell::text(label),
                number,
                Cell::text(format!("{:.0} %", share * 100.0)),
                Cell::Bar(share),
            ]);
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
        title: "Fill of pages",
        width: Width::Half,
        note: "Items on a page when the next page of its key was begun, over all pages.".to_owned(),
        head: vec!["Items", "Buckets", "Share", ""],
        rows,
        empty: "No page has been closed yet.",
    }
}

pub(super) fn pages(span: &Span<'_>) -> Table {
    let facts = [
        ("buckets begun", "mongoshape_buckets_opened_total"),
        (
            "races for a page lost, and planned again",
            "mongoshape_bucket_conflicts_total",
        ),
        ("late items", "mongoshape_out_of_order_items_total"),
        ("outliers: spills", "mongoshape_outlier_spills_total"),
        (
            "outliers: replies with merged arrays",
            "mongoshape_outlier_merged_reads_total",
        ),
    ];
    let there = facts.iter().filter(|(_, name)| span.now.sum(name, &[]).is_some());
    let rows = there.map(|(words, name)| {
        vec![
            Cell::text(*words),
            Cell::Rate(span.rate(name, &[])),
            span.number(name, &[]),
        ]
    });
    Table {
        title: "Pages and spills",
        width: Width::Half,
        note: String::new(),
        head: vec!["What", "Rate", "Since the start"],
        rows: rows.collect(),
        empty: "There are no counts.",
    }
}
