//! `distinct` on items: of a key field from buckets, of any other field from items.

use bson::raw::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, cstr};

use super::count_pushdown;
use super::predicate_pushdown::BucketPredicate;
use super::unwind::{FieldOrder, unpack};
use crate::command::document::{array_of, put, single};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unwound::distinct::{list, sort, values_of};
use crate::pattern::unwound::match_documents;

/// The stages that give each value once, in a document as its field `v`.
///
/// # Errors
/// What cannot be done, for a message.
pub fn stages(
    shape: &BucketShape,
    path: &str,
    query: Option<&RawDocument>,
    collation: Option<&RawDocument>,
) -> Result<Vec<RawDocumentBuf>, &'static str> {
    let narrowing = BucketPredicate::of(shape, query);
    if narrowing.is_of_key_alone() && shape.key().iter().any(|field| field == path) {
        return Ok(of_key(shape, path, &narrowing, collation));
    }
    let mut stages = vec![narrowing.bucket_match()];
    stages.extend(unpack(shape, FieldOrder::of_query(query)));
    stages.extend(query.map(match_documents));
    stages.extend(values_of(path, collation)?);
    Ok(stages)
}

/// The values of a key field, from the buckets: of each the one that an item has.
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
    // The bucket of items without the field has also those in which it is null.
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
