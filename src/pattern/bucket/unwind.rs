//! Reads by pipeline: mongod unwinds the buckets, then runs the client's own stages on the items.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::expression::{call, literal};
use super::layout::path;
use super::predicate_pushdown::BucketPredicate;
use super::stored_paths;
use crate::command::document::{as_flag, as_whole_number, first_field, put, single};
use crate::command::find::Find;
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;
use crate::pattern::unwound::{self, has_where, match_query, number_stage, only_match};

/// The position of renamed fields in an unwound item. Without renamed fields both orders are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOrder {
    /// Renamed fields stay in their stored position. Required if the whole document is visible. mongod takes
    /// about three times as long.
    Stored,
    /// Renamed fields come before all other fields.
    Any,
}

impl FieldOrder {
    /// The order that a client's stages on items require.
    #[must_use]
    pub fn of_stages(stages: &[impl AsRef<RawDocument>]) -> Self {
        for stage in stages {
            let stage = stage.as_ref();
            if names_whole_document(RawBsonRef::Document(stage)) {
                return Self::Stored;
            }
            match first_field(stage).map(|(name, _)| name) {
                Some("$group" | "$count" | "$sortByCount" | "$bucket" | "$bucketAuto") => return Self::Any,
                Some(
                    "$match" | "$sort" | "$skip" | "$limit" | "$sample" | "$set" | "$addFields" | "$unset" | "$unwind",
                ) => {}
                _ => return Self::Stored,
            }
        }
        Self::Stored
    }

    /// The order that a query on items requires, if nothing else reads the items.
    #[must_use]
    pub fn of_query(query: Option<&RawDocument>) -> Self {
        if query.is_some_and(|query| has_where(query) || names_whole_document(RawBsonRef::Document(query))) {
            Self::Stored
        } else {
            Self::Any
        }
    }
}

/// Whether a value contains an expression that may be a whole document.
fn names_whole_document(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::String(text) => text.starts_with("$$ROOT") || text.starts_with("$$CURRENT"),
        RawBsonRef::Document(document) => document.iter().flatten().any(|(_, value)| names_whole_document(value)),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(names_whole_document),
        _ => false,
    }
}

/// The stages that turn buckets into items: `_id`, key fields, the rest.
#[must_use]
pub fn unpack(shape: &BucketShape, order: FieldOrder) -> Vec<RawDocumentBuf> {
    let items = format!("${}", shape.items());
    let root = single("newRoot", item(shape, &items, order));
    vec![single("$unwind", items), single("$replaceRoot", &root)]
}

/// The stages that turn the buckets of a filter into those of their items that may match it. The conditions
/// on stored items come first: to assemble an item costs mongod several times as much as to compare it.
#[must_use]
pub fn unpack_matching(shape: &BucketShape, order: FieldOrder, narrowing: &BucketPredicate) -> Vec<RawDocumentBuf> {
    let mut stages = unpack(shape, order);
    let conditions = narrowing.stored_conditions(shape);
    if !conditions.is_empty() {
        stages.insert(1, single("$match", &conditions));
    }
    stages
}

/// The expression for a bucket's items as an array.
#[must_use]
pub fn items(shape: &BucketShape) -> RawDocumentBuf {
    let mut map = single("input", format!("${}", shape.items()));
    map.append(cstr!("as"), "item");
    map.append(cstr!("in"), item(shape, "$$item", FieldOrder::Stored));
    single("$map", &map)
}

/// The expression for an item. `stored` is the expression for its element in the bucket.
pub(super) fn item(shape: &BucketShape, stored: &str, order: FieldOrder) -> RawDocumentBuf {
    let mut outer = RawDocumentBuf::new();
    outer.append(cstr!("_id"), format!("{stored}._id"));
    for field in shape.key() {
        put(&mut outer, field, format!("${field}"));
    }
    let inner = match order {
        FieldOrder::Stored => renamed_in_place(shape, stored),
        FieldOrder::Any => renamed_beside(shape, stored, &mut outer),
    };
    // Fields of later documents override: an item's own key value replaces the lifted value.
    let mut parts = RawArrayBuf::new();
    parts.push(&outer);
    parts.push(&inner);
    single("$mergeObjects", &parts)
}

/// The expression for the stored item without its renamed fields. Adds those to `beside`, under the
/// application's names.
fn renamed_beside(shape: &BucketShape, stored: &str, beside: &mut RawDocumentBuf) -> RawBson {
    let mut inner = RawBson::String(stored.to_owned());
    for (name, stored_name) in shape.rename().pairs() {
        put(beside, name, format!("{stored}.{stored_name}"));
        let mut unset = single("field", stored_name);
        unset.append(cstr!("input"), &inner);
        inner = RawBson::Document(single("$unsetField", &unset));
    }
    inner
}

/// The expression for the stored item with the application's field names, in the stored order.
fn renamed_in_place(shape: &BucketShape, stored: &str) -> RawBson {
    if shape.rename().pairs().next().is_none() {
        return RawBson::String(stored.to_owned());
    }
    let mut name = RawBson::String("$$field.k".to_owned());
    for (item_name, stored_name) in shape.rename().pairs() {
        let is_this = call("$eq", "$$field.k", literal(stored_name));
        let branches = [RawBson::Document(is_this), RawBson::Document(literal(item_name)), name];
        name = RawBson::Document(single("$cond", branches.into_iter().collect::<RawArrayBuf>()));
    }
    let mut field = RawDocumentBuf::new();
    field.append(cstr!("k"), &name);
    field.append(cstr!("v"), "$$field.v");
    let mut fields = single("input", single("$objectToArray", stored));
    fields.append(cstr!("as"), "field");
    fields.append(cstr!("in"), &field);
    RawBson::Document(single("$arrayToObject", single("$map", &fields)))
}

/// The stages that answer a `find`, like the server's own conversion for views.
///
/// # Errors
/// The part of the projection that is not supported, for an error message.
pub fn of_find(shape: &BucketShape, find: &Find<'_>) -> Result<Vec<RawDocumentBuf>, &'static str> {
    let narrowing = BucketPredicate::of(shape, find.filter);
    let mut stages = vec![narrowing.bucket_match()];
    if narrowing.one_key().is_some() && find.sort.is_none() {
        // Without a sort, the items of one key are returned in the order of insertion, like those of a plain
        // collection. The page index has this order too.
        stages.push(single("$sort", single(path::PAGE, 1)));
    }
    if find.sort.is_none() && find.limit > 0 && narrowing.guarantees_matching_item() {
        stages.extend(number_stage("$limit", find.skip.saturating_add(find.limit)));
    }
    stages.extend(unpack_matching(shape, FieldOrder::Stored, &narrowing));
    stages.extend(unwound::of_find(find, |field| {
        shape.key().iter().any(|key| key == field)
    })?);
    Ok(stages)
}

/// The stages that count matching items, up to a limit. The last one returns `n`.
#[must_use]
pub fn of_count(shape: &BucketShape, query: Option<&RawDocument>, limit: Option<u64>) -> Vec<RawDocumentBuf> {
    let narrowing = BucketPredicate::of(shape, query);
    let mut stages = vec![narrowing.bucket_match()];
    if narrowing.guarantees_matching_item() {
        stages.extend(limit.and_then(|limit| number_stage("$limit", limit)));
    }
    if let Some(items) = stored_paths::matching_items(shape, &narrowing) {
        stages.extend(items);
    } else {
        stages.extend(unpack_matching(shape, FieldOrder::of_query(query), &narrowing));
        stages.extend(query.map(match_query));
    }
    stages.extend(limit.and_then(|limit| number_stage("$limit", limit)));
    stages.push(single("$count", "n"));
    stages
}

/// The stages that sum the counts of the pages that a filter selects.
#[must_use]
pub fn sum_of_counts(shape: &BucketShape, narrowing: &BucketPredicate) -> Vec<RawDocumentBuf> {
    let mut group = RawDocumentBuf::new();
    group.append(cstr!("_id"), RawBson::Null);
    group.append(cstr!("n"), single("$sum", format!("${}", shape.count())));
    vec![narrowing.bucket_match(), single("$group", &group)]
}

/// The stages that answer a client's pipeline on items.
///
/// # Errors
/// The stage that cannot run on items, for an error message.
pub fn of_aggregate(
    shape: &BucketShape,
    pipeline: &[impl AsRef<RawDocument>],
) -> Result<Vec<RawDocumentBuf>, Unsupported> {
    let narrowing = check(shape, pipeline)?;
    let mut stages = vec![narrowing.bucket_match()];
    if narrowing.one_key().is_some() {
        stages.push(single("$sort", single(path::PAGE, 1)));
    }
    if let Some(grouped) = stored_paths::of_aggregate(shape, &narrowing, pipeline) {
        stages.extend(grouped);
    } else {
        stages.extend(unpack_matching(shape, FieldOrder::of_stages(pipeline), &narrowing));
        stages.extend(unwound::behind(pipeline));
    }
    Ok(stages)
}

/// Checks a client's pipeline on items. Returns the bucket predicate of its first `$match`.
///
/// # Errors
/// Those of [`of_aggregate`].
pub fn check(shape: &BucketShape, pipeline: &[impl AsRef<RawDocument>]) -> Result<BucketPredicate, Unsupported> {
    unwound::check(pipeline)?;
    let filter = pipeline.first().and_then(|stage| only_match(stage.as_ref()));
    Ok(BucketPredicate::of(shape, filter))
}

/// The field of a sort by one field, and whether it is ascending. `None` for any other sort.
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
