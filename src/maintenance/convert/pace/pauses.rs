//! Pauses a conversion, so that applications and secondaries are not slowed down.

use std::time::Duration;

use tokio::time::sleep;

use crate::maintenance::convert::Conversion;
use crate::maintenance::swap::Halt;
use crate::pattern::bucket::conversion::record_name;

/// The interval in which an exceeded limit is measured again.
const MEASURE_EVERY: Duration = Duration::from_millis(500);

impl Conversion<'_> {
    /// Pauses so that not more documents are read in a second than permitted. `documents`: of the last batch.
    ///
    /// # Errors
    /// If the command is stopped meanwhile.
    pub(in crate::maintenance::convert) async fn keep_rate(&mut self, documents: usize) -> Result<(), Halt> {
        let pause = self.throttle.pause(documents);
        self.rest(pause).await?;
        self.throttle.begin();
        Ok(())
    }

    /// Waits until neither the lag of a secondary nor the duration of a small read exceeds its limit.
    ///
    /// # Errors
    /// If the command is stopped meanwhile.
    pub(in crate::maintenance::convert) async fn wait_for_server(&mut self) -> Result<(), Halt> {
        let record = record_name(&self.target.collection);
        loop {
            let measured = self.throttle.probe.measure(self.client, &self.target.database, &record);
            let measured = measured.await;
            if measured.is_right_missing {
                self.say(
                    "the user must not read the lag of secondaries, so --max-lag has no effect: grant it replSetGetStatus, as the role \
                     clusterMonitor does",
                );
            }
            let exceeded = self.throttle.limits.exceeded(measured.load);
            self.observer.progress.paused = exceeded.map(|limit| limit.to_string());
            if exceeded.is_none() {
                return Ok(());
            }
            self.show_progress().await;
            self.rest(MEASURE_EVERY).await?;
        }
    }

    /// Leaves time to the applications. `took`: the time of the batch.
    ///
    /// # Errors
    /// If the command is stopped meanwhile.
    pub(in crate::maintenance::convert) async fn leave_time(&self, took: Duration) -> Result<(), Halt> {
        if self.changes.is_none() {
            return Ok(());
        }
        self.rest(self.throttle.limits.pause_by_share(took)).await
    }

    /// Pauses, and ends the run if it is stopped.
    pub(in crate::maintenance::convert) async fn rest(&self, pause: Duration) -> Result<(), Halt> {
        let rested = self.stop.run_until_cancelled(sleep(pause)).await;
        rested.ok_or(Halt::Stopped)
    }
}
