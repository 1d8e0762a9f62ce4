//! `findAndModify`. mongod changes an inline document itself, and an outlier whose array is not touched. Any
//! other change of an outlier is evaluated on a copy.

mod eval_and_replace;
mod in_place;

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use self::in_place::{ChangeInPlace, InPlace};
use super::command::OutlierCommand;
use super::internal_write::matched_count;
use super::read::forgotten;
use super::write::{DocumentSelector, has_expression, matching_nothing};
use crate::command::arguments::with_replaced;
use crate::command::document::{get, put};
use crate::command::error::{CommandError, WriteError};
use crate::command::find_and_modify::FindAndModify;
use crate::pattern::outlier::classify::{Growth, UpdateEffect, may_insert_long};
use crate::pattern::outlier::layout::DocumentState;
use crate::pattern::outlier::reassemble::merged;
use crate::pattern::outlier::statement::typical_with_room;
use crate::session::backoff::{LAST_ATTEMPT, MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::upsert_race::is_of_filter;

/// mongod's code for a retry without `upsert` of a `findAndModify` that inserted a document.
const WAS_UPSERT: i32 = 40608;

pub(super) async fn run(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let command = FindAndModify::parse(run.context.head.body())?;
    run.context.is_retryable()?;
    let change = command.change.map_or(UpdateEffect::LeavesArray, |change| {
        UpdateEffect::of_upsert(run.shape, change, command.filter.filter(|_| command.upsert))
    });
    run.check_change(change)?;
    let growth = change.growth();
    if command.upsert && command.filter.is_some_and(has_expression) {
        // mongod refuses the command.
        return run.as_it_is().await;
    }
    let in_place = InPlace::of(run, &command, change);
    if in_place == InPlace::WithoutArray {
        let answer = run.as_it_is().await?;
        return reassembled_retry(run, answer).await;
    }
    let selector = DocumentSelector {
        filter: command.filter,
        sort: command.sort,
        collation: command.collation,
        hint: command.hint,
        variables: command.let_variables,
    };
    for attempt in 0..MAX_ATTEMPTS {
        pause(attempt).await;
        let id = selected(run, &command, selector).await?;
        let Some(id) = id else {
            match without_match(run, &command, growth, attempt).await? {
                Some(answer) => return Ok(answer),
                None => continue,
            }
        };
        let id = id.as_raw_bson_ref();
        let filter = run.filter_of(selector, id)?;
        let typical = typical_with_room(run.shape, &filter, growth);
        if let Some(typical) = &typical
            && let Some(answer) = typical_one(run, typical).await?
        {
            return Ok(answer);
        }
        let is_mismatch = if in_place == InPlace::Whole {
            match in_place::of_outlier(run, selector, &filter, id).await? {
                ChangeInPlace::Done(answer) => return Ok(answer),
                ChangeInPlace::NoMatch => true,
                ChangeInPlace::Impossible => false,
            }
        } else {
            typical.is_some() && run.is_mismatch(selector).await?
        };
        if !is_mismatch && let Some(answer) = eval_and_replace::of_outlier(run, &command, &filter, id).await? {
            return Ok(answer);
        }
        if selector.id().is_some()
            && let Some(answer) = without_match(run, &command, growth, attempt).await?
        {
            return Ok(answer);
        }
    }
    Err(run.lost_too_often().into())
}

/// The `_id` of the document to change. `None`: no document matches.
async fn selected(
    run: &mut OutlierCommand<'_>,
    command: &FindAndModify<'_>,
    selector: DocumentSelector<'_>,
) -> Result<Option<RawBson>, RunError> {
    if let Some(id) = selector.id().filter(|_| !command.sort_may_fail()) {
        return Ok(Some(id.into()));
    }
    match run.first_id(selector).await {
        Err(RunError::Command(error @ CommandError::Upstream(_))) if !run.context.head.in_transaction() => {
            // mongod may report another error first, so the client's command is validated.
            run_matching_nothing(run, command).await?;
            Err(error.into())
        }
        found => found,
    }
}

/// The client's command with another filter, and without the fields in `without`.
fn asking(run: &OutlierCommand<'_>, filter: &RawDocument, without: &[&str]) -> RawDocumentBuf {
    let mut replaced: Vec<_> = without.iter().map(|name| (*name, None)).collect();
    replaced.push(("query", None));
    let mut body = with_replaced(run.context.head.body(), &replaced);
    put(&mut body, "query", filter);
    body
}

/// Executes the client's command on an inline document. `None`: no inline document matches.
async fn typical_one(run: &mut OutlierCommand<'_>, filter: &RawDocument) -> Result<Option<RawDocumentBuf>, RunError> {
    let answer = without_upsert(run, filter).await?;
    if matched_count(&answer) == 0 {
        return Ok(None);
    }
    reassembled_retry(run, answer).await.map(Some)
}

/// Reassembles the document in the reply to a retry, which may be an outlier. mongod returns the document
/// that it recorded, without the projection.
async fn reassembled_retry(run: &mut OutlierCommand<'_>, answer: RawDocumentBuf) -> Result<RawDocumentBuf, RunError> {
    if get(&answer, "retriedStmtId").is_none() {
        return Ok(answer);
    }
    let Some(RawBsonRef::Document(value)) = get(&answer, "value") else {
        return Ok(answer);
    };
    let DocumentState::Outlier(extras) = DocumentState::of(run.shape, value) else {
        return Ok(answer);
    };
    let pages = run.pages(value, &extras).await?;
    let Some(whole) = merged(run.shape, value, &extras, &pages.of(extras.generation)) else {
        return Err(forgotten().into());
    };
    Ok(with_replaced(&answer, &[("value", Some(RawBsonRef::Document(&whole)))]))
}

/// The reply if no document matches: an upsert, mongod's retry record, or an empty result. `None`: another
/// writer has inserted a document that matches. `attempt`: the number of earlier attempts.
async fn without_match(
    run: &mut OutlierCommand<'_>,
    command: &FindAndModify<'_>,
    growth: Growth,
    attempt: u32,
) -> Result<Option<RawDocumentBuf>, RunError> {
    match upsert_or_nothing(run, command, growth).await {
        Err(RunError::Command(error)) if is_overtaken(command, &error) => {
            let is_repeated = !run.context.head.in_transaction() && attempt < LAST_ATTEMPT;
            if is_repeated { Ok(None) } else { Err(error.into()) }
        }
        answer => answer.map(Some),
    }
}

/// Whether another writer has inserted the document that an upsert's filter demands.
fn is_overtaken(command: &FindAndModify<'_>, error: &CommandError) -> bool {
    let filter = command.filter.filter(|_| command.upsert);
    let error = WriteError::of_command(error);
    filter
        .zip(error)
        .is_some_and(|(filter, error)| is_of_filter(&error, filter))
}

/// The result of the upsert, or of the command without a match.
async fn upsert_or_nothing(
    run: &mut OutlierCommand<'_>,
    command: &FindAndModify<'_>,
    growth: Growth,
) -> Result<RawDocumentBuf, RunError> {
    let all = RawDocumentBuf::new();
    let filter = command.filter.unwrap_or(&all);
    if command.upsert {
        let growth = if may_insert_long(run.shape, filter) {
            Growth::Unknown
        } else {
            growth
        };
        let Some(typical) = typical_with_room(run.shape, filter, growth) else {
            return eval_and_replace::upsert(run, command).await;
        };
        let body = asking(run, &typical, &[]);
        let answer = run.context.link.run(&run.next(&body)).await?;
        return reassembled_retry(run, answer).await;
    }
    let answer = run_matching_nothing(run, command).await?;
    reassembled_retry(run, answer).await
}

/// mongod's reply to the client's command with a filter that matches nothing.
async fn run_matching_nothing(
    run: &mut OutlierCommand<'_>,
    command: &FindAndModify<'_>,
) -> Result<RawDocumentBuf, RunError> {
    let all = RawDocumentBuf::new();
    let nothing = matching_nothing(command.filter.unwrap_or(&all));
    without_upsert(run, &nothing).await
}

/// mongod's reply to the client's command with another filter and without an insert.
async fn without_upsert(run: &mut OutlierCommand<'_>, filter: &RawDocument) -> Result<RawDocumentBuf, RunError> {
    let body = asking(run, filter, &["sort", "upsert"]);
    match run.context.link.run(&run.next(&body)).await {
        Err(RunError::Command(CommandError::Upstream(reply)))
            if reply.get_i32("code").is_ok_and(|code| code == WAS_UPSERT) =>
        {
            // The first attempt inserted a document. With `upsert`, mongod returns the retry record and
            // inserts nothing.
            let body = asking(run, filter, &["sort"]);
            run.context.link.run(&run.next(&body)).await
        }
        answer => answer,
    }
}
