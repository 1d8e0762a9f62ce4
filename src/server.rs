//! Listeners, limits, draining, and which server is the upstream's primary. Does not know what a command
//! means: each connection is handed to a session.
//!
//! [`listener`] accepts, [`admission`] decides who may stay and finds out what a client speaks, [`workers`]
//! are the threads that sessions live on, [`topology`] watches the upstream.

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

/// Listeners and the sessions behind them.
#[derive(Debug)]
pub struct Server {
    /// Where clients come in.
    pub listeners: Vec<Listener>,
    /// Who of them may stay.
    pub admission: Arc<Admission>,
    /// What their sessions share.
    pub shared: Arc<Shared>,
    /// Threads that sessions live on.
    pub workers: usize,
    /// How long running commands may take to finish once draining began.
    pub drain_timeout: Duration,
}

impl Server {
    /// Accepts until `stop` is cancelled, then lets running commands finish and returns.
    ///
    /// # Errors
    /// When the worker threads cannot be started.
    pub async fn run(self, stop: CancellationToken) -> std::io::Result<()> {
        let workers = Arc::new(Workers::start(self.workers)?);
        let sessions = TaskTracker::new();
        let mut accepting = JoinSet::new();
        for listener in self.listeners {
            let door = listener::ListenerContext {
                admission: Arc::clone(&self.admission),
                shared: Arc::clone(&self.shared),
                workers: Arc::clone(&workers),
                sessions: sessions.clone(),
                stop: stop.clone(),
            };
            accepting.spawn(listener.accept(door));
        }
        // Each ends when `stop` is cancelled, and takes its socket with it.
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
