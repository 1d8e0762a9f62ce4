//! `listIndexes`: reads all indexes at once, and returns them in batches of the client's size.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::not_in_transaction;
use crate::command::arguments::with_replaced;
use crate::command::document::get;
use crate::command::indexes;
use crate::command::reply::{CursorReply, copy_cluster_time};
use crate::pattern::bucket::item_index::{TtlMarker, as_application_sees, with_ttl};
use crate::pattern::shapes::BucketShape;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::cursor_source::{CursorSource, MaterializedList};
use crate::session::error::RunError;

pub(in crate::session::bucket) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    not_in_transaction(run, "listIndexes")?;
    let settings = run.context.settings;
    settings.catalog.for_reading(&mut run.catalog_session()).await?;
    let (command, size) = indexes::list(run.context.head.body());
    let reply = run.context.link.run(&command).await?;
    let Some(listed) = CursorReply::parse(&reply) else {
        return Ok(reply);
    };
    let size = size.and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX);
    let mut batch = RawArrayBuf::new();
    let mut rest = Vec::new();
    let markers: Vec<TtlMarker<'_>> = listed
        .documents()
        .filter_map(|spec| TtlMarker::of(inner(spec)))
        .collect();
    let known = listed.documents().filter_map(|spec| seen(run.shape, spec, &markers));
    for (place, spec) in known.enumerate() {
        if place < size {
            batch.push(spec);
        } else {
            rest.push(spec);
        }
    }
    let id = if rest.is_empty() {
        0
    } else {
        let mut cluster_time = RawDocumentBuf::new();
        copy_cluster_time(&mut cluster_time, &reply);
        run.keep(CursorSource::Listed(MaterializedList::new(rest, cluster_time)))
            .await?
    };
    let mut cursor = RawDocumentBuf::new();
    cursor.append(cstr!("id"), id);
    cursor.append(cstr!("ns"), run.namespace.to_string());
    cursor.append(cstr!("firstBatch"), &batch);
    Ok(with_replaced(
        &reply,
        &[("cursor", Some(RawBsonRef::Document(&cursor)))],
    ))
}

/// The element of the reply for an index: its specification, or (`includeBuildUUIDs`) a document with it.
/// `None` if the application does not see the index.
fn seen(shape: &BucketShape, element: &RawDocument, markers: &[TtlMarker<'_>]) -> Option<RawDocumentBuf> {
    let spec = with_ttl(as_application_sees(shape, inner(element))?, markers);
    if get(element, "spec").is_none() {
        return Some(spec);
    }
    Some(with_replaced(element, &[("spec", Some(RawBsonRef::Document(&spec)))]))
}

/// The specification in an element of the reply.
fn inner(element: &RawDocument) -> &RawDocument {
    let spec = get(element, "spec").and_then(RawBsonRef::as_document);
    spec.unwrap_or(element)
}
