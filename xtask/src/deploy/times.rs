//! Checks that every supervisor's stop timeout is at least the proxy's drain time.

use anyhow::{Context as _, Result};

use super::read;
use super::report::Report;

/// What requests to the admin address may take after the drain, in seconds: `EXCHANGE_TIMEOUT` of
/// `telemetry::admin`.
const ADMIN: u64 = 15;

/// The places of stop timeouts, and the seconds that they need besides the drain.
const GIVEN: [(&str, &str, u64); 6] = [
    ("deploy/systemd/mongoshape.service", "TimeoutStopSec=", 0),
    ("deploy/compose/compose.yaml", "stop_grace_period:", 0),
    // A preStop of 5 s.
    (
        "deploy/kubernetes/base/deployment.yaml",
        "terminationGracePeriodSeconds:",
        5,
    ),
    (
        "deploy/helm/mongoshape/values.yaml",
        "terminationGracePeriodSeconds:",
        5,
    ),
    // 20 s of the example's application.
    (
        "deploy/kubernetes/overlays/sidecar/application.yaml",
        "terminationGracePeriodSeconds:",
        20,
    ),
    (
        "deploy/helm/tests/storefront/templates/deployment.yaml",
        "terminationGracePeriodSeconds:",
        20,
    ),
];

pub(super) fn check(report: &mut Report) -> Result<()> {
    let options = "config/mongoshape.toml";
    let drain =
        number(&read(options)?, "#drain_timeout_ms =").with_context(|| format!("no drain timeout in {options}"))?;
    for (file, option, beside) in GIVEN {
        let given = number(&read(file)?, option).with_context(|| format!("no {option} in {file}"))?;
        let wanted = beside + drain / 1000 + ADMIN;
        if given < wanted {
            report.error(
                file,
                &format!("{option} {given} s is less than the {wanted} s that an end may take"),
            );
        } else {
            report.fine(
                file,
                &format!("{option} {given} s, and an end takes {wanted} s at most"),
            );
        }
    }
    Ok(())
}

/// The number after the prefix of a line.
fn number(text: &str, option: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.trim().strip_prefix(option))?.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    value[..digits].parse().ok()
}
