//! Checks whether a collection contains only plain documents, and how far a packing run has come.

use bson::raw::{RawDocumentBuf, cstr};
use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::error::Error;

use super::foreign_document::SCAN_TIMEOUT;
use super::foreign_document::is_timeout;
use crate::command::document::single;
use crate::maintenance::finding::Finding;
use crate::maintenance::upstream::{ShapedCollection, as_integer, description};
use crate::pattern::bucket::pack;
use crate::pattern::shapes::BucketShape;

/// The state of a collection with respect to packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    /// Nothing to pack: the collection does not exist, is empty, or contains possible buckets.
    Nothing,
    /// About this many documents.
    Documents(i64),
    /// The collection is frozen: a run is in progress or was killed.
    Frozen,
    /// The plain collection was renamed, and the copy was not yet renamed.
    Between,
    /// The plain collection was renamed, and the copy was dropped.
    WithoutCopy,
    /// The plain collection was renamed, and another writer created a collection of its name.
    Taken,
}

impl Plain {
    /// The finding for `check` and for `setup` without `--pack`, if any.
    pub(crate) fn finding(self, target: &ShapedCollection) -> Option<Finding> {
        let again = "`mongoshape setup --pack`; if it does not run, run it again";
        let text = match self {
            Self::Nothing => return None,
            Self::Documents(1) => "contains 1 plain document: `mongoshape setup --pack` moves it to a page".to_owned(),
            Self::Documents(count) => {
                format!("contains {count} plain documents: `mongoshape setup --pack` moves them to pages")
            }
            Self::Frozen => format!("refuses writes because its documents are being packed by {again}"),
            Self::Between => format!("does not exist because it is being replaced by its pages by {again}"),
            Self::WithoutCopy => format!(
                "does not exist: all its documents are in {}; run `mongoshape setup --pack`",
                pack::plain_name(&target.collection)
            ),
            Self::Taken => taken(target),
        };
        Some(Finding::error(target.namespace(), text))
    }
}

/// The text if another writer created the collection between the two renames.
pub(crate) fn taken(target: &ShapedCollection) -> String {
    let (plain, copy) = (
        pack::plain_name(&target.collection),
        pack::copy_name(&target.collection),
    );
    format!(
        "was created by another program while its documents were packed. All of them are in {plain}, and in pages in {copy}. Move the \
         documents of the new collection elsewhere, drop it, and run `mongoshape setup --pack` again"
    )
}

/// Whether a listed collection was frozen by a packing run.
pub(crate) fn is_frozen(described: &Document) -> bool {
    let options = described.get_document("options").ok();
    let options = options.and_then(|options| RawDocumentBuf::try_from(options).ok());
    options.is_some_and(|options| pack::is_frozen(&options))
}

/// Checks for at most [`SCAN_TIMEOUT`]. `None` if that was not enough.
pub(crate) async fn look_shortly(target: &ShapedCollection, shape: &BucketShape) -> Result<Option<Plain>, Error> {
    let timeout = i64::try_from(SCAN_TIMEOUT.as_millis()).unwrap_or(i64::MAX);
    match look_within(target, shape, Some(timeout)).await {
        Err(error) if is_timeout(&error) => Ok(None),
        looked => looked.map(Some),
    }
}

/// Checks without a time limit.
pub(crate) async fn look(target: &ShapedCollection, shape: &BucketShape) -> Result<Plain, Error> {
    look_within(target, shape, None).await
}

async fn look_within(target: &ShapedCollection, shape: &BucketShape, timeout: Option<i64>) -> Result<Plain, Error> {
    let described = |name: String| async move { description(&target.database, &name).await };
    let collection = described(target.collection.clone()).await?;
    let kept = described(pack::plain_name(&target.collection)).await?;
    let copy = described(pack::copy_name(&target.collection)).await?;
    let is_away = kept.as_ref().is_some_and(is_frozen);
    let is_between = is_away && copy.is_some() && has_pages(target).await?;
    let Some(collection) = collection else {
        return Ok(match (is_away, is_between) {
            (_, true) => Plain::Between,
            (true, false) => Plain::WithoutCopy,
            (false, false) => Plain::Nothing,
        });
    };
    if is_between {
        return Ok(Plain::Taken);
    }
    if is_frozen(&collection) {
        return Ok(Plain::Frozen);
    }
    let is_kind_of_its_own = collection.get_str("type").is_ok_and(|kind| kind != "collection");
    if is_kind_of_its_own
        || has(target, RawDocumentBuf::new(), None).await?.is_none()
        || has(target, pack::buckets(shape), timeout).await?.is_some()
    {
        return Ok(Plain::Nothing);
    }
    let counted = target
        .database
        .run_command(doc! { "count": &target.collection })
        .await?;
    Ok(Plain::Documents(
        counted.get("n").and_then(as_integer).unwrap_or_default(),
    ))
}

/// Whether the copy has pages. An empty copy belongs to a run that has ended.
async fn has_pages(target: &ShapedCollection) -> Result<bool, Error> {
    let mut find = single("find", pack::copy_name(&target.collection));
    find.append(cstr!("limit"), 1);
    find.append(cstr!("singleBatch"), true);
    let found = target.database.run_raw_cursor_command(find).await?;
    Ok(found.with_type::<RawDocumentBuf>().try_next().await?.is_some())
}

/// The first document that matches a filter.
pub(crate) async fn has(
    target: &ShapedCollection,
    filter: RawDocumentBuf,
    timeout: Option<i64>,
) -> Result<Option<RawDocumentBuf>, Error> {
    let mut find = single("find", target.collection.as_str());
    find.append(cstr!("filter"), filter);
    find.append(cstr!("projection"), single("_id", 1));
    find.append(cstr!("limit"), 1);
    find.append(cstr!("singleBatch"), true);
    if let Some(timeout) = timeout {
        find.append(cstr!("maxTimeMS"), timeout);
    }
    let found = target.database.run_raw_cursor_command(find).await?;
    found.with_type::<RawDocumentBuf>().try_next().await
}
