//! The sections of the page, from two readings: now, and a minute ago. Metrics are selected by
//! name. Missing ones are not shown.

mod conversions;
mod errors;
mod shapes;
mod traffic;

use self::conversions::conversions;
use self::errors::{limits, refusals, refused_kinds, refused_unique_indexes, warnings};
use self::shapes::{fill, pages, shapes};
use self::traffic::{commands, latencies, rates};
use super::html::{Cell, Table};
use super::rows::PageRows;
use super::snapshot::{Distribution, Labels, Reading};
use crate::telemetry::recent_warnings::Entry;

const COMMANDS: &str = "mongoshape_commands_total";
const DURATION: &str = "mongoshape_command_duration_seconds";
const OVERHEAD: &str = "mongoshape_proxy_overhead_seconds";
const REJECTED: &str = "mongoshape_rejected_total";
const CONNECTIONS: &str = "mongoshape_client_connections";

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

    fn quantiles(&self, name: &str) -> String {
        let lately = self.lately(name, &[]);
        let of = |quantile| lately.as_ref().and_then(|lately| lately.quantile(quantile));
        match of(0.99) {
            Some(slow) => format!("99 % within {}", super::html::seconds(slow)),
            None => "no recent commands".to_owned(),
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

/// The values at the top of the page.
pub(super) fn summary(span: &Span<'_>) -> Vec<(&'static str, Cell, String)> {
    let now = span.now;
    let up = now.sum("mongoshape_upstream_up", &[]);
    let median = |name| span.lately(name, &[]).and_then(|lately| lately.quantile(0.5));
    let total = |name| now.sum(name, &[]).map_or(String::new(), super::html::count);
    let mut tiles = vec![
        (
            "Upstream",
            Cell::text(if up == Some(1.0) { "up" } else { "down" }),
            "a writable server".to_owned(),
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

/// The content of the page, except the metrics.
pub(super) struct PageContents<'a> {
    pub(super) rows: &'a PageRows,
    pub(super) recent: &'a [Entry],
}

/// The tables in order.
pub(super) fn tables(span: &Span<'_>, contents: &PageContents<'_>) -> Vec<Table> {
    let refused = refused_kinds(&contents.rows.refusals);
    let mut tables = vec![shapes(span, &contents.rows.shapes)];
    tables.extend(conversions(&contents.rows.conversions));
    tables.extend([rates(span), refusals(span), latencies(span)]);
    let unique = refused_unique_indexes(&contents.rows.unique_indexes);
    tables.extend([commands(span), refused, unique, fill(span), pages(span), limits(span)]);
    tables.push(warnings(contents.recent));
    tables
}
