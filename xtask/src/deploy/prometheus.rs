//! `promtool` on the alerts, their tests, the scrape configuration, and the dashboard's expressions.

use std::fs;

use anyhow::Result;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::dashboard;
use super::report::Report;
use crate::tool::Tool;

const PROMTOOL: Tool = Tool::new("promtool", "apt-get install prometheus");

pub(super) fn check(report: &mut Report) -> Result<()> {
    for (kind, file) in [
        ("check rules", "mongoshape.rules.yml"),
        ("test rules", "mongoshape.rules.test.yml"),
        ("check config", "prometheus.yml"),
    ] {
        let path = format!("deploy/prometheus/{file}");
        let arguments: Vec<_> = kind.split(' ').chain([path.as_str()]).collect();
        report.run(&PROMTOOL, &arguments);
    }
    let folder = TempDir::with_prefix("mongoshape-dashboard-")?;
    let file = folder.path().join("dashboard.rules.json");
    let rules = as_rules(&dashboard::expressions(&dashboard::parsed()?));
    fs::write(&file, serde_json::to_string(&rules)?)?;
    report.run(&PROMTOOL, &["check", "rules", &file.display().to_string()]);
    Ok(())
}

/// A rule for each expression, as it is once Grafana has put in its variables: so they are seen by the same
/// parser.
fn as_rules(expressions: &[String]) -> Value {
    let rule = |(number, expression): (usize, &String)| {
        let expression = expression.replace("$__rate_interval", "1m").replace("$__range", "1h");
        let expression = expression.replace('$', "");
        json!({ "record": format!("panel:{number}"), "expr": expression })
    };
    let rules: Vec<_> = expressions.iter().enumerate().map(rule).collect();
    json!({ "groups": [{ "name": "dashboard", "rules": rules }] })
}
