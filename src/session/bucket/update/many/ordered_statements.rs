//! Sends the statements of an update of many in ordered commands.

use std::collections::HashSet;

use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};

use super::{ItemStatement, Many};
use crate::command::document::{get, single};
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::bucket::update_by_position::is_miss;
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
        steps: &[ItemStatement],
        done: &mut usize,
    ) -> Result<(), RunError> {
        while let Some(rest) = steps.get(*done..).filter(|rest| !rest.is_empty()) {
            let part = rest.get(..together(rest)).unwrap_or(rest);
            let statements: Vec<&RawDocument> = part.iter().map(|step| &*step.statement).collect();
            let sent = send_together(run, &statements, self.at_once).await?;
            let reached = sent.failed.as_ref().map_or(part.len(), |(position, _)| *position);
            let executed = part.get(..reached).unwrap_or(part);
            let matched = usize::try_from(sent.outcome.matched).unwrap_or_default();
            self.sum.add(sent.outcome);
            *done = done.saturating_add(reached);
            if let Some(missed) = reached.checked_sub(matched).filter(|missed| *missed > 0) {
                self.pass_removed(run, executed, missed).await?;
            }
            if self.sum.failed.is_some() {
                return Ok(());
            }
            let Some((failed, error)) = part.get(reached).zip(sent.failed) else {
                continue;
            };
            self.pass_failed(run, failed, error.1).await?;
            *done = done.saturating_add(1);
            if self.sum.failed.is_some() {
                return Ok(());
            }
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
    let fits = |step: &&ItemStatement| {
        let is_first = bytes == 0;
        bytes = bytes.saturating_add(step.statement.as_bytes().len());
        is_first || bytes <= MAX_BYTES
    };
    steps.iter().take(MAX_STATEMENTS).take_while(fits).count()
}

/// The `_id`s of the items' buckets that still exist.
async fn buckets_there(run: &mut BucketCommand<'_>, steps: &[ItemStatement]) -> Result<HashSet<Vec<u8>>, RunError> {
    let ids: RawArrayBuf = steps.iter().map(|step| step.found.bucket.as_raw_bson_ref()).collect();
    let mut find = single("find", run.namespace.collection);
    find.append(cstr!("filter"), single("_id", single("$in", &ids)));
    find.append(cstr!("projection"), single("_id", 1));
    find.append(cstr!("batchSize"), i32::try_from(MAX_STATEMENTS).unwrap_or(i32::MAX));
    find.append(cstr!("singleBatch"), true);
    run.context.inherited().append_to_internal_read(&mut find);
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
