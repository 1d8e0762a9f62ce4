//! Ready means: the upstream, of a replica set the primary, answers `hello`, and the proxy is not stopping. Asked at most once a second.

use std::time::Duration;

use bson::doc;
use mongodb::Client;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::telemetry::admin::Readiness;

/// How long the upstream may take to answer, once found or not.
const DEADLINE: Duration = Duration::from_secs(2);
/// How long an answer holds.
const FRESH: Duration = Duration::from_secs(1);

/// Asks the upstream through the driver, without credentials: `hello` needs none.
#[derive(Debug)]
pub(super) struct UpstreamProbe {
    client: Client,
    stopping: CancellationToken,
    /// Held while asking, so that requests at the same time share one answer.
    last: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl UpstreamProbe {
    /// A probe that asks through this client, and is no longer ready once `stopping` is cancelled.
    pub(super) fn new(client: Client, stopping: CancellationToken) -> Self {
        Self {
            client,
            stopping,
            last: Mutex::new(None),
        }
    }

    async fn ask(&self) -> Result<(), String> {
        let admin = self.client.database("admin");
        match timeout(DEADLINE, admin.run_command(doc! { "hello": 1 })).await {
            Ok(Ok(_)) => Ok(()),
            // The driver's own message is long, and names the whole topology.
            Ok(Err(_)) => Err("the upstream cannot be reached".to_owned()),
            Err(_) => Err(format!("the upstream did not answer within {} s", DEADLINE.as_secs())),
        }
    }
}

impl Readiness for UpstreamProbe {
    async fn check(&self) -> Result<(), String> {
        if self.stopping.is_cancelled() {
            return Err("stopping".to_owned());
        }
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
}
