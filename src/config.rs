//! From a TOML file and the environment to values that are right, or to all mistakes at once.
//!
//! `source` parses the text, `section` reads one table of it field by field, and `resolve`, `upstream` and `shapes`
//! say what the fields mean. Every scalar can also be set by an environment variable, which goes before the file:
//! `MONGOSHAPE_LISTEN_ADDRESS`, or `MONGOSHAPE_BUCKET_0_MAX_ITEMS` for the first `[[bucket]]`. A `[[bucket]]` or
//! `[[outlier]]` that the file does not have is added by giving the next number's namespace.
//!
//! Must not know sockets, and reads no environment of its own: the lookup is passed in.

mod error;
mod resolve;
mod section;
mod shapes;
mod source;
mod suggest;
mod tls;
mod upstream;

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

pub use self::error::{ConfigError, ConfigErrors, Place};
use self::source::Source;
use crate::pattern::shapes::Shapes;
use crate::server::tls::TlsFiles;
use crate::telemetry::log::LogFormat;

/// The whole configuration, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect to.
    pub listen: ListenConfig,
    /// The server behind the proxy.
    pub upstream: UpstreamConfig,
    /// Metrics and health.
    pub admin: AdminConfig,
    /// What is logged, and how.
    pub log: LogConfig,
    /// Which namespaces are stored in which pattern.
    pub shapes: Shapes,
}

/// Where clients connect to, and what they may hold.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// The address to listen on.
    pub address: SocketAddr,
    /// Clients at a time, at most.
    pub max_connections: usize,
    /// What the proxy passes itself off as.
    pub present_as: PresentAs,
    /// With which files clients are to speak TLS; `None`: they speak without. The files are not looked at yet.
    pub tls: Option<TlsFiles>,
    /// How long a client may pause in the middle of a message.
    pub frame_timeout: Duration,
    /// How long running commands may take to finish when the proxy stops.
    pub drain_timeout: Duration,
}

/// What the proxy passes itself off as before its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PresentAs {
    /// What fits the upstream: a standalone as it is.
    #[default]
    Auto,
    /// A mongos.
    Mongos,
    /// A replica set of one.
    ReplicaSet,
}

/// The server behind the proxy. Its `Debug` does not show the uri, which may hold a password.
#[derive(Clone)]
pub struct UpstreamConfig {
    /// The connection string, for the driver. Never to be logged.
    pub uri: String,
    /// `host:port` of its one host, as a socket is opened to it (an IPv6 address stands in brackets).
    pub address: String,
    /// How long opening a connection may take.
    pub connect_timeout: Duration,
}

impl fmt::Debug for UpstreamConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamConfig")
            .field("uri", &"<redacted>")
            .field("address", &self.address)
            .field("connect_timeout", &self.connect_timeout)
            .finish()
    }
}

/// Metrics and health.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// The address to answer on.
    pub address: SocketAddr,
}

/// What is logged, and how.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// A filter of `tracing_subscriber::EnvFilter`, checked.
    pub filter: String,
    /// How a line looks.
    pub format: LogFormat,
}

impl Config {
    /// Reads a file; variables of the environment go before what it says.
    ///
    /// # Errors
    /// That the file cannot be read, or every mistake in it and in the variables.
    pub fn load(path: &Path, environment: &impl Fn(&str) -> Option<String>) -> Result<Self, ConfigErrors> {
        let file_name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            place: Place::File(file_name.clone()),
            problem: format!("cannot be read: {error}"),
            remedy: "name a configuration file that this user may read".to_owned(),
        })?;
        Self::parse(&text, &file_name, environment)
    }

    /// Reads a text; `file_name` is what mistakes call it.
    ///
    /// # Errors
    /// Every mistake in it and in the variables.
    pub fn parse(
        text: &str,
        file_name: &str,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigErrors> {
        let (source, table) = Source::parse(file_name, text, environment);
        let config = resolve::config(&source, table);
        match (source.into_errors(), config) {
            (None, Some(config)) => Ok(config),
            (Some(errors), _) => Err(errors),
            (None, None) => unreachable!("a part is only missing where a mistake was noted"),
        }
    }
}

#[cfg(test)]
mod tests;
