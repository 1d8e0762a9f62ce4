//! The threads that execute sessions: one runtime each. A session stays on its thread.
//!
//! A relayed command takes few system calls. Work stealing would cost more than it saves, because
//! it wakes another core for a reply that this core could pass on.
//!
//! A worker that has served several sessions since it last slept yields before it sleeps again.
//! Until it runs again, some of the sessions' peers have replied, and neither they nor the kernel
//! need to wake it. With a mongod on the same two cores, this gains a tenth of all operations or
//! more. A worker that has served one session sleeps at once: more work is unlikely, and after a
//! yield a busy program could hold the core for milliseconds, while a sleeping thread is woken in
//! time. Measured with `cargo xtask bench relay`, alone and beside two such programs.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Number of served sessions from which a worker yields before it sleeps.
const YIELDS_AFTER: usize = 2;

/// The worker threads. Dropping them ends their sessions.
#[derive(Debug)]
pub(super) struct Workers {
    workers: Vec<Worker>,
    _stop: DropGuard,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    sessions: Arc<AtomicUsize>,
    /// Number of polls of sessions since the worker last slept.
    served: Arc<AtomicUsize>,
}

/// Counts a session for its worker until it is dropped.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    /// Starts `number` workers, at least one.
    ///
    /// # Errors
    /// If the system provides no thread, or no means to wait for sockets.
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

    /// Executes a session on the worker with the fewest sessions.
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
