//! The Helm chart: linted, packaged, and rendered with several sets of values, also as a part of an application's
//! chart. Its objects must equal those that Kustomize renders from the overlays.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize as _;
use serde_json::Value;
use tempfile::TempDir;

use super::kubernetes::{Overlays, validate};
use super::report::Report;
use super::{configurations, dashboard, read};
use crate::tool::Tool;

const HELM: Tool = Tool::new(
    "helm",
    "GOBIN=\"$PWD/target/tools/bin\" go install helm.sh/helm/v4/cmd/helm@v4.3.1",
);
const CHART: &str = "deploy/helm/mongoshape";
/// An application's chart that includes the proxy.
const STOREFRONT: &str = "deploy/helm/tests/storefront";
const SHOP: &str = "--values=deploy/helm/tests/shop.yaml";
const EVERYTHING: &str = "--values=deploy/helm/tests/everything.yaml";
const RULES: &str = "deploy/prometheus/mongoshape.rules.yml";
/// As long as Helm admits.
const LONG: &str = "proxies-of-a-department-that-has-an-unusually-long-na";
/// What the chart sets and an overlay does not.
const OF_HELM: [&str; 2] = ["app.kubernetes.io/instance", "checksum/config"];

/// The objects of a rendering, by kind and name.
type Objects = BTreeMap<String, Value>;

pub(super) fn check(report: &mut Report, binary: &Path, overlays: &Overlays) -> Result<()> {
    if HELM.find().is_none() {
        report.missing(&HELM);
        return Ok(());
    }
    let folder = TempDir::with_prefix("mongoshape-charts-")?;
    for (overlay, more) in [
        ("deployment", vec![]),
        (
            "deployment-tls",
            vec!["--set=adminTls.existingSecret=mongoshape-admin-tls"],
        ),
    ] {
        let file = configuration("config", overlay);
        let values = [vec![SHOP, &file], more].concat();
        let rendered = render(report, folder.path(), ["mongoshape", CHART], &values)?;
        compare(report, overlay, overlays, rendered);
    }
    let file = configuration("mongoshape.config", "sidecar");
    let rendered = render(report, folder.path(), ["storefront", STOREFRONT], &[&file])?;
    compare(report, "sidecar", overlays, rendered);
    let file = folder.path().join("values.yaml");
    fs::write(&file, documented_values()?)?;
    render(
        report,
        folder.path(),
        ["shop", CHART],
        &[&format!("--values={}", file.display())],
    )?;
    if let Some(objects) = render(report, folder.path(), [LONG, CHART], &[EVERYTHING])? {
        check_contents(report, &objects)?;
        let file = folder.path().join("mongoshape.toml");
        fs::write(&file, content(&objects, "", "mongoshape.toml")?)?;
        configurations::check_file(report, binary, "config of the chart", &file)?;
    }
    Ok(())
}

/// The values in the chart's document.
fn documented_values() -> Result<String> {
    let document = read(&format!("{CHART}/README.md"))?;
    let block = document.split("```").find_map(|part| part.strip_prefix("yaml\n"));
    Ok(block.context("no values in the chart's README.md")?.to_owned())
}

/// The configuration of an overlay as a value of the chart.
fn configuration(value: &str, overlay: &str) -> String {
    format!("--set-file={value}=deploy/kubernetes/overlays/{overlay}/mongoshape.toml")
}

/// Lints a chart and packages it, and renders the package. So what the chart links to must be in the package.
fn render(report: &mut Report, folder: &Path, names: [&str; 2], values: &[&str]) -> Result<Option<Objects>> {
    let [release, chart] = names;
    if report
        .run(&HELM, &[&["lint", "--strict", chart], values].concat())
        .is_none()
    {
        return Ok(None);
    }
    let packages = TempDir::with_prefix_in("packages-", folder)?;
    let destination = packages.path().display().to_string();
    if report
        .run(&HELM, &["package", chart, "--destination", &destination])
        .is_none()
    {
        return Ok(None);
    }
    let package = only_file(packages.path())?.display().to_string();
    let arguments = [&["template", release, &package, "--namespace=shop"], values].concat();
    let Some(rendered) = report.run(&HELM, &arguments) else {
        return Ok(None);
    };
    validate(report, &format!("chart-{release}"), &rendered)?;
    Ok(Some(objects(&rendered)?))
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let entry = fs::read_dir(folder)?.next().context("no package")?;
    Ok(entry?.path())
}

fn objects(rendered: &str) -> Result<Objects> {
    let documents = serde_yaml_ng::Deserializer::from_str(rendered);
    let object = |document| {
        let object = Value::deserialize(document)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
        anyhow::Ok((name, object))
    };
    documents.map(object).collect()
}

/// Reports objects of the chart that differ from those of the overlay.
fn compare(report: &mut Report, overlay: &str, overlays: &Overlays, ours: Option<Objects>) {
    let (Some(ours), Some(theirs)) = (ours, overlays.get(overlay)) else {
        return;
    };
    let theirs = match objects(&without_hash(theirs)) {
        Ok(theirs) => theirs,
        Err(error) => return report.error(overlay, &error.to_string()),
    };
    let [ours, theirs] = [ours, theirs].map(comparable);
    let names = ours.keys().chain(theirs.keys());
    let mut errors: Vec<_> = names
        .filter(|name| ours.get(*name) != theirs.get(*name))
        .map(|name| {
            let [ours, theirs] = [&ours, &theirs].map(|objects| objects.get(name).unwrap_or(&Value::Null));
            format!("{name} of the chart and of the overlay differ:\n{ours:#}\n{theirs:#}")
        })
        .collect();
    errors.dedup();
    report.all(&format!("chart like overlay {overlay}"), &errors, "the same objects");
}

/// The name of a config map without the hash that Kustomize appends.
fn without_hash(rendered: &str) -> String {
    let is_hashed = |line: &&str| line.starts_with("  name: mongoshape-");
    let hashed = rendered
        .lines()
        .find(is_hashed)
        .map(|line| line.trim_start_matches("  name: "));
    hashed.map_or_else(|| rendered.to_owned(), |name| rendered.replace(name, "mongoshape"))
}

/// Without what an overlay does not set. A `PodMonitor` is left to the application's chart.
fn comparable(mut objects: Objects) -> Objects {
    objects.retain(|name, _| !name.starts_with("PodMonitor "));
    for object in objects.values_mut() {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|field, _| field == "name" || field == "namespace");
        }
        // The chart names the certificate here, and the overlay in its file.
        if let Some(Value::Object(container)) = object.pointer_mut("/spec/template/spec/containers/0") {
            container.remove("env");
        }
        remove(object);
    }
    objects
}

fn remove(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(remove);
            let is_empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
            fields.retain(|field, _| !OF_HELM.contains(&field.as_str()));
            fields.retain(|field, value| field != "annotations" || !is_empty(value));
        }
        Value::Array(values) => values.iter_mut().for_each(remove),
        _ => {}
    }
}

/// The alerts and the dashboard in the chart are those of `deploy/`, which are checked by themselves.
fn check_contents(report: &mut Report, objects: &Objects) -> Result<()> {
    let rule = objects.iter().find(|(name, _)| name.starts_with("PrometheusRule "));
    let rules = rule.map(|(_, rule)| &rule["spec"]).context("no alerts in the chart")?;
    let mut errors = Vec::new();
    if *rules != serde_yaml_ng::from_str::<Value>(&read(RULES)?)? {
        errors.push(format!("the alerts are not those of {RULES}"));
    }
    let shown: Value = serde_json::from_str(content(objects, "-dashboard", "mongoshape.json")?)?;
    if shown != dashboard::parsed()? {
        errors.push(format!("the dashboard is not {}", dashboard::FILE));
    }
    report.all(CHART, &errors, "its alerts and its dashboard are those of deploy/");
    Ok(())
}

/// A file in the config map whose name ends so.
fn content<'a>(objects: &'a Objects, end: &str, file: &str) -> Result<&'a str> {
    let maps = objects
        .iter()
        .filter(|(name, _)| name.starts_with("ConfigMap ") && name.ends_with(end));
    let mut files = maps.filter_map(|(_, map)| map["data"][file].as_str());
    files.next().with_context(|| format!("no config map has {file}"))
}
