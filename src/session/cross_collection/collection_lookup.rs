//! Internal `listCollections`, and removal of item views that are no longer used.

use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};

use crate::command::arguments::InheritedOptions;
use crate::command::document::{get, single};
use crate::command::namespace::Namespace;
use crate::command::reply::CursorReply;
use crate::pattern::bucket::items_view;
use crate::pattern::shapes::BucketShape;
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamConnection;

/// The collection in the namespace of cursors of `listCollections`.
pub(super) const CURSORS: &str = "$cmd.listCollections";

/// All collections and views that match a filter.
pub(super) async fn list(
    link: &mut UpstreamConnection,
    asker: InheritedOptions<'_>,
    filter: RawDocumentBuf,
) -> Result<Vec<RawDocumentBuf>, RunError> {
    let mut command = single("listCollections", 1);
    command.append(cstr!("filter"), filter);
    let mut found = Vec::new();
    loop {
        asker.append_to_inspect(&mut command);
        let reply = link.run(&command).await?;
        let Some(cursor) = CursorReply::parse(&reply) else {
            return Ok(found);
        };
        found.extend(cursor.documents().map(ToOwned::to_owned));
        if cursor.id == 0 {
            return Ok(found);
        }
        command = single("getMore", cursor.id);
        command.append(cstr!("collection"), CURSORS);
    }
}

/// The options of a collection. `None`: it does not exist.
pub(in crate::session) async fn options(
    link: &mut UpstreamConnection,
    asker: InheritedOptions<'_>,
    collection: &str,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let listed = list(link, asker, single("name", collection)).await?;
    let options = |listed: &RawDocumentBuf| Some(get(listed, "options")?.as_document()?.to_owned());
    Ok(listed.first().map(|listed| options(listed).unwrap_or_default()))
}

/// All views of a database.
pub(super) async fn views(
    link: &mut UpstreamConnection,
    asker: InheritedOptions<'_>,
) -> Result<Vec<RawDocumentBuf>, RunError> {
    list(link, asker, single("type", "view")).await
}

/// Drops the item view of a collection that was dropped or renamed, unless another view reads it.
/// An error does not fail the client's command: the view stays and is empty.
pub(in crate::session) async fn drop_items_view(
    link: &mut UpstreamConnection,
    asker: InheritedOptions<'_>,
    shape: &BucketShape,
    namespace: Namespace<'_>,
) -> Result<(), RunError> {
    match try_drop_items_view(link, asker, shape, namespace).await {
        Err(RunError::Command(_)) => Ok(()),
        dropped => dropped,
    }
}

async fn try_drop_items_view(
    link: &mut UpstreamConnection,
    asker: InheritedOptions<'_>,
    shape: &BucketShape,
    namespace: Namespace<'_>,
) -> Result<(), RunError> {
    let name = items_view::name(namespace.collection);
    let is_read = |views: &[RawDocumentBuf]| views.iter().any(|view| items_view::is_read_by(&name, view));
    let found = views(link, asker).await?;
    let is_there = found
        .iter()
        .any(|view| says(view, "name", &name) && items_view::is(shape, namespace.collection, view));
    if !is_there || is_read(&found) {
        return Ok(());
    }
    let mut drop = single("drop", name.as_str());
    asker.append_identity(&mut drop);
    link.run(&drop).await?;
    // A view created in the meantime may read the item view. A view created later creates the item
    // view itself.
    if is_read(&views(link, asker).await?) {
        let mut create = items_view::create(shape, namespace.collection);
        asker.append_identity(&mut create);
        link.run(&create).await?;
    }
    Ok(())
}

/// Whether a listed collection is the item view of one of these bucket collections.
pub(super) fn is_items_view(buckets: &[(&str, &BucketShape)], found: &RawDocument) -> bool {
    let name = found.get_str("name").unwrap_or_default();
    let mut buckets = buckets.iter();
    buckets.any(|(collection, shape)| items_view::name(collection) == name && items_view::is(shape, collection, found))
}

/// Whether a field has this string value.
pub(super) fn says(found: &RawDocument, field: &str, text: &str) -> bool {
    found.get_str(field).is_ok_and(|value| value == text)
}

/// The filter for collections with one of these names.
pub(super) fn named_one_of(names: &[String]) -> RawDocumentBuf {
    single("name", single("$in", array_of_names(names)))
}

/// The filter for collections with none of these names.
pub(super) fn named_none_of(names: &[String]) -> RawDocumentBuf {
    single("name", single("$nin", array_of_names(names)))
}

fn array_of_names(names: &[String]) -> RawArrayBuf {
    names.iter().map(String::as_str).collect()
}
