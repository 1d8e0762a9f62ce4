//! Items of an update of many whose key or time changes.

use std::collections::VecDeque;

use super::Many;
use super::planned_items::Away;
use super::processed_items::Gone;
use crate::command::error::WriteError;
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::update_by_position::{Elsewhere, Planned};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::key_or_time_change::{self, KeyOrTimeOutcome};
use crate::session::bucket::retry_on_swap::MAX_RUNS;
use crate::session::bucket::update::outcome::UpdateOutcome;
use crate::session::error::RunError;
use crate::session::id_source::SystemIdSource;

impl Many<'_> {
    /// Moves the items that have a new key or time. If the collection is swapped in the meantime,
    /// the remaining ones are moved in the copy.
    pub(super) async fn relocate(&mut self, run: &mut BucketCommand<'_>) -> Result<(), RunError> {
        // All remaining items are before the item that failed.
        let failed = self.sum.failed.take();
        self.relocate_until_none_is_left(run).await?;
        self.sum.failed = self.sum.failed.take().or(failed);
        Ok(())
    }

    async fn relocate_until_none_is_left(&mut self, run: &mut BucketCommand<'_>) -> Result<(), RunError> {
        for _ in 0..MAX_RUNS {
            let mut away: VecDeque<Away> = std::mem::take(&mut self.elsewhere).into();
            if away.is_empty() {
                return Ok(());
            }
            match self.relocate_all(run, &mut away).await {
                Err(RunError::Command(error)) if self.goes_on_after(run, &error) => {
                    let rest: Vec<LocatedItem> = away.into_iter().map(|away| away.found).collect();
                    if let Some(found) = self.find_rest(run, &rest).await? {
                        self.change(run, found).await?;
                    }
                }
                relocated => return relocated,
            }
        }
        self.end_in_part(run);
        Ok(())
    }

    async fn relocate_all(&mut self, run: &mut BucketCommand<'_>, away: &mut VecDeque<Away>) -> Result<(), RunError> {
        let mut gone = Gone::default();
        while let Some(Away { found, to, .. }) = away.front() {
            let (mut found, mut to) = (found.clone(), to.clone());
            gone.close_ranks(&mut found);
            if to.is_none()
                && let Planned::Elsewhere(again) = self.task.plan(run, &found).await?
            {
                to = Some(again);
            }
            let has_left = match to {
                Some(to) => self.go(run, &found, to).await?,
                // The second plan differs, for example because of a random number in the pipeline.
                None => None,
            };
            match has_left {
                Some(true) => gone.add(&found),
                Some(false) => {}
                None => self.again(run, &found).await?,
            }
            if self.sum.failed.is_some() {
                return Ok(());
            }
            away.pop_front();
        }
        Ok(())
    }

    /// Moves one item. Returns whether it left its page. `None`: the item has changed since it was
    /// read.
    pub(super) async fn go(
        &mut self,
        run: &mut BucketCommand<'_>,
        found: &LocatedItem,
        to: Elsewhere,
    ) -> Result<Option<bool>, RunError> {
        match key_or_time_change::change_key_or_time(run, self.task, found, to, true).await? {
            KeyOrTimeOutcome::Stayed(_, answer) => self.sum.add(UpdateOutcome::of_one(answer)),
            KeyOrTimeOutcome::Away(_, answer) => {
                self.sum.add(UpdateOutcome::of_one(answer));
                return Ok(Some(true));
            }
            KeyOrTimeOutcome::Failed(error) => self.sum.failed = Some(error),
            // An update of many is not retryable.
            KeyOrTimeOutcome::Before(_) | KeyOrTimeOutcome::Recorded(_) | KeyOrTimeOutcome::Missed => return Ok(None),
        }
        Ok(Some(false))
    }
}

/// The error of an item with a new key or time that is invalid on any page.
pub(super) fn fails_anywhere(run: &BucketCommand<'_>, to: &Elsewhere) -> Option<WriteError> {
    let mut mint = SystemIdSource::new(&run.context.shared.timestamps);
    let item = to.clone().into_item();
    Item::prepare(run.shape, 0, &item, &mut mint).err()
}
