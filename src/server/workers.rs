//! The threads that sessions live on: one runtime each, and a session never leaves the one it began on.
//!
//! A relayed command is a handful of system calls. Work stealing between threads costs more than it evens out: a wake-up
//! on another core for a reply that this one could have passed on. Measured with `cargo xtask bench relay`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The threads. Dropping them ends what still runs on them.
#[derive(Debug)]
pub(super) struct Workers {
    workers: Vec<Worker>,
    _stop: DropGuard,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    sessions: Arc<AtomicUsize>,
}

/// Counts a session to its worker for as long as it lives.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    /// Starts so many.
    ///
    /// # Errors
    /// When the system gives no thread, or no means to wait for sockets.
    pub(super) fn start(number: usize) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let workers = (0..number.max(1)).map(|number| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let stop = stop.clone();
            let name = format!("worker-{number}");
            thread::Builder::new()
                .name(name)
                .spawn(move || runtime.block_on(stop.cancelled()))?;
            Ok(Worker {
                runtime: handle,
                sessions: Arc::default(),
            })
        });
        Ok(Self {
            workers: workers.collect::<io::Result<_>>()?,
            _stop: stop.drop_guard(),
        })
    }

    /// Runs a session on the worker that has the fewest.
    pub(super) fn spawn(&self, session: impl Future<Output = ()> + Send + 'static) {
        let fewest = self
            .workers
            .iter()
            .min_by_key(|worker| worker.sessions.load(Ordering::Relaxed));
        let Some(worker) = fewest else {
            return;
        };
        worker.sessions.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(Arc::clone(&worker.sessions));
        worker.runtime.spawn(async move {
            session.await;
            drop(counted);
        });
    }
}
