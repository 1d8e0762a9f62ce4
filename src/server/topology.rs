//! Selects the server for new sessions. The driver watches the upstream, and this module publishes
//! its findings.
//!
//! ```text
//!           a primary is known              another primary, or it reports that it is none
//!   none ───────────────────────▶ current ──────────────────────────────────────▶ none
//!                                    │                                              ▲
//!                                    │ a session was told "not the primary"         │ the driver's
//!                                    ▼                                              │ next finding
//!                                 retired ──────────────────────────────────────────┘
//! ```
//!
//! A primary that the driver cannot reach stays the current one: sessions that can reach it
//! continue, and new ones try it.

mod tls_failure_log;

use std::sync::Arc;
use std::time::Duration;

use mongodb::error::{Error, ErrorKind};
use mongodb::event::EventHandler;
use mongodb::event::sdam::{SdamEvent, TopologyDescription};
use mongodb::options::{ClientOptions, ServerAddress};
use mongodb::{Client, ServerType, TopologyType};
use rustls::ClientConfig;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::tls_failure_log::TlsFailureLog;
use super::metrics::ServerMetrics;
use super::tls::server_name;
use crate::session::upstream::{Upstream, UpstreamAddress, UpstreamKind, UpstreamTls, Upstreams};

/// The port of an address without a port.
const DEFAULT_PORT: u16 = 27017;
/// After a session got "not the primary", the driver usually finds the new primary quickly. If it
/// reports nothing new in this time, its last finding is used again.
const RECONSIDER: Duration = Duration::from_millis(500);

/// After the start, the warning about a missing server is delayed by this time.
const FIRST_WARNING: Duration = Duration::from_secs(3);

/// The options of connections to servers.
#[derive(Clone, Debug)]
pub struct Dialing {
    /// `None`: without TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// Ends all sessions when it is cancelled.
    pub stop: CancellationToken,
}

impl Dialing {
    /// The address of a server. `None`: it is not a host and port.
    #[must_use]
    pub fn address(&self, address: &ServerAddress, kind: UpstreamKind) -> Option<UpstreamAddress> {
        let ServerAddress::Tcp { host, .. } = address else {
            return None;
        };
        let tls = match &self.tls {
            Some(config) => Some(UpstreamTls {
                config: Arc::clone(config),
                name: server_name(host).ok()?,
            }),
            None => None,
        };
        let address = dial_address(address)?;
        Some(UpstreamAddress { address, tls, kind })
    }
}

/// The argument of `TcpStream::connect`. `None` for a Unix socket.
#[must_use]
pub fn dial_address(address: &ServerAddress) -> Option<String> {
    let ServerAddress::Tcp { host, port } = address else {
        return None;
    };
    let port = port.unwrap_or(DEFAULT_PORT);
    // The driver stores an IPv6 address without brackets.
    Some(if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    })
}

/// The upstream while it is watched.
#[derive(Debug)]
pub struct WatchedUpstream {
    /// The driver's client. It may be used for other purposes, and must be closed at the end.
    pub client: Client,
    /// The server for new sessions.
    pub upstreams: Upstreams,
    /// The driver's latest finding. `None`: there is none yet.
    pub found: watch::Receiver<Option<TopologyDescription>>,
}

/// Starts to watch.
///
/// # Errors
/// If the driver refuses the options.
pub fn watch(mut options: ClientOptions, dialing: Dialing, metrics: ServerMetrics) -> Result<WatchedUpstream, Error> {
    let (sender, found) = watch::channel(None);
    options.sdam_event_handler = Some(EventHandler::callback(move |event| {
        if let SdamEvent::TopologyDescriptionChanged(event) = event {
            sender.send_replace(Some(event.new_description));
        }
    }));
    let client = Client::with_options(options)?;
    let (current, upstreams) = watch::channel(None);
    let watcher = Watcher {
        dialing,
        metrics,
        current,
    };
    tokio::spawn(watcher.run(found.clone()));
    Ok(WatchedUpstream {
        client,
        upstreams: Upstreams::new(upstreams),
        found,
    })
}

struct Watcher {
    dialing: Dialing,
    metrics: ServerMetrics,
    current: watch::Sender<Option<Arc<Upstream>>>,
}

/// The consequence of a driver's finding.
#[derive(Debug)]
enum TopologyChange {
    /// New sessions connect to this server.
    Server { at: UpstreamAddress, sole: bool },
    /// There is no server for new sessions, and sessions of the current one end.
    NoPrimary,
    /// Nothing changes.
    Unreachable,
}

impl Watcher {
    async fn run(self, mut found: watch::Receiver<Option<TopologyDescription>>) {
        let mut reconsider = None;
        let mut distrust = TlsFailureLog::default();
        let mut warn_at = Some(Instant::now() + FIRST_WARNING);
        loop {
            let current = self.current.borrow().clone();
            let is_current = current.is_some();
            if is_current {
                warn_at = None;
            }
            tokio::select! {
                changed = found.changed() => if changed.is_err() {
                    return;
                },
                () = retired(current.as_deref()), if is_current => {
                    self.current.send_replace(None);
                    reconsider = Some(Instant::now() + RECONSIDER);
                    continue;
                }
                () = until(reconsider), if reconsider.is_some() => {}
                () = until(warn_at), if warn_at.is_some() => {
                    warn_at = None;
                    warn_of_no_server(found.borrow().as_ref());
                    continue;
                }
                () = self.dialing.stop.cancelled() => return,
            }
            reconsider = None;
            let latest = found.borrow_and_update().clone();
            if let Some(latest) = latest {
                distrust.report(&latest);
                self.follow(&latest);
            }
        }
    }

    /// Publishes the driver's latest finding.
    fn follow(&self, latest: &TopologyDescription) {
        let current = self.current.borrow().clone();
        match self.finding(latest, current.as_deref()) {
            TopologyChange::Server { at, sole } => {
                self.metrics.upstream_up.set(1);
                let same = |current: &Arc<Upstream>| current.address() == at.address && current.kind() == at.kind;
                let same = current.as_ref().is_some_and(same);
                if same {
                    return;
                }
                tracing::info!(
                    server = at.address,
                    "new connections of clients use this server from now on"
                );
                let retired = self.dialing.stop.child_token();
                let upstream = if sole {
                    Upstream::sole(at, retired)
                } else {
                    Upstream::new(at, retired)
                };
                self.current.send_replace(Some(Arc::new(upstream)));
                if let Some(previous) = current {
                    previous.retire();
                }
            }
            TopologyChange::NoPrimary => {
                self.metrics.upstream_up.set(0);
                if let Some(previous) = current {
                    tracing::warn!(server = previous.address(), "the upstream's primary has stepped down");
                    self.current.send_replace(None);
                    previous.retire();
                }
            }
            TopologyChange::Unreachable => self.metrics.upstream_up.set(0),
        }
    }

    fn finding(&self, found: &TopologyDescription, current: Option<&Upstream>) -> TopologyChange {
        let servers = found.servers();
        let of_type = |wanted| servers.iter().find(|(_, server)| server.server_type() == wanted);
        let to = |address: &ServerAddress, kind, sole| match self.dialing.address(address, kind) {
            Some(at) => TopologyChange::Server { at, sole },
            None => TopologyChange::NoPrimary,
        };
        match found.topology_type() {
            TopologyType::Single => match servers.iter().next() {
                // An unreachable server keeps its known kind.
                Some((_, server)) if server.server_type() == ServerType::Unknown && current.is_some() => {
                    TopologyChange::Unreachable
                }
                Some((address, server)) => to(address, kind(server.server_type()), true),
                None => TopologyChange::NoPrimary,
            },
            TopologyType::Sharded => {
                let routers = servers.iter().filter(|(_, of)| of.server_type() == ServerType::Mongos);
                let routers = routers.filter_map(|(address, _)| self.dialing.address(address, UpstreamKind::Mongos));
                // All are equal, so sessions stay at theirs.
                let is_current = |at: &UpstreamAddress| current.is_some_and(|current| current.address() == at.address);
                match routers.min_by_key(|at| (!is_current(at), at.address.clone())) {
                    Some(at) => TopologyChange::Server { at, sole: false },
                    None => TopologyChange::Unreachable,
                }
            }
            _ => match of_type(ServerType::RsPrimary) {
                Some((address, _)) => to(address, UpstreamKind::Member, false),
                None if self.is_unreachable(found, current) => TopologyChange::Unreachable,
                None => TopologyChange::NoPrimary,
            },
        }
    }

    /// Whether the driver cannot reach the current server, which may still be the primary.
    fn is_unreachable(&self, found: &TopologyDescription, current: Option<&Upstream>) -> bool {
        let is_current = |address: &ServerAddress| {
            let at = self.dialing.address(address, UpstreamKind::Member);
            at.zip(current)
                .is_some_and(|(at, current)| at.address == current.address())
        };
        let servers = found.servers();
        let mut current = servers.iter().filter(|(address, _)| is_current(address));
        current.any(|(_, server)| server.server_type() == ServerType::Unknown)
    }
}

/// Logs that clients have had no server since the start, with the reasons that the driver reports.
fn warn_of_no_server(found: Option<&TopologyDescription>) {
    let servers = found.into_iter().flat_map(|found| found.servers());
    let reasons: Vec<String> = servers
        .filter_map(|(address, server)| server.error().map(|error| format!("{address}: {}", reason(error))))
        .collect();
    let reasons = if reasons.is_empty() {
        "no server replied, or no server belongs to the set in `replicaSet`".to_owned()
    } else {
        reasons.join("; ")
    };
    tracing::warn!(
        reasons,
        "the upstream is not available yet, so clients wait; check `upstream.uri`"
    );
}

/// Why the driver cannot reach a server.
#[must_use]
pub fn reason(error: &Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Io(error) => error.to_string(),
        kind => kind.to_string(),
    }
}

fn kind(server: ServerType) -> UpstreamKind {
    match server {
        ServerType::Mongos => UpstreamKind::Mongos,
        ServerType::Standalone => UpstreamKind::Standalone,
        ServerType::Unknown => UpstreamKind::Unknown,
        _ => UpstreamKind::Member,
    }
}

async fn retired(upstream: Option<&Upstream>) {
    match upstream {
        Some(upstream) => upstream.retired().await,
        None => std::future::pending().await,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
