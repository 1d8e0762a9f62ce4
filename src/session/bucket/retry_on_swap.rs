//! Runs a command again when its collection is swapped for a compacted copy
//! (`docs/decisions/0016-short-pages-are-packed-in-a-copy.md`).
//!
//! Writes just before the swap fail with `DocumentValidationFailure`. Operations still on the old collection
//! fail with `CollectionUUIDMismatch` or `QueryPlanKilled`. A command that has changed nothing, or that is
//! retryable, runs again from the beginning. Any other returns an error that reports the swap.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::command::BucketCommand;
use crate::command::arguments::with_replaced;
use crate::command::document::get;
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::find::misses_own_index;
use crate::command::registry::Command;
use crate::command::reply::succeeded;
use crate::pattern::bucket::compact::is_refused_by_freeze;
use crate::session::error::RunError;

/// The most repetitions of a command. Swaps are rare.
pub(in crate::session) const MAX_RUNS: u32 = 10;

pub(super) type CommandReply = Result<RawDocumentBuf, RunError>;

/// Whether mongod refused the command because the collection is frozen, was swapped, or does not
/// have the shape's indexes yet.
pub(in crate::session) fn is_swap_error(error: &CommandError) -> bool {
    if error.is(ErrorCode::DocumentValidationFailure) {
        return !matches!(error, CommandError::Upstream(reply) if !is_refused_by_freeze(reply));
    }
    if let CommandError::Upstream(reply) = error
        && reply
            .get_i32("code")
            .is_ok_and(|code| misses_own_index(code, error.message()))
    {
        return true;
    }
    error.is(ErrorCode::CollectionUuidMismatch) || error.is(ErrorCode::QueryPlanKilled)
}

/// Like [`is_swap_error`], for the error of one statement.
pub(in crate::session) fn is_swap_write_error(error: &WriteError) -> bool {
    is_swap_error(&error.clone().into_command_error())
}

/// Executes the command. Executes it again if the collection was swapped in the meantime.
pub(super) async fn retry_on_swap(run: &mut BucketCommand<'_>) -> CommandReply {
    let mut answer = once(run).await;
    for _ in 0..MAX_RUNS {
        if run.is_interrupted {
            return answer;
        }
        if let Err(RunError::LayoutChanged) = answer {
            return layout_changed(run);
        }
        if !hit_swap(&answer) && !run.learn_of_shards(&answer).await? {
            return answer;
        }
        run.context.settings.catalog.forget(run.namespace);
        if !may_be_run_again(run) {
            break;
        }
        if !run.context.head.only_reads() {
            match wait(run).await {
                Err(RunError::LayoutChanged) => return layout_changed(run),
                waited => waited?,
            }
        }
        answer = once(run).await;
    }
    let is_automatic = run.context.link.fence_of(run.namespace).is_some();
    if is_automatic && hit_swap(&answer) && answer.is_err() && has_changed_nothing(run) {
        return Err(RunError::LayoutChanged);
    }
    if hit_swap(&answer) {
        retryable_error(run, answer)
    } else {
        answer
    }
}

/// Whether a command that failed as a whole has had no effect.
fn has_changed_nothing(run: &BucketCommand<'_>) -> bool {
    let head = run.context.head;
    !head.in_transaction() && !matches!(head.command, Command::GetMore | Command::Insert) && run.executed == 0
}

/// The result of a command whose collection got another layout. The caller executes the command again if it
/// has changed nothing, or if its retry records are found.
fn layout_changed(run: &BucketCommand<'_>) -> CommandReply {
    if run.executed == 0 || run.context.head.is_retryable_write() || run.context.head.only_reads() {
        return Err(RunError::LayoutChanged);
    }
    let message = format!(
        "`mongoshape convert` exchanged {} while this command was executed: a part of it was; check the items before you send it again",
        run.namespace
    );
    Err(CommandError::new(ErrorCode::WriteConflict, message).into())
}

/// The mark of a statement that was not executed, in the reply of an interrupted command.
pub(super) fn interrupted() -> WriteError {
    WriteError::new(ErrorCode::CollectionUuidMismatch, "the collection was exchanged")
}

async fn once(run: &mut BucketCommand<'_>) -> CommandReply {
    Ok(succeeded(run.dispatch().await?)?)
}

fn hit_swap(answer: &CommandReply) -> bool {
    match answer {
        Ok(reply) => statement_hit_swap(reply),
        Err(RunError::Command(error)) => is_swap_error(error),
        Err(RunError::Link(_) | RunError::ClientClosed | RunError::LayoutChanged) => false,
    }
}

/// Whether a statement in the reply failed because of a swap or freeze.
pub(super) fn statement_hit_swap(reply: &RawDocument) -> bool {
    write_errors(reply).any(|(_, error)| is_swap_write_error(&error))
}

pub(super) fn write_errors(reply: &RawDocument) -> impl Iterator<Item = (usize, WriteError)> + '_ {
    let errors = get(reply, "writeErrors").and_then(RawBsonRef::as_array);
    let errors = errors.into_iter().flatten().flatten();
    errors.filter_map(RawBsonRef::as_document).filter_map(WriteError::parse)
}

/// Whether executing the command again applies no change twice.
fn may_be_run_again(run: &BucketCommand<'_>) -> bool {
    let head = run.context.head;
    if head.in_transaction() || head.command == Command::GetMore {
        return false;
    }
    if head.only_reads() || head.is_retryable_write() {
        return true;
    }
    match head.command {
        Command::FindAndModify | Command::Update | Command::Delete => run.executed == 0,
        _ => false,
    }
}

/// Waits until the collection accepts writes, and records the UUID that its name then denotes. Does
/// not create a dropped collection.
pub(super) async fn wait(run: &mut BucketCommand<'_>) -> Result<(), RunError> {
    let settings = run.context.settings;
    settings.catalog.forget(run.namespace);
    run.collection = settings.catalog.for_reading(&mut run.catalog_session()).await?;
    if run.collection.is_some() {
        let ready = settings.catalog.for_writing(&mut run.catalog_session()).await?;
        run.collection = Some(ready);
    }
    Ok(())
}

/// Whether one statement that failed because of a swap may be executed again. `before`: the value
/// of `executed` before the statement.
pub(super) fn may_go_on(run: &BucketCommand<'_>, before: u64) -> bool {
    !run.context.head.in_transaction() && (run.executed == before || run.context.head.is_retryable_write())
}

/// The client's reply after a swap: an error that permits a retry.
fn retryable_error(run: &BucketCommand<'_>, answer: CommandReply) -> CommandReply {
    let message = message(run);
    let own = CommandError::new(ErrorCode::WriteConflict, message.as_str());
    if run.context.head.in_transaction() {
        return Err(own.transient().into());
    }
    match answer {
        // The items that the cursor had not returned are lost.
        Err(error) if run.context.head.command == Command::GetMore => Err(error),
        Err(_) if run.context.head.is_retryable_write() => Err(own.retryable().into()),
        Err(_) => Err(own.into()),
        Ok(reply) => {
            let errors: RawArrayBuf = write_errors(&reply)
                .map(|(index, error)| {
                    let is_swap = is_swap_write_error(&error);
                    let conflict = || WriteError::new(ErrorCode::WriteConflict, message.as_str());
                    if is_swap { conflict() } else { error }.to_document(index)
                })
                .collect();
            let errors = RawBsonRef::Array(&errors);
            Ok(with_replaced(&reply, &[("writeErrors", Some(errors))]))
        }
    }
}

fn message(run: &BucketCommand<'_>) -> String {
    format!(
        "`mongoshape compact` is replacing {} by a packed copy: try again",
        run.namespace
    )
}

/// The error of a statement that failed because of a swap before it changed anything.
pub(super) fn not_executed(run: &BucketCommand<'_>) -> WriteError {
    WriteError::new(ErrorCode::WriteConflict, message(run))
}

/// The error of an update that a swap stopped after it had changed `items` items, and that cannot
/// be resumed.
pub(super) fn updated_in_part(run: &BucketCommand<'_>, items: i64) -> WriteError {
    in_part(run, &format!("{items} items were changed"))
}

/// The error of a delete that a swap stopped after it had deleted `items` items, and that cannot be
/// resumed.
pub(super) fn deleted_in_part(run: &BucketCommand<'_>, items: i64) -> WriteError {
    in_part(run, &format!("{items} items were deleted"))
}

pub(super) fn in_part(run: &BucketCommand<'_>, what: &str) -> WriteError {
    let message = format!(
        "`mongoshape compact` or `mongoshape convert` replaced {} by a copy while this statement was executed: {what}, and the others \
         were not; check the items before you send it again",
        run.namespace
    );
    WriteError::new(ErrorCode::WriteConflict, message)
}

/// Converts a failure because of a swap or freeze to `None`, for an operation that is unnecessary
/// in the copy.
pub(super) fn unless_replaced<T>(run: &BucketCommand<'_>, result: Result<T, RunError>) -> Result<Option<T>, RunError> {
    match result {
        Err(RunError::Command(error)) if is_swap_error(&error) && !run.context.head.in_transaction() => Ok(None),
        result => result.map(Some),
    }
}

impl BucketCommand<'_> {
    /// Whether the name still denotes the collection that was checked. Needed only if a query
    /// cannot name the UUID; otherwise mongod checks it.
    pub(super) async fn is_still_the_same(&mut self) -> Result<bool, RunError> {
        let Some(known) = self.collection.clone() else {
            return Ok(true);
        };
        let settings = self.context.settings;
        settings.catalog.forget(self.namespace);
        self.collection = settings.catalog.for_reading(&mut self.catalog_session()).await?;
        Ok(self.collection == Some(known))
    }
}
