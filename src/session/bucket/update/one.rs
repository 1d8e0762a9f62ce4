//! An update of one item that the filter selects.

use bson::raw::{RawBson, RawDocumentBuf};

use super::find_again::moved_or_first;
use super::outcome::{UpdateOutcome, unchanged};
use super::statement::send;
use crate::command::document::get;
use crate::command::error::WriteError;
use crate::pattern::bucket::insert::is_too_large;
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::update_by_position::{InPlace, Planned};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::duplicate_key::look_ahead;
use crate::session::bucket::failed_update::FailedUpdate;
use crate::session::bucket::item_update::{InPlaceOutcome, ItemUpdate, given_up, in_words_of_the_application};
use crate::session::bucket::key_or_time_change::{self, KeyOrTimeOutcome};
use crate::session::bucket::relocate::{was_relocated, was_relocated_before_others};
use crate::session::bucket::room;
use crate::session::bucket::upsert::{self, Upserted};
use crate::session::error::RunError;

pub(super) async fn run(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
    upserts: bool,
    validated: UpdateOutcome,
) -> Result<UpdateOutcome, RunError> {
    let mut moved: Option<LocatedItem> = None;
    for round in 0..=MAX_ATTEMPTS {
        let Some(found) = moved_or_first(run, task.wanted(), moved.take()).await? else {
            match none_matched(run, task, upserts, &validated).await? {
                Some(outcome) => return Ok(outcome),
                None => continue,
            }
        };
        let planned = task.plan(run, &found).await?;
        if let Some(outcome) = executed_meanwhile(run, task, upserts, &planned).await? {
            return Ok(outcome);
        }
        let change = match planned {
            Planned::InPlace(change) => change,
            Planned::Unchanged { counted } => return Ok(unchanged(&validated.answer, counted)),
            Planned::Elsewhere(where_to) => {
                match key_or_time_change::change_key_or_time(run, task, &found, where_to, true).await? {
                    KeyOrTimeOutcome::Stayed(_, answer) | KeyOrTimeOutcome::Away(_, answer) => {
                        return Ok(UpdateOutcome::of_one(answer));
                    }
                    KeyOrTimeOutcome::Before(_) => return Ok(relocated_before(&validated)),
                    KeyOrTimeOutcome::Recorded(answer) => return Ok(UpdateOutcome::of(answer)),
                    KeyOrTimeOutcome::Missed => {
                        pause(round).await;
                        continue;
                    }
                    KeyOrTimeOutcome::Failed(error) => return Ok(failed(validated, error)),
                }
            }
            Planned::Failed(error) => return Ok(failed(validated, error)),
        };
        match in_place(run, task, &found, &change).await? {
            InPlaceOutcome::Done(outcome) => return Ok(outcome),
            InPlaceOutcome::Missed => {}
            InPlaceOutcome::Moved => moved = Some(found),
        }
        pause(round).await;
    }
    Ok(failed(validated, given_up(run)))
}

async fn in_place(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
    found: &LocatedItem,
    change: &InPlace,
) -> Result<InPlaceOutcome<UpdateOutcome>, RunError> {
    let statement = change
        .statement(run.shape, found)
        .map_err(|what| run.unsupported(&what))?;
    let held = look_ahead(run, found, change).await?;
    let mut outcome = send(run, task, &statement).await?;
    if let Some(error) = outcome.failed.take() {
        let update = FailedUpdate {
            change: Some(change),
            held: Some(&held),
            ..FailedUpdate::new(task, Some(found))
        };
        if is_too_large(error.code) && room::make(run, update).await? {
            return Ok(InPlaceOutcome::Moved);
        }
        outcome.failed = Some(in_words_of_the_application(run, error, update).await?);
        return Ok(InPlaceOutcome::Done(outcome));
    }
    if outcome.matched == 0 {
        return Ok(InPlaceOutcome::Missed);
    }
    if change.counted {
        outcome.modified = 1;
    }
    Ok(InPlaceOutcome::Done(outcome))
}

fn failed(validated: UpdateOutcome, error: WriteError) -> UpdateOutcome {
    UpdateOutcome {
        failed: Some(error),
        ..validated
    }
}

/// The outcome of another attempt that has executed the statement since it was validated. The located
/// item may be its result, or may match only because that attempt changed another item.
async fn executed_meanwhile(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
    upserts: bool,
    planned: &Planned,
) -> Result<Option<UpdateOutcome>, RunError> {
    if matches!(planned, Planned::Elsewhere(_)) {
        // The change of key or time asks for the other records.
        return if upserts {
            super::inserted_before(run, task).await
        } else {
            Ok(None)
        };
    }
    let before = super::before(run, task, upserts).await?;
    // A statement in place has the client's `stmtId`, so mongod answers it with the record.
    if before.is_some() || matches!(planned, Planned::InPlace(_)) {
        return Ok(before);
    }
    recorded(run, task).await
}

/// The outcome that mongod has recorded under the statement's own `stmtId`.
async fn recorded(run: &mut BucketCommand<'_>, task: &ItemUpdate<'_>) -> Result<Option<UpdateOutcome>, RunError> {
    Ok(task.recorded(run).await?.map(UpdateOutcome::of))
}

/// The outcome if no item matches. `None`: an item matches by now.
pub(super) async fn none_matched(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
    upserts: bool,
    validated: &UpdateOutcome,
) -> Result<Option<UpdateOutcome>, RunError> {
    if task.may_relocate(run.shape) && was_relocated_before_others(run, task).await?.is_some() {
        return Ok(Some(relocated_before(validated)));
    }
    // Another attempt may have changed the item after the statement was validated, so that the item no
    // longer matches.
    if let Some(outcome) = recorded(run, task).await? {
        return Ok(Some(outcome));
    }
    if !upserts {
        return Ok(Some(validated.clone()));
    }
    Ok(match upsert::insert_missing(run, task).await? {
        Upserted::Made(item, answer) => Some(made(get(&item, "_id").map(RawBson::from), answer)),
        Upserted::Before => super::inserted_before(run, task).await?,
        Upserted::Overtaken => None,
        Upserted::Failed(error) => Some(failed(validated.clone(), error)),
    })
}

/// The outcome of an upsert that inserted an item.
pub(super) fn made(id: Option<RawBson>, answer: RawDocumentBuf) -> UpdateOutcome {
    UpdateOutcome {
        matched: 1,
        upserted: id,
        answer,
        ..UpdateOutcome::default()
    }
}

/// The attempt number of the transaction in which an earlier attempt relocated an item, if the
/// update can relocate items.
pub(in crate::session::bucket) async fn is_relocated(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
) -> Result<Option<u32>, RunError> {
    if task.may_relocate(run.shape) {
        was_relocated(run, task).await
    } else {
        Ok(None)
    }
}

pub(super) fn relocated_before(validated: &UpdateOutcome) -> UpdateOutcome {
    UpdateOutcome {
        matched: 1,
        modified: 1,
        retried: true,
        ..validated.clone()
    }
}
