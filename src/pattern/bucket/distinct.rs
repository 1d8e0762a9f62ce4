//! `distinct` on items: of a key field from buckets, of any other field from items.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::count_pushdown;
use super::expression::call;
use super::item_index::stored_path;
use super::layout::{VERSION, path};
use super::predicate_pushdown::{BucketPredicate, is_any_page, key_position};
use super::unwind::{FieldOrder, unpack_matching};
use crate::command::document::{array_of, as_whole_number, get, put, single};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unwound::distinct::{DottedNames, list, sort, values_of};
use crate::pattern::unwound::match_query;

/// The stages that return each value once, in a document as its field `v`.
///
/// # Errors
/// The part that is not supported, for an error message.
pub fn stages(
    shape: &BucketShape,
    path: &str,
    query: Option<&RawDocument>,
    collation: Option<&RawDocument>,
    dotted: DottedNames,
) -> Result<Vec<RawDocumentBuf>, &'static str> {
    let narrowing = BucketPredicate::of(shape, query);
    if narrowing.is_of_key_alone() && shape.key().iter().any(|field| field == path) {
        return Ok(of_key(shape, path, &narrowing, collation));
    }
    let mut stages = vec![narrowing.bucket_match()];
    stages.extend(unpack_matching(shape, FieldOrder::of_query(query), &narrowing));
    stages.extend(query.map(match_query));
    stages.extend(values_of(path, collation, dotted)?);
    Ok(stages)
}

/// The `distinct` on buckets that returns the values of all items. mongod takes the values of an array's
/// elements like those of documents. Reading a bucket takes a sixth of the time of the [stages](stages).
/// `None` if the path begins with a key field, or has a number that mongod may take for a position in the
/// array of items.
#[must_use]
pub fn of_stored_path(shape: &BucketShape, collection: &str, path: &str) -> Option<RawDocumentBuf> {
    let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    if key_position(shape, path).is_some() || path.split('.').any(is_number) {
        return None;
    }
    let mut command = single("distinct", collection);
    put(&mut command, "key", stored_path(shape, path));
    command.append(cstr!("query"), is_any_page());
    Some(command)
}

/// The stages that return a key field's value on the first page of each value, as `v`, from the page index:
/// mongod skips from one value to the next. `n` is the page's number of items, or 0 for a document that is
/// not a page. The result is complete if each page has items and no value is null. A null page may have items
/// with null and items without the field, and the first page does not show both. `None` if the page index
/// does not begin with the field.
#[must_use]
pub fn of_first_pages(shape: &BucketShape, field: &str) -> Option<Vec<RawDocumentBuf>> {
    shape.key().first().filter(|first| *first == field)?;
    let mut order = RawDocumentBuf::new();
    for name in shape.key().iter().map(String::as_str).chain([path::PAGE]) {
        put(&mut order, name, 1);
    }
    let is_page = call("$eq", format!("${}", path::VERSION), VERSION);
    let count = [RawBson::from(is_page), format!("${}", shape.count()).into(), 0.into()];
    let mut group = single("_id", format!("${field}"));
    group.append(cstr!("v"), single("$first", count_pushdown::first_value(shape, field)));
    group.append(cstr!("n"), single("$first", single("$cond", list(count))));
    Some(vec![
        single("$sort", &order),
        single("$group", &group),
        single("$sort", single("_id", 1)),
    ])
}

/// Whether a result document of [`of_first_pages`] has a value other than null, from a page with items.
#[must_use]
pub fn is_first_page(document: &RawDocument) -> bool {
    let is_null = get(document, "_id").is_none_or(|value| value == RawBsonRef::Null);
    let count = get(document, "n").and_then(as_whole_number);
    !is_null && count.is_some_and(|count| count > 0)
}

/// The stages that return the values of a key field from buckets. Of equal values they return one that an
/// item has.
fn of_key(
    shape: &BucketShape,
    field: &str,
    narrowing: &BucketPredicate,
    collation: Option<&RawDocument>,
) -> Vec<RawDocumentBuf> {
    let mut group = single("_id", single("v", format!("${field}")));
    put(
        &mut group,
        "shown",
        single("$first", count_pushdown::first_value(shape, field)),
    );
    // A bucket without the field has items that lack the field and items in which it is null.
    let own = format!("${}.{field}", shape.items());
    let nothing = RawArrayBuf::new();
    let own = single("$ifNull", list([own.into(), RawBson::Array(nothing)]));
    let has_null = single("$in", list([RawBson::Null, own.into()]));
    put(&mut group, "null", single("$max", &has_null));
    let there = [single("_id.v", single("$ne", RawBson::Null)), single("null", true)];
    let mut shown = single("_id", 0);
    shown.append(cstr!("v"), single("$ifNull", list(["$shown".into(), RawBson::Null])));
    let mut stages = vec![
        count_pushdown::with_items(shape, narrowing),
        single("$group", &group),
        single("$match", single("$or", array_of(&there))),
    ];
    stages.extend(sort(collation));
    stages.push(single("$project", &shown));
    stages
}

#[cfg(test)]
mod tests;
