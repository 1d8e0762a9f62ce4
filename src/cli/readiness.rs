//! Readiness: the upstream (for a replica set, the primary) replies to `hello`, the collections fit their
//! shapes, and the proxy is not stopping. `hello` is sent at most once a second.

use std::time::Duration;

use bson::doc;
use mongodb::Client;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::maintenance::shape_fit::{Fit, SharedFit};
use crate::telemetry::admin::ReadinessProbe;

/// Time limit for selecting the upstream and for its reply.
const DEADLINE: Duration = Duration::from_secs(2);
/// The time for which a result is cached.
const FRESH: Duration = Duration::from_secs(1);

/// Sends `hello` to the upstream through the driver, without credentials, because `hello` requires none.
#[derive(Debug)]
pub(super) struct UpstreamProbe {
    client: Client,
    stopping: CancellationToken,
    fit: SharedFit,
    /// Locked during a request, so that concurrent requests share one result.
    last: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl UpstreamProbe {
    /// A probe with this client. Not ready while `fit` has misfits, or after `stopping` is
    /// cancelled.
    pub(super) fn new(client: Client, stopping: CancellationToken, fit: SharedFit) -> Self {
        Self {
            client,
            stopping,
            fit,
            last: Mutex::new(None),
        }
    }

    async fn upstream(&self) -> Result<(), String> {
        let mut last = self.last.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < FRESH
        {
            return answer.clone();
        }
        let answer = self.ask().await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }

    async fn ask(&self) -> Result<(), String> {
        let admin = self.client.database("admin");
        match timeout(DEADLINE, admin.run_command(doc! { "hello": 1 })).await {
            Ok(Ok(_)) => Ok(()),
            // The driver's message is long and describes the whole topology.
            Ok(Err(_)) => Err("the upstream cannot be reached".to_owned()),
            Err(_) => Err(format!("the upstream did not answer within {} s", DEADLINE.as_secs())),
        }
    }
}

impl ReadinessProbe for UpstreamProbe {
    async fn check(&self) -> Result<(), String> {
        if self.stopping.is_cancelled() {
            return Err("stopping".to_owned());
        }
        self.upstream().await?;
        match &**self.fit.load() {
            Fit::Fits => Ok(()),
            Fit::Unknown => Err("the shapes have not been compared with the collections yet".to_owned()),
            // `/readyz` requires no token, so names of collections are only logged.
            Fit::Misfits(_) => Err("a collection does not have its shape; the log has the reason".to_owned()),
        }
    }
}
