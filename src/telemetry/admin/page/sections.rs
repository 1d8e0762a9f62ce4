//! The sections of the page, from two readings: now, and a minute ago. Metrics are selected by
//! name. Missing ones are not shown, nor are tables without rows.

mod conversions;
mod errors;
mod health;
mod shapes;
mod traffic;

use self::conversions::conversions;
use self::errors::{limits, refused_kinds, refused_unique_indexes, warnings};
pub(super) use self::health::{health, notices, upstream};
use self::shapes::{buckets, fill, outliers, pages};
use self::traffic::{commands, latencies};
use super::html::{Cell, Table, bytes, count, seconds};
use super::rows::PageRows;
use super::snapshot::{Distribution, Labels, Reading};
use crate::telemetry::recent_warnings::Entry;

const BYTES: &str = "mongoshape_bytes_total";
const COMMANDS: &str = "mongoshape_commands_total";
const DURATION: &str = "mongoshape_command_duration_seconds";
const OVERHEAD: &str = "mongoshape_proxy_overhead_seconds";
const READS: &str = "mongoshape_reads_total";
const REJECTED: &str = "mongoshape_rejected_total";
const CONNECTIONS: &str = "mongoshape_client_connections";
const LIMITS: &str = "mongoshape_limits_hit_total";

/// Two readings between which rates are computed.
pub(super) struct Span<'a> {
    pub(super) now: &'a Reading,
    pub(super) before: &'a Reading,
}

impl Span<'_> {
    pub(super) fn seconds(&self) -> f64 {
        self.now.at.duration_since(self.before.at).as_secs_f64()
    }

    /// The sum of these series, with its selector for `/metrics`.
    fn number(&self, name: &str, labels: Labels<'_>) -> Cell {
        Cell::Number(self.now.sum(name, labels), selector(name, labels))
    }

    /// The increase per second.
    fn rate(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        let seconds = self.seconds();
        let grown = self.now.sum(name, labels)? - self.before.sum(name, labels).unwrap_or(0.0);
        (seconds > 0.0).then(|| grown.max(0.0) / seconds)
    }

    /// The observations between the two readings.
    fn lately(&self, name: &str, labels: Labels<'_>) -> Option<Distribution> {
        let now = self.now.distribution(name, labels)?;
        let before = self.before.distribution(name, labels);
        Some(now.since(&before.unwrap_or_default()))
    }

    /// The median, and the durations within which 95 % and 99 % of the recent commands ended.
    fn quantiles(&self, name: &str, labels: Labels<'_>) -> [Option<f64>; 3] {
        let lately = self.lately(name, labels);
        [0.5, 0.95, 0.99].map(|quantile| lately.as_ref()?.quantile(quantile))
    }

    /// The rate of a histogram's observations, and their quantiles.
    fn latency(&self, name: &str, labels: Labels<'_>) -> Vec<Cell> {
        let quantiles = self.quantiles(name, labels).map(Cell::Seconds);
        std::iter::once(Cell::Rate(self.rate(name, labels)))
            .chain(quantiles)
            .collect()
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

/// The values at the top of the page.
pub(super) fn summary(span: &Span<'_>) -> Vec<(&'static str, Cell, String)> {
    let now = span.now;
    let total = |name| now.sum(name, &[]).map_or(String::new(), count);
    let duration = |title, name| {
        let [median, _, slow] = span.quantiles(name, &[]);
        let note = slow.map_or("no recent commands".to_owned(), |slow| format!("p99 {}", seconds(slow)));
        (title, Cell::Seconds(median), note)
    };
    let traffic = |direction| span.rate(BYTES, &[("direction", direction)]);
    let sent = traffic("sent").map_or(String::new(), |sent| format!("{}/s sent", bytes(sent)));
    vec![
        (
            "Connections",
            span.number(CONNECTIONS, &[]),
            format!("{} accepted", total("mongoshape_client_connections_total")),
        ),
        (
            "Commands",
            Cell::Rate(span.rate(COMMANDS, &[])),
            format!("{} since the start", total(COMMANDS)),
        ),
        duration("Duration, p50", DURATION),
        duration("Overhead, p50", OVERHEAD),
        ("Received", Cell::BytesRate(traffic("received")), sent),
        ("Refused", span.number(REJECTED, &[]), "since the start".to_owned()),
        (
            "Memory",
            Cell::Bytes(now.sum("process_resident_memory_bytes", &[])),
            "resident".to_owned(),
        ),
    ]
}

/// The content of the page, except the metrics.
pub(super) struct PageContents<'a> {
    pub(super) rows: &'a PageRows,
    pub(super) recent: &'a [Entry],
}

/// The tables in order.
pub(super) fn tables(span: &Span<'_>, contents: &PageContents<'_>) -> impl Iterator<Item = Table> {
    let rows = contents.rows;
    let tables = [
        buckets(span, &rows.shapes),
        outliers(span, &rows.shapes),
        conversions(&rows.conversions),
        refused_kinds(&rows.refusals),
        refused_unique_indexes(&rows.unique_indexes),
        latencies(span),
        commands(span),
        pages(span, &rows.shapes),
        fill(span),
        limits(span),
        warnings(contents.recent),
    ];
    tables.into_iter().filter(|table| !table.rows.is_empty())
}
