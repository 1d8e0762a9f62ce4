//! Who may come in: how many at a time, how fast they must begin, and whether they speak TLS as they should.

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

/// A connection whose other end says nothing for so long is asked whether it is still there, as mongod does.
const KEEPALIVE: Duration = Duration::from_mins(2);
/// Refusals are logged at most so often, each time with the number of those in between.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// So many settle what a client speaks.
const FIRST_BYTES: usize = 16;

/// What clients must keep to before they have a session; may be exchanged at any time.
#[derive(Clone, Debug)]
pub struct AdmissionLimits {
    /// Client connections at once; beyond them a new one is closed as soon as it is accepted.
    pub max_connections: usize,
    /// How long the TLS handshake may take, and the first byte to come.
    pub handshake_timeout: Duration,
    /// The certificate that clients see; `None`: they come without TLS.
    pub tls: Option<Arc<ServerConfig>>,
}

/// Decides.
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

/// One connection's place, free again when it is dropped.
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
    /// Nobody is in yet.
    #[must_use]
    pub fn new(limits: AdmissionLimits) -> Self {
        Self {
            limits: ArcSwap::from_pointee(limits),
            open: Arc::default(),
            refusals: Mutex::default(),
        }
    }

    /// Exchanges the limits; they hold for new connections.
    pub fn exchange(&self, limits: AdmissionLimits) {
        self.limits.store(Arc::new(limits));
    }

    /// A place for one more; `None` when all are taken, which is logged.
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
            tracing::warn!(%peer, limit, count, "refused a connection: too many are open");
        }
    }

    /// Waits for the client's first byte and goes through the TLS handshake with it, where there is one.
    /// `None`: it is turned away, which is logged.
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
            Ok(Err(RejectedClient::Gone(error))) => tracing::debug!(%peer, %error, "the client went away"),
            Ok(Err(RejectedClient::Misspoken(reason))) => {
                tracing::warn!(%peer, reason, "refused a connection");
            }
            Ok(Err(RejectedClient::Handshake(error))) => {
                tracing::warn!(%peer, %error, "refused a connection: the TLS handshake failed");
            }
            Err(_) => {
                metrics.limit_hit(Limit::HandshakeTimeout);
                let waited_ms = limits.handshake_timeout.as_millis();
                tracing::warn!(%peer, waited_ms, "refused a connection: the client did not begin in time");
            }
        }
        None
    }
}

/// Why a client is turned away.
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
        // What it speaks may not be plain yet; the handshake will tell.
        (Some(config), SniffedProtocol::Tls | SniffedProtocol::Unknown) => {
            let accepted = TlsAcceptor::from(Arc::clone(config)).accept(socket).await;
            Ok(Socket::Tls(Box::new(
                accepted.map_err(RejectedClient::Handshake)?.into(),
            )))
        }
        (None, SniffedProtocol::Tls) => Err(RejectedClient::Misspoken(
            "the client speaks TLS, and this address does not (`listen.tls` is not set)",
        )),
        (Some(_), SniffedProtocol::Mongo) => Err(RejectedClient::Misspoken(
            "the client does not speak TLS, which this address asks for (`listen.tls`): it needs tls=true",
        )),
    }
}
