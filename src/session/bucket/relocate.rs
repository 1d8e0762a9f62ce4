//! Moves an item to another page, for another key or time. It is removed and inserted in one transaction: the
//! client's, or an [internal one](super::internal_transaction).

mod memory;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use self::memory::{ItemClaim, attempt_number, claim, is_recorded, pages, remember};
pub(super) use self::memory::{claimed, reply_with_image};
use super::command::BucketCommand;
use super::delete::{ItemToDelete, take_by, taking_out};
use super::insert;
use super::internal_transaction::{Before, OwnTransaction, insert_of, is_spent, is_transient, unlabelled};
use super::item_update::{ItemUpdate, Memory};
use super::write_statement::{Origin, lost_too_often};
use crate::command::document::get;
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::header::CommandHeader;
use crate::command::update::UpdateForm;
use crate::pattern::bucket::change_stream::change_record::{AppliedUpdate, ChangeRecord};
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::upstream::UpstreamKind;

/// Whether a statement can miss its item because the item is relocated concurrently. Impossible on
/// a standalone, which relocates nothing, and in a transaction, which reads a snapshot.
pub(super) fn may_pass_moved_items(run: &BucketCommand<'_>) -> bool {
    run.context.upstream != UpstreamKind::Standalone && !run.context.head.in_transaction()
}

#[derive(Debug)]
pub(super) enum RelocateOutcome {
    /// The item is on its new page. mongod's reply to the last command.
    Now(RawDocumentBuf),
    /// An earlier attempt of the client's statement relocated an item in the transaction with this
    /// attempt number.
    Before(u32),
    /// The item has changed since it was read.
    Missed,
}

/// An item that leaves its page.
struct Departure {
    target: ItemToDelete,
    /// The application's update of the item. `None`: the item moves as it is.
    update: Option<AppliedUpdate>,
}

/// Removes the located item and inserts `item`, which is the new item as the application sees it.
pub(super) async fn relocate(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
    found: &LocatedItem,
    item: &RawDocument,
) -> Result<RelocateOutcome, RunError> {
    let departure = Departure {
        target: ItemToDelete::of(run.shape, found.clone()).ok_or_else(|| run.corrupt_bucket_error())?,
        update: Some(AppliedUpdate::of(task.asked.change)),
    };
    if run.context.head.in_transaction() {
        return within(run, None, &departure, item).await.map(|done| match done {
            Some(answer) => RelocateOutcome::Now(answer),
            None => RelocateOutcome::Missed,
        });
    }
    let mut attempt = 0;
    for tries in 0..MAX_ATTEMPTS {
        pause(tries).await;
        let transaction = match task.statement_id {
            None => OwnTransaction::unnumbered(run),
            Some(id) => match next_attempt(run, task.memory, id, &mut attempt).await? {
                Next::Begin(transaction) => transaction,
                Next::Relocated => return Ok(RelocateOutcome::Before(attempt)),
                Next::Late => return Err(too_late().into()),
            },
        };
        if let (Some(id), Memory::Image) = (task.statement_id, task.memory) {
            match claim(run, found, id.saturating_add(attempt_number(attempt))).await? {
                ItemClaim::Made => {}
                ItemClaim::Missed => return Ok(RelocateOutcome::Missed),
                ItemClaim::Before => {
                    // Another attempt claimed an item under this number. Its transaction is ended, or
                    // found committed, before the next number is used.
                    if transaction.burn(run).await? == Before::Committed {
                        return Ok(RelocateOutcome::Before(attempt));
                    }
                    attempt += 1;
                    continue;
                }
            }
        }
        match in_own(run, &transaction, &departure, item).await {
            Ok(Some(answer)) => {
                run.executed = run.executed.saturating_add(1);
                let pages = pages(run, item);
                record(run, task, &pages).await?;
                return Ok(RelocateOutcome::Now(answer));
            }
            Ok(None) => return Ok(RelocateOutcome::Missed),
            // Another attempt of the client's statement may have begun this transaction, ended ours, or
            // continued from the same point.
            Err(RunError::Command(error))
                if is_transient(&error) || (task.statement_id.is_some() && is_spent(&error)) =>
            {
                if transaction.abort(run).await? == Before::Committed {
                    record(run, task, &[]).await?;
                    return Ok(RelocateOutcome::Before(attempt));
                }
            }
            Err(RunError::Command(error)) => {
                transaction.abort(run).await?;
                return Err(unlabelled(error).into());
            }
            Err(error) => return Err(error),
        }
        attempt += 1;
    }
    Err(lost_too_often().into())
}

/// Moves an item as it is to another page of its key. Does nothing if it has changed since it was read.
/// Requires that the deployment has transactions, and that the command is in none.
pub(super) async fn move_unchanged(run: &mut BucketCommand<'_>, found: &LocatedItem) -> Result<(), RunError> {
    let departure = Departure {
        target: ItemToDelete::of(run.shape, found.clone()).ok_or_else(|| run.corrupt_bucket_error())?,
        update: None,
    };
    for tries in 0..MAX_ATTEMPTS {
        pause(tries).await;
        let transaction = OwnTransaction::unnumbered(run);
        match in_own(run, &transaction, &departure, &found.item).await {
            Err(RunError::Command(error)) => {
                transaction.abort(run).await?;
                if !is_transient(&error) {
                    return Err(unlabelled(error).into());
                }
            }
            done => return done.map(drop),
        }
    }
    Err(lost_too_often().into())
}

/// Records that the statement relocated its item, if transactions of later statements follow.
async fn record(run: &mut BucketCommand<'_>, task: &ItemUpdate<'_>, pages: &[RawDocumentBuf]) -> Result<(), RunError> {
    match (task.statement_id, task.memory) {
        (Some(id), Memory::Statement) => remember(run, id, pages).await,
        _ => Ok(()),
    }
}

/// Refuses to move an item to another key if the upstream has no transaction for it. Refuses that also if a
/// change stream cannot describe it: a mongos returns the events of two shards in any order.
pub(super) fn check_key_change(run: &BucketCommand<'_>) -> Result<(), CommandError> {
    let is_in_transaction = run.context.head.in_transaction();
    let what = match run.context.upstream {
        UpstreamKind::Mongos if is_in_transaction && run.shape.change_streams() => {
            "an update that moves an item to another key behind a mongos, with `change_streams = true` in the shape"
        }
        _ if is_in_transaction || run.context.can_relocate() => return Ok(()),
        UpstreamKind::Mongos => "an update that moves an item to another key, outside a transaction behind a mongos",
        _ => {
            "an update that moves an item to another key on a standalone (it needs a transaction, and so a replica set)"
        }
    };
    Err(run.unsupported(what))
}

/// The `stmtId` of the client's statement, if an earlier attempt may have relocated an item.
fn relocating_statement(run: &BucketCommand<'_>, task: &ItemUpdate<'_>) -> Option<i32> {
    task.statement_id.filter(|_| run.context.can_relocate())
}

/// Returns the attempt number of the transaction in which an earlier attempt of the client's
/// statement relocated an item.
pub(super) async fn was_relocated(run: &mut BucketCommand<'_>, task: &ItemUpdate<'_>) -> Result<Option<u32>, RunError> {
    let Some(id) = relocating_statement(run, task) else {
        return Ok(None);
    };
    let mut attempt = 0;
    let next = next_attempt(run, task.memory, id, &mut attempt).await?;
    Ok(matches!(next, Next::Relocated).then_some(attempt))
}

/// Like [`was_relocated`], if the name may denote plain documents by now. Writes nothing to them.
pub(super) async fn was_relocated_on_former_pages(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
) -> Result<bool, RunError> {
    let Some(id) = relocating_statement(run, task).filter(|_| task.may_relocate(run.shape)) else {
        return Ok(false);
    };
    match last_transaction(run, id, &mut 0).await? {
        LastTransaction::Committed => Ok(true),
        LastTransaction::Unknown if task.memory == Memory::Statement => is_recorded(run, id).await,
        LastTransaction::Unused(_) | LastTransaction::Unknown => Ok(false),
    }
}

/// Like [`was_relocated`], for a statement that matches no item. If later statements follow, no
/// attempt of this statement may relocate an item from now on, because the transaction of a later
/// statement would hide it.
pub(super) async fn was_relocated_before_others(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
) -> Result<Option<u32>, RunError> {
    let Some(id) = relocating_statement(run, task) else {
        return Ok(None);
    };
    let mut attempt = 0;
    Ok(match next_attempt(run, task.memory, id, &mut attempt).await? {
        Next::Relocated => Some(attempt),
        Next::Begin(transaction)
            if task.memory == Memory::Statement && transaction.burn(run).await? == Before::Committed =>
        {
            record(run, task, &[]).await?;
            Some(attempt)
        }
        Next::Begin(_) | Next::Late => None,
    })
}

/// State of a statement's transactions.
enum Next {
    /// None was committed. This transaction may begin.
    Begin(OwnTransaction),
    /// One was committed.
    Relocated,
    /// None was committed and none can be, because the transaction of a later statement was begun.
    Late,
}

/// Checks the transactions of the client's statement, beginning with `attempt`. Sets `attempt` to
/// the number that the result is about.
async fn next_attempt(
    run: &mut BucketCommand<'_>,
    memory: Memory,
    id: i32,
    attempt: &mut u32,
) -> Result<Next, RunError> {
    Ok(match last_transaction(run, id, attempt).await? {
        LastTransaction::Unused(transaction) => Next::Begin(transaction),
        LastTransaction::Committed => {
            if memory == Memory::Statement {
                remember(run, id, &[]).await?;
            }
            Next::Relocated
        }
        LastTransaction::Unknown if memory == Memory::Statement && is_recorded(run, id).await? => Next::Relocated,
        LastTransaction::Unknown => Next::Late,
    })
}

/// The last transaction of a statement.
enum LastTransaction {
    /// None was committed. This is the first that was not begun.
    Unused(OwnTransaction),
    Committed,
    /// The transaction of a later statement was begun. It begins only after this statement was recorded.
    Unknown,
}

/// Looks for the last transaction of the client's statement, beginning with `attempt`. Sets `attempt` to its
/// number.
async fn last_transaction(
    run: &mut BucketCommand<'_>,
    id: i32,
    attempt: &mut u32,
) -> Result<LastTransaction, RunError> {
    while *attempt < MAX_ATTEMPTS {
        let transaction = of_statement(run, id, *attempt)?;
        match transaction.abort(run).await? {
            Before::Committed => return Ok(LastTransaction::Committed),
            Before::Nothing => return Ok(LastTransaction::Unused(transaction)),
            // Superseded by another attempt of this statement or by a later statement.
            Before::Superseded if of_statement(run, id, MAX_ATTEMPTS)?.abort(run).await? == Before::Superseded => {
                return Ok(LastTransaction::Unknown);
            }
            Before::Superseded | Before::Spent => *attempt += 1,
        }
    }
    Err(lost_too_often().into())
}

fn of_statement(run: &BucketCommand<'_>, id: i32, attempt: u32) -> Result<OwnTransaction, CommandError> {
    let transaction = OwnTransaction::of_statement(run, id, attempt);
    transaction.ok_or_else(|| run.unsupported("an update that moves an item, in such a session"))
}

/// The error of a retried statement that matched no item in its first attempt, and would relocate
/// one now.
fn too_late() -> CommandError {
    let message = "the first attempt of this statement matched no item; a later statement of the command has been executed since, so \
                   the item that it matches now was not moved";
    CommandError::new(ErrorCode::WriteConflict, message)
}

async fn in_own(
    run: &mut BucketCommand<'_>,
    transaction: &OwnTransaction,
    departure: &Departure,
    item: &RawDocument,
) -> Result<Option<RawDocumentBuf>, RunError> {
    if within(run, Some(transaction), departure, item).await?.is_none() {
        transaction.abort(run).await?;
        return Ok(None);
    }
    let answer = transaction.commit(run).await?;
    Ok(Some(answer))
}

/// Executes both statements in a transaction. `None`: the item has changed since it was read.
async fn within(
    run: &mut BucketCommand<'_>,
    transaction: Option<&OwnTransaction>,
    departure: &Departure,
    item: &RawDocument,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let body = insert_of(run, transaction, item, true);
    let head = CommandHeader::of_body(&body)?;
    // The client's transaction began when the item was looked up.
    let mut inner = run.for_internal_command(&head, transaction.is_none());
    if departure.update.is_none() {
        inner.avoided_page = Some(departure.target.page.id.clone());
    }
    let mut statement = taking_out(inner.shape, &departure.target);
    if inner.shape.change_streams() {
        let record = ChangeRecord {
            is_own_transaction: transaction.is_some(),
            update: departure.update.clone().unwrap_or_else(|| UpdateForm::Operators.into()),
        };
        statement = record.recorded_by(&statement);
    }
    let taken = take_by(&mut inner, &departure.target, statement, Origin::Client(None));
    if taken.await?.is_none() {
        return Ok(None);
    }
    let reply = insert::run(&mut inner).await?;
    let errors = get(&reply, "writeErrors").and_then(RawBsonRef::as_array);
    let error = errors.and_then(|errors| WriteError::parse(errors.into_iter().next()?.ok()?.as_document()?));
    match error {
        Some((_, error)) => Err(error.into_command_error().into()),
        None => Ok(Some(reply)),
    }
}
