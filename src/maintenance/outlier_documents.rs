//! Stored documents of an outlier collection and their extras, read and written one by one through the
//! driver.

use bson::Document;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::error::Error;

use super::check::outlier::ExtrasScan;
use super::upstream::{ShapedCollection, as_integer};
use crate::command::document::{array_of, put, single};
use crate::pattern::outlier::layout::{DocumentState, path};
use crate::pattern::outlier::page::of_generation;
use crate::pattern::outlier::resplit;
use crate::pattern::outlier::statement::{has_empty_timestamp, upserting};
use crate::pattern::shapes::OutlierShape;
use crate::pattern::unwound;

/// The most races with other writers that one change may lose.
pub(crate) const MAX_ATTEMPTS: u32 = 100;
/// The server's code if another writer has begun the same page: `DuplicateKey`.
const PAGE_TAKEN: i64 = 11000;

/// Deletes extras. Returns their number.
pub(crate) async fn delete(
    target: &ShapedCollection,
    shape: &OutlierShape,
    statement: &RawDocument,
) -> Result<u64, Error> {
    let mut command = single("delete", shape.extras_collection());
    command.append(cstr!("deletes"), array_of(&[statement.to_owned()]));
    let reply = target.database.run_raw_command(command).await?;
    Ok(reply
        .get("n")
        .and_then(as_integer)
        .and_then(|n| u64::try_from(n).ok())
        .unwrap_or_default())
}

/// Executes one statement of an `update`. Returns the number of matched documents.
pub(crate) async fn update(target: &ShapedCollection, collection: &str, statement: &RawDocument) -> Result<i64, Error> {
    let mut command = single("update", collection);
    command.append(cstr!("updates"), array_of(&[statement.to_owned()]));
    let reply = target.database.run_raw_command(command).await?;
    refused(&reply)?;
    Ok(reply.get("n").and_then(as_integer).unwrap_or_default())
}

/// Inserts pages. Returns whether none of them existed.
pub(crate) async fn insert(
    target: &ShapedCollection,
    shape: &OutlierShape,
    pages: &[RawDocumentBuf],
) -> Result<bool, Error> {
    for page in pages {
        let command = storing(shape, page);
        let reply = target.database.run_raw_command(command).await?;
        let code = first_error(&reply).and_then(|error| error.get("code").and_then(as_integer));
        if code == Some(PAGE_TAKEN) {
            return Ok(false);
        }
        refused(&reply)?;
    }
    Ok(true)
}

/// The command that stores a page. An insert replaces an empty timestamp in a top-level field, an
/// upsert with a pipeline does not.
fn storing(shape: &OutlierShape, page: &RawDocumentBuf) -> RawDocumentBuf {
    if !has_empty_timestamp(page) {
        let mut insert = single("insert", shape.extras_collection());
        insert.append(cstr!("documents"), array_of(std::slice::from_ref(page)));
        return insert;
    }
    let mut update = single("update", shape.extras_collection());
    update.append(cstr!("updates"), array_of(&[upserting(page)]));
    update
}

fn first_error(reply: &Document) -> Option<&Document> {
    reply.get_array("writeErrors").ok()?.first()?.as_document()
}

fn refused(reply: &Document) -> Result<(), Error> {
    match first_error(reply) {
        Some(error) => Err(Error::custom(error.get_str("errmsg").unwrap_or_default().to_owned())),
        None => Ok(()),
    }
}

/// The stored document with that `_id`.
pub(crate) async fn base(target: &ShapedCollection, id: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>, Error> {
    let mut find = single("find", target.collection.as_str());
    find.append(cstr!("filter"), single("_id", single("$eq", id)));
    find.append(cstr!("collation"), single("locale", "simple"));
    let found = target.database.run_raw_cursor_command(find).await?;
    found.with_type::<RawDocumentBuf>().try_next().await
}

/// The extras of a document in this state, in order. `None`: such a document has none.
pub(crate) async fn extras(
    target: &ShapedCollection,
    shape: &OutlierShape,
    id: RawBsonRef<'_>,
    state: &DocumentState,
) -> Result<Option<Vec<RawDocumentBuf>>, Error> {
    let Some(filter) = extras_filter(shape, id, state) else {
        return Ok(None);
    };
    let mut find = single("find", shape.extras_collection());
    find.append(cstr!("filter"), filter);
    if matches!(state, DocumentState::Outlier(_)) {
        find.append(cstr!("sort"), single(path::FROM, 1));
    }
    let found: ExtrasScan = target.database.run_raw_cursor_command(find).await?.with_type();
    Ok(Some(found.try_collect().await?))
}

/// The bytes of the elements in the extras of a document in this state.
pub(crate) async fn extras_bytes(
    target: &ShapedCollection,
    shape: &OutlierShape,
    id: RawBsonRef<'_>,
    state: &DocumentState,
) -> Result<i64, Error> {
    let Some(filter) = extras_filter(shape, id, state) else {
        return Ok(0);
    };
    // A page with another type than an array there is reported when the document is read.
    let array = format!("${}", shape.extras_array());
    let size = single("$bsonSize", single("a", array.as_str()));
    let mut group = single("_id", RawBsonRef::Null);
    put(&mut group, "bytes", single("$sum", size));
    let stages = [single("$match", filter), single("$group", group)];
    let command = unwound::aggregate(shape.extras_collection(), &stages, None);
    let found = target.database.run_raw_cursor_command(command).await?;
    let sum = found.with_type::<Document>().try_next().await?;
    Ok(sum
        .and_then(|sum| sum.get("bytes").and_then(as_integer))
        .unwrap_or_default())
}

/// The filter for the extras of a document in this state. `None`: such a document has none.
fn extras_filter(shape: &OutlierShape, id: RawBsonRef<'_>, state: &DocumentState) -> Option<RawDocumentBuf> {
    match state {
        DocumentState::Outlier(extras) => Some(of_generation(shape, id, extras.generation)),
        DocumentState::Unmanaged => Some(resplit::by_hand(shape, id)),
        DocumentState::Inline | DocumentState::Invalid => None,
    }
}
