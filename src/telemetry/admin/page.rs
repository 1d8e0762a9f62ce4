//! The operator's page: one document without external resources. The server renders its tables, so they work
//! without JavaScript. The script refreshes them, and plots values of `/metrics`. Metrics are read by name,
//! shapes are passed in. Contains no documents and no secrets.

mod html;
mod rows;
mod sections;
mod snapshot;

pub use self::rows::{
    ConversionFiguresRow, ConversionRow, PageRows, RefusalRow, ServerRow, ShapeRow, UniqueIndexRow, UpstreamRow,
};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use prometheus::Registry;

use self::sections::Span;
use self::snapshot::Reading;
use crate::telemetry::recent_warnings::RecentWarnings;

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
/// The content of a page without shapes.
const NO_SHAPES: &str = include_str!("page/no_shapes.html");

/// Interval at which metrics are recorded.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);
/// Number of intervals for rates.
const REMEMBERED: usize = 12;

/// The content of the page, beside the metrics.
pub struct OperatorPage {
    rows: Box<dyn Fn() -> PageRows + Send + Sync>,
    recent: RecentWarnings,
    readings: Mutex<VecDeque<Reading>>,
}

impl OperatorPage {
    /// A page that reads its rows whenever it is rendered.
    pub fn new(rows: impl Fn() -> PageRows + Send + Sync + 'static, recent: RecentWarnings) -> Self {
        Self {
            rows: Box::new(rows),
            recent,
            readings: Mutex::default(),
        }
    }

    /// Records the metrics, for rates. Must be called every [`INTERVAL`].
    pub(super) fn remember(&self, registry: &Registry) {
        let reading = Reading::of(registry);
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        if readings.len() == REMEMBERED {
            readings.pop_front();
        }
        readings.push_back(reading);
    }

    /// The document and its content security policy, which permits only the style and script in it. `ready`: the result
    /// of the readiness probe.
    pub(super) fn render(&self, registry: &Registry, ready: Result<(), String>) -> (String, String) {
        let nonce = BASE64_STANDARD.encode(rand::random::<[u8; 16]>());
        let now = Reading::of(registry);
        let before = self
            .readings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .front()
            .cloned();
        let before = before.unwrap_or_else(|| now.clone());
        let span = Span {
            now: &now,
            before: &before,
        };
        let rows = (self.rows)();
        let contents = sections::PageContents {
            rows: &rows,
            recent: &self.recent.entries(),
        };
        let mut tables = String::new();
        if rows.shapes.is_empty() {
            tables.push_str(NO_SHAPES);
        }
        sections::tables(&span, &contents).for_each(|table| table.write(&mut tables));
        let used = |pattern: &str| rows.shapes.iter().any(|shape| shape.pattern == pattern);
        let patterns: Vec<_> = ["bucket", "outlier"]
            .into_iter()
            .filter(|pattern| used(pattern))
            .collect();
        let parts = [
            ("nonce", nonce.as_str()),
            ("version", env!("CARGO_PKG_VERSION")),
            ("up", &html::span(uptime(&now))),
            ("now", &html::time(SystemTime::now())),
            ("state", &state(&span, &contents, ready)),
            ("patterns", &patterns.join(" ")),
            ("tables", &tables),
            ("style", STYLE),
            ("script", SCRIPT),
        ];
        let policy = format!(
            "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        (fill(TEMPLATE, &parts), policy)
    }
}

impl fmt::Debug for OperatorPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").finish_non_exhaustive()
    }
}

/// Replaces each `{{name}}`. Replaced parts are not searched again.
fn fill(template: &str, parts: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(template.len() * 8);
    let mut rest = template;
    while let Some((before, (name, after))) = rest
        .split_once("{{")
        .and_then(|(before, after)| Some((before, after.split_once("}}")?)))
    {
        let part = parts.iter().find(|(known, _)| *known == name);
        filled.push_str(before);
        filled.push_str(part.map_or("", |(_, text)| text));
        rest = after;
    }
    filled + rest
}

/// The health, the upstream, what needs attention, and the most important numbers.
fn state(span: &Span<'_>, contents: &sections::PageContents<'_>, ready: Result<(), String>) -> String {
    let mut html = String::from("<ul class=\"health\">");
    sections::health(contents.rows, ready).write(&mut html);
    html.push_str("</ul>");
    sections::upstream(&mut html, contents.rows.upstream.as_ref());
    let notices = sections::notices(span, contents);
    if !notices.is_empty() {
        html.push_str("<ul class=\"notices\">");
        for notice in &notices {
            notice.write(&mut html);
        }
        html.push_str("</ul>");
    }
    html::tiles(&mut html, &sections::summary(span));
    html
}

/// Seconds since the start of the process.
fn uptime(now: &Reading) -> u64 {
    let start = now.sum("process_start_time_seconds", &[]).unwrap_or(0.0);
    let start = UNIX_EPOCH + Duration::try_from_secs_f64(start).unwrap_or_default();
    SystemTime::now().duration_since(start).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use prometheus::{IntCounterVec, Opts};

    use super::*;

    fn page(namespace: &'static str) -> OperatorPage {
        let row = move || ShapeRow {
            namespace: namespace.to_owned(),
            pattern: "bucket",
            mode: "rewrite",
            by: "k".to_owned(),
            holds: "10 items".to_owned(),
        };
        let rows = move || PageRows {
            shapes: vec![row()],
            ..PageRows::default()
        };
        OperatorPage::new(rows, RecentWarnings::default())
    }

    #[test]
    fn places_are_filled_once() {
        assert_eq!(
            fill("a {{x}} b {{y}}{{z}}", &[("x", "{{y}}"), ("y", "2")]),
            "a {{y}} b 2"
        );
        assert_eq!(fill("a {{x", &[("x", "1")]), "a {{x");
    }

    #[test]
    fn a_page_without_metrics_is_whole() {
        let (html, policy) = page("d.<script>").render(&Registry::new(), Ok(()));
        assert!(
            html.contains("d.&lt;script&gt;") && html.ends_with("</html>\n"),
            "{html}"
        );
        assert_eq!(html.matches("{{").count(), 0, "{html}");
        assert_eq!(html.matches("<script").count(), 1, "{html}");
        let nonce = policy.split('\'').find_map(|part| part.strip_prefix("nonce-")).unwrap();
        assert_eq!(html.matches(&format!("nonce=\"{nonce}\"")).count(), 2, "{html}");
        assert_ne!(page("d.c").render(&Registry::new(), Ok(())).1, policy);
    }

    #[test]
    fn page_begins_with_the_state_and_what_to_do() {
        let server = ServerRow {
            address: "<db>:1".to_owned(),
            role: "unreachable",
            is_current: false,
            error: Some("refused".to_owned()),
        };
        let rows = PageRows {
            misfits: vec!["d.c: <misfit>".to_owned()],
            upstream: Some(UpstreamRow {
                kind: "replica set",
                set: Some("<rs>".to_owned()),
                servers: vec![server],
            }),
            ..PageRows::default()
        };
        let html = |rows: PageRows, ready| {
            let page = OperatorPage::new(move || rows.clone(), RecentWarnings::default());
            page.render(&Registry::new(), ready).0
        };
        let failed = html(rows.clone(), Err("no shape".to_owned()));
        for text in [
            "<li class=\"bad\"><b>Not ready: no shape</b>",
            "<code>mongoshape check</code>",
            "<li class=\"bad\"><b>d.c: &lt;misfit&gt;</b>",
            "replica set <code>&lt;rs&gt;</code>",
            "<li class=\"bad\"><code>&lt;db&gt;:1</code> unreachable</li>",
            "&lt;db&gt;:1 cannot be reached: refused",
            "<a href=\"#start\">No shape is configured.</a>",
        ] {
            assert!(failed.contains(text), "no {text} in {failed}");
        }
        let is_draining = true;
        let draining = html(PageRows { is_draining, ..rows }, Err("stopping".to_owned()));
        assert!(draining.contains("<li class=\"warning\"><b>Draining</b>"), "{draining}");
    }

    #[test]
    fn page_loads_no_external_resource() {
        for part in [TEMPLATE, STYLE, SCRIPT] {
            let linked = part.replace("http://www.w3.org/2000/svg", "");
            assert!(
                !linked.contains("http:") && !linked.contains("https:") && !linked.contains("url("),
                "{part}"
            );
        }
    }

    #[test]
    fn rates_are_computed_over_the_kept_snapshots() {
        let registry = Registry::new();
        let counter = IntCounterVec::new(Opts::new("mongoshape_commands_total", "h"), &["command", "outcome"]).unwrap();
        registry.register(Box::new(counter.clone())).unwrap();
        let page = page("d.c");
        for _ in 0..2 * REMEMBERED {
            page.remember(&registry);
        }
        assert_eq!(page.readings.lock().unwrap().len(), REMEMBERED);
        counter.with_label_values(&["find", "relayed"]).inc_by(12_345);
        std::thread::sleep(Duration::from_millis(2));
        let (html, _) = page.render(&registry, Ok(()));
        let cell = "data-series=\"mongoshape_commands_total{command=&quot;find&quot;,outcome=&quot;relayed&quot;}\">12\u{202f}345<";
        assert!(html.contains(cell), "{html}");
        assert!(
            !html.contains(
                ">0/s</td><td class=\"number\" data-series=\"mongoshape_commands_total{outcome=&quot;relayed"
            ),
            "{html}"
        );
    }
}
