//! Logs go to standard error, as text or as one JSON object a line. Does not know where its settings come from.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

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

/// Sets the process's log; to be called once.
///
/// # Errors
/// When the filter is not one of `EnvFilter`, or a log is already set.
pub fn init(filter: &str, format: LogFormat) -> Result<(), LogError> {
    // A client's mistakes in TLS are told by the listener, with its address; rustls would tell them again.
    let filter = EnvFilter::try_new(format!("rustls=error,{filter}"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    match format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).finish().try_init()?,
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}
