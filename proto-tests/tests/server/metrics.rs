//! `/metrics` after a known workload, every value of it; and `promtool` and Prometheus on it.

mod awaiting;
pub(crate) mod exposition;
mod prometheus;
mod workload;
