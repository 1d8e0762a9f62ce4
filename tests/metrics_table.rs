//! `docs/metrics.md` and the registry have the same metrics, labels and texts. `METRICS_TABLE=write` writes
//! the tables anew.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use mongoshape::server::metrics::ServerMetrics;
use mongoshape::session::metrics::SessionMetrics;
use mongoshape::telemetry::Telemetry;
use prometheus::proto::{LabelPair, Metric, MetricFamily};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
/// Between these lines, the file is made of the registry.
const BEGIN: &str = "<!-- made of the registry by tests/metrics_table.rs -->";
const END: &str = "<!-- end -->";
/// Longer lists of a label's values are not told: names of commands, versions.
const MAX_VALUES: usize = 12;

fn families() -> Vec<MetricFamily> {
    let telemetry = Telemetry::new().expect("telemetry");
    ServerMetrics::register(&telemetry.registry).expect("metrics of the server");
    let session = SessionMetrics::register(&telemetry.registry).expect("metrics of sessions");
    session.expect_namespace("shop.trades");
    session.observed().expect_namespace("shop.trades");
    session.shadow.expect_namespace("shop.trades");
    telemetry.registry.gather()
}

/// Each label, with its values where those are a short closed set.
fn labels(family: &MetricFamily) -> String {
    let metrics = family.get_metric();
    let names = metrics.first().map(Metric::get_label).unwrap_or_default();
    let told = names.iter().map(|label| {
        let name = label.name();
        let values: BTreeSet<&str> = metrics
            .iter()
            .flat_map(Metric::get_label)
            .filter(|label| label.name() == name)
            .map(LabelPair::value)
            .collect();
        match name {
            "namespace" => "`namespace`: as configured".to_owned(),
            "version" => "`version`".to_owned(),
            _ if values.len() > MAX_VALUES => format!("`{name}`"),
            _ => {
                let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
                format!("`{name}`: {}", values.join(", "))
            }
        }
    });
    told.collect::<Vec<_>>().join("; ")
}

fn tables() -> String {
    let families = families();
    let mut text = String::from("\n| metric | type | labels | what it counts | what to do |\n|---|---|---|---|---|\n");
    let is_ours = |family: &&MetricFamily| family.name().starts_with("mongoshape_");
    for family in families.iter().filter(is_ours) {
        let (name, kind, help) = (family.name(), family.get_field_type(), family.help());
        let begins = help
            .find("When ")
            .unwrap_or_else(|| panic!("{name} does not say what to do: {help}"));
        let (meaning, advice) = help.split_at(begins);
        let kind = format!("{kind:?}").to_lowercase();
        let labels = labels(family);
        writeln!(text, "| `{name}` | {kind} | {labels} | {} | {advice} |", meaning.trim()).expect("a string");
    }
    text.push_str("\nOf the process:\n\n| metric | type | what it counts |\n|---|---|---|\n");
    for family in families.iter().filter(|family| !is_ours(family)) {
        let kind = format!("{:?}", family.get_field_type()).to_lowercase();
        writeln!(text, "| `{}` | {kind} | {} |", family.name(), family.help()).expect("a string");
    }
    text.push('\n');
    text
}

#[test]
fn document_lists_the_registered_metrics() {
    let tables = tables();
    let document = std::fs::read_to_string(FILE).expect("docs/metrics.md");
    let (before, rest) = document.split_once(BEGIN).expect("the line that begins the tables");
    let (told, after) = rest.split_once(END).expect("the line that ends the tables");
    if std::env::var("METRICS_TABLE").is_ok_and(|wish| wish == "write") {
        std::fs::write(FILE, format!("{before}{BEGIN}\n{}{END}{after}", &tables)).expect("docs/metrics.md");
        return;
    }
    let told: Vec<&str> = told.trim().lines().collect();
    let is: Vec<&str> = tables.trim().lines().collect();
    for (told, is) in told.iter().zip(&is) {
        assert_eq!(
            told, is,
            "docs/metrics.md: METRICS_TABLE=write cargo test --test metrics_table"
        );
    }
    assert_eq!(
        told.len(),
        is.len(),
        "docs/metrics.md has more metrics than the registry, or fewer"
    );
}
