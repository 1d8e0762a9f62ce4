//! Holds writers that are faster than their changes are applied.

use std::time::{Duration, Instant};

use super::Conversion;
use super::follow::Deadline;
use super::record::Phase;
use crate::maintenance::swap::{Frozen, Halt};
use crate::maintenance::upstream::description;

/// The longest time for which writers should wait, from the beginning of the freeze to the end of the thaw.
const MAX_WAIT: Duration = Duration::from_millis(350);

impl<'a> Conversion<'a> {
    /// Applies changes while writers wait. While documents are copied, only reads them.
    pub(super) async fn hold(&mut self) -> Result<(), Halt> {
        let is_copying = self.record.phase == Phase::Copying;
        let (held, then) = if is_copying {
            (Phase::HoldingCopying, Phase::Copying)
        } else {
            (Phase::Holding, Phase::Following)
        };
        let frozen = self.fence(held).await?;
        let deadline = self.longest_hold();
        let done = match frozen.freeze(self.stop).await {
            Ok(()) if is_copying => self.collect_within(deadline).await,
            Ok(()) => self.catch_up_within(deadline).await,
            Err(halt) => Err(halt),
        };
        self.release(&frozen, then).await?;
        done.map(drop)
    }

    /// Records the phase, and prepares to freeze the collection.
    pub(super) async fn fence(&mut self, phase: Phase) -> Result<Frozen<'a>, Halt> {
        let by = self.by();
        let Some(described) = description(&by.target.database, &by.target.collection).await? else {
            return Err(Halt::Words("another program dropped it".to_owned()));
        };
        let before = self.record.phase;
        self.enter(phase).await?;
        let fenced = Frozen::fence(by, &described, self.stop).await;
        if fenced.is_err() {
            self.enter(before).await?;
        }
        fenced
    }

    /// Lets writers go on. `then`: the phase that goes on.
    pub(super) async fn release(&mut self, frozen: &Frozen<'_>, then: Phase) -> Result<(), Halt> {
        let begun = Instant::now();
        frozen.thaw().await?;
        self.last_thaw = begun.elapsed();
        if self.holds == 0 {
            self.say("writers are faster than their changes are applied: they are held for short times");
        }
        self.holds += 1;
        self.enter(then).await
    }

    /// The time up to which changes may be applied if the collection is frozen now: the thaw will take as
    /// long as the last one. Other writers than clients of proxies would get an error.
    pub(super) fn longest_hold(&self) -> Deadline {
        if self.may_hold {
            Deadline::after(MAX_WAIT.saturating_sub(self.last_thaw))
        } else {
            Deadline::NONE
        }
    }
}
