//! `delete`: removes items from their pages.
//!
//! [`one`] deletes a single item, [`many`] whole pages of keys, [`page_by_page`] all other matches,
//! [`remove_empty_pages`] the empty pages.

mod many;
mod one;
mod page_by_page;
pub(super) mod remove_empty_pages;

use bson::raw::{RawDocument, RawDocumentBuf};

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
    let mut deleted = WriteReply::default();
    for (index, statement) in batch.statements.iter().enumerate() {
        let id = retryable.then(|| batch.statement_ids.of(index));
        let before = deleted.n;
        match until_executed(run, statement, batch.let_variables, id, &mut deleted).await {
            Ok(()) => {}
            Err(RunError::LayoutChanged) if is_begun(run, &deleted) => {
                run.is_interrupted = true;
                let mut rest = index..batch.statements.len();
                let items = deleted.n.saturating_sub(before);
                if items > 0 {
                    rest.next();
                    deleted.fail(index, &retry_on_swap::deleted_in_part(run, items));
                    if batch.ordered {
                        break;
                    }
                }
                rest.for_each(|index| deleted.fail(index, &retry_on_swap::interrupted()));
                break;
            }
            Err(RunError::Command(failure)) if is_executed_in_part(run, &failure) => {
                let error = match deleted.n.saturating_sub(before) {
                    0 => retry_on_swap::not_executed(run),
                    items => retry_on_swap::deleted_in_part(run, items),
                };
                deleted.fail(index, &error);
                if batch.ordered {
                    break;
                }
            }
            Err(RunError::Command(failure)) if let Some(error) = of_statement(&failure, index) => {
                deleted.fail(index, &error);
                if matches!(failure, CommandError::Own { .. }) {
                    run.context.fail_transaction(run.namespace.collection).await?;
                }
                if batch.ordered || run.context.head.in_transaction() {
                    break;
                }
            }
            Err(error) => return Err(of_write(error, retryable)),
        }
    }
    if !deleted.has_failed()
        && !deleted.has_answer()
        && let Some(answer) = write_concern::wait_after_no_write(run)
            .await
            .map_err(|error| of_write(error, retryable))?
    {
        deleted.take_answer(answer);
    }
    Ok(deleted.into_document(run.context.head))
}

/// Whether the command cannot be executed again from its beginning.
fn is_begun(run: &BucketCommand<'_>, deleted: &WriteReply) -> bool {
    let head = run.context.head;
    (deleted.n > 0 || run.executed > 0) && !head.in_transaction() && !head.is_retryable_write()
}

/// Whether a swap or freeze interrupted the command after it had deleted items. The reply then reports the
/// number of deleted items.
fn is_executed_in_part(run: &BucketCommand<'_>, error: &CommandError) -> bool {
    let is_of_replacing = is_swap_error(error) || error.is(ErrorCode::WriteConflict);
    is_of_replacing && run.executed > 0 && !run.context.head.in_transaction()
}

/// Executes a statement. Executes it again if the collection was swapped before the statement had
/// deleted anything.
async fn until_executed(
    run: &mut BucketCommand<'_>,
    statement: &DeleteStatement<'_>,
    variables: Option<&RawDocument>,
    id: Option<i32>,
    deleted: &mut WriteReply,
) -> Result<(), RunError> {
    let before = run.executed;
    for _ in 0..retry_on_swap::MAX_RUNS {
        match execute(run, statement, variables, id, deleted).await {
            Err(RunError::Command(error)) if is_swap_error(&error) && may_go_on(run, before) => wait(run).await?,
            done => return done,
        }
    }
    execute(run, statement, variables, id, deleted).await
}

async fn execute(
    run: &mut BucketCommand<'_>,
    statement: &DeleteStatement<'_>,
    variables: Option<&RawDocument>,
    id: Option<i32>,
    deleted: &mut WriteReply,
) -> Result<(), RunError> {
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
        return one::delete(run, wanted, id, deleted).await;
    }
    many::delete(run, wanted, deleted).await
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
