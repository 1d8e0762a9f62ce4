//! `delete`: removes items from their pages.
//!
//! [`bulk`] deletes several items by `_id`, [`one`] a single item, [`many`] whole pages of keys,
//! [`page_by_page`] all other matches, [`remove_empty_pages`] the empty pages.

mod bulk;
mod many;
mod one;
mod page_by_page;
pub(super) mod remove_empty_pages;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bson::raw::{RawDocument, RawDocumentBuf};

use self::bulk::{Bulk, Sent};
pub(super) use self::one::{ItemToDelete, condition, sweep_page, take_by, taking_out, target, target_by_id};
use super::command::BucketCommand;
use super::find::validate_code_and_variables;
use super::retry_on_swap::{self, is_swap_error, may_go_on, wait};
use super::write_statement::of_write;
use super::{indexes, item_lookup, write_concern};
use crate::command::delete::{Delete, DeleteStatement};
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::write_reply::WriteReply;
use crate::pattern::bucket::item_lookup::ItemSelector;
use crate::session::error::RunError;

pub(super) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let batch = Delete::parse(run.context.head)?;
    let retryable = run.context.is_retryable()?;
    // All filters are checked before the first statement is executed, so a refused command deletes
    // nothing.
    for statement in &batch.statements {
        item_lookup::check(run, Some(statement.filter))?;
        indexes::check_hinted_order(run, statement.hint.filter(|_| statement.one))?;
    }
    run.ensure_readable(None)
        .await
        .map_err(|error| of_write(error, retryable))?;
    let mut deletion = Deletion {
        batch: &batch,
        is_retryable: retryable,
        deleted: WriteReply::default(),
        failed: BTreeMap::new(),
    };
    deletion
        .execute(run)
        .await
        .map_err(|error| of_write(error, retryable))?;
    let Deletion {
        mut deleted, failed, ..
    } = deletion;
    if failed.is_empty()
        && !deleted.has_answer()
        && let Some(answer) = write_concern::wait_after_no_write(run)
            .await
            .map_err(|error| of_write(error, retryable))?
    {
        deleted.take_answer(answer);
    }
    for (index, error) in &failed {
        deleted.fail(*index, error);
    }
    Ok(deleted.into_document(run.context.head))
}

/// The execution of a command.
struct Deletion<'a> {
    batch: &'a Delete<'a>,
    is_retryable: bool,
    deleted: WriteReply,
    /// By the position of the statement.
    failed: BTreeMap<usize, WriteError>,
}

impl Deletion<'_> {
    /// Executes the statements. Those that name one item by `_id` are sent together.
    async fn execute(&mut self, run: &mut BucketCommand<'_>) -> Result<(), RunError> {
        let statements = self.batch.statements.len();
        let mut bulk = Bulk::new(run, self.batch, self.is_retryable);
        let mut next = 0;
        while next < statements {
            let before = self.deleted.n;
            let Sent { end, left, has_missed } = match bulk.send(run, next, &mut self.deleted).await {
                Ok(sent) => sent,
                Err(error) if bulk.is_unclear => return Err(error),
                Err(error) => match self.fail(run, next, before, error).await? {
                    ControlFlow::Continue(()) => Sent::up_to(next.saturating_add(1)),
                    ControlFlow::Break(()) => break,
                },
            };
            next = end;
            let mut left = left.into_iter();
            while let Some(index) = left.next() {
                let before = self.deleted.n;
                match self.one(run, index, has_missed).await {
                    Ok(()) => {}
                    Err(RunError::LayoutChanged) if self.is_begun(run) => {
                        self.interrupt(run, index, before, left.chain(next..statements));
                        return Ok(());
                    }
                    Err(error) => {
                        if self.fail(run, index, before, error).await?.is_break() {
                            return Ok(());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Executes a statement. Executes it again if the collection was swapped before the statement had
    /// deleted anything. `has_missed`: as in [`one::delete`].
    async fn one(&mut self, run: &mut BucketCommand<'_>, index: usize, has_missed: bool) -> Result<(), RunError> {
        let Some(statement) = self.batch.statements.get(index) else {
            return Ok(());
        };
        let statement = DeletionOfStatement {
            statement,
            variables: self.batch.let_variables,
            id: self.is_retryable.then(|| self.batch.statement_ids.of(index)),
        };
        let before = run.executed;
        let mut done = statement.execute(run, has_missed, &mut self.deleted).await;
        for _ in 0..retry_on_swap::MAX_RUNS {
            match done {
                Err(RunError::Command(error)) if is_swap_error(&error) && may_go_on(run, before) => wait(run).await?,
                done => return done,
            }
            done = statement.execute(run, false, &mut self.deleted).await;
        }
        done
    }

    /// Whether the command cannot be executed again from its beginning.
    fn is_begun(&self, run: &BucketCommand<'_>) -> bool {
        let head = run.context.head;
        (self.deleted.n > 0 || run.executed > 0) && !head.in_transaction() && !head.is_retryable_write()
    }

    /// Ends the command at a statement because the collection got another layout. `before`: the deleted items
    /// before the statement; `rest`: the statements that were not executed.
    fn interrupt(&mut self, run: &mut BucketCommand<'_>, index: usize, before: i64, rest: impl Iterator<Item = usize>) {
        run.is_interrupted = true;
        let items = self.deleted.n.saturating_sub(before);
        if items > 0 {
            self.failed.insert(index, retry_on_swap::deleted_in_part(run, items));
            if self.batch.ordered {
                return;
            }
        } else {
            self.failed.insert(index, retry_on_swap::interrupted());
        }
        self.failed
            .extend(rest.map(|index| (index, retry_on_swap::interrupted())));
    }

    /// Records the error of a statement, and returns whether the command continues. `before`: the deleted
    /// items before it.
    ///
    /// # Errors
    /// The error, if it fails the whole command.
    async fn fail(
        &mut self,
        run: &mut BucketCommand<'_>,
        index: usize,
        before: i64,
        error: RunError,
    ) -> Result<ControlFlow<()>, RunError> {
        let RunError::Command(error) = error else {
            return Err(error);
        };
        let ends = if is_executed_in_part(run, &error) {
            let failed = match self.deleted.n.saturating_sub(before) {
                0 => retry_on_swap::not_executed(run),
                items => retry_on_swap::deleted_in_part(run, items),
            };
            self.failed.insert(index, failed);
            self.batch.ordered
        } else {
            let Some(failed) = of_statement(&error, index) else {
                return Err(error.into());
            };
            self.failed.insert(index, failed);
            if matches!(error, CommandError::Own { .. }) {
                run.context.fail_transaction(run.namespace.collection).await?;
            }
            self.batch.ordered || run.context.head.in_transaction()
        };
        Ok(if ends {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    }
}

/// Whether a swap or freeze interrupted the command after it had deleted items. The reply then reports the
/// number of deleted items.
fn is_executed_in_part(run: &BucketCommand<'_>, error: &CommandError) -> bool {
    let is_of_replacing = is_swap_error(error) || error.is(ErrorCode::WriteConflict);
    is_of_replacing && run.executed > 0 && !run.context.head.in_transaction()
}

/// A statement to execute alone.
struct DeletionOfStatement<'a> {
    statement: &'a DeleteStatement<'a>,
    variables: Option<&'a RawDocument>,
    /// The `stmtId` if the command is retryable.
    id: Option<i32>,
}

impl DeletionOfStatement<'_> {
    async fn execute(
        &self,
        run: &mut BucketCommand<'_>,
        has_missed: bool,
        deleted: &mut WriteReply,
    ) -> Result<(), RunError> {
        let Self {
            statement,
            variables,
            id,
        } = *self;
        if id.is_some() && !statement.one {
            let message = "Cannot use (or request) retryable writes with limit=0";
            return Err(CommandError::new(ErrorCode::InvalidOptions, message).into());
        }
        run.target = None;
        if statement.one
            && let Some(record) = run.find_target(statement.filter, statement.collation, id).await?
        {
            one::add(deleted, record, id);
            return Ok(());
        }
        indexes::check_hint(run, statement.hint).await?;
        validate_code_and_variables(run, Some(statement.filter), variables).await?;
        let wanted = ItemSelector {
            filter: Some(statement.filter),
            collation: statement.collation,
            let_variables: variables,
            ..ItemSelector::default()
        };
        if statement.one {
            return one::delete(run, wanted, id, has_missed, deleted).await;
        }
        many::delete(run, wanted, deleted).await
    }
}

/// Returns the error as a write error of the statement. `None`: the error fails the whole command,
/// because the server reports it, or because the first statement is refused and nothing was
/// deleted.
fn of_statement(error: &CommandError, index: usize) -> Option<WriteError> {
    let is_first = index == 0;
    match error {
        CommandError::Own {
            code: ErrorCode::CommandNotSupported,
            ..
        } if is_first => None,
        error => WriteError::of_command(error),
    }
}
