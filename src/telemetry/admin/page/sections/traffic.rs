//! The section on traffic: latencies and commands.

use super::{COMMANDS, DURATION, OVERHEAD, Span, selector};
use crate::telemetry::admin::page::html::{Cell, GroupHeading, Table, Width};
use crate::telemetry::admin::page::snapshot::{Labels, as_float};

const UPSTREAM: &str = "mongoshape_upstream_duration_seconds";
const OUTCOMES: [&str; 4] = ["relayed", "rewritten", "rejected", "failed"];

pub(super) fn latencies(span: &Span<'_>) -> Table {
    let mut rows = Vec::new();
    let mut add = |label: &str, name: &str, labels: Labels<'_>| {
        let whole = span.now.distribution(name, labels).filter(|whole| whole.count > 0);
        let Some(whole) = whole else {
            return;
        };
        let mut cells = vec![Cell::text(label)];
        cells.extend(span.latency(name, labels));
        cells.extend([0.5, 0.99].map(|quantile| Cell::Seconds(whole.quantile(quantile))));
        cells.push(Cell::Seconds(whole.mean()));
        cells.push(Cell::Number(
            Some(as_float(whole.count)),
            selector(&format!("{name}_count"), labels),
        ));
        rows.push(cells);
    };
    for outcome in OUTCOMES {
        add(outcome, DURATION, &[("outcome", outcome)]);
    }
    add("of these, in mongod", UPSTREAM, &[("command", "other")]);
    add("of these, in mongod, getMore", UPSTREAM, &[("command", "getMore")]);
    add("of these, in the proxy", OVERHEAD, &[]);
    Table {
        id: "latencies",
        title: "Latencies",
        width: Width::Half,
        note: "Estimates within the bounds of the histograms.".to_owned(),
        groups: &[
            GroupHeading("", 1),
            GroupHeading("Last minute", 4),
            GroupHeading("Since the start", 4),
        ],
        head: &["Commands", "Rate", "p50", "p95", "p99", "p50", "p99", "Mean", "Number"],
        rows,
    }
}

pub(super) fn commands(span: &Span<'_>) -> Table {
    let row = |name: Cell, labels: Labels<'_>| {
        let outcomes = OUTCOMES.map(|outcome| {
            let labels: Vec<_> = labels.iter().copied().chain([("outcome", outcome)]).collect();
            span.number(COMMANDS, &labels)
        });
        let mut cells = vec![name, Cell::Rate(span.rate(COMMANDS, labels))];
        cells.extend(outcomes);
        cells
    };
    let names = span.now.by(COMMANDS, "command", &[]).into_iter();
    let used: Vec<_> = names.filter(|(_, number)| *number > 0.0).collect();
    let mut rows: Vec<_> = used
        .into_iter()
        .map(|(command, _)| row(Cell::code(command), &[("command", command)]))
        .collect();
    if rows.len() > 1 {
        rows.push(row(Cell::text("all"), &[]));
    }
    Table {
        id: "commands",
        title: "Commands",
        width: Width::Half,
        note: "Relayed commands are on plain collections, rewritten ones on shaped collections. Failed: a connection was closed; the log has \
               the reason."
            .to_owned(),
        groups: &[GroupHeading("", 1), GroupHeading("Last minute", 1), GroupHeading("Since the start", 4)],
        head: &["Command", "Rate", "Relayed", "Rewritten", "Rejected", "Failed"],
        rows,
    }
}
