//! The sections on errors: refusals, limits and the log.

use std::collections::BTreeSet;

use super::{LIMITS, Span};
use crate::telemetry::admin::page::html::{Cell, Table, Width, time};
use crate::telemetry::admin::page::rows::{RefusalRow, UniqueIndexRow};
use crate::telemetry::admin::page::snapshot::as_float;
use crate::telemetry::recent_warnings::Entry;

pub(super) fn refused_kinds(kinds: &[RefusalRow]) -> Table {
    let row = |kind: &RefusalRow| {
        let number = Cell::Number(Some(as_float(kind.count)), String::new());
        vec![
            Cell::code(&kind.namespace),
            Cell::code(kind.command),
            number,
            Cell::text(if kind.is_observed { "observed" } else { "refused" }),
            Cell::Long(kind.what.clone()),
            Cell::Long(kind.instead.to_owned()),
        ]
    };
    Table {
        id: "refused",
        title: "Refused commands",
        width: Width::Whole,
        note: "The last 100 kinds, the latest first. A refused command changed nothing, and the application received the error. An observed \
               command was executed, and would be refused."
            .to_owned(),
        groups: &[],
        head: &["Namespace", "Command", "Number", "Result", "What was refused", "What to do instead"],
        rows: kinds.iter().map(row).collect(),
    }
}

pub(super) fn refused_unique_indexes(indexes: &[UniqueIndexRow]) -> Table {
    let row = |index: &UniqueIndexRow| {
        vec![
            Cell::code(&index.namespace),
            Cell::code(&index.name),
            Cell::code(&index.key),
            Cell::Long(index.message.clone()),
            Cell::text(time(index.at)),
        ]
    };
    Table {
        id: "unique",
        title: "Refused unique indexes",
        width: Width::Whole,
        note: "Nothing keeps the values of these indexes apart. Remove the index from the application, then drop it through mongoshape: that \
               ends its entry. Alternatives are in docs/refused-indexes.md."
            .to_owned(),
        groups: &[],
        head: &["Namespace", "Index", "Key", "Error", "Last refusal (UTC)"],
        rows: indexes.iter().map(row).collect(),
    }
}

pub(super) fn limits(span: &Span<'_>) -> Table {
    let names: BTreeSet<&str> = span.now.by(LIMITS, "limit", &[]).into_keys().collect();
    let hit = names
        .into_iter()
        .filter(|limit| span.now.sum(LIMITS, &[("limit", limit)]) > Some(0.0));
    let rows = hit.map(|limit| vec![Cell::code(limit), span.number(LIMITS, &[("limit", limit)])]);
    Table {
        id: "limits",
        title: "Limits",
        width: Width::Half,
        note: "Connections that were closed or refused. Correct the client that the log names, or raise the limit in `[listen]` \
               (docs/configuration.md)."
            .to_owned(),
        groups: &[],
        head: &["Limit", "Since the start"],
        rows: rows.collect(),
    }
}

pub(super) fn warnings(recent: &[Entry]) -> Table {
    let row = |entry: &Entry| {
        vec![
            Cell::text(time(entry.at)),
            Cell::text(entry.level.as_str().to_lowercase()),
            Cell::Number(Some(as_float(entry.times)), String::new()),
            Cell::Long(entry.text.clone()),
        ]
    };
    Table {
        id: "warnings",
        title: "Recent warnings and errors",
        width: Width::Whole,
        note: "From the log, the newest first. docs/troubleshooting.md lists causes.".to_owned(),
        groups: &[],
        head: &["Last (UTC)", "Level", "Times", "Message"],
        rows: recent.iter().map(row).collect(),
    }
}
