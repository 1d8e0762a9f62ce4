//! The state of the proxy in one sentence, and what needs attention.

use std::fmt::Write as _;

use super::{LIMITS, PageContents, READS, REJECTED, Span};
use crate::telemetry::admin::page::html::{Level, Notice, count, escape};
use crate::telemetry::admin::page::rows::{PageRows, ServerRow, UpstreamRow};

/// The share of pipelines among the reads of a shape from which on they are mentioned, and the least number of reads.
const MANY_PIPELINES: f64 = 0.5;
const FEW_READS: f64 = 100.0;

/// Events that should not occur.
struct Unwanted {
    metric: &'static str,
    /// The name of the events.
    name: &'static str,
    /// The section with the details.
    section: &'static str,
    next: &'static str,
}

const UNWANTED: [Unwanted; 5] = [
    Unwanted {
        metric: REJECTED,
        name: "Refused commands",
        section: "refused",
        next: "The application received an error. The section says what to do instead.",
    },
    Unwanted {
        metric: "mongoshape_observed_rejected_total",
        name: "Commands that would be refused",
        section: "refused",
        next: "Nothing was refused yet: the shape is in observe mode. Change the application before you set `mode = \"rewrite\"`.",
    },
    Unwanted {
        metric: "mongoshape_refused_unique_indexes",
        name: "Refused unique indexes",
        section: "unique",
        next: "Nothing keeps their values apart: see docs/refused-indexes.md.",
    },
    Unwanted {
        metric: LIMITS,
        name: "Connections over a limit",
        section: "limits",
        next: "Correct the client that the log names, or raise the limit in `[listen]`.",
    },
    Unwanted {
        metric: "mongoshape_expiry_failures_total",
        name: "Failed deletions of expired items",
        section: "warnings",
        next: "Expired items stay: usually the user of `upstream.uri` lacks a right.",
    },
];

/// The state. `ready`: the result of the readiness probe.
pub(in super::super) fn health(rows: &PageRows, ready: Result<(), String>) -> Notice {
    let (level, text, next) = match ready {
        _ if rows.is_draining => (
            Level::Warning,
            "Draining".to_owned(),
            "New connections are refused. The process ends when the running commands have ended, or after `listen.drain_timeout_ms`.",
        ),
        Ok(()) => (
            Level::Good,
            "Ready".to_owned(),
            "The upstream replies, and clients are served.",
        ),
        Err(reason) if !rows.misfits.is_empty() => (
            Level::Bad,
            format!("Not ready: {reason}"),
            "All commands on the collections below fail. Run `mongoshape check`, and correct the shape or the collection.",
        ),
        Err(reason) => (
            Level::Bad,
            format!("Not ready: {reason}"),
            "Check the servers below, the network between the proxy and them, and `upstream.uri` (docs/troubleshooting.md).",
        ),
    };
    notice(level, text, next)
}

/// What needs attention, the most important first.
pub(in super::super) fn notices(span: &Span<'_>, contents: &PageContents<'_>) -> Vec<Notice> {
    let rows = contents.rows;
    let mut notices: Vec<_> = rows.misfits.iter().map(|line| notice(Level::Bad, line, "")).collect();
    let servers = rows.upstream.iter().flat_map(|upstream| &upstream.servers);
    notices.extend(servers.filter_map(unreachable));
    let number = |name: &str| span.now.sum(name, &[]).filter(|number| *number > 0.0);
    for Unwanted {
        metric,
        name,
        section,
        next,
    } in &UNWANTED
    {
        let text = |number| format!("{name}: {}.", count(number));
        notices.extend(number(metric).map(|number| notice(Level::Warning, text(number), next).of(section)));
    }
    if rows.shapes.is_empty() {
        let next = "Every command is relayed unchanged. The section says what to add to the configuration.";
        notices.push(notice(Level::Hint, "No shape is configured.", next).of("start"));
    }
    notices.extend(pipelines(span, rows));
    notices
}

fn unreachable(server: &ServerRow) -> Option<Notice> {
    let text = format!("{} cannot be reached: {}", server.address, server.error.as_ref()?);
    let level = if server.is_current { Level::Bad } else { Level::Warning };
    Some(notice(level, text, "Check that mongod is running, and the network."))
}

fn pipelines(span: &Span<'_>, rows: &PageRows) -> impl Iterator<Item = Notice> {
    let buckets = rows.shapes.iter().filter(|shape| shape.pattern == "bucket");
    buckets.filter_map(|shape| {
        let namespace = ("namespace", shape.namespace.as_str());
        let reads = span.now.sum(READS, &[namespace])?;
        let pipelines = span.now.sum(READS, &[namespace, ("strategy", "pipeline")])?;
        let text = format!("{}: {:.0} % of the reads are pipelines", shape.namespace, 100.0 * pipelines / reads);
        let next = "Select one key in the order of time, or create an index on the fields of the filter and the sort, and set a limit \
                    (docs/choosing-shapes.md).";
        (reads >= FEW_READS && pipelines >= MANY_PIPELINES * reads)
            .then(|| notice(Level::Hint, text, next).of("buckets"))
    })
}

fn notice(level: Level, text: impl Into<String>, next: &str) -> Notice {
    Notice {
        level,
        text: text.into(),
        next: next.to_owned(),
        section: None,
    }
}

impl Notice {
    fn of(self, section: &'static str) -> Self {
        Self {
            section: Some(section),
            ..self
        }
    }
}

/// The deployment and its servers.
pub(in super::super) fn upstream(html: &mut String, upstream: Option<&UpstreamRow>) {
    let Some(UpstreamRow { kind, set, servers }) = upstream else {
        html.push_str("<p class=\"upstream\">Upstream: no server was contacted yet.</p>");
        return;
    };
    let set = set
        .as_ref()
        .map_or(String::new(), |set| format!(" <code>{}</code>", escape(set)));
    // Writing to a string cannot fail.
    let _ = write!(
        html,
        "<p class=\"upstream\">Upstream: {kind}{set}</p><ul class=\"upstream\">"
    );
    for server in servers {
        let (class, used) = match server {
            ServerRow { is_current: true, .. } => (" class=\"current\"", ", used"),
            ServerRow {
                role: "unreachable", ..
            } => (" class=\"bad\"", ""),
            _ => ("", ""),
        };
        let _ = write!(
            html,
            "<li{class}><code>{}</code> {}{used}</li>",
            escape(&server.address),
            server.role
        );
    }
    html.push_str("</ul>");
}
