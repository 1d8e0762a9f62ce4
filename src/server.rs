//! Listeners, limits, draining. Does not know what a command means: each connection is handed to a session.

pub mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::session::{Shared, client};

/// Pause after the system refused to accept, as when file descriptors ran out: trying at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How a server treats its connections.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Client connections at once; beyond them a new one is closed as soon as it is accepted.
    pub max_connections: usize,
    /// How long running commands may take to finish once draining began.
    pub drain_timeout: Duration,
    /// The upstream's host and port.
    pub upstream: String,
}

/// A listener and the sessions behind it.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    options: ServerOptions,
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    sessions: TaskTracker,
}

impl Server {
    /// A server on a bound listener.
    #[must_use]
    pub fn new(listener: TcpListener, options: ServerOptions, shared: Arc<Shared>) -> Self {
        let places = Arc::new(Semaphore::new(options.max_connections));
        Self {
            listener,
            options,
            shared,
            places,
            sessions: TaskTracker::new(),
        }
    }

    /// Accepts until `stop` is cancelled, then lets running commands finish and returns.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, peer)) => self.admit(socket, peer, &stop),
                Err(error) => {
                    tracing::error!(%error, "cannot accept connections");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.listener);
        self.sessions.close();
        if timeout(self.options.drain_timeout, self.sessions.wait()).await.is_err() {
            let left = self.sessions.len();
            tracing::warn!(
                connections = left,
                "closed connections whose commands did not finish in time"
            );
        }
    }

    fn admit(&self, socket: TcpStream, peer: SocketAddr, stop: &CancellationToken) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            tracing::warn!(%peer, limit = self.options.max_connections, "refused a connection: too many are open");
            return;
        };
        let (shared, upstream, stop) = (Arc::clone(&self.shared), self.options.upstream.clone(), stop.clone());
        self.sessions.spawn(async move {
            let metrics = shared.metrics();
            metrics.connections_total.inc();
            metrics.connections.inc();
            client::serve(socket, peer, &upstream, &shared, &stop).await;
            metrics.connections.dec();
            drop(place);
        });
    }
}
