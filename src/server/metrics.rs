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
        let help = "1 while the upstream is there: a standalone that answers, a replica set with a primary; else 0. When it is 0, no client is \
                    served: see to mongod, or to the network between.";
        let upstream_up = IntGauge::new("mongoshape_upstream_up", help)?;
        registry.register(Box::new(upstream_up.clone()))?;
        Ok(Self { upstream_up })
    }
}
