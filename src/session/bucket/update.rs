//! `update`. If each statement updates one item by `_id`, the statements are sent together to the
//! items' pages. Otherwise each statement is executed alone, on located items.

mod by_id;
mod find_again;
mod many;
mod one;
mod outcome;
mod statement;

use bson::raw::{RawBsonRef, RawDocumentBuf};

pub(super) use self::by_id::{may_be_tried, may_match};
pub(super) use self::find_again::moved_or_first;
pub(super) use self::one::is_relocated;
use self::outcome::{UpdateOutcome, UpdateReply};
use super::command::BucketCommand;
use super::duplicate_key::needs_item;
use super::item_update::{ItemUpdate, Memory, end_transaction, of_item};
use super::retry_on_swap::{self, is_swap_error, is_swap_write_error, may_go_on, wait};
use super::write_statement::of_write;
use super::{indexes, item_lookup, upsert};
use crate::command::document::get;
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::header::CommandHeader;
use crate::command::update::{Update, UpdateStatement};
use crate::pattern::bucket::update_by_id::UpdateRequest;
use crate::pattern::bucket::upsert::check_filter;
use crate::session::error::RunError;
use crate::session::malformed_pipeline;

pub(super) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let is_retryable = run.context.head.is_retryable_write();
    let executed = execute(run).await;
    executed.map_err(|error| of_write(error, is_retryable))
}

async fn execute(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let command = Update::parse(run.context.head)?;
    run.context.link.check_field(command.newer_field()).await?;
    for statement in &command.statements {
        let is_free = statement.multi || statement.order().is_some();
        indexes::check_hinted_order(run, statement.hint.filter(|_| !is_free))?;
    }
    let changes = by_id::translate(run, &command);
    if changes.is_none() {
        for statement in &command.statements {
            item_lookup::check(run, Some(statement.filter))?;
        }
    }
    run.ensure_readable(None).await?;
    let creates = run.collection.is_none() && command.statements.iter().any(|statement| statement.upsert);
    let mut is_sent = false;
    // `one_after_the_other` finds the shard of a single statement and its retry record in one round trip.
    let is_targeted_alone = command.statements.len() == 1 && run.is_sharded();
    if let Some(changes) = changes.filter(|_| !creates && !is_targeted_alone)
        && !needs_item(run).await?
        && are_right(run, &command.statements).await?
        && let Some(targets) = by_id::find_targets(run, &command, &changes).await?
    {
        match by_id::run(run, &command, &changes, &targets).await? {
            Some(reply) => return Ok(reply),
            None => is_sent = true,
        }
    }
    one_after_the_other(run, &command, is_sent).await
}

/// Whether no statement is invalid. An invalid statement fails alone, so the statements cannot be
/// sent together.
async fn are_right(run: &mut BucketCommand<'_>, statements: &[UpdateStatement<'_>]) -> Result<bool, RunError> {
    for statement in statements {
        if mistake(run, statement).await?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The error of a statement that is invalid whether or not an item matches. The form of the hint is
/// checked elsewhere.
async fn mistake(run: &mut BucketCommand<'_>, statement: &UpdateStatement<'_>) -> Result<Option<WriteError>, RunError> {
    let of_filter = check_filter(statement.filter).err().filter(|_| statement.upsert);
    if let Some(error) = statement.sort_of_many().or(of_filter) {
        return Ok(Some(error));
    }
    match indexes::check_hint(run, statement.hint).await {
        Ok(()) => Ok(None),
        Err(RunError::Command(CommandError::Own { code, message })) => Ok(Some(WriteError::new(code, message))),
        Err(error) => Err(error),
    }
}

/// `is_sent`: whether the only statement was sent to the page of an item with its `_id`, and changed nothing.
async fn one_after_the_other(
    run: &mut BucketCommand<'_>,
    command: &Update<'_>,
    is_sent: bool,
) -> Result<RawDocumentBuf, RunError> {
    let mut results = UpdateReply::new();
    let ends_with_first_failure = command.ordered || run.context.head.in_transaction();
    for (index, statement) in command.statements.iter().enumerate() {
        let before = run.executed;
        match until_executed(run, command, index, statement, is_sent).await {
            Err(RunError::LayoutChanged) if is_begun(run, &results) => {
                run.is_interrupted = true;
                let mut rest = index..command.statements.len();
                if run.executed > before {
                    rest.next();
                    results.fail(index, &retry_on_swap::in_part(run, "some items were changed"));
                    if ends_with_first_failure {
                        break;
                    }
                }
                rest.for_each(|index| results.fail(index, &retry_on_swap::interrupted()));
                break;
            }
            Ok(outcome) => {
                if statement.upsert && outcome.failed.is_some() && is_executed(run, statement) {
                    run.ensure_still_there().await?;
                }
                results.add(index, command.statement_ids.of(index), outcome);
            }
            // Earlier statements have been executed, so the refusal is an error of this statement.
            Err(RunError::Command(CommandError::Own { code, message }))
                if results.has_begun() || (run.executed > 0 && !run.context.head.in_transaction()) =>
            {
                results.fail(index, &WriteError::new(code, message));
            }
            Err(RunError::Command(error))
                if malformed_pipeline::is_cause(&error) && !run.context.head.in_transaction() =>
            {
                results.fail(index, &WriteError::new(ErrorCode::FailedToParse, error.message()));
            }
            Err(RunError::Command(error))
                if run.executed > 0 && is_swap_error(&error) && !run.context.head.in_transaction() =>
            {
                results.fail(index, &retry_on_swap::not_executed(run));
            }
            Err(RunError::Command(error)) if let Some(invalid) = of_sort(statement, &error) => {
                results.fail(index, &invalid);
            }
            // For example, the code of a `$where` threw an exception.
            Err(RunError::Command(error)) => results.fail(index, &of_item(error)?),
            Err(error) => return Err(error),
        }
        if ends_with_first_failure && results.has_failed() {
            break;
        }
    }
    if results.has_failed() {
        end_transaction(run).await?;
    }
    let reply = results.into_document(run.context.head);
    malformed_pipeline::check(run.context.link, run.context.head, command, &reply).await?;
    Ok(reply)
}

/// The error of a statement with an invalid sort. Only the query that finds the item contains the sort.
fn of_sort(statement: &UpdateStatement<'_>, error: &CommandError) -> Option<WriteError> {
    statement.order()?;
    let CommandError::Upstream(reply) = error else {
        return None;
    };
    // mongod's errors about sorts have codes without names.
    let name = get(reply, "codeName").and_then(RawBsonRef::as_str)?;
    WriteError::of_command(error).filter(|_| name.starts_with("Location"))
}

/// Whether the command cannot be executed again from its beginning.
fn is_begun(run: &BucketCommand<'_>, results: &UpdateReply) -> bool {
    let head = run.context.head;
    (results.has_begun() || run.executed > 0) && !head.in_transaction() && !head.is_retryable_write()
}

/// Executes a statement. Executes it again if the collection was swapped before the statement had
/// changed anything.
async fn until_executed(
    run: &mut BucketCommand<'_>,
    command: &Update<'_>,
    index: usize,
    statement: &UpdateStatement<'_>,
    is_sent: bool,
) -> Result<UpdateOutcome, RunError> {
    let before = run.executed;
    for _ in 0..retry_on_swap::MAX_RUNS {
        let outcome = of_statement(run, command, index, statement, is_sent).await;
        let is_swap = match &outcome {
            Ok(outcome) => outcome.failed.as_ref().is_some_and(is_swap_write_error),
            Err(RunError::Command(error)) => is_swap_error(error),
            Err(RunError::Link(_) | RunError::ClientClosed | RunError::LayoutChanged) => false,
        };
        if !is_swap || !may_go_on(run, before) {
            return outcome;
        }
        wait(run).await?;
    }
    of_statement(run, command, index, statement, is_sent).await
}

async fn of_statement(
    run: &mut BucketCommand<'_>,
    command: &Update<'_>,
    index: usize,
    statement: &UpdateStatement<'_>,
    is_sent: bool,
) -> Result<UpdateOutcome, RunError> {
    let task = task_of(run.context.head, command, index, statement);
    if statement.upsert {
        run.set_target(Some(statement.filter), statement.collation)?;
    } else if statement.multi {
        run.target = None;
    } else if let Some(record) = run
        .find_target(statement.filter, statement.collation, task.statement_id)
        .await?
    {
        return Ok(UpdateOutcome::of(record.answer));
    }
    if let Some(outcome) = before(run, &task, statement.upsert).await? {
        return Ok(outcome);
    }
    let creates = statement.upsert && run.collection.is_none() && is_executed(run, statement);
    let mut mistaken = mistake(run, statement).await?;
    if !creates
        && !is_sent
        && mistaken.is_none()
        && let Some(outcome) = by_id::one(run, command, index, statement).await?
    {
        return Ok(outcome);
    }
    let validated = statement::validate(run, &task, statement.multi).await?;
    if creates {
        run.ensure_created().await?;
        mistaken = mistake(run, statement).await?;
    }
    if validated.failed.is_some() || validated.retried {
        return Ok(validated);
    }
    if let Some(error) = mistaken {
        return Ok(UpdateOutcome {
            failed: Some(error),
            ..validated
        });
    }
    if statement.multi {
        many::run(run, &task, statement.upsert, validated).await
    } else {
        one::run(run, &task, statement.upsert, validated).await
    }
}

/// The update of a statement of the command.
pub(super) fn task_of<'a>(
    head: &CommandHeader<'_>,
    command: &Update<'a>,
    index: usize,
    statement: &UpdateStatement<'a>,
) -> ItemUpdate<'a> {
    let mut task = ItemUpdate::new(
        UpdateRequest::from(statement),
        command.let_variables,
        statement.constants,
    );
    task.sort = statement.order();
    task.statement_id = head.is_retryable_write().then(|| command.statement_ids.of(index));
    if command.statements.len() > 1 || command.statement_ids.may_share_transaction_number() {
        task.memory = Memory::Statement;
    }
    task
}

/// Whether mongod executes the statement at all. Before it creates the collection of an upsert,
/// mongod refuses a retryable update of many, and constants without a pipeline.
fn is_executed(run: &BucketCommand<'_>, statement: &UpdateStatement<'_>) -> bool {
    let is_pipeline = matches!(statement.change, RawBsonRef::Array(_));
    !(statement.multi && run.context.head.is_retryable_write()) && (statement.constants.is_none() || is_pipeline)
}

/// The outcome of an earlier attempt of this statement that is not recorded under the statement's
/// own `stmtId`: a relocation or an upsert.
async fn before(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
    upserts: bool,
) -> Result<Option<UpdateOutcome>, RunError> {
    if upserts && let Some(outcome) = inserted_before(run, task).await? {
        return Ok(Some(outcome));
    }
    if one::is_relocated(run, task).await?.is_some() {
        return Ok(Some(one::relocated_before(&UpdateOutcome::default())));
    }
    Ok(None)
}

/// The outcome of an earlier attempt that inserted the item of the upsert.
async fn inserted_before(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
) -> Result<Option<UpdateOutcome>, RunError> {
    let before = upsert::before(run, task).await?;
    Ok(before.map(|(id, _, answer)| UpdateOutcome {
        retried: true,
        ..one::made(Some(id), answer)
    }))
}
