//! Records and shows the progress of a conversion. None of this makes a conversion fail.

use std::time::{Duration, Instant};

use bson::{DateTime, doc};
use tokio::time::timeout;

use crate::maintenance::convert::Conversion;
use crate::maintenance::convert::changes::{self, Progress};
use crate::maintenance::convert::progress::estimate;
use crate::maintenance::convert::progress::{LastComparison, Stage};
use crate::maintenance::convert::record::Phase;
use crate::pattern::bucket::conversion::record_name;

/// Interval in which the progress is recorded.
const RECORD_EVERY: Duration = Duration::from_secs(2);
/// The longest time that recording takes. A slow server must not delay the conversion.
const MAX_RECORDING: Duration = Duration::from_millis(500);

impl Conversion<'_> {
    /// Estimates the number of documents.
    pub(in crate::maintenance::convert) async fn expect_documents(&mut self) {
        let source = &self.mirror.source;
        let pages = self.target.bucket().filter(|_| !source.is_plain);
        let database = &self.target.database;
        let total = estimate::documents(database, &source.collection, pages).await;
        self.observer.progress.expect(total.unwrap_or_default());
    }

    /// Begins a stage.
    pub(in crate::maintenance::convert) async fn begin(&mut self, stage: Stage) {
        self.observer.progress.begin(stage, Instant::now());
        self.observer.screen.begin(&self.observer.progress);
        self.record_progress().await;
    }

    /// Takes the number of documents that the stage has read.
    pub(in crate::maintenance::convert) async fn advance(&mut self, done: u64) {
        self.observer.progress.advance(done, Instant::now());
        self.show_progress().await;
    }

    /// Takes the result of a comparison.
    pub(in crate::maintenance::convert) fn note_comparison(&mut self, comparison: LastComparison) {
        self.observer.progress.last_comparison = Some(comparison);
    }

    /// Takes note of changes that were read.
    pub(in crate::maintenance::convert) async fn note_read(&mut self, progress: Progress) {
        self.observer.caught_up = (progress == Progress::NoneLeft).then(Instant::now);
        self.show_progress().await;
    }

    /// Takes note that all changes that were read are in the copy.
    pub(in crate::maintenance::convert) fn note_all_applied(&mut self) {
        let until = self.changes.as_ref().and_then(changes::Changes::read_until);
        self.observer.progress.applied_until = until;
    }

    /// Shows and records the progress, if it is time.
    pub(in crate::maintenance::convert) async fn show_progress(&mut self) {
        let line = self.observer.screen.show(&self.observer.progress);
        if let Some(line) = line {
            self.say(line);
        }
        let is_held = self.changes.is_some()
            && (self.record.phase == Phase::Swapping || self.record.phase.after_holding().is_some());
        // Nothing is sent meanwhile that is not necessary, because writers wait.
        if !is_held && self.observer.recorded.elapsed() >= RECORD_EVERY {
            self.record_progress().await;
        }
    }

    /// Records the progress.
    pub(in crate::maintenance::convert) async fn record_progress(&mut self) {
        let recorded = timeout(MAX_RECORDING, async {
            let lag = self.lag_seconds().await;
            self.observer.progress.lag_seconds = lag;
            if self.observer.is_recorded {
                self.write_progress().await;
            }
        });
        // The next one may succeed.
        let _ = recorded.await;
        self.observer.recorded = Instant::now();
    }

    /// The lag in seconds: the server's cluster time minus the time of the last change that was read.
    async fn lag_seconds(&self) -> Option<u64> {
        self.changes.as_ref()?;
        if let Some(at) = self.observer.caught_up {
            return Some(at.elapsed().as_secs());
        }
        let now = changes::cluster_time(self.client).await.ok()??;
        let read = self.since()?;
        Some(u64::from(now.time.saturating_sub(read.time)))
    }

    /// Writes no other field, and creates no record.
    async fn write_progress(&self) {
        let progress = self.observer.progress.document(DateTime::now());
        let command = doc! {
            "update": record_name(&self.target.collection),
            "updates": [{ "q": { "_id": 0 }, "u": { "$set": { "progress": progress } } }],
            "writeConcern": { "w": 1 },
        };
        let _ = self.target.database.run_command(command).await;
    }
}
