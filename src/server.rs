//! Listeners, admission control, draining, and the upstream's primary. Each connection is handed to a
//! session. Must not depend on the meaning of commands.
//!
//! [`listener`] accepts connections. [`admission`] applies the limits and the TLS handshake.
//! [`workers`] are the threads that execute sessions. [`topology`] watches the upstream.

pub mod admission;
pub mod listener;
pub mod metrics;
pub mod tls;
pub mod topology;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::admission::Admission;
use self::listener::Listener;
use self::workers::Workers;
use crate::session::Shared;

/// The listeners, and the state and limits of their sessions.
#[derive(Debug)]
pub struct Server {
    /// The addresses for clients.
    pub listeners: Vec<Listener>,
    /// Admission control.
    pub admission: Arc<Admission>,
    /// The state that sessions share.
    pub shared: Arc<Shared>,
    /// Number of threads that execute sessions.
    pub workers: usize,
    /// Maximum time for running commands to finish after draining has begun.
    pub drain_timeout: Duration,
}

impl Server {
    /// Accepts connections until `stop` is cancelled, then waits for running commands and returns.
    ///
    /// # Errors
    /// If the worker threads cannot be started.
    pub async fn run(self, stop: CancellationToken) -> std::io::Result<()> {
        let workers = Arc::new(Workers::start(self.workers)?);
        let sessions = TaskTracker::new();
        let mut accepting = JoinSet::new();
        for listener in self.listeners {
            let door = listener::ListenerContext {
                admission: Arc::clone(listener.admission.as_ref().unwrap_or(&self.admission)),
                shared: Arc::clone(&self.shared),
                workers: Arc::clone(&workers),
                sessions: sessions.clone(),
                stop: stop.clone(),
            };
            accepting.spawn(listener.accept(door));
        }
        // Each task ends when `stop` is cancelled, and closes its socket.
        while accepting.join_next().await.is_some() {}
        sessions.close();
        if timeout(self.drain_timeout, sessions.wait()).await.is_err() {
            let left = sessions.len();
            tracing::warn!(
                connections = left,
                "closed connections whose commands did not finish in time"
            );
        }
        Ok(())
    }
}
