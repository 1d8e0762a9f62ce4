//! Updates by evaluation on a copy, for outliers and for documents whose array may exceed the
//! threshold afterwards.

use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::{At, OutlierUpdate};
use crate::command::arguments::with_replaced;
use crate::command::document::{array_of, single};
use crate::command::reply::succeeded;
use crate::pattern::outlier::statement::{typical, upserting};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::outlier::command::OutlierCommand;
use crate::session::outlier::internal_write::OutlierWriteResult;
use crate::session::outlier::overlong::Replaceable;
use crate::session::outlier::page_store::Written;
use crate::session::outlier::write::DocumentSelector;

/// Has mongod evaluate the new document, and replaces the stored one.
pub(super) async fn rewrite(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierUpdate<'_, '_>,
    filter: &RawDocument,
    id: RawBsonRef<'_>,
) -> Result<At, RunError> {
    let selector = DocumentSelector {
        filter: Some(filter),
        sort: None,
        ..statement.selector()
    };
    for attempt in 0..MAX_ATTEMPTS {
        pause(attempt).await;
        let stored = match run.replaceable(selector, id).await? {
            Some(Replaceable::Split(stored)) => stored,
            Some(Replaceable::Whole) => {
                let typical = typical(run.shape, filter);
                match statement.on_inline(run, &typical).await? {
                    Some(at) => return Ok(at),
                    None => continue,
                }
            }
            None => return Ok(At::NoMatch),
        };
        let Some(whole) = run.whole(&stored).await? else {
            continue;
        };
        // The scratch collection does not have the hinted index.
        let of_copy = run.filter_of_copy(filter, statement.of.change.as_document())?;
        let element = without_hint(&statement.element(&of_copy, statement.of.change, false, false));
        let computed = run
            .compute(Some(&whole), |collection| {
                update(collection, &element, statement.variables)
            })
            .await?;
        let result = OutlierWriteResult::of(succeeded(computed.answer)?);
        if result.error.is_some() || (result.n > 0 && result.modified == 0) {
            return Ok(At::done(without_change(run, statement, result).await?));
        }
        let Some(then) = computed.then.filter(|_| result.n > 0) else {
            return Ok(At::NoMatch);
        };
        if let Some(mut replaced) = run.replace(&stored, &then, "update", statement.id).await? {
            // The replacement can report a change although the evaluated document is equal.
            if replaced.error.is_none() && !replaced.resent {
                replaced.modified = result.modified;
            }
            return Ok(At::done(replaced));
        }
    }
    Err(run.lost_too_often().into())
}

/// Executes an upsert whose new document may have an array of any length.
pub(super) async fn upsert(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierUpdate<'_, '_>,
) -> Result<OutlierWriteResult, RunError> {
    for attempt in 0..MAX_ATTEMPTS {
        pause(attempt).await;
        if let Some(result) = insert_evaluated(run, statement).await? {
            return Ok(result);
        }
    }
    Err(run.lost_too_often().into())
}

/// Has mongod evaluate the new document, and inserts it. `None`: the collection has been dropped or replaced.
async fn insert_evaluated(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierUpdate<'_, '_>,
) -> Result<Option<OutlierWriteResult>, RunError> {
    let of = statement.of;
    let of_copy = run.filter_of_copy(of.filter, of.change.as_document())?;
    let element = without_hint(&statement.element(&of_copy, of.change, of.multi, true));
    let computed = run
        .compute(None, |collection| update(collection, &element, statement.variables))
        .await?;
    let result = OutlierWriteResult::of(succeeded(computed.answer)?);
    let Some(made) = computed.then.filter(|_| result.error.is_none()) else {
        return without_change(run, statement, result).await.map(Some);
    };
    let generation = ObjectId::new();
    let split = run.split(&made, generation).await?;
    let written = Written::of(&split.base, generation, &split.pages);
    run.write_pages(&split.pages, &written).await?;
    let element = upserting(&split.base);
    let stored = run.write_evaluated(&element, statement.id).await;
    let stored = run.settled(stored, &written).await;
    run.of_checked_collection(stored)
}

/// The result of a statement that changed nothing, with the write concern's error and the cluster time that
/// mongod returns for the collection itself. If an earlier attempt has changed the document, the result is
/// mongod's retry record.
async fn without_change(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierUpdate<'_, '_>,
    result: OutlierWriteResult,
) -> Result<OutlierWriteResult, RunError> {
    if !run.context.head.is_retryable_write() && !run.has_write_concern() {
        return Ok(result);
    }
    let noted = statement.on_none(run).await?;
    if noted.n > 0 {
        return Ok(noted);
    }
    let error = result.error.or(noted.error);
    Ok(OutlierWriteResult {
        error,
        answer: noted.answer,
        ..result
    })
}

fn without_hint(element: &RawDocument) -> RawDocumentBuf {
    with_replaced(element, &[("hint", None)])
}

fn update(collection: &str, element: &RawDocumentBuf, variables: Option<&RawDocument>) -> RawDocumentBuf {
    let mut command = single("update", collection);
    command.append(cstr!("updates"), array_of(std::slice::from_ref(element)));
    command.append(cstr!("bypassDocumentValidation"), true);
    if let Some(variables) = variables {
        command.append(cstr!("let"), variables);
    }
    command
}
