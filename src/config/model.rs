//! The configuration as values.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::admin::AdminConfig;
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
    /// The addresses to listen on.
    pub listeners: Listeners,
    /// Clients at a time, at most.
    pub max_connections: usize,
    /// With which files clients are to speak TLS; `None`: they speak without. The files are not looked at
    /// yet.
    pub tls: Option<TlsFiles>,
    /// The longest message that a client may send, in bytes.
    pub max_message_bytes: usize,
    /// The memory budget of all clients together, in MiB.
    pub memory_mib: usize,
    /// Threads that serve clients; `None`: one for each processor.
    pub workers: Option<usize>,
    /// How long a client may take for the TLS handshake and until its first byte.
    pub handshake_timeout: Duration,
    /// How long a client may take over a message that it has begun, for each MiB of it.
    pub frame_timeout: Duration,
    /// How long a client may leave unread what is sent to it.
    pub send_timeout: Duration,
    /// How long a client may send nothing between two commands; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// How long running commands may take to finish when the proxy stops.
    pub drain_timeout: Duration,
}

/// The addresses to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listeners {
    /// One for the whole upstream.
    One {
        /// The address.
        address: SocketAddr,
        /// What a replica set is shown as.
        present_as: PresentAs,
        /// `host:port` under which clients find the listener; `None`: where they have found it.
        advertise: Option<String>,
    },
    /// One for each member of a replica set; never empty.
    Members(Vec<MemberConfig>),
}

/// The listener of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberConfig {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The member's `host:port`, as the replica set's configuration has it, in small letters.
    pub upstream: String,
    /// `host:port` under which clients find the listener; `None`: its address.
    pub advertise: Option<String>,
}

/// What a replica set is shown as. A standalone and a mongos are shown as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PresentAs {
    /// A mongos.
    #[default]
    Mongos,
    /// A replica set of one.
    ReplicaSet,
}

/// The server behind the proxy. Its `Debug` does not show the uri, which may hold a password.
#[derive(Clone)]
pub struct UpstreamConfig {
    /// The connection string, for the driver. Never to be logged.
    pub uri: String,
    /// `host:port` of each host that it names (an IPv6 address stands in brackets), or the one name whose SRV
    /// record does.
    pub hosts: Vec<String>,
    /// How long finding a server and opening a connection may take.
    pub connect_timeout: Duration,
}

impl fmt::Debug for UpstreamConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamConfig")
            .field("uri", &"<redacted>")
            .field("hosts", &self.hosts)
            .field("connect_timeout", &self.connect_timeout)
            .finish()
    }
}

/// What is logged, and how.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// A filter of `tracing_subscriber::EnvFilter`, checked.
    pub filter: String,
    /// How a line looks.
    pub format: LogFormat,
}
