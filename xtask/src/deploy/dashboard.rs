//! Checks the dashboard's structure. Grafana has no checker of it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::read;
use super::report::Report;

pub(super) const FILE: &str = "deploy/grafana/mongoshape.json";
/// The variable by which the data source is chosen where the dashboard is imported.
const SOURCE: &str = "${datasource}";
const COLUMNS: u64 = 24;

pub(super) fn parsed() -> Result<Value> {
    serde_json::from_str(&read(FILE)?).with_context(|| format!("{FILE} is not JSON"))
}

pub(super) fn check(report: &mut Report) -> Result<()> {
    let dashboard = parsed()?;
    let panels = dashboard["panels"].as_array().context("a dashboard has panels")?;
    let (mut errors, mut ids, mut cells) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = panel["title"].as_str().unwrap_or("without a title");
        if !ids.insert(panel["id"].as_u64()) {
            errors.push(format!("the id of {title:?} is taken"));
        }
        if !covered(panel).is_some_and(|mut covered| covered.all(|cell| cell.0 < COLUMNS && cells.insert(cell))) {
            errors.push(format!("{title:?} has no place, or lies on another panel"));
        }
        let targets = panel["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
        if panel["type"] != "row" && targets.is_empty() {
            errors.push(format!("{title:?} has no query"));
        }
        if targets.iter().any(|target| target["datasource"]["uid"] != SOURCE) {
            errors.push(format!("{title:?} has a data source of its own"));
        }
    }
    let fine = format!(
        "{} panels, each in its place and with the data source of the dashboard",
        panels.len()
    );
    report.all(FILE, &errors, &fine);
    Ok(())
}

/// The cells of the grid that a panel lies on.
fn covered(panel: &Value) -> Option<impl Iterator<Item = (u64, u64)>> {
    let side = |name: &str| panel["gridPos"][name].as_u64();
    let (x, y, w, h) = (side("x")?, side("y")?, side("w")?, side("h")?);
    Some((x..x + w).flat_map(move |column| (y..y + h).map(move |row| (column, row))))
}

/// The Prometheus queries of panels and annotations.
pub(super) fn expressions(dashboard: &Value) -> Vec<String> {
    texts(dashboard, "expr")
}

/// The strings of all fields of this name, at any depth.
pub(super) fn texts(value: &Value, name: &str) -> Vec<String> {
    match value {
        Value::Object(fields) => {
            let of_field = |(field, value): (&String, &Value)| match value {
                Value::String(text) if field == name => vec![text.clone()],
                nested => texts(nested, name),
            };
            fields.iter().flat_map(of_field).collect()
        }
        Value::Array(values) => values.iter().flat_map(|value| texts(value, name)).collect(),
        _ => Vec::new(),
    }
}
