//! The signals that `serve` answers to.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Caught from the moment that this exists.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(super) fn catch() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Calls `reload` on each SIGHUP; returns the name of the signal that ends the program.
    pub(super) async fn until_the_end(&mut self, mut reload: impl AsyncFnMut()) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.hang_up.recv() => reload().await,
            }
        }
    }
}
