//! `insert`: passed on, except that documents with long arrays are split. Pages are written before
//! base documents.

use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use super::page_store::Written;
use crate::command::arguments::{is_unacknowledged, with_replaced};
use crate::command::document::{append_fields, array_of, get};
use crate::command::insert::Insert;
use crate::command::reply::succeeded;
use crate::pattern::outlier::layout::{is_long, repeats_array, split};
use crate::pattern::shapes::OutlierShape;
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

pub(super) async fn run(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let command = Insert::parse(run.context.head)?;
    run.context.is_retryable()?;
    check(run, &command.documents)?;
    let are_long = command
        .documents
        .iter()
        .any(|document| needs_pages(run.shape, document));
    let may_split = are_long && run.may_split().await?;
    let mut bases = Vec::new();
    let mut pages = Vec::new();
    let mut written = Vec::new();
    for document in command.documents {
        if !may_split || !needs_pages(run.shape, document) {
            bases.push(document.to_owned());
            continue;
        }
        let document = with_id(document);
        let generation = ObjectId::new();
        let split = split(run.shape, &document, generation);
        let id = get(&document, "_id").map_or(RawBson::Null, RawBson::from);
        written.push(Written { id, generation });
        bases.push(split.base);
        pages.extend(split.pages);
    }
    run.write_pages(&pages, &written).await?;
    let answer = send(run, &bases).await?;
    // Removes the pages of refused documents, and of documents that an earlier attempt stored with
    // other pages. The reply to an unacknowledged write has no errors.
    let is_clean = get(&answer, "ok").is_some_and(|ok| ok.as_f64() == Some(1.0))
        && !get(run.context.head.body(), "writeConcern").is_some_and(is_unacknowledged)
        && get(&answer, "writeErrors").is_none()
        && get(&answer, "retriedStmtIds").is_none();
    if !is_clean {
        run.remove_uncounted(&written).await?;
    }
    Ok(succeeded(answer)?)
}

/// Whether all documents are stored unchanged.
pub(super) fn is_plain(shape: &OutlierShape, command: &Insert<'_>) -> bool {
    command.documents.iter().all(|document| {
        let is_own = |name: &str| shape.is_own(name);
        !needs_pages(shape, document)
            && !repeats_array(shape, document)
            && !document.iter().flatten().any(|(name, _)| is_own(name.as_str()))
    })
}

fn check(run: &OutlierCommand<'_>, documents: &[&RawDocument]) -> Result<(), RunError> {
    for document in documents {
        run.check_array(document)?;
        for (name, _) in document.iter().flatten() {
            if run.shape.is_own(name.as_str()) {
                return Err(run
                    .unsupported(&format!("a document with the field `{}`", name.as_str()))
                    .into());
            }
        }
    }
    Ok(())
}

fn needs_pages(shape: &OutlierShape, document: &RawDocument) -> bool {
    // mongod refuses such an `_id`, so no pages are needed.
    let is_refused = matches!(
        get(document, "_id"),
        Some(RawBsonRef::Undefined | RawBsonRef::Array(_) | RawBsonRef::RegularExpression(_))
    );
    let array = get(document, shape.array()).and_then(RawBsonRef::as_array);
    !is_refused && array.is_some_and(|array| is_long(shape, array))
}

/// The document with a generated `_id` if it has none, as in mongod.
fn with_id(document: &RawDocument) -> RawDocumentBuf {
    if get(document, "_id").is_some() {
        return document.to_owned();
    }
    let mut made = RawDocumentBuf::new();
    made.append(cstr!("_id"), ObjectId::new());
    append_fields(&mut made, document);
    made
}

/// Sends the client's command with other documents. Returns mongod's reply, possibly with `ok: 0`.
async fn send(run: &mut OutlierCommand<'_>, documents: &[RawDocumentBuf]) -> Result<RawDocumentBuf, RunError> {
    if run.context.head.message.sequences.is_empty() {
        let array: RawArrayBuf = array_of(documents);
        let body = with_replaced(
            run.context.head.body(),
            &[("documents", Some(RawBsonRef::Array(&array)))],
        );
        return Ok(run.context.link.call(UpstreamRequest::plain(&run.next(&body))).await?);
    }
    let documents: Vec<&RawDocument> = documents.iter().map(RawDocumentBuf::as_ref).collect();
    let request = UpstreamRequest {
        body: &run.next(run.context.head.body()),
        sequence: Some(("documents", &documents)),
    };
    Ok(run.context.link.call(request).await?)
}
