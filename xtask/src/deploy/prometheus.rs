//! `promtool` on the alerts, their tests and the scrape configuration.

use super::report::Report;
use super::tool::Tool;

const PROMTOOL: Tool = Tool::new("promtool", "apt-get install prometheus");

pub(super) fn check(report: &mut Report) {
    for (kind, file) in [
        ("check rules", "mongoshape.rules.yml"),
        ("test rules", "mongoshape.rules.test.yml"),
        ("check config", "prometheus.yml"),
    ] {
        let path = format!("deploy/prometheus/{file}");
        let arguments: Vec<_> = kind.split(' ').chain([path.as_str()]).collect();
        report.run(&PROMTOOL, &arguments);
    }
}
