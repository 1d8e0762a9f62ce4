//! Shadow mode, in the background of `serve`: executes relayed reads again, on the collection and on its copy
//! in pages, and counts and logs what differs.
//!
//! The task reads with the credentials of `upstream.uri`, one read at a time. Of a client's read, the log has
//! the names of fields or stages, never values. See
//! `docs/decisions/0044-shadow-reads-are-compared-in-the-background.md`.

mod answer;
mod command;
mod comparison;
mod copies;
mod defined_result;
mod log;

use std::sync::Arc;

use mongodb::Client;
use mongodb::error::Error;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::comparison::{FirstReads, Outcome, ReadTimes, ShadowComparison, is_current};
use self::copies::Copies;
use self::log::ComparisonLog;
use super::background::{LastError, OnDemandClient};
use super::convert::ShadowCopy;
use crate::config::Config;
use crate::session::metrics::{ShadowLayout, ShadowMetrics, ShadowResult};
use crate::session::shadow::ShadowRead;

/// The most reads whose different results are confirmed at the same time. Each waits for the copy most of the
/// time.
const MAX_CONFIRMATIONS: usize = 8;

/// The task.
pub(crate) struct ShadowReads {
    /// The server and the credentials, and the limits of the proxy that reads the copies.
    pub(crate) config: Config,
    pub(crate) metrics: ShadowMetrics,
    /// The reads that sessions have chosen.
    pub(crate) queue: Receiver<ShadowRead>,
    pub(crate) stop: CancellationToken,
}

/// The connections and the memory of the task.
#[derive(Default)]
struct TaskState {
    direct: OnDemandClient,
    copies: Copies,
    confirmations: JoinSet<Compared>,
    log: ComparisonLog,
    last_error: LastError,
}

/// The end of a comparison.
struct Compared {
    read: Arc<ShadowRead>,
    times: ReadTimes,
    outcome: Result<Outcome, Error>,
}

impl ShadowReads {
    /// Compares until the proxy stops.
    pub(crate) async fn run(mut self) {
        let mut state = TaskState::default();
        let stop = self.stop.clone();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(Ok(compared)) = state.confirmations.join_next() => self.end(compared, &mut state),
                read = self.queue.recv() => {
                    let Some(read) = read else { break };
                    tokio::select! {
                        () = self.handle(Arc::new(read), &mut state) => {}
                        () = stop.cancelled() => break,
                    }
                }
            }
        }
        state.confirmations.shutdown().await;
        state.copies.stop().await;
        state.direct.close().await;
    }

    /// Compares a read. A difference is confirmed in the background.
    async fn handle(&self, read: Arc<ShadowRead>, state: &mut TaskState) {
        let comparison = match self.comparison(&read, state).await {
            Ok(Some(comparison)) => comparison,
            Ok(None) => return self.count(&read, ShadowResult::Behind),
            Err(error) => return self.fail(&read, &error, state),
        };
        let FirstReads { outcome, times } = match comparison.first().await {
            Ok(first) => first,
            Err(error) => return self.fail(&read, &error.into(), state),
        };
        if outcome.code.is_none() {
            self.metrics.took(&read.configured, ShadowLayout::Plain, times.plain);
            self.metrics.took(&read.configured, ShadowLayout::Pages, times.pages);
        }
        if !outcome.may_be_late() {
            let outcome = Ok(outcome);
            self.end(Compared { read, times, outcome }, state);
        } else if state.confirmations.len() < MAX_CONFIRMATIONS {
            state.confirmations.spawn(async move {
                let outcome = comparison.confirmed().await;
                Compared { read, times, outcome }
            });
        } else {
            self.count(&read, ShadowResult::Dropped);
        }
    }

    /// `None`: there is no copy that is up to date.
    async fn comparison(
        &self,
        read: &Arc<ShadowRead>,
        state: &mut TaskState,
    ) -> anyhow::Result<Option<ShadowComparison>> {
        let Some(direct) = state.direct.get(&self.config.upstream).await else {
            anyhow::bail!("the upstream is not available");
        };
        let Some(copy) = current_copy(direct, read).await? else {
            return Ok(None);
        };
        Ok(Some(ShadowComparison {
            direct: direct.clone(),
            pages: state.copies.client(&self.config, &copy).await?,
            read: Arc::clone(read),
            copy,
        }))
    }

    fn end(&self, compared: Compared, state: &mut TaskState) {
        let Compared { read, times, outcome } = compared;
        match outcome {
            Ok(outcome) => {
                state.last_error.replace(None);
                state.log.add(&read, outcome, times);
                self.count(&read, outcome.result);
            }
            Err(error) => self.fail(&read, &error.into(), state),
        }
    }

    fn fail(&self, read: &ShadowRead, error: &anyhow::Error, state: &mut TaskState) {
        if let Some(reason) = state.last_error.replace(Some(format!("{error:#}"))) {
            tracing::info!(reason, "reads cannot be compared with the copy in pages");
        }
        self.count(read, ShadowResult::Dropped);
    }

    fn count(&self, read: &ShadowRead, result: ShadowResult) {
        self.metrics.read(&read.configured, read.command, result);
    }
}

async fn current_copy(direct: &Client, read: &ShadowRead) -> anyhow::Result<Option<ShadowCopy>> {
    let database = direct.database(&read.database);
    let Some(copy) = ShadowCopy::read(&database, &read.collection).await? else {
        return Ok(None);
    };
    Ok(is_current(direct, &copy).await?.then_some(copy))
}
