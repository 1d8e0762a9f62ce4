//! Sends the statements of an update of many in ordered commands.

use std::collections::HashSet;

use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};

use super::Many;
use super::planned_items::{self, ItemStatement, KeptPlan};
use crate::command::document::{get, single};
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::update_by_position::{Planned, is_miss};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::failed_update::FailedUpdate;
use crate::session::bucket::item_update::in_words_of_the_application;
use crate::session::bucket::retry_on_swap::is_swap_write_error;
use crate::session::bucket::update::statement::send_together;
use crate::session::bucket::upstream_query::documents;
use crate::session::error::RunError;

/// Statements in one command.
const MAX_STATEMENTS: usize = 1000;
/// Bytes of statements in one command. The first statement may exceed it.
const MAX_BYTES: usize = 16 << 20;

impl Many<'_> {
    /// Sends statements until one fails. `done` counts the statements that must not be sent again,
    /// also after an error.
    pub(super) async fn send(
        &mut self,
        run: &mut BucketCommand<'_>,
        steps: &mut [ItemStatement],
        done: &mut usize,
    ) -> Result<(), RunError> {
        while let Some(rest) = steps.get_mut(*done..).filter(|rest| !rest.is_empty()) {
            self.prepare(run, rest).await?;
            let mut passed = 0;
            let sent = self.send_next(run, rest, &mut passed).await;
            *done = done.saturating_add(passed);
            sent?;
            if self.sum.failed.is_some() {
                return Ok(());
            }
            let passed = rest.iter_mut().take(passed);
            passed.for_each(|step| step.kept = KeptPlan::Nothing);
        }
        Ok(())
    }

    /// Makes the statements of the next command.
    async fn prepare(&self, run: &mut BucketCommand<'_>, rest: &mut [ItemStatement]) -> Result<(), RunError> {
        let mut bytes = 0_usize;
        for position in 0..rest.len().min(MAX_STATEMENTS) {
            let Some(behind) = rest.get_mut(position..) else {
                break;
            };
            if behind
                .first()
                .is_some_and(|step| matches!(step.kept, KeptPlan::Nothing))
            {
                self.plan_again(run, behind).await?;
            }
            let Some(step) = behind.first_mut() else {
                break;
            };
            step.make_statement(run)?;
            let length = step.statement().map(|statement| statement.as_bytes().len());
            bytes = bytes.saturating_add(length.unwrap_or(MAX_BYTES));
            if bytes >= MAX_BYTES {
                break;
            }
        }
        Ok(())
    }

    /// Plans the first of these items again, whose changes were not kept.
    async fn plan_again(&self, run: &mut BucketCommand<'_>, steps: &mut [ItemStatement]) -> Result<(), RunError> {
        let count = planned_items::together(self.task, steps.iter().map(|step| &step.found));
        let items: Vec<LocatedItem> = steps.iter().take(count).map(|step| step.found.clone()).collect();
        let planned = self.task.plan_all(run, &items).await?;
        for (step, planned) in steps.iter_mut().zip(planned) {
            let Planned::InPlace(change) = planned else {
                break;
            };
            step.kept = KeptPlan::Change(change);
        }
        Ok(())
    }

    /// Sends the next command. `passed` counts the statements that must not be sent again, also after an
    /// error.
    async fn send_next(
        &mut self,
        run: &mut BucketCommand<'_>,
        rest: &[ItemStatement],
        passed: &mut usize,
    ) -> Result<(), RunError> {
        let part = rest.get(..together(rest)).unwrap_or(rest);
        let statements: Vec<&RawDocument> = part.iter().filter_map(ItemStatement::statement).collect();
        if let (true, Some(first)) = (statements.is_empty(), rest.first()) {
            // The second plan differs, for example because of a random number in the pipeline.
            self.change_again(run, first).await?;
            *passed = 1;
            return Ok(());
        }
        let sent = send_together(run, &statements, self.at_once).await?;
        let reached = sent.failed.as_ref().map_or(part.len(), |(position, _)| *position);
        let executed = part.get(..reached).unwrap_or(part);
        let matched = usize::try_from(sent.outcome.matched).unwrap_or_default();
        self.sum.add(sent.outcome);
        *passed = reached;
        if let Some(missed) = reached.checked_sub(matched).filter(|missed| *missed > 0) {
            self.pass_removed(run, executed, missed).await?;
        }
        if self.sum.failed.is_some() {
            return Ok(());
        }
        if let Some((failed, error)) = part.get(reached).zip(sent.failed) {
            self.pass_failed(run, failed, error.1).await?;
            *passed = reached.saturating_add(1);
        }
        Ok(())
    }

    /// Handles the statement at which mongod stopped: an item that has changed is located again.
    async fn pass_failed(
        &mut self,
        run: &mut BucketCommand<'_>,
        step: &ItemStatement,
        error: WriteError,
    ) -> Result<(), RunError> {
        if is_swap_write_error(&error) {
            return Err(error.into_command_error().into());
        }
        if !is_miss(&error) && !self.makes_room(run, &error, &step.found).await? {
            let failed = FailedUpdate::new(self.task, Some(&step.found));
            let error = in_words_of_the_application(run, error, failed).await?;
            self.fail_at(step.order, error);
            return Ok(());
        }
        self.change_again(run, step).await
    }

    /// Locates an item again, and changes it.
    async fn change_again(&mut self, run: &mut BucketCommand<'_>, step: &ItemStatement) -> Result<(), RunError> {
        self.again(run, &step.found).await?;
        if let Some(error) = self.sum.failed.take() {
            self.fail_at(step.order, error);
        }
        Ok(())
    }

    /// Locates the items of `missed` executed statements again. These statements matched nothing
    /// because their buckets were removed.
    async fn pass_removed(
        &mut self,
        run: &mut BucketCommand<'_>,
        executed: &[ItemStatement],
        missed: usize,
    ) -> Result<(), RunError> {
        let there = buckets_there(run, executed).await?;
        let gone = |step: &&ItemStatement| !there.contains(&name(&step.found.bucket));
        let gone: Vec<&ItemStatement> = executed.iter().filter(gone).collect();
        if gone.len() != missed {
            // A bucket that was removed after the change cannot be distinguished from one removed
            // before.
            self.sum.failed = Some(outcome_unknown(run));
            return Ok(());
        }
        let last = gone.last().map_or(0, |step| step.order);
        self.removed = gone.iter().map(|step| step.found.clone()).collect();
        while let Some(found) = self.removed.front().cloned() {
            self.again(run, &found).await?;
            if let Some(error) = self.sum.failed.take() {
                self.removed.clear();
                self.fail_at(last, error);
                return Ok(());
            }
            self.removed.pop_front();
        }
        Ok(())
    }
}

/// Number of statements in the next command.
fn together(steps: &[ItemStatement]) -> usize {
    let mut bytes = 0_usize;
    let statements = steps.iter().map_while(ItemStatement::statement);
    let fits = |statement: &&RawDocument| {
        let is_first = bytes == 0;
        bytes = bytes.saturating_add(statement.as_bytes().len());
        is_first || bytes <= MAX_BYTES
    };
    statements.take(MAX_STATEMENTS).take_while(fits).count()
}

/// The `_id`s of the items' buckets that still exist.
async fn buckets_there(run: &mut BucketCommand<'_>, steps: &[ItemStatement]) -> Result<HashSet<Vec<u8>>, RunError> {
    let ids: RawArrayBuf = steps.iter().map(|step| step.found.bucket.as_raw_bson_ref()).collect();
    let mut find = single("find", run.namespace.collection);
    find.append(cstr!("filter"), single("_id", single("$in", &ids)));
    find.append(cstr!("projection"), single("_id", 1));
    find.append(cstr!("batchSize"), i32::try_from(MAX_STATEMENTS).unwrap_or(i32::MAX));
    find.append(cstr!("singleBatch"), true);
    run.context.inherited().append_to_read_of_write(&mut find);
    let answer = run.context.link.run(&find).await?;
    let there = documents(&answer).filter_map(|bucket| get(bucket, "_id"));
    Ok(there.map(|id| single("", id).into_bytes()).collect())
}

fn name(bucket: &bson::raw::RawBson) -> Vec<u8> {
    let bucket: RawDocumentBuf = single("", bucket);
    bucket.into_bytes()
}

/// The error if it is unknown which items were changed.
fn outcome_unknown(run: &BucketCommand<'_>) -> WriteError {
    let message = format!(
        "pages of {} were emptied and removed by other writers during the update: some matching items may be unchanged",
        run.namespace
    );
    WriteError::new(ErrorCode::WriteConflict, message)
}
