//! The section `traces`.

use hyper::Uri;

use super::options::traces as options;
use super::section::Section;
use crate::telemetry::traces::TraceExport;

/// The export of traces. `None` if there is none, or for a mistake.
pub(super) fn resolve(mut section: Section<'_>) -> Option<TraceExport> {
    let endpoint = section.string(&options::ENDPOINT);
    let share = |percent: f64| (0.01..=100.0).contains(&percent).then_some(percent / 100.0);
    let sampled = section.percentage(&options::SAMPLED_PERCENT, share);
    let default = u8::try_from(options::SAMPLED_PERCENT.value.default).unwrap_or(100);
    let service_name = section.text(&options::SERVICE_NAME);
    let export = endpoint.map(|endpoint| TraceExport {
        endpoint,
        sampled: sampled.unwrap_or(f64::from(default) / 100.0),
        service_name,
    });
    if let Some(export) = &export
        && !is_http(&export.endpoint)
    {
        let remedy = "write a collector without TLS, as in \"http://127.0.0.1:4318\"";
        section.fault(
            options::ENDPOINT.name,
            &format!("`{}` is no such address", export.endpoint),
            remedy,
        );
    }
    section.finish();
    export
}

fn is_http(address: &str) -> bool {
    let parsed = address.parse::<Uri>().ok();
    parsed.is_some_and(|address| address.scheme_str() == Some("http") && address.host().is_some())
}
