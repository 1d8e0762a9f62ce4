//! The configuration as values.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::admin::AdminConfig;
use crate::pattern::shapes::Shapes;
use crate::server::tls::TlsFiles;
use crate::session::SessionLimits;
use crate::telemetry::log::LogFormat;
use crate::telemetry::traces::TraceExport;

/// The whole configuration, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Listeners and limits of clients.
    pub listen: ListenConfig,
    /// The server behind the proxy.
    pub upstream: UpstreamConfig,
    /// Metrics and health.
    pub admin: AdminConfig,
    /// Filter and format of logs.
    pub log: LogConfig,
    /// The export of traces. `None`: commands are not traced.
    pub traces: Option<TraceExport>,
    /// The shapes of namespaces.
    pub shapes: Shapes,
}

impl Config {
    /// The limits of sessions.
    #[must_use]
    pub fn session_limits(&self) -> SessionLimits {
        SessionLimits {
            max_message_bytes: self.listen.max_message_bytes,
            memory_bytes: self.listen.memory_mib << 20,
            frame_timeout: self.listen.frame_timeout,
            send_timeout: self.listen.send_timeout,
            idle_timeout: self.listen.idle_timeout,
            connect_timeout: self.upstream.connect_timeout,
            slow_command: self.log.slow_command,
        }
    }
}

/// Listeners and limits of clients.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// The addresses to listen on.
    pub listeners: Listeners,
    /// The most concurrent clients.
    pub max_connections: usize,
    /// The files for TLS with clients. `None`: no TLS. The files are not read yet.
    pub tls: Option<TlsFiles>,
    /// The longest message that a client may send, in bytes.
    pub max_message_bytes: usize,
    /// The memory budget of all clients together, in MiB.
    pub memory_mib: usize,
    /// The number of threads that serve clients. `None`: one for each processor.
    pub workers: Option<usize>,
    /// The time that a client may take for the TLS handshake and until its first byte.
    pub handshake_timeout: Duration,
    /// The time that a client may take to send the rest of a message, for each MiB of the message.
    pub frame_timeout: Duration,
    /// The time that a client may leave sent data unread.
    pub send_timeout: Duration,
    /// The time that a client may be idle between two commands. `None`: no limit.
    pub idle_timeout: Option<Duration>,
    /// The time that running commands may take to finish when the proxy stops.
    pub drain_timeout: Duration,
}

/// The addresses to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listeners {
    /// One listener for the whole upstream.
    One {
        /// The address.
        address: SocketAddr,
        /// The presentation of a replica set.
        present_as: PresentAs,
        /// The `host:port` by which clients reach the listener. `None`: the address that they
        /// connected to.
        advertise: Option<String>,
    },
    /// One listener for each member of a replica set. Never empty.
    Members(Vec<MemberConfig>),
}

/// The listener of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberConfig {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The member's `host:port` in the replica set's configuration, in lower case.
    pub upstream: String,
    /// The `host:port` by which clients reach the listener. `None`: its address.
    pub advertise: Option<String>,
}

/// The presentation of a replica set. A standalone and a mongos are presented as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PresentAs {
    /// A mongos.
    #[default]
    Mongos,
    /// A replica set of one member.
    ReplicaSet,
}

/// The server behind the proxy. `Debug` does not show the URI, which may contain a password.
#[derive(Clone)]
pub struct UpstreamConfig {
    /// The connection string, for the driver. Must not be logged.
    pub uri: String,
    /// The `host:port` of each host in the URI (an IPv6 address is in brackets), or the one name
    /// with an SRV record.
    pub hosts: Vec<String>,
    /// The time that finding a server and opening a connection may take.
    pub connect_timeout: Duration,
    /// The time between two deletions of expired items.
    pub expire_interval: Duration,
}

impl fmt::Debug for UpstreamConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamConfig")
            .field("uri", &"<redacted>")
            .field("hosts", &self.hosts)
            .field("connect_timeout", &self.connect_timeout)
            .field("expire_interval", &self.expire_interval)
            .finish()
    }
}

/// Filter, format and thresholds of logs.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// A valid filter of `tracing_subscriber::EnvFilter`.
    pub filter: String,
    /// The format of a line.
    pub format: LogFormat,
    /// Commands that take at least this time are logged. `None`: no command is.
    pub slow_command: Option<Duration>,
}
