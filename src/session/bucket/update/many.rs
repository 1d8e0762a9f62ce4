//! An update of all matching items.
//!
//! Items are read in batches. An item is processed once: if the cursor returns it again, because an index
//! has changed or because the item was moved to another page meanwhile, it is skipped. An item that was
//! changed concurrently is located again, and skipped if it no longer matches.
//!
//! The update ends with the first item that fails: items before it are changed, items after it are not. So
//! statements are sent in ordered commands, in which mongod stops at the first failure
//! (`docs/decisions/0021-a-multi-update-ends-with-its-first-failure.md`).

mod moved_items;
mod ordered_statements;
mod planned_items;
mod processed_items;

use std::collections::VecDeque;

use bson::raw::RawBsonRef;

use self::moved_items::fails_anywhere;
use self::planned_items::{Away, ItemStatement, PlanMemory, statement, together};
use self::processed_items::ProcessedItems;
use super::find_again::{FoundAgain, find_again, find_all_again};
use super::one::none_matched;
use super::outcome::UpdateOutcome;
use super::statement::send;

use crate::command::document::get;
use crate::command::error::{CommandError, WriteError};
use crate::pattern::bucket::insert::is_too_large;
use crate::pattern::bucket::item_index::is_simple;
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::update_by_position::{Elsewhere, Planned, Positional, Wish};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;

use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::failed_update::FailedUpdate;
use crate::session::bucket::item_lookup::Matches;
use crate::session::bucket::item_update::{ItemUpdate, given_up, in_words_of_the_application};
use crate::session::bucket::relocate::check_key_change;
use crate::session::bucket::retry_on_swap::{MAX_RUNS, is_swap_error, is_swap_write_error, updated_in_part, wait};
use crate::session::bucket::{room, write_concern};
use crate::session::metrics::RefusalReason;
use crate::session::upstream::UpstreamKind;

/// Bytes of items held in memory before the first is changed.
const MAX_BYTES: usize = 64 << 20;

pub(super) async fn run(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
    upserts: bool,
    validated: UpdateOutcome,
) -> Result<UpdateOutcome, RunError> {
    if run.is_sharded()
        && task
            .asked
            .collation
            .is_some_and(|collation| !is_simple(RawBsonRef::Document(collation)))
    {
        // A mongos targets no statement on one page by a text under another collation.
        let what = "an update of many items of a sharded collection under a collation";
        return Err(run.refuse(RefusalReason::Cluster, what).into());
    }
    let known_concern = get(run.context.head.body(), "writeConcern").is_some();
    let mut many = Many {
        at_once: known_concern && run.context.upstream == UpstreamKind::Member && !run.context.head.in_transaction(),
        sum: validated,
        elsewhere: Vec::new(),
        fails: None,
        removed: VecDeque::new(),
        task,
    };
    match many.all(run, upserts).await {
        Err(RunError::Command(error))
            if is_swap_error(&error) && !run.context.head.in_transaction() && many.sum.modified > 0 =>
        {
            many.end_in_part(run);
        }
        Ok(Some(outcome)) => return Ok(outcome),
        done => drop(done?),
    }
    many.end(run).await
}
/// Whether the update can be refused because of an item's content. Then all items are planned
/// before the first is changed.
fn may_be_refused(task: &ItemUpdate<'_>) -> bool {
    match Wish::of(task.asked.change) {
        Some(Wish::Operators(operators)) => {
            get(operators, "$rename").is_some() || !matches!(Positional::of(operators), Ok(None))
        }
        _ => true,
    }
}

struct Many<'t> {
    task: &'t ItemUpdate<'t>,
    /// Whether one wait at the end replaces the write concern of each command.
    at_once: bool,
    sum: UpdateOutcome,
    /// Items with a new key or time. They are moved after all items are read, because the cursor
    /// could return them again.
    elsewhere: Vec<Away>,
    /// The error of the first item that cannot be changed. Items before it are still changed.
    fails: Option<WriteError>,
    /// Items whose statements matched no bucket, and that must be located again.
    removed: VecDeque<LocatedItem>,
}

impl Many<'_> {
    /// Changes all matching items. Returns the outcome of the upsert if nothing matched.
    async fn all(&mut self, run: &mut BucketCommand<'_>, upserts: bool) -> Result<Option<UpdateOutcome>, RunError> {
        let mut matches = Matches::of(run, self.task.wanted()).await?;
        let mut processed = ProcessedItems::default();
        let mut kept: Vec<LocatedItem> = Vec::new();
        let mut bytes = 0_usize;
        while let Some(batch) = matches.next_batch(run).await? {
            for found in batch {
                if processed.add(run.shape, &found) {
                    bytes = bytes.saturating_add(found.bytes());
                    kept.push(found);
                }
            }
            if bytes > MAX_BYTES {
                if may_be_refused(self.task) || self.task.may_relocate(run.shape) {
                    matches.close(run).await?;
                    let what =
                        format!("an update of more than {MAX_BYTES} bytes of items that may each be refused or move");
                    return Err(run.unsupported(&what).into());
                }
                self.change(run, std::mem::take(&mut kept)).await?;
                bytes = 0;
                if self.has_failed() {
                    matches.close(run).await?;
                    return Ok(None);
                }
            }
        }
        self.change(run, kept).await?;
        self.relocate(run).await?;
        // Other writers may have changed all items that it located, so that none matches any more.
        if upserts && self.sum.matched == 0 && !self.has_failed() {
            // If another writer inserted the item in the meantime, the update is executed again and
            // matches it.
            return match none_matched(run, self.task, true, &self.sum).await? {
                Some(outcome) => Ok(Some(outcome)),
                None => Box::pin(self.all(run, upserts)).await,
            };
        }
        Ok(None)
    }

    fn has_failed(&self) -> bool {
        self.fails.is_some() || self.sum.failed.is_some()
    }

    /// Plans all items, then changes them. If the collection is swapped in the meantime, the
    /// remaining items are changed in the copy.
    async fn change(&mut self, run: &mut BucketCommand<'_>, found: Vec<LocatedItem>) -> Result<(), RunError> {
        let mut rest = self.change_until_replaced(run, found).await?;
        for _ in 0..MAX_RUNS {
            if rest.is_empty() {
                return Ok(());
            }
            rest.extend(std::mem::take(&mut self.elsewhere).into_iter().map(|away| away.found));
            rest = match self.find_rest(run, &rest).await? {
                Some(found) => self.change_until_replaced(run, found).await?,
                None => Vec::new(),
            };
        }
        if !rest.is_empty() {
            self.end_in_part(run);
        }
        Ok(())
    }

    /// Changes items. Returns those that were not changed because the collection was swapped.
    async fn change_until_replaced(
        &mut self,
        run: &mut BucketCommand<'_>,
        found: Vec<LocatedItem>,
    ) -> Result<Vec<LocatedItem>, RunError> {
        let mut steps = self.plan(run, found).await?;
        if self.fails.is_some() && run.context.head.in_transaction() {
            // The error ends the transaction, so no change of it is kept.
            self.elsewhere.clear();
            return Ok(Vec::new());
        }
        if self.elsewhere.iter().any(|away| away.changes_key) {
            check_key_change(run)?;
        }
        let mut done = 0;
        match self.send(run, &mut steps, &mut done).await {
            Err(RunError::Command(error)) if self.goes_on_after(run, &error) => {
                let unsent = steps.into_iter().skip(done).map(|step| step.found);
                Ok(std::mem::take(&mut self.removed).into_iter().chain(unsent).collect())
            }
            sent => sent.map(|()| Vec::new()),
        }
    }

    /// Whether the error is due to a swap, and the remaining items may be changed in the copy.
    fn goes_on_after(&self, run: &BucketCommand<'_>, error: &CommandError) -> bool {
        is_swap_error(error) && !run.context.head.in_transaction() && self.sum.failed.is_none()
    }

    /// Waits for the copy and locates the items in it. `None`: an item cannot be identified, and
    /// the update has ended with an error.
    async fn find_rest(
        &mut self,
        run: &mut BucketCommand<'_>,
        rest: &[LocatedItem],
    ) -> Result<Option<Vec<LocatedItem>>, RunError> {
        wait(run).await?;
        let found = find_all_again(run, self.task, rest).await?;
        if found.is_none() {
            self.end_in_part(run);
        }
        Ok(found)
    }

    fn end_in_part(&mut self, run: &BucketCommand<'_>) {
        self.elsewhere.clear();
        self.sum.failed = Some(updated_in_part(run, self.sum.modified));
    }

    /// Plans the changes, up to the first item that fails.
    async fn plan(
        &mut self,
        run: &mut BucketCommand<'_>,
        found: Vec<LocatedItem>,
    ) -> Result<Vec<ItemStatement>, RunError> {
        let mut steps = Vec::new();
        let mut order = 0_usize;
        let mut memory = PlanMemory::new();
        let mut rest = found.into_iter();
        while !rest.as_slice().is_empty() {
            let count = together(self.task, rest.as_slice().iter());
            let part: Vec<LocatedItem> = rest.by_ref().take(count).collect();
            let planned = self.task.plan_all(run, &part).await?;
            for (found, planned) in part.into_iter().zip(planned) {
                order = order.saturating_add(1);
                let failed = match planned {
                    Planned::InPlace(change) => {
                        let statement = statement(run, &change, &found)?;
                        let kept = memory.keep(change, statement);
                        steps.push(ItemStatement { order, found, kept });
                        None
                    }
                    Planned::Unchanged { counted } => {
                        self.is_unchanged(counted);
                        None
                    }
                    Planned::Elsewhere(to) => {
                        let failed = fails_anywhere(run, &to);
                        let changes_key = matches!(to, Elsewhere::Key(_));
                        let to = memory.keep_item(to);
                        self.elsewhere.push(Away {
                            order,
                            found,
                            changes_key,
                            to,
                        });
                        failed
                    }
                    Planned::Failed(error) => Some(error),
                };
                if failed.is_some() {
                    self.elsewhere.retain(|away| away.order < order);
                    self.fails = failed;
                    return Ok(steps);
                }
            }
        }
        Ok(steps)
    }

    fn is_unchanged(&mut self, counted: bool) {
        self.sum.matched = self.sum.matched.saturating_add(1);
        self.sum.modified = self.sum.modified.saturating_add(i64::from(counted));
    }

    /// Records that the item at this position failed. Later items are not changed.
    fn fail_at(&mut self, order: usize, error: WriteError) {
        self.elsewhere.retain(|away| away.order < order);
        self.sum.failed = Some(error);
    }

    /// Locates an item again that had changed since it was read, and changes it.
    async fn again(&mut self, run: &mut BucketCommand<'_>, missed: &LocatedItem) -> Result<(), RunError> {
        for round in 0..=MAX_ATTEMPTS {
            let found = match find_again(run, self.task.wanted(), missed).await? {
                FoundAgain::Item(found) => found,
                FoundAgain::Gone => return Ok(()),
                FoundAgain::Ambiguous => break,
            };
            let change = match self.task.plan(run, &found).await? {
                Planned::InPlace(change) => change,
                Planned::Unchanged { counted } => {
                    self.is_unchanged(counted);
                    return Ok(());
                }
                Planned::Elsewhere(to) => {
                    if self.go(run, &found, to).await?.is_some() {
                        return Ok(());
                    }
                    pause(round).await;
                    continue;
                }
                Planned::Failed(error) => {
                    self.sum.failed = Some(error);
                    return Ok(());
                }
            };
            let statement = change
                .statement(run.shape, &found)
                .map_err(|what| run.unsupported(&what))?;
            let mut outcome = send(run, self.task, &statement).await?;
            if let Some(error) = outcome.failed.as_ref().filter(|error| is_swap_write_error(error)) {
                return Err(error.clone().into_command_error().into());
            }
            if let Some(error) = outcome.failed.take() {
                if self.makes_room(run, &error, &found).await? {
                    pause(round).await;
                    continue;
                }
                let failed = FailedUpdate::new(self.task, Some(&found));
                outcome.failed = Some(in_words_of_the_application(run, error, failed).await?);
            }
            if outcome.matched > 0 || outcome.failed.is_some() {
                self.sum.add(outcome);
                return Ok(());
            }
            pause(round).await;
        }
        self.sum.failed = Some(given_up(run));
        Ok(())
    }

    /// Whether mongod refused a statement because a page would be too large, and the item's page has room by
    /// now.
    async fn makes_room(
        &self,
        run: &mut BucketCommand<'_>,
        error: &WriteError,
        found: &LocatedItem,
    ) -> Result<bool, RunError> {
        if !is_too_large(error.code) {
            return Ok(false);
        }
        room::make(run, FailedUpdate::new(self.task, Some(found))).await
    }

    async fn end(mut self, run: &mut BucketCommand<'_>) -> Result<UpdateOutcome, RunError> {
        if self.at_once && self.sum.modified > 0 {
            self.sum.answer = write_concern::wait(run).await?;
        }
        self.sum.failed = self.sum.failed.or(self.fails);
        Ok(self.sum)
    }
}
