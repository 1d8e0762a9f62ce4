//! Registers metrics. Names have the prefix `mongoshape_`.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

pub(super) fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
    registered(registry, IntCounter::new(format!("mongoshape_{name}"), help)?)
}

pub(super) fn counters(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, prometheus::Error> {
    let options = Opts::new(format!("mongoshape_{name}"), help);
    registered(registry, IntCounterVec::new(options, labels)?)
}

pub(super) fn registered<C: prometheus::core::Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}
