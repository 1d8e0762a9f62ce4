//! Checks that every reference to the image has the workspace's version.

use anyhow::Result;

use super::read;
use super::report::Report;

/// The workspace's.
const VERSION: &str = env!("CARGO_PKG_VERSION");

const NAMED: [(&str, &str); 6] = [
    ("Dockerfile", "ARG VERSION=@"),
    ("deploy/compose/compose.yaml", "image: mongoshape:@"),
    (
        "deploy/kubernetes/overlays/deployment/kustomization.yaml",
        "newTag: \"@\"",
    ),
    ("deploy/helm/mongoshape/Chart.yaml", "version: @"),
    ("deploy/helm/mongoshape/Chart.yaml", "appVersion: \"@\""),
    ("deploy/kubernetes/overlays/sidecar/kustomization.yaml", "newTag: \"@\""),
];

pub(super) fn check(report: &mut Report) -> Result<()> {
    let mut errors = Vec::new();
    for (file, pattern) in NAMED {
        let wanted = pattern.replace('@', VERSION);
        if !read(file)?.lines().any(|line| line.trim() == wanted) {
            errors.push(format!("{file} has no line {wanted}"));
        }
    }
    report.all("versions", &errors, &format!("{VERSION} everywhere"));
    Ok(())
}
