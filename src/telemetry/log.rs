//! Logs to standard error, as text or as one JSON object per line. Settings are passed in.

mod escaped;

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::{EnvFilter, LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use self::escaped::Escaped;
use super::recent_warnings::RecentWarnings;

/// The root of the proxy's own modules.
const OURS: &str = "mongoshape";

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The reason why logging could not be initialized.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is invalid.
    #[error("log filter: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// The process already has a log.
    #[error("log: {0}")]
    AlreadySet(#[from] TryInitError),
}

/// Initializes the process's log. Must be called once. The proxy's own warnings and errors also go
/// to `recent`, independent of the filter.
///
/// # Errors
/// If the filter is not a valid `EnvFilter`, or a log exists.
pub fn init(filter: &str, format: LogFormat, recent: RecentWarnings) -> Result<(), LogError> {
    // The listener logs clients' TLS errors with their address. rustls would log them again.
    let filter = EnvFilter::try_new(format!("rustls=error,{filter}"))?;
    let recent = recent.with_filter(Targets::new().with_target(OURS, LevelFilter::WARN));
    let registry = tracing_subscriber::registry().with(recent);
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    match format {
        LogFormat::Text => {
            let lines = lines.fmt_fields(Escaped).with_ansi(io::stderr().is_terminal());
            registry.with(lines.with_filter(filter)).try_init()?;
        }
        LogFormat::Json => registry
            .with(lines.json().flatten_event(true).with_filter(filter))
            .try_init()?,
    }
    Ok(())
}
