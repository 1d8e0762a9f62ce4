//! Measures the lag of secondaries and the latency of a small read.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bson::{Document, doc};
use mongodb::error::Error;
use mongodb::{Client, Database};

use super::{Load, delayed_members, greatest_lag, median};
use crate::maintenance::upstream::is_refused;

/// The reads whose median counts.
const READS: usize = 5;
/// The fewest reads that have a median: the first one may include the opening of a connection.
const MIN_READS: usize = 3;
/// The interval in which the lag is measured.
const LAG_EVERY: Duration = Duration::from_secs(1);

/// The source of the lag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LagSource {
    Unasked,
    Members,
    /// The server is no replica set, or the user lacks the right.
    None,
}

/// Measures the load of a server.
pub(in crate::maintenance::convert) struct LoadProbe {
    reads: VecDeque<Duration>,
    source: LagSource,
    delayed: Vec<String>,
    lag: Option<Duration>,
    /// The last measurement of the lag.
    measured: Option<Instant>,
}

/// A measurement.
pub(in crate::maintenance::convert) struct LoadMeasurement {
    pub(in crate::maintenance::convert) load: Load,
    /// Whether this measurement was the first that the server refused because of the user's rights.
    pub(in crate::maintenance::convert) is_right_missing: bool,
}

impl LoadProbe {
    pub(in crate::maintenance::convert) fn new() -> Self {
        Self {
            reads: VecDeque::with_capacity(READS),
            source: LagSource::Unasked,
            delayed: Vec::new(),
            lag: None,
            measured: None,
        }
    }

    /// Measures. A server that does not answer has no measurement. `record`: the collection of the small
    /// read, which has one document.
    pub(in crate::maintenance::convert) async fn measure(
        &mut self,
        client: &Client,
        database: &Database,
        record: &str,
    ) -> LoadMeasurement {
        let begun = Instant::now();
        let find = doc! { "find": record, "filter": { "_id": 0 }, "limit": 1, "singleBatch": true };
        if database.run_command(find).await.is_ok() {
            if self.reads.len() == READS {
                self.reads.pop_front();
            }
            self.reads.push_back(begun.elapsed());
        }
        let is_due = self.measured.is_none_or(|at| at.elapsed() >= LAG_EVERY);
        let mut is_right_missing = false;
        if is_due && self.source != LagSource::None {
            is_right_missing = self.measure_lag(client).await;
            self.measured = Some(Instant::now());
        }
        let load = Load {
            lag: self.lag,
            latency: median(self.reads.iter().copied()).filter(|_| self.reads.len() >= MIN_READS),
        };
        LoadMeasurement { load, is_right_missing }
    }

    /// Measures the lag. Returns whether the right is missing.
    async fn measure_lag(&mut self, client: &Client) -> bool {
        let status = admin(client, "replSetGetStatus").await;
        match status {
            Ok(status) => {
                if self.source == LagSource::Unasked {
                    // Without this right, a delayed member counts as one that lags.
                    let config = admin(client, "replSetGetConfig").await;
                    self.delayed = config.map(|config| delayed_members(&config)).unwrap_or_default();
                    self.source = LagSource::Members;
                }
                self.lag = greatest_lag(&status, &self.delayed);
                false
            }
            Err(error) if is_refused(&error) => {
                (self.source, self.lag) = (LagSource::None, None);
                true
            }
            // A standalone reports an error, and an election may end a connection.
            Err(_) => {
                self.lag = None;
                false
            }
        }
    }
}

async fn admin(client: &Client, command: &str) -> Result<Document, Error> {
    client.database("admin").run_command(doc! { command: 1 }).await
}
