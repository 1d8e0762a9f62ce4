//! `/metrics` after a known workload, every value of it; and `promtool` and Prometheus on it.

mod awaiting;
mod exposition;
mod prometheus;
mod workload;
