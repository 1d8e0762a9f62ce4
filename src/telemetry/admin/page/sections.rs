//! What the page says: each section from two readings, now and a minute ago. Metrics by name; what is not there is not shown.

use std::collections::{BTreeMap, BTreeSet};

use bson::DateTime;

use super::ShapeRow;
use super::html::{Cell, Table, Width};
use super::reading::{Distribution, Labels, Reading};
use crate::telemetry::recent::Entry;

const COMMANDS: &str = "mongoshape_commands_total";
const DURATION: &str = "mongoshape_command_duration_seconds";
const UPSTREAM: &str = "mongoshape_upstream_duration_seconds";
const OVERHEAD: &str = "mongoshape_proxy_overhead_seconds";
const FILL: &str = "mongoshape_bucket_fill_items";
const BYTES: &str = "mongoshape_bytes_total";
const SPILLS: &str = "mongoshape_outlier_spills_total";
const MERGED: &str = "mongoshape_outlier_merged_reads_total";
const REJECTED: &str = "mongoshape_rejected_total";
const LIMITS: &str = "mongoshape_limits_hit_total";
const CONNECTIONS: &str = "mongoshape_client_connections";
const OUTCOMES: [&str; 4] = ["relayed", "rewritten", "rejected", "failed"];

/// Now, and some time before.
pub(super) struct Span<'a> {
    pub(super) now: &'a Reading,
    pub(super) before: &'a Reading,
}

impl Span<'_> {
    pub(super) fn seconds(&self) -> f64 {
        self.now.at.duration_since(self.before.at).as_secs_f64()
    }

    /// The sum of these series, which `/metrics` shows too.
    fn number(&self, name: &str, labels: Labels<'_>) -> Cell {
        Cell::Number(self.now.sum(name, labels), selector(name, labels))
    }

    /// How fast they grew.
    fn rate(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        let seconds = self.seconds();
        let grown = self.now.sum(name, labels)? - self.before.sum(name, labels).unwrap_or(0.0);
        (seconds > 0.0).then(|| grown.max(0.0) / seconds)
    }

    /// What was observed in between.
    fn lately(&self, name: &str, labels: Labels<'_>) -> Option<Distribution> {
        let now = self.now.distribution(name, labels)?;
        let before = self.before.distribution(name, labels);
        Some(now.since(&before.unwrap_or_default()))
    }

    fn quantiles(&self, name: &str) -> String {
        let lately = self.lately(name, &[]);
        let of = |quantile| lately.as_ref().and_then(|lately| lately.quantile(quantile));
        match of(0.99) {
            Some(slow) => format!("99 % within {}", super::html::seconds(slow)),
            None => "nothing lately".to_owned(),
        }
    }
}

fn selector(name: &str, labels: Labels<'_>) -> String {
    let labels: Vec<_> = labels
        .iter()
        .map(|(label, value)| format!("{label}=\"{value}\""))
        .collect();
    if labels.is_empty() {
        name.to_owned()
    } else {
        format!("{name}{{{}}}", labels.join(","))
    }
}

/// The numbers at the top.
pub(super) fn summary(span: &Span<'_>) -> Vec<(&'static str, Cell, String)> {
    let now = span.now;
    let up = now.sum("mongoshape_upstream_up", &[]);
    let median = |name| span.lately(name, &[]).and_then(|lately| lately.quantile(0.5));
    let total = |name| now.sum(name, &[]).map_or(String::new(), super::html::count);
    let mut tiles = vec![
        (
            "Upstream",
            Cell::text(if up == Some(1.0) { "up" } else { "down" }),
            "a server to write to".to_owned(),
        ),
        (
            "Connections",
            span.number(CONNECTIONS, &[]),
            format!("{} since the start", total("mongoshape_client_connections_total")),
        ),
        (
            "Commands",
            Cell::Rate(span.rate(COMMANDS, &[])),
            format!("{} since the start", total(COMMANDS)),
        ),
        (
            "Median duration",
            Cell::Seconds(median(DURATION)),
            span.quantiles(DURATION),
        ),
    ];
    if now.sum(OVERHEAD, &[]).is_some() {
        tiles.push((
            "Median overhead",
            Cell::Seconds(median(OVERHEAD)),
            span.quantiles(OVERHEAD),
        ));
    }
    tiles.push(("Refused", span.number(REJECTED, &[]), "since the start".to_owned()));
    tiles.push((
        "Memory",
        Cell::Bytes(now.sum("process_resident_memory_bytes", &[])),
        "resident".to_owned(),
    ));
    tiles
}

/// The tables, in their order.
pub(super) fn tables(span: &Span<'_>, rows: &[ShapeRow], recent: &[Entry]) -> Vec<Table> {
    let mut tables = vec![shapes(span, rows), rates(span), refusals(span), latencies(span)];
    tables.extend([commands(span), fill(span), pages(span), limits(span), warnings(recent)]);
    tables
}

fn shapes(span: &Span<'_>, rows: &[ShapeRow]) -> Table {
    let row = |shape: &ShapeRow| {
        let namespace = [("namespace", shape.namespace.as_str())];
        // What the other pattern alone counts is no zero.
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
        for strategy in ["page", "stream", "pipeline"] {
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
        note: "Since the start: items inserted; reads by the way that they were answered; arrays that were moved to extras, and put \
               together; commands refused, and only observed."
            .to_owned(),
        head: vec![
            "Namespace", "Pattern", "Mode", "Key or array", "Holds", "Inserted", "Page", "Stream", "Pipeline", "Spills", "Merged",
            "Refused", "Observed",
        ],
        rows: rows.iter().map(row).collect(),
        empty: "No collection has a shape.",
    }
}

fn rates(span: &Span<'_>) -> Table {
    let row = |outcome: &str| {
        let labels = [("outcome", outcome)];
        vec![
            Cell::text(outcome),
            Cell::Rate(span.rate(COMMANDS, &labels)),
            span.number(COMMANDS, &labels),
        ]
    };
    let mut rows: Vec<_> = OUTCOMES.map(row).into();
    for direction in ["received", "sent"] {
        let labels = [("direction", direction)];
        let rate = Cell::BytesRate(span.rate(BYTES, &labels));
        rows.push(vec![
            Cell::text(format!("bytes {direction}")),
            rate,
            span.number(BYTES, &labels),
        ]);
    }
    Table {
        title: "Rates",
        width: Width::Half,
        note: format!(
            "Commands by what became of them, and bytes; over the last {:.0} s.",
            span.seconds()
        ),
        head: vec!["What", "Rate", "Since the start"],
        rows,
        empty: "",
    }
}

fn latencies(span: &Span<'_>) -> Table {
    let mut rows = Vec::new();
    let mut add = |label: String, name: &str, labels: Labels<'_>| {
        let (Some(whole), Some(lately)) = (span.now.distribution(name, labels), span.lately(name, labels)) else {
            return;
        };
        let mut cells = vec![Cell::text(label)];
        cells.extend([0.5, 0.95, 0.99].map(|quantile| Cell::Seconds(lately.quantile(quantile))));
        cells.extend([0.5, 0.99].map(|quantile| Cell::Seconds(whole.quantile(quantile))));
        cells.push(Cell::Seconds(whole.mean()));
        cells.push(Cell::Number(
            Some(super::reading::as_float(whole.count)),
            selector(&format!("{name}_count"), labels),
        ));
        rows.push(cells);
    };
    for outcome in OUTCOMES {
        add(format!("commands, {outcome}"), DURATION, &[("outcome", outcome)]);
    }
    add("waiting for the upstream".to_owned(), UPSTREAM, &[("command", "other")]);
    add("the same, by getMore".to_owned(), UPSTREAM, &[("command", "getMore")]);
    add("overhead of the proxy".to_owned(), OVERHEAD, &[]);
    Table {
        title: "Latencies and overhead",
        width: Width::Whole,
        note: format!(
            "Quantiles as the histograms' bounds allow: the first three over the last {:.0} s, the others since the start.",
            span.seconds()
        ),
        head: vec![
            "What",
            "p50",
            "p95",
            "p99",
            "p50, all",
            "p99, all",
            "Mean, all",
            "Number, all",
        ],
        rows,
        empty: "Nothing was measured.",
    }
}

fn commands(span: &Span<'_>) -> Table {
    let names = span.now.by(COMMANDS, "command", &[]);
    let rows = names
        .into_iter()
        .filter(|(_, number)| *number > 0.0)
        .map(|(command, _)| {
            let mut cells = vec![
                Cell::code(command),
                Cell::Rate(span.rate(COMMANDS, &[("command", command)])),
            ];
            cells.extend(OUTCOMES.map(|outcome| span.number(COMMANDS, &[("command", command), ("outcome", outcome)])));
            cells
        });
    Table {
        title: "Commands",
        width: Width::Half,
        note: "Those that came since the start.".to_owned(),
        head: vec!["Command", "Rate", "Relayed", "Rewritten", "Rejected", "Failed"],
        rows: rows.collect(),
        empty: "None came yet.",
    }
}

fn fill(span: &Span<'_>) -> Table {
    let fill = span.now.distribution(FILL, &[]).unwrap_or_default();
    let mut below = 0;
    let mut rows = Vec::new();
    let mut add = |label: String, count: u64| {
        let share = super::reading::as_float(count) / super::reading::as_float(fill.count.max(1));
        if count > 0 {
            let number = Cell::Number(Some(super::reading::as_float(count)), String::new());
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
            format!("{} to {}", super::html::count(last + 1.0), super::html::count(bound))
        } else {
            super::html::count(bound)
        };
        add(label, count.saturating_sub(below));
        (below, last) = (count, bound);
    }
    add(
        format!("more than {}", super::html::count(last)),
        fill.count.saturating_sub(below),
    );
    Table {
        title: "Fill of pages",
        width: Width::Half,
        note: "Items in a bucket when the next one of its key was begun, of all buckets together.".to_owned(),
        head: vec!["Items", "Buckets", "Share", ""],
        rows,
        empty: "No bucket was closed yet.",
    }
}

fn pages(span: &Span<'_>) -> Table {
    let facts = [
        ("buckets begun", "mongoshape_buckets_opened_total"),
        (
            "races for a page lost, and planned again",
            "mongoshape_bucket_conflicts_total",
        ),
        ("items that came late", "mongoshape_late_items_total"),
        (
            "outliers: moves of elements to extras",
            "mongoshape_outlier_spills_total",
        ),
        (
            "outliers: reads that put arrays together",
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
        empty: "Nothing is counted.",
    }
}

fn refusals(span: &Span<'_>) -> Table {
    let series = span.now.series(REJECTED, ["namespace", "reason"]);
    let mut sums: BTreeMap<[&str; 2], f64> = BTreeMap::new();
    for (labels, number) in series.into_iter().filter(|(_, number)| *number > 0.0) {
        *sums.entry(labels).or_default() += number;
    }
    let rows = sums.keys().map(|[namespace, reason]| {
        let labels = [("namespace", *namespace), ("reason", *reason)];
        vec![
            Cell::code(*namespace),
            Cell::text(*reason),
            Cell::Rate(span.rate(REJECTED, &labels)),
            span.number(REJECTED, &labels),
        ]
    });
    Table {
        title: "Refusals",
        width: Width::Half,
        note: "Commands that were answered with a clear error and changed nothing.".to_owned(),
        head: vec!["Namespace", "Reason", "Rate", "Since the start"],
        rows: rows.collect(),
        empty: "No command was refused.",
    }
}

fn limits(span: &Span<'_>) -> Table {
    let names: BTreeSet<&str> = span.now.by(LIMITS, "limit", &[]).into_keys().collect();
    let hit = names
        .into_iter()
        .filter(|limit| span.now.sum(LIMITS, &[("limit", limit)]) > Some(0.0));
    let rows = hit.map(|limit| vec![Cell::code(limit), span.number(LIMITS, &[("limit", limit)])]);
    Table {
        title: "Limits",
        width: Width::Half,
        note: "Connections that were closed or refused.".to_owned(),
        head: vec!["Limit", "Since the start"],
        rows: rows.collect(),
        empty: "No client wanted more than it may have.",
    }
}

fn warnings(recent: &[Entry]) -> Table {
    let row = |entry: &Entry| {
        let at = DateTime::from_system_time(entry.at)
            .try_to_rfc3339_string()
            .unwrap_or_default();
        let times = if entry.times > 1 {
            format!("{} times in a row: ", entry.times)
        } else {
            String::new()
        };
        vec![
            Cell::text(at),
            Cell::text(entry.level.as_str()),
            Cell::code(entry.target),
            Cell::text(times + &entry.text),
        ]
    };
    Table {
        title: "Recent warnings and errors",
        width: Width::Whole,
        note: "From the log, the newest first.".to_owned(),
        head: vec!["At", "Level", "Module", "What"],
        rows: recent.iter().map(row).collect(),
        empty: "None since the start.",
    }
}
