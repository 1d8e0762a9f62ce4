//! `listCollections`: mongod's reply without the proxy's item views, extras, and collections of maintenance.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::CrossCollectionCommand;
use super::collection_lookup::{self, CURSORS};
use crate::command::arguments::{InheritedOptions, with_replaced};
use crate::command::document::{array_of, get, single};
use crate::command::header::CommandHeader;
use crate::command::namespace::VIEWS;
use crate::command::registry::Command;
use crate::command::reply::CursorReply;
use crate::pattern::bucket::validation::without_freeze;
use crate::pattern::bucket::validator::options_of_application;
use crate::pattern::bucket::{beside, items_view};
use crate::pattern::outlier::orphans::scratch_prefix;
use crate::pattern::outlier::split_fence::without_fence;
use crate::pattern::shapes::Shapes;
use crate::session::error::RunError;

/// Whether the reply could contain the proxy's own collections and views.
pub(super) fn may_reveal_own(shapes: &Shapes, database: &str, body: &RawDocument) -> bool {
    let buckets = shapes.buckets_in_any_layout(database);
    let ours = buckets.flat_map(|(collection, _)| {
        // Its validator may be the proxy's, or that of a freeze.
        let names = vec![collection.to_owned(), items_view::name(collection)];
        [names, beside::hidden(collection)].concat()
    });
    // It may have the split fence.
    let outliers = shapes
        .outliers_in(database)
        .map(|shape| shape.namespace().collection().to_owned());
    let mut ours = ours.chain(extras_in(shapes, database)).chain(outliers);
    let filter = get(body, "filter").and_then(RawBsonRef::as_document);
    match filter.and_then(|filter| get(filter, "name")) {
        // The query of drivers before they create a collection: only that name matters.
        Some(RawBsonRef::String(name)) if name != VIEWS => ours.any(|ours| ours == name),
        _ => ours.next().is_some(),
    }
}

/// Whether a `getMore` is on the cursor of a `listCollections`.
pub(super) fn is_continued_by(head: &CommandHeader<'_>) -> bool {
    head.namespace()
        .is_some_and(|namespace| namespace.collection == CURSORS)
}

/// `listCollections`, or the `getMore` on its cursor. The cursor is mongod's.
pub(super) async fn run(across: &mut CrossCollectionCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let head = across.context.head;
    let reply = match head.command {
        Command::GetMore => across.context.link.run(head.body()).await?,
        _ => without_own_collections(across, head.body()).await?,
    };
    let shapes = &across.context.settings.shapes;
    Ok(with_options_of_application(shapes, head.database, reply))
}

/// The reply with the validators of the application instead of those of pages and freezes, and without split
/// fences.
fn with_options_of_application(shapes: &Shapes, database: &str, reply: RawDocumentBuf) -> RawDocumentBuf {
    let Some(listed) = CursorReply::parse(&reply) else {
        return reply;
    };
    let of_application = |listed: &RawDocument| {
        let name = get(listed, "name").and_then(RawBsonRef::as_str)?;
        let options = get(listed, "options").and_then(RawBsonRef::as_document)?;
        if shapes.buckets_in(database).any(|(collection, _)| name == collection) {
            return Some(options_of_application(options));
        }
        if shapes.automatic_in(database).any(|collection| name == collection) {
            return Some(without_freeze(options));
        }
        let mut outliers = shapes.outliers_in(database);
        let shape = outliers.find(|shape| shape.namespace().collection() == name)?;
        Some(without_fence(shape, options))
    };
    let mut batch = RawArrayBuf::new();
    for listed in listed.documents() {
        match of_application(listed) {
            Some(options) => batch.push(with_replaced(
                listed,
                &[("options", Some(RawBsonRef::Document(&options)))],
            )),
            None => batch.push(listed),
        }
    }
    let Some(cursor) = get(&reply, "cursor").and_then(RawBsonRef::as_document) else {
        return reply;
    };
    let name = ["firstBatch", "nextBatch"]
        .into_iter()
        .find(|name| get(cursor, name).is_some());
    let replaced = name.map(|name| (name, Some(RawBsonRef::Array(&batch))));
    let cursor = with_replaced(cursor, replaced.as_slice());
    with_replaced(&reply, &[("cursor", Some(RawBsonRef::Document(&cursor)))])
}

async fn without_own_collections(
    across: &mut CrossCollectionCommand<'_>,
    body: &RawDocument,
) -> Result<RawDocumentBuf, RunError> {
    let filter = match get(body, "filter") {
        None | Some(RawBsonRef::Null) => None,
        Some(RawBsonRef::Document(filter)) => Some(filter),
        // mongod refuses the filter.
        Some(_) => return across.context.link.run(body).await,
    };
    if across.context.head.in_transaction() {
        return across.context.link.run(body).await;
    }
    let mut without = vec![without_ours(across).await?];
    without.extend(without_scratches(
        &across.context.settings.shapes,
        across.context.head.database,
    ));
    let without_ours = single("$and", array_of(&without));
    let Some(filter) = filter else {
        let mut command = with_replaced(body, &[("filter", None)]);
        command.append(cstr!("filter"), without_ours);
        return across.context.link.run(&command).await;
    };
    let both = single("$and", array_of(&[filter.to_owned(), without_ours]));
    let command = with_replaced(body, &[("filter", Some(RawBsonRef::Document(&both)))]);
    across.context.link.run(&command).await
}

/// The extras collections of a database.
fn extras_in<'a>(shapes: &'a Shapes, database: &'a str) -> impl Iterator<Item = String> {
    let outliers = shapes.outliers_in(database);
    outliers.map(|shape| shape.extras_collection().to_owned())
}

/// Filters that hide the scratch collections.
fn without_scratches<'a>(shapes: &'a Shapes, database: &'a str) -> impl Iterator<Item = RawDocumentBuf> {
    shapes.outliers_in(database).map(|shape| {
        let prefix: String = scratch_prefix(shape)
            .chars()
            .flat_map(|character| {
                let is_plain = character.is_alphanumeric() || character == '_';
                (!is_plain).then_some('\\').into_iter().chain([character])
            })
            .collect();
        let begins = single("$regex", format!("^{prefix}"));
        single("name", single("$not", begins))
    })
}

/// The filter that hides the proxy's own views and collections by name, including those created
/// concurrently. A listed view that has such a name but another definition is not hidden.
async fn without_ours(across: &mut CrossCollectionCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let shapes = &across.context.settings.shapes;
    let database = across.context.head.database;
    let buckets: Vec<_> = shapes.buckets_in_any_layout(database).collect();
    let of_views = buckets.iter().map(|(collection, _)| items_view::name(collection));
    let mut names: Vec<String> = of_views.collect();
    let views_or_named = [single("type", "view"), collection_lookup::named_one_of(&names)];
    let filter = single("$or", array_of(&views_or_named));
    let asker = InheritedOptions::of(across.context.head.body());
    let found = match collection_lookup::list(across.context.link, asker, filter).await {
        Ok(found) => found,
        // A user may have the right to list names only. Then the definitions are unknown.
        Err(RunError::Command(_)) => {
            let views = [single("type", "view"), collection_lookup::named_one_of(&names)];
            let beside = buckets.iter().flat_map(|(collection, _)| beside::hidden(collection));
            let beside: Vec<String> = beside.chain(extras_in(shapes, database)).collect();
            let ours = [
                single("$and", array_of(&views)),
                collection_lookup::named_one_of(&beside),
            ];
            return Ok(single("$nor", array_of(&ours)));
        }
        Err(error) => return Err(error),
    };
    let beside = buckets.iter().flat_map(|(collection, _)| beside::hidden(collection));
    let is_other = |found: &&RawDocumentBuf| !collection_lookup::is_items_view(&buckets, found);
    let others: Vec<&RawDocumentBuf> = found.iter().filter(is_other).collect();
    names.retain(|name| !others.iter().any(|other| collection_lookup::says(other, "name", name)));
    // A plain database has it only if the application has created a view.
    if !others
        .iter()
        .any(|other| collection_lookup::says(other, "type", "view"))
    {
        names.push(VIEWS.to_owned());
    }
    names.extend(beside);
    names.extend(extras_in(shapes, database));
    Ok(collection_lookup::named_none_of(&names))
}
