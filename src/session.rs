//! One client and its upstream link: relay, rewritten commands, cursors, handshake.
//!
//! [`client`] is the loop; [`route`] says what a frame asks for; [`relay`] passes bytes on; [`run`] has one file for each
//! command that a shape rewrites. Knows nothing of listeners or of configuration files.

pub mod client;
mod cursor;
mod error;
mod handshake;
mod link;
pub mod metrics;
mod mint;
mod readiness;
mod relay;
mod route;
mod run;
mod stream;

use std::time::Duration;

use self::cursor::CursorRegistry;
use self::metrics::SessionMetrics;
use self::mint::Timestamps;
use self::readiness::Readiness;
use crate::pattern::shapes::Shapes;

/// How long a session waits for its peers, and how much it takes from them.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// The longest message, in bytes.
    pub max_message_bytes: usize,
    /// How long a client may pause in the middle of a message.
    pub frame_timeout: Duration,
    /// How long connecting to the upstream may take.
    pub connect_timeout: Duration,
}

/// What all sessions of a proxy share.
#[derive(Debug)]
pub struct Shared {
    shapes: Shapes,
    limits: SessionLimits,
    metrics: SessionMetrics,
    cursors: CursorRegistry,
    readiness: Readiness,
    timestamps: Timestamps,
}

impl Shared {
    /// Gathers it.
    #[must_use]
    pub fn new(shapes: Shapes, limits: SessionLimits, metrics: SessionMetrics) -> Self {
        // Every series exists at zero before its first event.
        shapes
            .iter()
            .for_each(|shape| metrics.expect_namespace(&shape.namespace().to_string()));
        Self {
            shapes,
            limits,
            metrics,
            cursors: CursorRegistry::default(),
            readiness: Readiness::default(),
            timestamps: Timestamps::default(),
        }
    }

    /// The handles that sessions count with.
    #[must_use]
    pub fn metrics(&self) -> &SessionMetrics {
        &self.metrics
    }
}
