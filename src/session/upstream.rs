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

/// TLS settings for one server.
#[derive(Clone, Debug)]
pub struct UpstreamTls {
    /// Certificates and verification.
    pub config: Arc<ClientConfig>,
    /// The name that the server's certificate must contain.
    pub name: ServerName<'static>,
}

/// The kind of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamKind {
    /// A standalone mongod.
    Standalone,
    /// A member of a replica set.
    Member,
    /// A mongos.
    Mongos,
    /// Not reached yet, and the only configured server. Sessions end as soon as the kind is known.
    Unknown,
}

fn next_term() -> u64 {
    static TERMS: AtomicU64 = AtomicU64::new(0);
    TERMS.fetch_add(1, Ordering::Relaxed)
}

/// The address of a server, and how to connect.
#[derive(Clone, Debug)]
pub struct UpstreamAddress {
    /// `host:port`, an IPv6 address in brackets.
    pub address: String,
    /// `None`: without TLS.
    pub tls: Option<UpstreamTls>,
    /// The kind of the server.
    pub kind: UpstreamKind,
}

/// A server, from its selection for new sessions until it is retired.
#[derive(Debug)]
pub struct Upstream {
    server: UpstreamAddress,
    term: u64,
    sole: bool,
    retired: CancellationToken,
}

impl Upstream {
    /// Cancelling `retired` ends the server's sessions, each after its current command.
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

    /// Like [`Upstream::new`], for a server that no other can replace: a failed connection is not
    /// tried again.
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

    /// The kind of the server.
    #[must_use]
    pub fn kind(&self) -> UpstreamKind {
        self.server.kind
    }

    /// A number for the time in which the server is the primary. A new primary has another one,
    /// even if it is the same server, because writes of the former term may have been rolled back.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Ends the server's sessions, because it is no longer the primary or the proxy is draining.
    pub fn retire(&self) {
        self.retired.cancel();
    }

    /// Whether the server's sessions must end.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.retired.is_cancelled()
    }

    /// Returns when the server's sessions must end. Cancel safe.
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
        // mongod may send replies of any valid length.
        Ok(UpstreamConnection::new(socket, MAX_MESSAGE_BYTES))
    }
}

/// The server for new sessions, as published by the topology monitor.
#[derive(Clone, Debug)]
pub struct Upstreams {
    current: watch::Receiver<Option<Arc<Upstream>>>,
}

pub(super) type Connected = (Arc<Upstream>, UpstreamConnection);

impl Upstreams {
    /// Follows this channel.
    #[must_use]
    pub fn new(current: watch::Receiver<Option<Arc<Upstream>>>) -> Self {
        Self { current }
    }

    /// The address of the current server.
    #[must_use]
    pub fn address(&self) -> Option<String> {
        let current = self.current.borrow();
        let current = current.as_ref().filter(|upstream| !upstream.is_retired());
        current.map(|upstream| upstream.address().to_owned())
    }

    /// Connects to the current server, or waits for one. A server that cannot be reached is not tried again,
    /// but a server that replaces it in time is. `None`: there was no server in time.
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
                // Timed out, or the topology monitor has ended.
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
