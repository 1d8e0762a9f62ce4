//! `dbStats`: mongod's reply, with items in place of buckets, and without the proxy's own indexes and views.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::CrossCollectionCommand;
use super::collection_lookup;
use crate::command::arguments::InheritedOptions;
use crate::command::document::{array_of, as_whole_number, get, single};
use crate::command::namespace::{Namespace, VIEWS};
use crate::command::reply::CursorReply;
use crate::pattern::bucket::predicate_pushdown::BucketPredicate;
use crate::pattern::bucket::statistics::{self, Hidden};
use crate::pattern::bucket::{index, unwind};
use crate::pattern::shapes::{BucketShape, Shapes};
use crate::pattern::unwound;
use crate::session::collection_catalog::CatalogSession;
use crate::session::error::RunError;

/// Whether the database of a `dbStats` may have bucket collections.
pub(super) fn may_count_buckets(shapes: &Shapes, database: &str) -> bool {
    shapes.buckets_in(database).next().is_some()
}

pub(super) async fn run(across: &mut CrossCollectionCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let reply = across.context.link.run(across.context.head.body()).await?;
    let hidden = hidden(across).await?;
    Ok(statistics::of_database(&reply, hidden))
}

async fn hidden(across: &mut CrossCollectionCommand<'_>) -> Result<Hidden, RunError> {
    let shapes = &across.context.settings.shapes;
    let database = across.context.head.database;
    let asker = InheritedOptions::of(across.context.head.body());
    let buckets: Vec<_> = shapes.buckets_in(database).collect();
    let mut names: Vec<String> = buckets.iter().map(|(name, _)| (*name).to_owned()).collect();
    names.push(VIEWS.to_owned());
    let views_or_named = [single("type", "view"), collection_lookup::named_one_of(&names)];
    let filter = single("$or", array_of(&views_or_named));
    let found = collection_lookup::list(across.context.link, asker, filter).await?;
    let mut hidden = of_views(&found, &buckets);
    for (collection, shape) in buckets {
        let is_there = |found: &RawDocumentBuf| {
            collection_lookup::says(found, "name", collection) && collection_lookup::says(found, "type", "collection")
        };
        if found.iter().any(is_there) {
            add_collection(across, Namespace::new(database, collection), shape, &mut hidden).await?;
        }
    }
    Ok(hidden)
}

/// The share of the item views in the counts of a database.
fn of_views(found: &[RawDocumentBuf], buckets: &[(&str, &BucketShape)]) -> Hidden {
    let (ours, others): (Vec<_>, Vec<_>) = found
        .iter()
        .filter(|found| collection_lookup::says(found, "type", "view"))
        .partition(|found| collection_lookup::is_items_view(buckets, found));
    let views = i64::try_from(ours.len()).unwrap_or(i64::MAX);
    let is_kept = found.iter().any(|found| collection_lookup::says(found, "name", VIEWS));
    let collections = i64::from(is_kept && others.is_empty());
    Hidden {
        views,
        collections,
        // Its index on `_id`.
        indexes: collections,
        // Each view is a document of that collection.
        objects: views,
    }
}

async fn add_collection(
    across: &mut CrossCollectionCommand<'_>,
    namespace: Namespace<'_>,
    shape: &BucketShape,
    hidden: &mut Hidden,
) -> Result<(), RunError> {
    let carried = InheritedOptions::of(across.context.head.body());
    let mut asker = CatalogSession {
        refusals: None,
        link: across.context.link,
        upstream: across.context.upstream,
        thaws: across.context.settings.catalog.thaws(),
        shape,
        namespace,
        carried,
        transaction: None,
    };
    match across.context.settings.catalog.for_reading(&mut asker).await {
        Ok(_) => {}
        // A collection with other content than pages is counted as it is.
        Err(RunError::Command(_)) => return Ok(()),
        Err(error) => return Err(error),
    }
    let mut statistics = single("collStats", namespace.collection);
    carried.append_to_read(&mut statistics);
    let statistics = across.context.link.run(&statistics).await?;
    let mut sum = unwound::aggregate(
        namespace.collection,
        &unwind::sum_of_counts(shape, &BucketPredicate::of(shape, None)),
        None,
    );
    carried.append_to_read(&mut sum);
    let sum = across.context.link.run(&sum).await?;
    let items = CursorReply::parse(&sum)
        .and_then(|cursor| cursor.documents().next())
        .and_then(|sum| get(sum, "n"))
        .and_then(as_whole_number)
        .unwrap_or(0);
    let stored = get(&statistics, "count").and_then(as_whole_number).unwrap_or(0);
    let sizes = get(&statistics, "indexSizes").and_then(RawBsonRef::as_document);
    let names = sizes.into_iter().flat_map(RawDocument::iter).flatten();
    let own = names.filter(|(name, _)| index::is_own(name.as_str())).count();
    // A mongos adds the indexes of all shards.
    let shards = get(&statistics, "shards").and_then(RawBsonRef::as_document);
    let own = own.saturating_mul(shards.map_or(1, |shards| shards.iter().count()));
    hidden.objects = hidden.objects.saturating_add(stored.saturating_sub(items));
    hidden.indexes = hidden.indexes.saturating_add(i64::try_from(own).unwrap_or(i64::MAX));
    Ok(())
}
