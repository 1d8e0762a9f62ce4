//! Reading by pipeline: mongod unpacks the buckets, then runs the client's own words on the items.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::filter::{Narrowing, match_items};
use super::find_projection;
use super::layout::path;
use crate::command::document::{array_of, as_flag, as_whole_number, put, single};
use crate::command::find::Find;
use crate::pattern::shapes::BucketShape;

/// Stages that are only valid first in a pipeline and read something else than documents.
const FIRST_STAGES: &[&str] = &[
    "$changeStream",
    "$collStats",
    "$geoNear",
    "$indexStats",
    "$listSearchIndexes",
    "$planCacheStats",
    "$search",
    "$searchMeta",
    "$vectorSearch",
];

/// The stages that turn buckets into items: `_id`, key fields, the rest.
#[must_use]
pub fn unpack(shape: &BucketShape) -> Vec<RawDocumentBuf> {
    let items = format!("${}", shape.items());
    let mut outer = RawDocumentBuf::new();
    outer.append(cstr!("_id"), format!("{items}._id"));
    for field in shape.key() {
        put(&mut outer, field, format!("${field}"));
    }
    // The item as stored, without the fields that are stored under another name; those go beside it.
    let mut inner = RawBson::String(items.clone());
    for (item, stored) in shape.rename().pairs() {
        put(&mut outer, item, format!("{items}.{stored}"));
        let mut unset = single("field", stored);
        unset.append(cstr!("input"), &inner);
        inner = RawBson::Document(single("$unsetField", &unset));
    }
    // Later documents win, so an item that has kept a key value of its own shows that one.
    let mut parts = RawArrayBuf::new();
    parts.push(&outer);
    parts.push(&inner);
    let root = single("newRoot", single("$mergeObjects", &parts));
    vec![single("$unwind", items), single("$replaceRoot", &root)]
}

/// The stages that answer a `find`, as the server's own conversion for views has them.
///
/// # Errors
/// What in its projection cannot be done, for a message.
pub fn of_find(shape: &BucketShape, find: &Find<'_>) -> Result<Vec<RawDocumentBuf>, &'static str> {
    let narrowing = Narrowing::of(shape, find.filter);
    let mut stages: Vec<RawDocumentBuf> = narrowing.bucket_match().into_iter().collect();
    if narrowing.one_key().is_some() && find.sort.is_none() {
        // One key's items come in the order of their insertion, as a naive collection has them; the page index has it too.
        stages.push(single("$sort", single(path::PAGE, 1)));
    }
    stages.extend(unpack(shape));
    stages.extend(find.filter.map(match_items));
    stages.extend(find.sort.map(|sort| single("$sort", sort)));
    stages.extend(number_stage("$skip", find.skip));
    stages.extend(number_stage("$limit", find.limit));
    if let Some(projection) = find.projection {
        stages.extend(find_projection::stages(projection)?);
    }
    Ok(stages)
}

/// The stages that answer a `count` over items, as a last one that gives `n`.
#[must_use]
pub fn of_count(shape: &BucketShape, query: Option<&RawDocument>, skip: u64, limit: u64) -> Vec<RawDocumentBuf> {
    let narrowing = Narrowing::of(shape, query);
    let mut stages: Vec<RawDocumentBuf> = narrowing.bucket_match().into_iter().collect();
    stages.extend(unpack(shape));
    stages.extend(query.map(match_items));
    stages.extend(number_stage("$skip", skip));
    stages.extend(number_stage("$limit", limit));
    stages.push(single("$count", "n"));
    stages
}

/// The stages that add up the counts of the buckets that meet a condition.
#[must_use]
pub fn sum_of_counts(shape: &BucketShape, condition: Option<&RawDocument>) -> Vec<RawDocumentBuf> {
    let mut stages: Vec<RawDocumentBuf> = condition
        .map(|condition| single("$match", condition))
        .into_iter()
        .collect();
    let mut group = RawDocumentBuf::new();
    group.append(cstr!("_id"), RawBson::Null);
    group.append(cstr!("n"), single("$sum", format!("${}", shape.count())));
    stages.push(single("$group", &group));
    stages
}

/// The stages that answer a client's own pipeline.
///
/// # Errors
/// The name of a stage that cannot be run on items.
pub fn of_aggregate<'a>(shape: &BucketShape, pipeline: &[&'a RawDocument]) -> Result<Vec<RawDocumentBuf>, &'a str> {
    let first = pipeline
        .first()
        .and_then(|stage| crate::command::document::first_field(stage));
    if let Some((name, _)) = first
        && (FIRST_STAGES.contains(&name) || name.starts_with("$_"))
    {
        return Err(name);
    }
    let filter = match first {
        Some(("$match", RawBsonRef::Document(filter))) => Some(filter),
        _ => None,
    };
    let narrowing = Narrowing::of(shape, filter);
    let mut stages: Vec<RawDocumentBuf> = narrowing.bucket_match().into_iter().collect();
    if narrowing.one_key().is_some() {
        stages.push(single("$sort", single(path::PAGE, 1)));
    }
    stages.extend(unpack(shape));
    // On a naive collection a client's `$match` becomes a query's filter, also from behind some other stages.
    stages.extend(
        pipeline
            .iter()
            .map(|stage| match crate::command::document::first_field(stage) {
                Some(("$match", RawBsonRef::Document(filter))) if stage.iter().count() == 1 => match_items(filter),
                _ => (*stage).to_owned(),
            }),
    );
    Ok(stages)
}

/// An `aggregate` of these stages, without the fields that every command carries.
#[must_use]
pub fn aggregate(collection: &str, stages: &[RawDocumentBuf], batch_size: Option<u64>) -> RawDocumentBuf {
    let mut cursor = RawDocumentBuf::new();
    if let Some(size) = batch_size {
        cursor.append(cstr!("batchSize"), i64::try_from(size).unwrap_or(i64::MAX));
    }
    let mut command = single("aggregate", collection);
    command.append(cstr!("pipeline"), array_of(stages));
    command.append(cstr!("cursor"), &cursor);
    command
}

fn number_stage(name: &str, number: u64) -> Option<RawDocumentBuf> {
    (number > 0).then(|| single(name, i64::try_from(number).unwrap_or(i64::MAX)))
}

/// Whether a sort is on one field, and if so on which and whether ascending.
#[must_use]
pub fn single_sort(sort: &RawDocument) -> Option<(&str, bool)> {
    let mut fields = sort.iter().flatten();
    let (name, direction) = fields.next()?;
    if fields.next().is_some() || as_flag(direction).is_none() {
        return None;
    }
    match as_whole_number(direction)? {
        1 => Some((name.as_str(), true)),
        -1 => Some((name.as_str(), false)),
        _ => None,
    }
}
