//! The signals of `serve`.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Handlers for the signals. Active after construction.
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

    /// Calls `reload` for each SIGHUP. Returns the name of the signal that ends the program.
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
