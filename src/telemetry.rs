//! Metrics, logs and the admin endpoints: assembles what the other floors register.

pub mod admin;
pub mod log;
pub mod metrics;
pub mod recent;

pub use self::metrics::Telemetry;
