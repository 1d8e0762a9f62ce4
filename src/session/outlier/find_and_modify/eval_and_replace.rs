//! `findAndModify` by evaluation on a copy, for outliers and for documents whose array may exceed
//! the threshold afterwards.

use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::{reassembled_retry, run_matching_nothing, typical_one};
use crate::command::document::{get, put, single};
use crate::command::find_and_modify::FindAndModify;
use crate::command::reply::{copy_cluster_time, succeeded};
use crate::pattern::outlier::statement::{inserting, typical, unchanged};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::outlier::command::OutlierCommand;
use crate::session::outlier::internal_write::{OutlierWriteResult, matched_count};
use crate::session::outlier::overlong::Replaceable;
use crate::session::outlier::page_store::Written;
use crate::session::outlier::write::DocumentSelector;

/// Changes an outlier, or a document that may become one. `None`: the document with that `_id` does
/// not match.
pub(super) async fn of_outlier(
    run: &mut OutlierCommand<'_>,
    command: &FindAndModify<'_>,
    filter: &RawDocument,
    id: RawBsonRef<'_>,
) -> Result<Option<RawDocumentBuf>, RunError> {
    if run.context.head.is_retryable_write() {
        // A retry is detected first: evaluated on the current document, the command could have another
        // result.
        let answer = run_matching_nothing(run, command).await?;
        if get(&answer, "retriedStmtId").is_some() {
            return reassembled_retry(run, answer).await.map(Some);
        }
    }
    let selector = DocumentSelector {
        filter: Some(filter),
        sort: None,
        collation: command.collation,
        hint: command.hint,
        variables: command.let_variables,
    };
    let of_copy = run.filter_of_copy(filter, parts(command))?;
    for attempt in 0..MAX_ATTEMPTS {
        pause(attempt).await;
        let stored = match run.replaceable(selector, id).await? {
            Some(Replaceable::Split(stored)) => stored,
            Some(Replaceable::Whole) => {
                let typical = typical(run.shape, filter);
                match typical_one(run, &typical).await? {
                    Some(answer) => return Ok(Some(answer)),
                    None => continue,
                }
            }
            None => return Ok(None),
        };
        let Some(whole) = run.whole(&stored).await? else {
            continue;
        };
        let computed = run
            .compute(Some(&whole), |collection| on_copy(collection, command, Some(&of_copy)))
            .await?;
        let answer = match succeeded(computed.answer) {
            Ok(answer) if matched_count(&answer) == 0 => return Ok(None),
            Err(error) if !keeps_change(run, command, Some(&whole), computed.then.as_deref()) => {
                return Err(error.into());
            }
            answer => answer,
        };
        let result = match computed.then {
            Some(then) if then.as_bytes() == whole.as_bytes() => {
                return without_change(run, command, answer?).await.map(Some);
            }
            Some(then) => run.replace(&stored, &then, "findAndModify", 0).await?,
            None => remove(run, &stored).await?,
        };
        let Some(result) = result else { continue };
        if result.resent {
            return reassembled_retry(run, result.answer).await.map(Some);
        }
        return Ok(Some(reply_of(&answer?, &result.answer)));
    }
    Err(run.lost_too_often().into())
}

/// Whether a command that failed on the copy has changed it, and the change is to be stored. mongod evaluates
/// the projection after the change. If the projection fails, the change is kept, unless the error aborts a
/// transaction.
fn keeps_change(
    run: &OutlierCommand<'_>,
    command: &FindAndModify<'_>,
    before: Option<&RawDocument>,
    then: Option<&RawDocument>,
) -> bool {
    let has_projection = command.projection.is_some_and(|projection| !projection.is_empty());
    let is_changed = before.map(RawDocument::as_bytes) != then.map(RawDocument::as_bytes);
    has_projection && is_changed && !run.context.head.in_transaction()
}

/// Executes an upsert whose new document may have an array of any length.
pub(super) async fn upsert(
    run: &mut OutlierCommand<'_>,
    command: &FindAndModify<'_>,
) -> Result<RawDocumentBuf, RunError> {
    if run.context.head.is_retryable_write() {
        let answer = run_matching_nothing(run, command).await?;
        if get(&answer, "retriedStmtId").is_some() {
            return reassembled_retry(run, answer).await;
        }
    }
    let of_copy = command.filter.map(|filter| run.filter_of_copy(filter, parts(command)));
    let of_copy = of_copy.transpose()?;
    let computed = run
        .compute(None, |collection| {
            let mut copy = on_copy(collection, command, of_copy.as_deref());
            put(&mut copy, "upsert", true);
            copy
        })
        .await?;
    let answer = match succeeded(computed.answer) {
        Err(error) if !keeps_change(run, command, None, computed.then.as_deref()) => return Err(error.into()),
        answer => answer,
    };
    let Some(made) = computed.then else {
        return Ok(answer?);
    };
    let generation = ObjectId::new();
    let split = run.split(&made, generation).await?;
    let written = Written::of(&split.base, generation, &split.pages);
    run.write_pages(&split.pages, &written).await?;
    let (filter, change) = inserting(&split.base);
    let mut insert = single("findAndModify", run.namespace.collection);
    put(&mut insert, "query", &filter);
    put(&mut insert, "update", change);
    put(&mut insert, "upsert", true);
    put(&mut insert, "collation", single("locale", "simple"));
    let result = run.find_and_modify(insert).await;
    let result = run.settled(result, &written).await?;
    if result.resent {
        return reassembled_retry(run, result.answer).await;
    }
    Ok(reply_of(&answer?, &result.answer))
}

/// The update and the projection.
fn parts<'a>(command: &FindAndModify<'a>) -> impl Iterator<Item = &'a RawDocument> {
    let change = command.change.and_then(RawBsonRef::as_document);
    change.into_iter().chain(command.projection)
}

/// The client's command on the scratch collection.
fn on_copy(collection: &str, command: &FindAndModify<'_>, filter: Option<&RawDocument>) -> RawDocumentBuf {
    let mut copy = single("findAndModify", collection);
    let documents = [
        ("query", filter),
        ("fields", command.projection),
        ("collation", command.collation),
        ("let", command.let_variables),
    ];
    for (name, document) in documents {
        if let Some(document) = document {
            put(&mut copy, name, document);
        }
    }
    match command.change {
        Some(change) => put(&mut copy, "update", change),
        None => put(&mut copy, "remove", true),
    }
    if let Some(filters) = command.array_filters {
        put(&mut copy, "arrayFilters", filters);
    }
    put(&mut copy, "new", command.new);
    put(&mut copy, "bypassDocumentValidation", true);
    copy
}

/// Removes a stored document and its pages. `None`: the document has changed since it was read.
async fn remove(run: &mut OutlierCommand<'_>, stored: &RawDocument) -> Result<Option<OutlierWriteResult>, RunError> {
    let filter = unchanged(stored).map_err(|what| run.unsupported(&what))?;
    let mut command = single("findAndModify", run.namespace.collection);
    put(&mut command, "query", &filter);
    put(&mut command, "remove", true);
    put(&mut command, "collation", single("locale", "simple"));
    let result = run.find_and_modify(command).await?;
    if result.n == 0 {
        return Ok(None);
    }
    if let (Some(extras), Some(id)) = (run.extras_of(stored)?, get(stored, "_id")) {
        run.remove_pages(id, extras.generation).await?;
    }
    Ok(Some(result))
}

/// The reply to a command that changed nothing.
async fn without_change(
    run: &mut OutlierCommand<'_>,
    command: &FindAndModify<'_>,
    answer: RawDocumentBuf,
) -> Result<RawDocumentBuf, RunError> {
    if !run.context.head.is_retryable_write() && !run.has_write_concern() {
        return Ok(answer);
    }
    let noted = run_matching_nothing(run, command).await?;
    if get(&noted, "retriedStmtId").is_some() {
        // The document is unchanged because an earlier attempt has changed it.
        return reassembled_retry(run, noted).await;
    }
    Ok(reply_of(&answer, &noted))
}

/// The reply: mongod's result on the copy, with the write concern error and cluster time of the reply for the
/// collection itself.
fn reply_of(answer: &RawDocument, stored: &RawDocument) -> RawDocumentBuf {
    let mut reply = RawDocumentBuf::new();
    for (name, value) in answer.iter().flatten() {
        if ["lastErrorObject", "value", "ok"].contains(&name.as_str()) {
            reply.append(name, value);
        }
    }
    if let Some(concern) = get(stored, "writeConcernError") {
        reply.append(cstr!("writeConcernError"), concern);
    }
    copy_cluster_time(&mut reply, stored);
    reply
}
