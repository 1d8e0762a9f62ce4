//! What `/metrics` says after a known workload, every value of it; and what Prometheus makes of it.

mod awaiting;
mod exposition;
mod prometheus;
mod workload;
