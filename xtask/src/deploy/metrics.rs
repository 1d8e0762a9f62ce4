//! Checks that every series in the alerts, their tests and the dashboard is exposed by a running mongoshape.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, ensure};
use proto_tests::{Level, Proxy, ProxyOptions};

use super::exposition::Exposition;
use super::expression::{grouped_by, selectors};
use super::report::Report;
use super::{dashboard, read};

/// A shape of each kind, so that all families have series. Nothing listens on that upstream.
const SHAPES: &str = "[[bucket]]\nnamespace = \"shop.trades\"\nkey = \"customerId\"\n\
                      [[bucket]]\nnamespace = \"shop.visits\"\nkey = \"customerId\"\nmode = \"observe\"\n\
                      [[outlier]]\nnamespace = \"shop.sales\"\narray = \"buyers\"\nthreshold = 50\n";
const NO_UPSTREAM: &str = "mongodb://127.0.0.1:1/";

pub(super) fn check(report: &mut Report, binary: &Path) -> Result<()> {
    let shown = shown(binary)?;
    for (file, expressions) in [
        (RULES, rules(&read(RULES)?)),
        (TESTS, vec![read(TESTS)?]),
        (dashboard::FILE, dashboard_texts()?),
    ] {
        ensure!(!expressions.is_empty(), "{file} has no expressions");
        let faults: BTreeSet<String> = expressions.iter().flat_map(|text| faults(&shown, text)).collect();
        let fine = format!(
            "names only metrics, labels and values that /metrics has ({} texts)",
            expressions.len()
        );
        report.all(file, &faults.into_iter().collect::<Vec<_>>(), &fine);
    }
    Ok(())
}

const RULES: &str = "deploy/prometheus/mongoshape.rules.yml";
const TESTS: &str = "deploy/prometheus/mongoshape.rules.test.yml";

fn shown(binary: &Path) -> Result<Exposition> {
    let proxy = Proxy::start_unready(&ProxyOptions::new(NO_UPSTREAM).config(SHAPES).binary(binary))?;
    // Warnings about the missing upstream are expected.
    proxy.expect_log(Level::Warn, "");
    let answer = proxy.admin_get("/metrics")?;
    ensure!(answer.status == 200, "/metrics answers {}", answer.status);
    Ok(Exposition::parse(&answer.body))
}

fn faults(shown: &Exposition, expression: &str) -> Vec<String> {
    let selectors = selectors(expression);
    let mut faults: Vec<_> = selectors
        .iter()
        .filter_map(|selector| shown.fault(&selector.name, &selector.matchers))
        .collect();
    let names: BTreeSet<_> = selectors.into_iter().map(|selector| selector.name).collect();
    // Of a name that is not there no labels are known.
    if faults.is_empty() && !names.is_empty() {
        let is_unknown = |label: &String| !shown.has_label(&names, label);
        let unknown = grouped_by(expression).into_iter().filter(is_unknown);
        faults.extend(unknown.map(|label| format!("no series has the label {label} of: {}", expression.trim())));
    }
    faults
}

/// The rules' expressions: what stands between an alert's name and its annotations.
fn rules(file: &str) -> Vec<String> {
    let alerts = file.split("- alert:").skip(1);
    let expression = |alert: &str| alert.split("annotations:").next().unwrap_or(alert).to_owned();
    alerts.map(expression).collect()
}

/// The dashboard's expressions, and the queries of its variables.
fn dashboard_texts() -> Result<Vec<String>> {
    let dashboard = dashboard::parsed()?;
    let mut texts = dashboard::expressions(&dashboard);
    texts.extend(dashboard::texts(&dashboard["templating"], "definition"));
    Ok(texts)
}
