//! Holds writers that are faster than their changes are applied.

use std::time::{Duration, Instant};

use super::Conversion;
use super::follow::Deadline;
use super::record::Phase;
use crate::maintenance::swap::{Frozen, Halt, Retry};
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
        let frozen = self.fenced().await?;
        self.enter(held).await?;
        let deadline = self.longest_hold();
        let done = match frozen.freeze(self.stop).await {
            Ok(()) if is_copying => self.collect_within(deadline).await,
            Ok(()) => self.catch_up_within(deadline).await,
            Err(halt) => {
                // It may still arrive.
                self.end_fence().await?;
                self.enter(then).await?;
                return Err(halt);
            }
        };
        self.release(&frozen, then).await?;
        done.map(drop)
    }

    /// Prepares to freeze the collection. The fence is put up once in a run, because mongod reads the whole
    /// collection for it.
    pub(super) async fn fenced(&mut self) -> Result<Frozen<'a>, Halt> {
        let frozen = if let Some(frozen) = &self.fence {
            frozen.renewed().await?
        } else {
            let by = self.by();
            let described = description(&by.target.database, &by.target.collection).await?;
            let described = described.ok_or_else(|| Halt::Words("another program dropped it".to_owned()))?;
            Frozen::fence(by, &described, self.stop).await?
        };
        self.fence = Some(frozen.clone());
        Ok(frozen)
    }

    /// Thaws the collection if it is frozen, and drops the fence. Writers wait for it, so it is repeated
    /// while no server is available.
    pub(super) async fn end_fence(&mut self) -> Result<(), Halt> {
        let mut retry = Retry::new(self.client);
        while let Err(failure) = self.try_to_end_fence().await {
            retry.after(failure).await?;
        }
        Ok(())
    }

    /// The same in one attempt.
    pub(super) async fn try_to_end_fence(&mut self) -> Result<(), Halt> {
        if let Some(frozen) = &self.fence {
            frozen.thaw().await?;
            self.fence = None;
        }
        Ok(())
    }

    /// Lets writers go on. `then`: the phase that goes on.
    pub(super) async fn release(&mut self, frozen: &Frozen<'_>, then: Phase) -> Result<(), Halt> {
        let begun = Instant::now();
        if frozen.thaw_for_now().await.is_err() {
            self.end_fence().await?;
        }
        self.last_thaw = begun.elapsed();
        self.released = Some(Instant::now());
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
            Deadline::of_hold(MAX_WAIT.saturating_sub(self.last_thaw))
        } else {
            Deadline::NONE
        }
    }
}
