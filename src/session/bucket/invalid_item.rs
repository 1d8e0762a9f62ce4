//! Errors for items that do not satisfy the application's validator.
//!
//! mongod reports the page. So the item is inserted as a plain document, in a transaction that is never
//! committed. The collection accepts only pages, so mongod refuses the document, and its error contains what
//! the application's own validator reports for it. A standalone has no transactions: without one, the
//! document could be stored if another client removes the validator in the meantime. There a query finds out
//! whether the document satisfies the validator, and the error has no details.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::BucketCommand;
use super::internal_transaction::OwnTransaction;
use super::retry_on_swap::wait;
use crate::command::arguments::{InheritedOptions, with_replaced};
use crate::command::document::{append_fields, array_of, as_flag, get, put, single};
use crate::command::error::{ErrorCode, WriteError};
use crate::command::reply::{CursorReply, succeeded};
use crate::command::write_batch::command_ranges_within;
use crate::pattern::bucket::compact;
use crate::pattern::bucket::validator::{PageValidator, Verdict, verdict};
use crate::pattern::shapes::BucketShape;
use crate::session::cross_collection::collection_lookup;
use crate::session::error::RunError;
use crate::session::upstream::UpstreamKind;
use crate::session::upstream_connection::UpstreamRequest;

const BYPASS: &str = "bypassDocumentValidation";
/// The most bytes of documents in the body of a command, which has room for a validator beside them.
const MAX_IN_BODY: usize = 8 << 20;

/// The error of a plain collection for each document. `None`: it satisfies the validator. Costs one round
/// trip, on a standalone two, and two more if documents have the field that distinguishes pages.
pub(super) async fn errors(
    run: &mut BucketCommand<'_>,
    documents: &[RawDocumentBuf],
) -> Result<Vec<Option<WriteError>>, RunError> {
    let infos = match evaluated(run, documents).await? {
        Some(infos) => with_similar_to_pages(run, documents, infos).await?,
        None => matched(run, documents).await?,
    };
    Ok(infos
        .into_iter()
        .map(|info| info.map(|info| error(run, &info)))
        .collect())
}

/// The error of a document whose content is not known.
pub(super) fn without_details(run: &BucketCommand<'_>, id: Option<RawBsonRef<'_>>) -> WriteError {
    error(run, &info_without_details(id))
}

/// Appends the client's option to the internal insert of an item. It only selects the error.
pub(super) fn append_bypass(run: &BucketCommand<'_>, insert: &mut RawDocumentBuf) {
    if let Some(bypasses) = get(run.context.head.body(), BYPASS) {
        put(insert, BYPASS, bypasses);
    }
}

/// Whether the client's command bypasses the validator.
pub(super) fn bypasses(run: &BucketCommand<'_>) -> bool {
    get(run.context.head.body(), BYPASS).and_then(as_flag) == Some(true)
}

/// The error for an `errInfo`.
fn error(run: &BucketCommand<'_>, info: &RawDocument) -> WriteError {
    if bypasses(run) {
        let what = "bypassDocumentValidation of a document that does not satisfy the validator";
        return WriteError::new(ErrorCode::CommandNotSupported, run.unsupported(what).message());
    }
    let mut error = WriteError::new(ErrorCode::DocumentValidationFailure, "Document failed validation");
    put(&mut error.detail, "errInfo", info);
    error
}

fn info_without_details(id: Option<RawBsonRef<'_>>) -> RawDocumentBuf {
    let mut info = single("failingDocumentId", id.unwrap_or(RawBsonRef::Null));
    put(&mut info, "details", RawDocumentBuf::new());
    info
}

/// The error if no item of a refused page is found that does not satisfy the validator.
pub(super) fn not_found(run: &BucketCommand<'_>) -> WriteError {
    let message = format!(
        "the validator of {} was changed at the same time, or another document of the page does not satisfy it: try again, and find \
         such documents with {{$nor: [<the validator>]}}",
        run.namespace
    );
    WriteError::new(ErrorCode::WriteConflict, message)
}

/// The `errInfo` of each document. `None`: a transaction cannot be used.
async fn evaluated(
    run: &mut BucketCommand<'_>,
    documents: &[RawDocumentBuf],
) -> Result<Option<Vec<Option<RawDocumentBuf>>>, RunError> {
    if run.context.upstream == UpstreamKind::Standalone {
        return Ok(None);
    }
    let infos = evaluated_in_collection(run, documents).await?;
    if infos.is_some() || run.context.head.in_transaction() {
        return Ok(infos);
    }
    // The collection may have been dropped and created again.
    wait(run).await?;
    evaluated_in_collection(run, documents).await
}

/// Like [`evaluated`], for the collection that was checked.
async fn evaluated_in_collection(
    run: &mut BucketCommand<'_>,
    documents: &[RawDocumentBuf],
) -> Result<Option<Vec<Option<RawDocumentBuf>>>, RunError> {
    let Some(uuid) = run.collection.as_ref().map(|collection| collection.uuid.clone()) else {
        return Ok(None);
    };
    let mut commands = Vec::new();
    let mut last = None;
    for document in documents {
        let transaction = OwnTransaction::to_be_aborted(run);
        let mut insert = single("insert", run.namespace.collection);
        insert.append(cstr!("documents"), array_of(std::slice::from_ref(document)));
        insert.append(cstr!("collectionUUID"), &uuid);
        // `apiStrict` does not allow `collectionUUID`.
        let inherited = InheritedOptions::of(run.context.head.body()).without_api_strict();
        inherited.append_identity(&mut insert);
        let mut insert = transaction.numbered(&insert);
        insert.append(cstr!("autocommit"), false);
        insert.append(cstr!("startTransaction"), true);
        commands.push(insert);
        last = Some(transaction);
    }
    let requests: Vec<UpstreamRequest<'_>> = commands.iter().map(|insert| UpstreamRequest::plain(insert)).collect();
    let answers = run.context.link.call_all(&requests).await?;
    let mut infos = Vec::new();
    let mut is_open = false;
    for answer in answers {
        let answer = succeeded(answer).ok();
        let errors = answer
            .as_ref()
            .and_then(|answer| get(answer, "writeErrors")?.as_array());
        let error = errors.and_then(|errors| errors.into_iter().next()?.ok()?.as_document());
        is_open = answer.is_some() && error.is_none();
        infos.extend(match error.map(verdict) {
            Some(Some(Verdict::Violated(info))) => Some(Some(info)),
            Some(Some(Verdict::Satisfied)) => Some(None),
            None if is_open => Some(None),
            _ => None,
        });
    }
    // A further transaction has ended each earlier one.
    if let Some(last) = last.filter(|_| is_open) {
        last.abort(run).await?;
    }
    Ok((infos.len() == documents.len()).then_some(infos))
}

/// Evaluates by a query the documents that may satisfy the conditions on a page in place of the application's
/// validator.
async fn with_similar_to_pages(
    run: &mut BucketCommand<'_>,
    documents: &[RawDocumentBuf],
    mut infos: Vec<Option<RawDocumentBuf>>,
) -> Result<Vec<Option<RawDocumentBuf>>, RunError> {
    let is_similar = |position: &usize| {
        let document = documents.get(*position);
        let is_satisfied = infos.get(*position).is_some_and(Option::is_none);
        is_satisfied && document.is_some_and(|document| get(document, BucketShape::CONTROL).is_some())
    };
    let positions: Vec<usize> = (0..documents.len()).filter(is_similar).collect();
    let similar = positions.iter().filter_map(|position| documents.get(*position));
    let similar: Vec<RawDocumentBuf> = similar.cloned().collect();
    if similar.is_empty() {
        return Ok(infos);
    }
    for (position, info) in positions.into_iter().zip(matched(run, &similar).await?) {
        if let Some(of_document) = infos.get_mut(position) {
            *of_document = info;
        }
    }
    Ok(infos)
}

/// The `errInfo` of each document, without details.
async fn matched(
    run: &mut BucketCommand<'_>,
    documents: &[RawDocumentBuf],
) -> Result<Vec<Option<RawDocumentBuf>>, RunError> {
    let body = without_session(run.context.head.body());
    let asker = InheritedOptions::of(&body);
    let options = collection_lookup::options(run.context.link, asker, run.namespace.collection).await?;
    let validator = options.as_deref();
    let validator = validator.and_then(|options| get(options, compact::VALIDATOR)?.as_document());
    let Some(validator) = validator.and_then(|validator| PageValidator::parse(validator)?.enforced()) else {
        return Ok(vec![None; documents.len()]);
    };
    let commands = documents.iter().map(std::slice::from_ref);
    let commands: Vec<RawDocumentBuf> = commands
        .map(|document| first_invalid(run, &validator, document))
        .collect();
    let requests: Vec<UpstreamRequest<'_>> = commands.iter().map(|command| UpstreamRequest::plain(command)).collect();
    let mut infos = Vec::new();
    for (answer, document) in run.context.link.call_all(&requests).await?.into_iter().zip(documents) {
        let answer = succeeded(answer)?;
        infos.push(has_document(&answer).then(|| info_without_details(get(document, "_id"))));
    }
    Ok(infos)
}

/// Whether all documents satisfy this validator. Costs one round trip for all commands together.
pub(super) async fn are_valid(
    run: &mut BucketCommand<'_>,
    validator: &RawDocument,
    documents: &[RawDocumentBuf],
) -> Result<bool, RunError> {
    let sizes = documents.iter().map(|document| document.as_bytes().len());
    let parts = command_ranges_within(sizes, MAX_IN_BODY).into_iter();
    let parts = parts.filter_map(|part| documents.get(part));
    let commands: Vec<RawDocumentBuf> = parts.map(|part| first_invalid(run, validator, part)).collect();
    let requests: Vec<UpstreamRequest<'_>> = commands.iter().map(|command| UpstreamRequest::plain(command)).collect();
    for answer in run.context.link.call_all(&requests).await? {
        if has_document(&succeeded(answer)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A query for the first document that does not satisfy the validator.
fn first_invalid(run: &BucketCommand<'_>, validator: &RawDocument, documents: &[RawDocumentBuf]) -> RawDocumentBuf {
    let stages = [
        single("$documents", single("$literal", array_of(documents))),
        single("$match", single("$nor", array_of(&[validator.to_owned()]))),
        single("$limit", 1),
        single("$project", single("n", single("$literal", 1))),
    ];
    let mut aggregate = single("aggregate", 1);
    aggregate.append(cstr!("pipeline"), array_of(&stages));
    aggregate.append(cstr!("cursor"), RawDocumentBuf::new());
    InheritedOptions::of(run.context.head.body()).append_identity(&mut aggregate);
    without_session(&aggregate)
}

fn has_document(answer: &RawDocument) -> bool {
    CursorReply::parse(answer).is_some_and(|cursor| cursor.documents().next().is_some())
}

/// The command outside of the client's session, which may be in a transaction.
fn without_session(command: &RawDocument) -> RawDocumentBuf {
    with_replaced(command, &[("lsid", None)])
}

/// The document with the `_id` that it gets in a plain collection.
pub(super) fn with_id(document: &RawDocument, id: Option<RawBsonRef<'_>>) -> RawDocumentBuf {
    match id.filter(|_| get(document, "_id").is_none()) {
        None => document.to_owned(),
        Some(id) => {
            let mut with_id = single("_id", id);
            append_fields(&mut with_id, document);
            with_id
        }
    }
}
