//! Admission control: the number of connections, the time until the first byte, and TLS.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::tls::{SniffedProtocol, first_bytes};
use crate::session::metrics::{Limit, SessionMetrics};
use crate::session::socket::Socket;

/// Idle time after which TCP keepalive probes are sent, as in mongod.
const KEEPALIVE: Duration = Duration::from_mins(2);
/// Minimum interval between two log lines about refusals. Each line has the number of refusals
/// since the last.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes that are enough to detect the protocol.
const FIRST_BYTES: usize = 16;

/// Limits for clients before they have a session. Can be exchanged at any time.
#[derive(Clone, Debug)]
pub struct AdmissionLimits {
    /// Maximum number of client connections. A further connection is closed after it was accepted.
    pub max_connections: usize,
    /// Maximum time until the first byte, and for the TLS handshake.
    pub handshake_timeout: Duration,
    /// The listener's certificate. `None`: without TLS.
    pub tls: Option<Arc<ServerConfig>>,
}

/// Applies the limits to new connections.
#[derive(Debug)]
pub struct Admission {
    limits: ArcSwap<AdmissionLimits>,
    open: Arc<AtomicUsize>,
    refusals: Mutex<Refusals>,
}

#[derive(Debug, Default)]
struct Refusals {
    logged: Option<Instant>,
    since: u64,
}

/// One of the permitted connections. Released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    open: Arc<AtomicUsize>,
    connections: prometheus::IntGauge,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.connections.dec();
    }
}

impl Admission {
    /// Limits without any connection.
    #[must_use]
    pub fn new(limits: AdmissionLimits) -> Self {
        Self {
            limits: ArcSwap::from_pointee(limits),
            open: Arc::default(),
            refusals: Mutex::default(),
        }
    }

    /// Exchanges the limits. They apply to new connections.
    pub fn exchange(&self, limits: AdmissionLimits) {
        self.limits.store(Arc::new(limits));
    }

    /// Reserves a connection. `None`: too many are open, which is logged.
    pub(super) fn place(&self, peer: SocketAddr, metrics: &SessionMetrics) -> Option<ConnectionPermit> {
        let limit = self.limits.load().max_connections;
        if self.open.fetch_add(1, Ordering::Relaxed) >= limit {
            self.open.fetch_sub(1, Ordering::Relaxed);
            metrics.limit_hit(Limit::Connections);
            self.log_refusal(peer, limit);
            return None;
        }
        metrics.connections_total.inc();
        metrics.connections.inc();
        Some(ConnectionPermit {
            open: Arc::clone(&self.open),
            connections: metrics.connections.clone(),
        })
    }

    fn log_refusal(&self, peer: SocketAddr, limit: usize) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.since += 1;
        if refusals.logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
            let count = std::mem::take(&mut refusals.since);
            refusals.logged = Some(Instant::now());
            tracing::warn!(%peer, limit, count, "refused a connection: the limit listen.max_connections is reached");
        }
    }

    /// Waits for the client's first byte, and completes the TLS handshake if TLS is set. `None`:
    /// the client is refused, which is logged.
    pub(super) async fn admit(
        &self,
        socket: std::net::TcpStream,
        peer: SocketAddr,
        metrics: &SessionMetrics,
        stop: &CancellationToken,
    ) -> Option<Socket> {
        let limits = self.limits.load_full();
        let admitted = tokio::select! {
            admitted = timeout(limits.handshake_timeout, begin(socket, limits.tls.as_ref())) => admitted,
            () = stop.cancelled() => return None,
        };
        match admitted {
            Ok(Ok(socket)) => return Some(socket),
            Ok(Err(RejectedClient::Gone(error))) => tracing::debug!(%peer, %error, "the client closed the connection"),
            Ok(Err(RejectedClient::Misspoken(reason))) => {
                tracing::warn!(%peer, reason, "refused a connection");
            }
            Ok(Err(RejectedClient::Handshake(error))) => {
                tracing::warn!(%peer, %error, "refused a connection: the TLS handshake failed");
            }
            Err(_) => {
                metrics.limit_hit(Limit::HandshakeTimeout);
                let waited_ms = limits.handshake_timeout.as_millis();
                tracing::warn!(%peer, waited_ms, "refused a connection: the client sent nothing in time");
            }
        }
        None
    }
}

/// The reason why a client is refused.
enum RejectedClient {
    Gone(std::io::Error),
    Misspoken(&'static str),
    Handshake(std::io::Error),
}

async fn begin(socket: std::net::TcpStream, tls: Option<&Arc<ServerConfig>>) -> Result<Socket, RejectedClient> {
    let socket = TcpStream::from_std(socket).map_err(RejectedClient::Gone)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 8);
    if let Err(error) = SockRef::from(&socket).set_tcp_keepalive(&keepalive) {
        tracing::debug!(%error, "could not set TCP keepalive");
    }
    let mut first = [0; FIRST_BYTES];
    let received = socket.peek(&mut first).await.map_err(RejectedClient::Gone)?;
    if received == 0 {
        return Err(RejectedClient::Gone(std::io::ErrorKind::UnexpectedEof.into()));
    }
    match (tls, first_bytes(first.get(..received).unwrap_or_default())) {
        (None, SniffedProtocol::Mongo | SniffedProtocol::Unknown) => Ok(Socket::Plain(socket)),
        // Fewer bytes than a header may have arrived. The handshake decides.
        (Some(config), SniffedProtocol::Tls | SniffedProtocol::Unknown) => {
            let accepted = TlsAcceptor::from(Arc::clone(config)).accept(socket).await;
            Ok(Socket::Tls(Box::new(
                accepted.map_err(RejectedClient::Handshake)?.into(),
            )))
        }
        (None, SniffedProtocol::Tls) => Err(RejectedClient::Misspoken(
            "the client uses TLS, but this address does not (`listen.tls` is not set)",
        )),
        (Some(_), SniffedProtocol::Mongo) => Err(RejectedClient::Misspoken(
            "the client does not use TLS, but this address requires it (`listen.tls`): connect with tls=true",
        )),
    }
}
