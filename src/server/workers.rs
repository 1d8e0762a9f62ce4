//! The threads that sessions live on: one runtime each, and a session never leaves the one it began on.
//!
//! A relayed command is a handful of system calls. Work stealing between threads costs more than it evens
//! out: a wake-up on another core for a reply that this one could have passed on.
//!
//! A worker that has served several sessions since it last slept yields before it sleeps again: those that it
//! has sent something to run, some have answered when its turn comes, and neither they nor the kernel need to
//! wake it. Before a mongod on the same two cores that is worth a tenth of all operations and more. A worker
//! that has served one sleeps at once: nobody else is likely to have something for it, and a program that
//! computes without a pause would keep the core from it for milliseconds, where one that sleeps is woken in
//! time. Measured with `cargo xtask bench relay`, alone and beside two such programs.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A worker that has served so many sessions yields before it sleeps.
const YIELDS_AFTER: usize = 2;

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
    /// How often sessions had something to do since the worker slept.
    served: Arc<AtomicUsize>,
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
            let served = Arc::new(AtomicUsize::new(0));
            let runtime = Builder::new_current_thread()
                .enable_all()
                .on_thread_park({
                    let served = Arc::clone(&served);
                    move || {
                        if served.swap(0, Ordering::Relaxed) >= YIELDS_AFTER {
                            thread::yield_now();
                        }
                    }
                })
                .build()?;
            let handle = runtime.handle().clone();
            let stop = stop.clone();
            let name = format!("worker-{number}");
            thread::Builder::new()
                .name(name)
                .spawn(move || runtime.block_on(stop.cancelled()))?;
            Ok(Worker {
                runtime: handle,
                sessions: Arc::default(),
                served,
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
        let served = Arc::clone(&worker.served);
        worker.runtime.spawn(async move {
            let mut session = pin!(session);
            poll_fn(|context| {
                served.fetch_add(1, Ordering::Relaxed);
                session.as_mut().poll(context)
            })
            .await;
            drop(counted);
        });
    }
}
