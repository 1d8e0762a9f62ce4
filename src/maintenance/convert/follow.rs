//! Applies the changes of the collection to its copy, until few are left.

use std::time::{Duration, Instant};

use bson::Timestamp;
use futures_util::future::try_join;
use tokio::time::timeout;

use super::Conversion;
use super::backlog::{Backlog, FEW, Remaining};
use super::changes::{self, ChangeBatch, Progress, ReadLimits};
use super::ids::Ids;
use super::record::Phase;
use crate::maintenance::swap::Halt;

/// Interval in which the position in the change stream is recorded.
const RECORD_EVERY: Duration = Duration::from_secs(2);
/// Interval in which changes are read, so that the oplog does not lose them.
const READ_EVERY: Duration = Duration::from_secs(3);
/// Interval in which changes are applied if nothing waits for them, and the number of changed documents that
/// are applied earlier. Changes of one page, and repeated changes of a document, cost as much as one.
const APPLY_EVERY: Duration = Duration::from_secs(30);
const APPLY_AT: usize = 50_000;
/// The longest time for which changes are applied, and changed documents compared, between two batches of
/// documents that are compared.
const MAX_FOLLOW: Duration = Duration::from_secs(9);
/// The most changes that are read before they are applied: about 100 MiB.
const MAX_COLLECTED: usize = 500_000;
/// The longest time for which a document is refused by a unique index of the copy although no changes are
/// left.
const MAX_REFUSED: Duration = Duration::from_secs(10);
/// The longest expected time for the changes that are left when writers are stopped.
const MAX_REST: Duration = Duration::from_millis(300);
/// The changes that are applied together while writers wait: they also wait for the last group. So many are
/// also applied if the time of a hold is over: another hold would take longer.
const IN_HOLD: usize = 500;
/// The shortest time for which changes are read, also after the limit: on a slow server, a freeze alone may
/// take longer than writers should wait.
const MIN_READ: Duration = Duration::from_millis(100);
/// The longest time for which changes are applied before writers are held, and how often it is halved.
const MAX_APPROACH: Duration = Duration::from_secs(5);
const MAX_SHORTER: u32 = 3;
/// The shortest time between two holds, in which each write that was held is executed: else it would wait
/// twice.
const MIN_BETWEEN: Duration = Duration::from_millis(600);

/// A limit of the time in which changes are read and applied.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    /// `None`: there is no limit.
    end: Option<Instant>,
    /// Whether writers wait until then.
    is_hold: bool,
}

impl Deadline {
    pub(super) const NONE: Self = Self {
        end: None,
        is_hold: false,
    };

    fn after(time: Duration) -> Self {
        Self {
            end: Instant::now().checked_add(time),
            ..Self::NONE
        }
    }

    /// The limit between two batches of documents that are compared.
    pub(super) fn between_batches() -> Self {
        Self::after(MAX_FOLLOW)
    }

    /// A limit after this time, and writers wait meanwhile.
    pub(super) fn of_hold(time: Duration) -> Self {
        Self {
            is_hold: true,
            ..Self::after(time)
        }
    }

    fn is_over(self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// The number of changes that are applied together.
    fn group(self) -> usize {
        if self.is_hold { IN_HOLD } else { changes::MAX_IDS }
    }

    /// The limits of a read of changes up to a time.
    fn limits(self, until: Option<Timestamp>) -> ReadLimits {
        let left = |end: Instant| end.saturating_duration_since(Instant::now());
        let duration = self.end.map_or(changes::MAX_READ, left);
        let duration = duration.clamp(MIN_READ, changes::MAX_READ);
        ReadLimits { until, duration }
    }
}

impl Conversion<'_> {
    /// The earliest time of the state that may be read: after a failover, a new primary may return an older
    /// state.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.last.max(self.opened)
    }

    /// Applies changes until the run is stopped.
    pub(super) async fn keep_up(&mut self) -> Result<(), Halt> {
        self.catch_up_within(Deadline::NONE).await?;
        let collection = if self.record.is_way_back() {
            "the former collection"
        } else {
            "the copy"
        };
        self.say(format!(
            "{collection} is up to date; later changes are applied to it until this command is stopped"
        ));
        while !self.stop.is_cancelled() {
            self.apply_or_hold().await?;
            // Proxies compare reads with a copy that is up to date.
            self.record_progress().await;
            // `--back` compares all documents.
            self.touched = Ids::default();
            let _ = timeout(READ_EVERY, self.stop.cancelled()).await;
        }
        Ok(())
    }

    /// Reads changes, and applies them if they are many or old.
    pub(super) async fn follow_if_due(&mut self) -> Result<(), Halt> {
        if self.pending.len() < APPLY_AT && self.applied.elapsed() < APPLY_EVERY {
            return self.collect_if_due().await;
        }
        self.apply_or_hold().await
    }

    /// Applies changes for some time. Once all documents are copied, slows writers if they are faster.
    async fn apply_or_hold(&mut self) -> Result<(), Halt> {
        let before = self.backlog().await?;
        if self.catch_up_within(Deadline::between_batches()).await? {
            self.shorten_write_delay();
            return Ok(());
        }
        let trend = self.backlog().await?.trend(before);
        if self.record.phase == Phase::Following && !self.slow_writers(trend).await {
            Box::pin(self.hold()).await?;
        }
        Ok(())
    }

    /// Applies pending changes, and reads the next ones meanwhile. `until`: the time up to which they are
    /// read.
    pub(super) async fn follow(&mut self, until: Option<Timestamp>, deadline: Deadline) -> Result<Progress, Halt> {
        if self.stop.is_cancelled() && !self.is_renamed {
            return Err(Halt::Stopped);
        }
        let since = self.since();
        let Some(changes) = self.changes.as_mut().filter(|_| !self.is_renamed) else {
            return Ok(Progress::NoneLeft);
        };
        let position = changes.position();
        let pending = self.pending.split(deadline.group());
        let may_read = self.pending.len() < MAX_COLLECTED;
        let limits = deadline.limits(until);
        let read = async {
            if may_read {
                changes.next(limits).await
            } else {
                Ok(ChangeBatch::default())
            }
        };
        let (batch, refused) = try_join(read, self.mirror.apply(pending, since)).await?;
        self.read = Instant::now();
        self.applied = self.read;
        self.pending.extend(refused);
        // A resumed run would not know the documents that are pending.
        let may_record = self.pending.is_empty() && self.record.phase == Phase::Following;
        self.end_with(&batch).await?;
        if may_record && !self.is_renamed && self.recorded.elapsed() >= RECORD_EVERY {
            self.recorded = Instant::now();
            self.record.token = position;
            self.enter(self.record.phase).await?;
        }
        Ok(self.take(batch).await)
    }

    /// Whether all changes up to a time were read.
    fn has_read(&self, progress: Progress, until: Option<Timestamp>) -> bool {
        progress == Progress::NoneLeft || (until.is_some() && self.last > until)
    }

    /// Adds changes to those that are not applied yet.
    async fn take(&mut self, batch: ChangeBatch) -> Progress {
        self.last = batch.last.or(self.last);
        self.touched.extend(batch.ids.clone());
        self.pending.extend(batch.ids);
        self.note_read(batch.progress).await;
        batch.progress
    }

    /// Reads changes, and slows writers if they are faster.
    pub(super) async fn collect_if_due(&mut self) -> Result<(), Halt> {
        if self.read.elapsed() < READ_EVERY {
            return Ok(());
        }
        let mut before = self.backlog().await?;
        while !self.collect_within(self.patience()).await? {
            let after = self.backlog().await?;
            if !self.slow_writers(after.trend_of_reads(before)).await {
                Box::pin(self.hold()).await?;
            }
            before = after;
        }
        if self.record.phase == Phase::Copying {
            self.shorten_write_delay();
        }
        self.read = Instant::now();
        Ok(())
    }

    /// Reads all changes that exist now. Returns whether all were read in time.
    pub(super) async fn collect_within(&mut self, deadline: Deadline) -> Result<bool, Halt> {
        let now = changes::cluster_time(self.client).await?;
        while let Some(changes) = self.changes.as_mut().filter(|_| self.pending.len() < MAX_COLLECTED) {
            let batch = changes.next(deadline.limits(now)).await?;
            self.end_with(&batch).await?;
            let progress = self.take(batch).await;
            if self.has_read(progress, now) {
                break;
            }
            if deadline.is_over() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Applies a group of pending changes. Returns whether a unique index refuses one, which is pending then.
    pub(super) async fn apply_pending(&mut self, deadline: Deadline) -> Result<bool, Halt> {
        let pending = self.pending.split(deadline.group());
        let refused = self.mirror.apply(pending, self.since()).await?;
        let is_refused = !refused.is_empty();
        self.pending.extend(refused);
        self.applied = Instant::now();
        Ok(is_refused)
    }

    /// Takes note of the end of the stream. The event of an earlier swap that was given up is not the end:
    /// the position is from before it.
    pub(super) async fn end_with(&mut self, batch: &ChangeBatch) -> Result<(), Halt> {
        if batch.is_renamed && (self.renamed_since.is_none() || batch.last < self.renamed_since) {
            self.record.token = None;
            self.enter(Phase::Copying).await?;
            let words = "its changes were read from before a rename; run again";
            return Err(Halt::Words(words.to_owned()));
        }
        self.is_renamed = batch.is_renamed;
        Ok(())
    }

    /// Applies all changes that exist now. Returns whether all were applied in time.
    pub(super) async fn catch_up_within(&mut self, deadline: Deadline) -> Result<bool, Halt> {
        if self.changes.is_none() {
            return Ok(true);
        }
        let now = changes::cluster_time(self.client).await?;
        let mut is_read = false;
        loop {
            // While writers wait, there are no further changes, and a read waits for them in vain.
            if !is_read || !deadline.is_hold {
                let progress = self.follow(now, deadline).await?;
                is_read = self.has_read(progress, now);
            }
            let is_refused = is_read && self.apply_pending(deadline).await?;
            if is_read {
                self.note_refused(is_refused)?;
            }
            if is_read && self.pending.is_empty() {
                self.note_all_applied();
                return Ok(true);
            }
            let is_last_group = deadline.is_hold && is_read && !is_refused && self.pending.len() <= IN_HOLD;
            if deadline.is_over() && !is_last_group {
                return Ok(false);
            }
            let behind = now.map_or(0, |now| {
                now.time.saturating_sub(self.last.map_or(now.time, |last| last.time))
            });
            self.report(format!("applies changes, {behind} s behind"));
        }
    }

    /// Takes note of whether a unique index of the copy has refused a document. Fails if it has for some time.
    fn note_refused(&mut self, is_refused: bool) -> Result<(), Halt> {
        if !is_refused {
            self.refused_since = None;
            return Ok(());
        }
        if self.refused_since.get_or_insert_with(Instant::now).elapsed() <= MAX_REFUSED {
            return Ok(());
        }
        Err(Halt::Words(format!(
            "a unique index of the copy refuses {} documents, which are in the collection; run again",
            self.pending.len()
        )))
    }

    /// Applies all changes that exist now. Slows writers if they are faster, and holds them for short times if
    /// that is not enough.
    pub(super) async fn converge(&mut self) -> Result<(), Halt> {
        let mut before = self.backlog().await?;
        while !self.catch_up_within(self.patience()).await? {
            let after = self.backlog().await?;
            if !self.slow_writers(after.trend(before)).await {
                Box::pin(self.hold()).await?;
            }
            before = after;
        }
        Ok(())
    }

    async fn backlog(&self) -> Result<Backlog, Halt> {
        let now = changes::cluster_time(self.client).await?;
        let unread = now
            .zip(self.last)
            .map_or(0, |(now, last)| now.time.saturating_sub(last.time));
        Ok(Backlog {
            pending: self.pending.len(),
            unread: Duration::from_secs(u64::from(unread)),
        })
    }

    async fn remaining(&self) -> Result<Remaining, Halt> {
        Ok(Remaining {
            backlog: self.backlog().await?,
            touched: self.touched.len(),
        })
    }

    /// Applies changes and compares the changed documents, until the remaining ones take a short time. Ends
    /// earlier if writers are faster in spite of a delay: then they are held while changes are applied.
    pub(super) async fn approach(&mut self) -> Result<(), Halt> {
        let mut deadline = self.patience();
        let mut before = self.remaining().await?;
        loop {
            let (begun, last) = (Instant::now(), self.last);
            let is_caught_up = self.catch_up_within(deadline).await?;
            let is_rested = self.released.is_none_or(|released| released.elapsed() >= MIN_BETWEEN);
            // To a distant server, a read of no changes may take longer.
            let takes_short = begun.elapsed() <= MAX_REST || self.last == last;
            if is_caught_up && is_rested && takes_short && self.touched.len() <= FEW {
                return Ok(());
            }
            if is_caught_up && self.compare_touched(deadline).await? && !deadline.is_over() {
                continue;
            }
            if self.touched.len() > FEW {
                self.compare_within(self.patience()).await?;
            }
            let after = self.remaining().await?;
            if !self.slow_writers(after.trend(before, is_caught_up)).await {
                return Ok(());
            }
            before = after;
            deadline = self.patience();
        }
    }

    /// The time for which writers may be faster before they are held: each time a shorter one.
    fn patience(&self) -> Deadline {
        if self.may_hold {
            Deadline::after(MAX_APPROACH / (1 << self.holds.min(MAX_SHORTER)))
        } else {
            Deadline::NONE
        }
    }

    /// Applies changes, and compares the documents that changed since the comparison began. Returns whether all
    /// were applied and compared in time.
    pub(super) async fn compare_touched(&mut self, deadline: Deadline) -> Result<bool, Halt> {
        let is_caught_up = self.catch_up_within(deadline).await?;
        Ok(self.compare_within(deadline).await? && is_caught_up)
    }

    /// Compares the documents that changed since the comparison began. Those that differ may have changed
    /// meanwhile, and are compared again later. Returns whether all were compared in time.
    async fn compare_within(&mut self, deadline: Deadline) -> Result<bool, Halt> {
        let mut touched = std::mem::take(&mut self.touched);
        let mut differing = Ids::default();
        while !touched.is_empty() {
            let is_last_part = deadline.is_hold && touched.len() <= FEW;
            if deadline.is_over() && !is_last_part {
                break;
            }
            let part = touched.split(FEW);
            differing.extend(self.mirror.differing(&part, self.since()).await?);
        }
        let is_compared = touched.is_empty();
        self.touched.extend(touched);
        self.touched.extend(differing);
        Ok(is_compared)
    }
}
