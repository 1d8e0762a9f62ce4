//! Reading by pipeline: mongod unpacks the buckets, then runs the client's own words on the items.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::filter::{Narrowing, match_items, names_nothing, unsupported_operator};
use super::find_projection;
use super::layout::path;
use crate::command::document::{array_of, as_flag, as_whole_number, first_field, put, single};
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
    let root = single("newRoot", item(shape, &items));
    vec![single("$unwind", items), single("$replaceRoot", &root)]
}

/// The expression for a bucket's items as an array.
#[must_use]
pub fn items(shape: &BucketShape) -> RawDocumentBuf {
    let mut map = single("input", format!("${}", shape.items()));
    map.append(cstr!("as"), "item");
    map.append(cstr!("in"), item(shape, "$$item"));
    single("$map", &map)
}

/// The expression for an item, given the one for what is stored of it.
pub(super) fn item(shape: &BucketShape, stored: &str) -> RawDocumentBuf {
    let mut outer = RawDocumentBuf::new();
    outer.append(cstr!("_id"), format!("{stored}._id"));
    for field in shape.key() {
        put(&mut outer, field, format!("${field}"));
    }
    // The item as stored, without the fields that are stored under another name; those go beside it.
    let mut inner = RawBson::String(stored.to_owned());
    for (name, stored_name) in shape.rename().pairs() {
        put(&mut outer, name, format!("{stored}.{stored_name}"));
        let mut unset = single("field", stored_name);
        unset.append(cstr!("input"), &inner);
        inner = RawBson::Document(single("$unsetField", &unset));
    }
    // Later documents win, so an item that has kept a key value of its own shows that one.
    let mut parts = RawArrayBuf::new();
    parts.push(&outer);
    parts.push(&inner);
    single("$mergeObjects", &parts)
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
        let context = find_projection::Context {
            shape,
            filter: find.filter,
        };
        stages.extend(find_projection::stages(projection, context)?);
    }
    Ok(stages)
}

/// The `find` by which mongod judges a projection that only `find` has: on no bucket at all, which are what it finds. `None`
/// where there is nothing to judge, or an aggregation will.
///
/// # Errors
/// What cannot be judged, for a message: mongod 6.0.5 crashes on some conditions on a field without a name beside another one
/// that an index may be used for (as [`Narrowing`] knows).
pub fn judgement(collection: &str, find: &Find<'_>) -> Result<Option<RawDocumentBuf>, &'static str> {
    let find_only = |projection: &&RawDocument| find_projection::is_find_only(projection);
    let Some(projection) = find.projection.filter(find_only) else {
        return Ok(None);
    };
    let filter = find.filter.map(RawBsonRef::Document);
    if filter.is_some_and(names_nothing) {
        return Err("what only find has, beside a filter on a field without a name,");
    }
    // Met by no `_id`, and known by its index to be.
    let mut nothing = single("$gt", 1);
    nothing.append(cstr!("$lt"), 0);
    let mut clauses = vec![single("_id", nothing)];
    clauses.extend(find.filter.map(RawDocument::to_owned));
    let mut command = single("find", collection);
    command.append(cstr!("filter"), single("$and", array_of(&clauses)));
    command.append(cstr!("projection"), projection);
    let parts = [
        ("sort", find.sort),
        ("collation", find.collation),
        ("let", find.let_variables),
    ];
    for (name, part) in parts {
        if let Some(part) = part {
            put(&mut command, name, part);
        }
    }
    command.append(cstr!("singleBatch"), true);
    Ok(Some(command))
}

/// The stages that count the items which match, up to a limit, as a last one that gives `n`.
#[must_use]
pub fn of_count(shape: &BucketShape, query: Option<&RawDocument>, limit: Option<u64>) -> Vec<RawDocumentBuf> {
    let narrowing = Narrowing::of(shape, query);
    let mut stages: Vec<RawDocumentBuf> = narrowing.bucket_match().into_iter().collect();
    stages.extend(unpack(shape));
    stages.extend(query.map(match_items));
    stages.extend(limit.and_then(|limit| number_stage("$limit", limit)));
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

/// The stages that answer a client's own pipeline on items.
///
/// # Errors
/// What in it cannot be run on items, for a message.
pub fn of_aggregate(shape: &BucketShape, pipeline: &[impl AsRef<RawDocument>]) -> Result<Vec<RawDocumentBuf>, String> {
    let narrowing = check(shape, pipeline)?;
    let mut stages: Vec<RawDocumentBuf> = narrowing.bucket_match().into_iter().collect();
    if narrowing.one_key().is_some() {
        stages.push(single("$sort", single(path::PAGE, 1)));
    }
    stages.extend(unpack(shape));
    stages.extend(on_items(pipeline));
    Ok(stages)
}

/// What a client's own pipeline on items says of the buckets.
///
/// # Errors
/// Those of [`of_aggregate`].
pub fn check(shape: &BucketShape, pipeline: &[impl AsRef<RawDocument>]) -> Result<Narrowing, String> {
    let first = pipeline.first().and_then(|stage| first_field(stage.as_ref()));
    if let Some((name, _)) = first
        && (FIRST_STAGES.contains(&name) || name.starts_with("$_"))
    {
        return Err(format!("the stage {name}"));
    }
    let mut filters = pipeline.iter().filter_map(|stage| only_match(stage.as_ref()));
    if let Some(operator) = filters.find_map(unsupported_operator) {
        return Err(format!("{operator} in a $match"));
    }
    let filter = pipeline.first().and_then(|stage| only_match(stage.as_ref()));
    Ok(Narrowing::of(shape, filter))
}

/// A client's own stages, to be run on unpacked items. On a naive collection its `$match` becomes a query's filter, also
/// from behind some other stages.
pub fn on_items(pipeline: &[impl AsRef<RawDocument>]) -> impl Iterator<Item = RawDocumentBuf> {
    pipeline.iter().map(|stage| {
        let stage = stage.as_ref();
        only_match(stage).map_or_else(|| stage.to_owned(), match_items)
    })
}

/// The filter of a stage that is a `$match`. One with another stage beside it is mongod's to refuse.
fn only_match(stage: &RawDocument) -> Option<&RawDocument> {
    match first_field(stage) {
        Some(("$match", RawBsonRef::Document(filter))) if stage.iter().count() == 1 => Some(filter),
        _ => None,
    }
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
