//! The registry for the metrics of all layers, and their text format. Must not depend on the metrics of
//! another layer.

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{IntGaugeVec, Opts, Registry, TextEncoder};

/// The process's metrics.
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// The registry, in which other layers register their metrics.
    pub registry: Registry,
}

impl Telemetry {
    /// A registry with the process's own metrics (`process_*`) and `mongoshape_build_info`.
    ///
    /// # Errors
    /// None in practice: names and labels are constants.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        registry.register(Box::new(ProcessCollector::for_self()))?;
        registry.register(build_info()?)?;
        Ok(Self { registry })
    }

    /// The metrics in Prometheus's text format 0.0.4.
    ///
    /// # Errors
    /// If a registered collector returns an invalid metric family.
    pub fn render(&self) -> prometheus::Result<String> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

fn build_info() -> prometheus::Result<Box<dyn Collector>> {
    let options = Opts::new(
        "mongoshape_build_info",
        "Always 1; the label contains the version. When versions differ, an upgrade is in progress, or a proxy was not upgraded.",
    );
    let gauge = IntGaugeVec::new(options, &["version"])?;
    gauge.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
    Ok(Box::new(gauge))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_and_the_process_are_there_from_the_start() {
        let text = Telemetry::new().unwrap().render().unwrap();
        let build = format!("mongoshape_build_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION"));
        assert!(text.contains(&build), "{text}");
        assert!(text.contains("\nprocess_open_fds "), "{text}");
    }
}
