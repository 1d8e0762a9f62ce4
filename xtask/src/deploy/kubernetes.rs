//! The overlays as Kustomize renders them, against the schemas of Kubernetes.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Result;
use tempfile::TempDir;

use super::report::Report;
use crate::tool::Tool;

const KUBECTL: Tool = Tool::new(
    "kubectl",
    "see https://kubernetes.io/docs/tasks/tools/ for 1.27 or later",
);
const KUSTOMIZE: Tool = Tool::new(
    "kustomize",
    "GOBIN=\"$PWD/target/tools/bin\" go install sigs.k8s.io/kustomize/kustomize/v5@v5.8.3",
);
const VALIDATE: Tool = Tool::new(
    "kubernetes-validate",
    "python3 -m venv target/tools/venv && target/tools/venv/bin/pip install --requirement deploy/requirements.txt",
);
const OVERLAYS: [&str; 3] = ["deployment", WITH_TLS, "sidecar"];
/// The one whose admin address speaks TLS.
const WITH_TLS: &str = "deployment-tls";
/// Kinds that an operator brings, whose schemas are not among those of Kubernetes.
const CUSTOM: [&str; 3] = ["ServiceMonitor", "PodMonitor", "PrometheusRule"];

/// What Kustomize renders of each overlay.
pub(super) type Overlays = BTreeMap<&'static str, String>;

pub(super) fn check(report: &mut Report) -> Result<Overlays> {
    let mut overlays = Overlays::new();
    let (tool, verb) = if KUSTOMIZE.find().is_some() {
        (&KUSTOMIZE, "build")
    } else {
        (&KUBECTL, "kustomize")
    };
    if tool.find().is_none() {
        report.missing(tool);
        return Ok(overlays);
    }
    for overlay in OVERLAYS {
        let Some(rendered) = report.run(
            tool,
            &[verb.to_owned(), format!("deploy/kubernetes/overlays/{overlay}")],
        ) else {
            continue;
        };
        if overlay == WITH_TLS {
            report.all(overlay, &unencrypted(&rendered), "probes and Prometheus speak TLS");
        }
        validate(report, overlay, &rendered)?;
        overlays.insert(overlay, rendered);
    }
    Ok(overlays)
}

/// Compares manifests with the schemas of Kubernetes.
pub(super) fn validate(report: &mut Report, subject: &str, manifests: &str) -> Result<()> {
    let folder = TempDir::with_prefix("mongoshape-manifests-")?;
    let file = folder.path().join(format!("{subject}.yaml"));
    fs::write(&file, manifests)?;
    // Unknown fields are mistakes, too.
    let Some(output) = report.run(&VALIDATE, &["--strict", &file.display().to_string()]) else {
        return Ok(());
    };
    for line in output.lines().filter(|line| line.starts_with("WARN")) {
        let is_custom = CUSTOM
            .iter()
            .any(|kind| line.contains(&format!("schema for kind {kind} ")));
        if is_custom {
            report.note(subject, &format!("not validated: {line}"));
        } else {
            report.error(subject, line);
        }
    }
    Ok(())
}

/// Probes and monitors that reach the admin address without TLS.
fn unencrypted(rendered: &str) -> Vec<String> {
    let number = |text: &str| rendered.matches(text).count();
    let mut errors = Vec::new();
    if number("httpGet:") == 0 || number("httpGet:") != number("scheme: HTTPS") {
        errors.push("a probe does not speak TLS".to_owned());
    }
    if number("kind: ServiceMonitor") != number("scheme: https") {
        errors.push("Prometheus does not speak TLS".to_owned());
    }
    errors
}
