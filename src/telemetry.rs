//! Metrics, logs, traces and the admin endpoints. The other layers register their metrics here.

pub mod admin;
pub mod log;
pub mod metrics;
pub mod recent_warnings;
pub mod traces;

pub use self::metrics::Telemetry;
