//! The server that a session connects to, and the signal to leave it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::socket::Socket;
use super::upstream_connection::{LinkError, UpstreamConnection};
use crate::wire::limits::MAX_MESSAGE_BYTES;

/// TLS towards one server.
#[derive(Clone, Debug)]
pub struct UpstreamTls {
    /// Certificates and what is verified.
    pub config: Arc<ClientConfig>,
    /// Whom the server's certificate must name.
    pub name: ServerName<'static>,
}

/// What kind of server it is, as far as it is treated differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamKind {
    /// A mongod that stands alone.
    Standalone,
    /// A mongod that is a member of a replica set.
    Member,
    /// A router of a sharded cluster.
    Mongos,
    /// It was not reached yet, and it is the only one there is. Its sessions end as soon as more is known.
    Unknown,
}

fn next_term() -> u64 {
    static TERMS: AtomicU64 = AtomicU64::new(0);
    TERMS.fetch_add(1, Ordering::Relaxed)
}

/// Where a server is, and how it is spoken to.
#[derive(Clone, Debug)]
pub struct UpstreamAddress {
    /// `host:port`, an IPv6 address in brackets.
    pub address: String,
    /// `None` without TLS.
    pub tls: Option<UpstreamTls>,
    /// What is there.
    pub kind: UpstreamKind,
}

/// One server, for as long as new sessions are to use it.
#[derive(Debug)]
pub struct Upstream {
    server: UpstreamAddress,
    term: u64,
    sole: bool,
    retired: CancellationToken,
}

impl Upstream {
    /// Cancelling `retired` ends its sessions, each after the command that it is at.
    #[must_use]
    pub fn new(server: UpstreamAddress, retired: CancellationToken) -> Self {
        let (sole, term) = (false, next_term());
        Self {
            server,
            term,
            sole,
            retired,
        }
    }

    /// The same, of a server whose place no other one takes: who cannot connect to it need not wait.
    #[must_use]
    pub fn sole(server: UpstreamAddress, retired: CancellationToken) -> Self {
        let sole = true;
        Self {
            sole,
            ..Self::new(server, retired)
        }
    }

    /// `host:port`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.server.address
    }

    /// What is there.
    #[must_use]
    pub fn kind(&self) -> UpstreamKind {
        self.server.kind
    }

    /// The time for which it is the primary: another one for whoever takes its place, were it itself. What
    /// was written in one may be rolled back in the next.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Sends its sessions elsewhere: it is no longer the primary, or the proxy is draining.
    pub fn retire(&self) {
        self.retired.cancel();
    }

    /// Whether its sessions are to end.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.retired.is_cancelled()
    }

    /// Returns once its sessions are to end. Cancel safe.
    pub async fn retired(&self) {
        self.retired.cancelled().await;
    }

    async fn connect(&self, deadline: Instant) -> Result<UpstreamConnection, LinkError> {
        let failed = |reason: String| LinkError::Connect {
            address: self.server.address.clone(),
            reason,
        };
        let connected = timeout_at(deadline, async {
            let socket = TcpStream::connect(&self.server.address).await?;
            match &self.server.tls {
                None => Ok(Socket::Plain(socket)),
                Some(tls) => {
                    let connector = TlsConnector::from(Arc::clone(&tls.config));
                    let stream = connector.connect(tls.name.clone(), socket).await?;
                    std::io::Result::Ok(Socket::Tls(Box::new(stream.into())))
                }
            }
        });
        let socket = connected
            .await
            .map_err(|_| failed("no answer in time".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        // Whatever a client may send: mongod's answers are as long as they are.
        Ok(UpstreamConnection::new(socket, MAX_MESSAGE_BYTES))
    }
}

/// Which server new sessions are to use; told by whoever watches the topology.
#[derive(Clone, Debug)]
pub struct Upstreams {
    current: watch::Receiver<Option<Arc<Upstream>>>,
}

/// A session's connection, and the server that it leads to.
pub(super) type Connected = (Arc<Upstream>, UpstreamConnection);

impl Upstreams {
    /// Follows what is sent.
    #[must_use]
    pub fn new(current: watch::Receiver<Option<Arc<Upstream>>>) -> Self {
        Self { current }
    }

    /// Connects to the current server, waiting for one while there is none. A server that cannot be reached
    /// is tried no more; where another one takes its place in time, that is tried. `None`: there was none in
    /// time.
    pub(super) async fn connect(&self, within: Duration) -> Result<Option<Connected>, LinkError> {
        let deadline = Instant::now() + within;
        let mut current = self.current.clone();
        let mut failed = None;
        loop {
            let usable = |upstream: &Option<Arc<Upstream>>| {
                upstream.as_ref().is_some_and(|upstream| {
                    !upstream.is_retired() && failed.as_ref().is_none_or(|(tried, _)| !Arc::ptr_eq(tried, upstream))
                })
            };
            let found = match timeout_at(deadline, current.wait_for(usable)).await {
                Ok(Ok(found)) => found.clone(),
                // Not in time, or nobody will tell of another one.
                Ok(Err(_)) | Err(_) => None,
            };
            let Some(upstream) = found else {
                return failed.map_or(Ok(None), |(_, error)| Err(error));
            };
            match upstream.connect(deadline).await {
                Ok(link) => return Ok(Some((upstream, link))),
                Err(error) if upstream.sole => return Err(error),
                Err(error) => failed = Some((upstream, error)),
            }
        }
    }
}
