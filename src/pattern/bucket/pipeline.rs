//! Reading by pipeline: mongod unpacks the buckets, then runs the client's own words on the items.

use bson::raw::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, cstr};

use super::filter::Narrowing;
use super::layout::path;
use crate::command::document::{as_flag, as_whole_number, put, single};
use crate::command::find::Find;
use crate::pattern::shapes::BucketShape;
use crate::pattern::view::{self, match_documents, number_stage, only_match};

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
    stages.extend(view::of_find(find, |field| shape.key().iter().any(|key| key == field))?);
    Ok(stages)
}

/// The stages that count the items which match, up to a limit, as a last one that gives `n`.
#[must_use]
pub fn of_count(shape: &BucketShape, query: Option<&RawDocument>, limit: Option<u64>) -> Vec<RawDocumentBuf> {
    let narrowing = Narrowing::of(shape, query);
    let mut stages: Vec<RawDocumentBuf> = narrowing.bucket_match().into_iter().collect();
    stages.extend(unpack(shape));
    stages.extend(query.map(match_documents));
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
    stages.extend(view::behind(pipeline));
    Ok(stages)
}

/// What a client's own pipeline on items says of the buckets.
///
/// # Errors
/// Those of [`of_aggregate`].
pub fn check(shape: &BucketShape, pipeline: &[impl AsRef<RawDocument>]) -> Result<Narrowing, String> {
    view::check(pipeline)?;
    let filter = pipeline.first().and_then(|stage| only_match(stage.as_ref()));
    Ok(Narrowing::of(shape, filter))
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
