//! An item whose key or time changes: it stays on its page if it belongs there, or is
//! [relocated](super::relocate). Where it cannot be relocated, it stays with [any time](super::retime).

use bson::DateTime;
use bson::raw::{RawBsonRef, RawDocumentBuf};

use super::command::BucketCommand;
use super::failed_update::FailedUpdate;
use super::item_update::{ItemUpdate, in_words_of_the_application};
use super::relocate::{RelocateOutcome, check_key_change, relocate, was_relocated};
use super::retime::shift;
use super::retry_on_swap::is_swap_error;
use super::room;
use super::write_statement::{Origin, WriteCommand, send_one};
use crate::command::document::get;
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::bucket::change_stream::change_record::{AppliedUpdate, ChangeRecord};
use crate::pattern::bucket::item::{Item, KeepsTimestamps};
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::unique_index::violation;
use crate::pattern::bucket::update_by_position::{Elsewhere, with_time};
use crate::session::error::RunError;
use crate::session::id_source::SystemIdSource;

pub(super) enum KeyOrTimeOutcome {
    /// The new item, on the same page, and mongod's reply.
    Stayed(RawDocumentBuf, RawDocumentBuf),
    /// The new item, on another page, and mongod's last reply.
    Away(RawDocumentBuf, RawDocumentBuf),
    /// An earlier attempt of the command relocated an item in the internal transaction with this
    /// attempt number.
    Before(u32),
    /// An earlier attempt of the command changed an item in place. mongod's reply with the retry record.
    Recorded(RawDocumentBuf),
    /// The item has changed since it was read.
    Missed,
    /// The change failed with mongod's error.
    Failed(WriteError),
}

/// Gives the item its new key or time. `stays`: whether it may change in place, which leaves no
/// retry record of the new item.
pub(super) async fn change_key_or_time(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
    found: &LocatedItem,
    elsewhere: Elsewhere,
    stays: bool,
) -> Result<KeyOrTimeOutcome, RunError> {
    match change(run, task, found, elsewhere, stays).await {
        Err(RunError::Command(error)) => {
            let failed = FailedUpdate::new(task, Some(found));
            if room::is_page_too_large(&error) && room::make(run, failed).await? {
                return Ok(KeyOrTimeOutcome::Missed);
            }
            let refused = WriteError::of_command(&error).filter(|refused| {
                let is_invalid = error.is(ErrorCode::DocumentValidationFailure) && !is_swap_error(&error);
                is_invalid || violation(&refused.detail).is_some()
            });
            let Some(refused) = refused else {
                return Err(error.into());
            };
            let refused = in_words_of_the_application(run, refused, failed).await?;
            Ok(KeyOrTimeOutcome::Failed(refused))
        }
        changed => changed,
    }
}

async fn change(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
    found: &LocatedItem,
    elsewhere: Elsewhere,
    stays: bool,
) -> Result<KeyOrTimeOutcome, RunError> {
    let is_time = matches!(elsewhere, Elsewhere::Time(_));
    let item = elsewhere.into_item();
    let mut mint = SystemIdSource::new(&run.context.shared.timestamps);
    let prepared = Item::prepare(run.shape, 0, &item, &mut KeepsTimestamps(&mut mint));
    let stored = match prepared {
        Ok(stored) => stored,
        Err(error) => {
            let before = before(run, task).await?;
            return Ok(before.unwrap_or(KeyOrTimeOutcome::Failed(error)));
        }
    };
    if is_time
        && stays
        && let Some(time) = stored.time()
    {
        // Another attempt may have moved the item to the page on which it was found.
        if let Some(attempt) = was_relocated(run, task).await? {
            return Ok(KeyOrTimeOutcome::Before(attempt));
        }
        match in_place(run, task, found, &stored, time).await {
            // Another page has room for the new item.
            Err(RunError::Command(error)) if room::is_page_too_large(&error) && room::may_leave(run) => {}
            answer => {
                if let Some(answer) = answer? {
                    return Ok(KeyOrTimeOutcome::Stayed(item, answer));
                }
            }
        }
    }
    if is_time && !run.context.can_relocate() && !run.context.head.in_transaction() {
        if !stays {
            let what = "a retryable findAndModify that changes the time of an item behind a mongos";
            return Err(run.unsupported(what).into());
        }
        return Ok(match shift(run, found, &stored, task.statement_id).await? {
            Some(answer) => KeyOrTimeOutcome::Stayed(item, answer),
            None => KeyOrTimeOutcome::Missed,
        });
    }
    // A relocation does not use the statement's own `stmtId`. Another attempt may have changed an item in
    // place under it since the statement was validated, and this item may match only because of that.
    if let Some(answer) = task.recorded(run).await? {
        return Ok(KeyOrTimeOutcome::Recorded(answer));
    }
    if !is_time {
        check_key_change(run)?;
    }
    Ok(match relocate(run, task, found, &item).await? {
        RelocateOutcome::Now(answer) => KeyOrTimeOutcome::Away(item, answer),
        RelocateOutcome::Before(attempt) => KeyOrTimeOutcome::Before(attempt),
        RelocateOutcome::Missed => KeyOrTimeOutcome::Missed,
    })
}

/// The outcome of an earlier attempt of the command.
async fn before(run: &mut BucketCommand<'_>, task: &ItemUpdate<'_>) -> Result<Option<KeyOrTimeOutcome>, RunError> {
    if let Some(attempt) = was_relocated(run, task).await? {
        return Ok(Some(KeyOrTimeOutcome::Before(attempt)));
    }
    Ok(task.recorded(run).await?.map(KeyOrTimeOutcome::Recorded))
}

/// `None`: the new time does not belong at the item's position, or the item has changed since it
/// was read.
async fn in_place(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
    found: &LocatedItem,
    item: &Item,
    time: DateTime,
) -> Result<Option<RawDocumentBuf>, RunError> {
    // The item's `_id` can be stored in a different form.
    if get(&found.item, "_id").is_none() && item.id().is_some() {
        return Ok(None);
    }
    let statement = with_time(run.shape, found, RawBsonRef::Document(item.stored()), time);
    let mut statement = statement.map_err(|what| run.unsupported(&what))?;
    if run.shape.change_streams() {
        let record = ChangeRecord {
            is_own_transaction: false,
            update: AppliedUpdate::of(task.asked.change),
        };
        statement = record.recorded_by(&statement);
    }
    let result = send_one(run, WriteCommand::Update, &statement, Origin::Client(task.statement_id)).await?;
    Ok((result.n > 0).then_some(result.answer))
}
