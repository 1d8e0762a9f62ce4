//! Logs go to standard error, as text or as one JSON object a line. Does not know where its settings come
//! from.

mod escaped;

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::{EnvFilter, LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use self::escaped::Escaped;
use super::recent_warnings::RecentWarnings;

/// The root of our own modules.
const OURS: &str = "mongoshape";

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is not one.
    #[error("log filter: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// The process already has a log.
    #[error("log: {0}")]
    AlreadySet(#[from] TryInitError),
}

/// Sets the process's log; to be called once. Our own warnings and errors also go to `recent`, whatever the
/// filter.
///
/// # Errors
/// When the filter is not one of `EnvFilter`, or a log is already set.
pub fn init(filter: &str, format: LogFormat, recent: RecentWarnings) -> Result<(), LogError> {
    // A client's mistakes in TLS are told by the listener, with its address; rustls would tell them again.
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
