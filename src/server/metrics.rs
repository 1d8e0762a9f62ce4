//! Metrics of the server.

use prometheus::{IntGauge, Registry};

/// Metrics of the server.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    /// 1 while the upstream is available: a standalone that replies, or a replica set with a
    /// primary.
    pub upstream_up: IntGauge,
}

impl ServerMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If a name is registered already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let help = "1 if the upstream is available: a standalone that replies, or a replica set with a primary; otherwise 0. When it is 0, no \
                    client is served: check mongod and the network between the proxy and mongod.";
        let upstream_up = IntGauge::new("mongoshape_upstream_up", help)?;
        registry.register(Box::new(upstream_up.clone()))?;
        Ok(Self { upstream_up })
    }
}
