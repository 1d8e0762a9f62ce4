//! The section on traffic: rates, latencies and commands.

use super::{COMMANDS, DURATION, OVERHEAD, Span, selector};
use crate::telemetry::admin::page::html::{Cell, Table, Width};
use crate::telemetry::admin::page::snapshot::{Labels, as_float};

const UPSTREAM: &str = "mongoshape_upstream_duration_seconds";
const BYTES: &str = "mongoshape_bytes_total";
const OUTCOMES: [&str; 4] = ["relayed", "rewritten", "rejected", "failed"];

pub(super) fn rates(span: &Span<'_>) -> Table {
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
        note: format!("Commands by outcome, and bytes; over the last {:.0} s.", span.seconds()),
        head: vec!["What", "Rate", "Since the start"],
        rows,
        empty: "",
    }
}

pub(super) fn latencies(span: &Span<'_>) -> Table {
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
            Some(as_float(whole.count)),
            selector(&format!("{name}_count"), labels),
        ));
        rows.push(cells);
    };
    for outcome in OUTCOMES {
        add(format!("commands, {outcome}"), DURATION, &[("outcome", outcome)]);
    }
    add("waiting for the upstream".to_owned(), UPSTREAM, &[("command", "other")]);
    add(
        "waiting for the upstream, getMore".to_owned(),
        UPSTREAM,
        &[("command", "getMore")],
    );
    add("overhead of the proxy".to_owned(), OVERHEAD, &[]);
    Table {
        title: "Latencies and overhead",
        width: Width::Whole,
        note: format!(
            "Estimates within the buckets of the histograms: the first three columns over the last {:.0} s, the others since the start.",
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
        empty: "There are no measurements yet.",
    }
}

pub(super) fn commands(span: &Span<'_>) -> Table {
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
        note: "Commands since the start.".to_owned(),
        head: vec!["Command", "Rate", "Relayed", "Rewritten", "Rejected", "Failed"],
        rows: rows.collect(),
        empty: "No commands yet.",
    }
}
