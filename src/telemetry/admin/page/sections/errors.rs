//! The section on errors: refusals, limits and the log.

use std::collections::{BTreeMap, BTreeSet};

use super::{REJECTED, Span};
use crate::telemetry::admin::page::html::{Cell, Table, Width, time};
use crate::telemetry::admin::page::rows::{RefusalRow, UniqueIndexRow};
use crate::telemetry::recent_warnings::Entry;

const LIMITS: &str = "mongoshape_limits_hit_total";

pub(super) fn refusals(span: &Span<'_>) -> Table {
    let series = span.now.series(REJECTED, ["namespace", "command", "reason"]);
    let mut sums: BTreeMap<[&str; 3], f64> = BTreeMap::new();
    for (labels, number) in series.into_iter().filter(|(_, number)| *number > 0.0) {
        *sums.entry(labels).or_default() += number;
    }
    let rows = sums.keys().map(|[namespace, command, reason]| {
        let labels = [("namespace", *namespace), ("command", *command), ("reason", *reason)];
        vec![
            Cell::code(*namespace),
            Cell::code(*command),
            Cell::text(*reason),
            Cell::Rate(span.rate(REJECTED, &labels)),
            span.number(REJECTED, &labels),
        ]
    });
    Table {
        title: "Refusals",
        width: Width::Half,
        note: "Commands answered with an error of the proxy; they changed nothing.".to_owned(),
        head: vec!["Namespace", "Command", "Reason", "Rate", "Since the start"],
        rows: rows.collect(),
        empty: "No command was refused.",
    }
}

pub(super) fn refused_kinds(kinds: &[RefusalRow]) -> Table {
    let row = |kind: &RefusalRow| {
        let reason = if kind.is_observed {
            format!("{} (observed only)", kind.reason)
        } else {
            kind.reason.to_owned()
        };
        vec![
            Cell::code(&kind.namespace),
            Cell::code(kind.command),
            Cell::text(reason),
            Cell::text(&kind.what),
            Cell::text(kind.instead),
            Cell::text(kind.count.to_string()),
        ]
    };
    Table {
        title: "What was refused",
        width: Width::Whole,
        note: "The last 100 kinds, the latest first. The application received an error with the text.".to_owned(),
        head: vec!["Namespace", "Command", "Reason", "What", "Instead", "Since the start"],
        rows: kinds.iter().map(row).collect(),
        empty: "Nothing was refused.",
    }
}

pub(super) fn refused_unique_indexes(indexes: &[UniqueIndexRow]) -> Table {
    let row = |index: &UniqueIndexRow| {
        vec![
            Cell::code(&index.namespace),
            Cell::code(&index.name),
            Cell::code(&index.key),
            Cell::text(&index.message),
            Cell::text(time(index.at)),
        ]
    };
    Table {
        title: "Refused unique indexes",
        width: Width::Whole,
        note: "Nothing keeps the values of these indexes apart. An entry ends when the index is dropped or created through mongoshape: see \
               docs/refused-indexes.md."
            .to_owned(),
        head: vec!["Namespace", "Index", "Key", "Error", "Last refusal"],
        rows: indexes.iter().map(row).collect(),
        empty: "No unique index was refused.",
    }
}

pub(super) fn limits(span: &Span<'_>) -> Table {
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
        empty: "No client exceeded a limit.",
    }
}

pub(super) fn warnings(recent: &[Entry]) -> Table {
    let row = |entry: &Entry| {
        let times = if entry.times > 1 {
            format!("{} times in a row: ", entry.times)
        } else {
            String::new()
        };
        vec![
            Cell::text(time(entry.at)),
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
