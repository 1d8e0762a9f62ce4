//! Statements on base documents.

use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::classify::{Growth, UpdateEffect, only_appends};
use super::layout::{Extras, field, is_of_generation, is_typical, tail};
use crate::command::document::{append_fields, array_of, get, put, single};
use crate::pattern::exact_match::same;
use crate::pattern::shapes::OutlierShape;
use crate::pattern::unsupported::Unsupported;

/// The most elements of a tail before it is moved to pages, unless pages have fewer. Large enough
/// that the move adds little to the cost of a push, and small compared with the document's array.
const TAIL_ROOM: u32 = 16;
/// The most bytes of a statement. A command has room for it and its other fields.
const MAX_STATEMENT_BYTES: usize = 16 * 1024 * 1024;

/// The client's filter, with the condition that the document is inline and has room for the growth.
/// `None` if the growth is unknown or exceeds the threshold.
#[must_use]
pub fn typical_with_room(shape: &OutlierShape, filter: &RawDocument, growth: Growth) -> Option<RawDocumentBuf> {
    let mut conditions = is_typical(shape);
    match growth {
        Growth::None => {}
        Growth::By(count) => put(
            &mut conditions,
            &first_too_many(shape, count)?,
            single("$exists", false),
        ),
        Growth::Unknown => return None,
    }
    Some(with_conditions(filter, &conditions))
}

/// The client's filter, with the condition that the document is inline.
#[must_use]
pub fn typical(shape: &OutlierShape, filter: &RawDocument) -> RawDocumentBuf {
    with_conditions(filter, &is_typical(shape))
}

/// The client's filter, with the condition that the document is an outlier.
#[must_use]
pub fn outlier(shape: &OutlierShape, filter: &RawDocument) -> RawDocumentBuf {
    let version = format!("{}.{}", shape.control(), field::VERSION);
    with_conditions(filter, &single(&version, super::layout::VERSION))
}

/// The client's filter, with the condition that the document is an outlier whose pages have these elements.
#[must_use]
pub fn outlier_with_pages(shape: &OutlierShape, filter: &RawDocument, extras: &Extras) -> RawDocumentBuf {
    let mut conditions = is_of_generation(shape, extras.generation);
    let path = format!("{}.{}", shape.control(), field::COUNT);
    put(&mut conditions, &path, i64::try_from(extras.count).unwrap_or(i64::MAX));
    with_conditions(filter, &conditions)
}

/// The client's filter, with the condition that the document is an outlier with room for `count`
/// more elements in its tail. `None` if no tail has that room.
#[must_use]
pub fn outlier_with_room(shape: &OutlierShape, filter: &RawDocument, count: u32) -> Option<RawDocumentBuf> {
    let version = format!("{}.{}", shape.control(), field::VERSION);
    let mut conditions = single(&version, super::layout::VERSION);
    let position = TAIL_ROOM.min(shape.max_items()).checked_sub(count)?;
    put(
        &mut conditions,
        &format!("{}.{position}", tail(shape)),
        single("$exists", false),
    );
    Some(with_conditions(filter, &conditions))
}

/// The operator that appends to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Append {
    /// `$push`.
    Always,
    /// `$addToSet`: a value is appended unless the array contains it.
    ToSet,
}

impl Append {
    /// The operator's name.
    #[must_use]
    pub fn operator(self) -> &'static str {
        match self {
            Self::Always => "$push",
            Self::ToSet => "$addToSet",
        }
    }
}

/// Whether operators change the array only by appending to it with this operator. mongod detects conflicts of
/// operators only on the same path, so other operators on the array exclude this.
#[must_use]
pub fn appends_only(shape: &OutlierShape, append: Append, operators: &RawDocument) -> bool {
    let mut others = RawDocumentBuf::new();
    for (operator, paths) in operators.iter().flatten() {
        match paths {
            RawBsonRef::Document(paths) if operator.as_str() == append.operator() => {
                let mut rest = RawDocumentBuf::new();
                for (path, value) in paths
                    .iter()
                    .flatten()
                    .filter(|(path, value)| path.as_str() != shape.array() || !only_appends(*value))
                {
                    rest.append(path, value);
                }
                others.append(operator, &rest);
            }
            paths => others.append(operator, paths),
        }
    }
    UpdateEffect::of(shape, RawBsonRef::Document(&others)) == UpdateEffect::LeavesArray
}

/// The values that this operator appends to the array.
#[must_use]
pub fn appended(shape: &OutlierShape, append: Append, operators: &RawDocument) -> Option<RawArrayBuf> {
    let value = get(get(operators, append.operator())?.as_document()?, shape.array())?;
    match value.as_document().and_then(|modifiers| get(modifiers, "$each")) {
        Some(RawBsonRef::Array(each)) => Some(each.to_owned()),
        Some(_) => None,
        None => Some([value].into_iter().collect()),
    }
}

/// A filter with additional conditions. They are separate top-level fields, which mongod plans
/// fastest, unless the filter has the same paths.
pub(super) fn with_conditions(filter: &RawDocument, conditions: &RawDocument) -> RawDocumentBuf {
    let is_there = |name: &str| get(filter, name).is_some();
    if conditions.iter().flatten().any(|(name, _)| is_there(name.as_str())) {
        return single("$and", array_of(&[filter.to_owned(), conditions.to_owned()]));
    }
    let mut all = filter.to_owned();
    append_fields(&mut all, conditions);
    all
}

/// The client's operators, with `append` redirected from the array to the tail.
#[must_use]
pub fn into_tail(shape: &OutlierShape, append: Append, operators: &RawDocument) -> RawDocumentBuf {
    let mut changed = RawDocumentBuf::new();
    for (operator, paths) in operators.iter().flatten() {
        match paths {
            RawBsonRef::Document(paths) if operator.as_str() == append.operator() => {
                let mut redirected = RawDocumentBuf::new();
                for (path, value) in paths.iter().flatten() {
                    if path.as_str() == shape.array() {
                        put(&mut redirected, &tail(shape), value);
                    } else {
                        redirected.append(path, value);
                    }
                }
                changed.append(operator, &redirected);
            }
            paths => changed.append(operator, paths),
        }
    }
    changed
}

/// The element of `updates` that makes an outlier of a document without room for `count` more
/// elements. The array stays the same.
#[must_use]
pub fn flagging(shape: &OutlierShape, id: RawBsonRef<'_>, count: u32, generation: ObjectId) -> Option<RawDocumentBuf> {
    let conditions = [
        single("_id", single("$eq", id)),
        is_typical(shape),
        single(shape.array(), single("$type", "array")),
        single(&first_too_many(shape, count)?, single("$exists", true)),
    ];
    let mut marks = single(shape.flag(), true);
    put(&mut marks, shape.control(), Extras::none(generation).document());
    let mut statement = single("q", single("$and", array_of(&conditions)));
    put(&mut statement, "u", single("$set", marks));
    Some(statement)
}

/// The path of the first element that must be missing if `count` more elements shall fit.
fn first_too_many(shape: &OutlierShape, count: u32) -> Option<String> {
    let position = shape.threshold().checked_sub(count)?;
    // With nothing to push there is always room.
    Some(format!("{}.{position}", shape.array()))
}

/// The filter that demands a stored document unchanged in type and in every bit.
///
/// # Errors
/// The part of the document that cannot be compared, or a comparison that is too long, for an error message.
pub fn unchanged(found: &RawDocument) -> Result<RawDocumentBuf, Unsupported> {
    let id = get(found, "_id").unwrap_or(RawBsonRef::Null);
    let mut filter = single("_id", single("$eq", id));
    put(
        &mut filter,
        "$expr",
        same("$$ROOT".into(), RawBsonRef::Document(found), false)?,
    );
    check_bytes(filter.as_bytes().len())?;
    Ok(filter)
}

/// The filter and the update that replace a stored document by `then`, if it is [`unchanged`].
///
/// # Errors
/// Those of [`unchanged`], and a statement that is too long.
pub fn replacing(found: &RawDocument, then: &RawDocument) -> Result<(RawDocumentBuf, RawBson), Unsupported> {
    let filter = unchanged(found)?;
    let stage = single("$replaceWith", single("$literal", then));
    let change = array_of(&[stage]);
    check_bytes(filter.as_bytes().len().saturating_add(change.as_bytes().len()))?;
    Ok((filter, RawBson::Array(change)))
}

/// Refuses a statement that mongod would not accept. The first elements of the array are few, so the other
/// fields make it long.
fn check_bytes(bytes: usize) -> Result<(), Unsupported> {
    if bytes > MAX_STATEMENT_BYTES {
        return Err("a change of a document whose fields beside the array cannot be compared in 16 MiB".into());
    }
    Ok(())
}

/// The filter and the update of an upsert that inserts a document without changes. An insert would
/// replace empty timestamps.
#[must_use]
pub fn inserting(document: &RawDocument) -> (RawDocumentBuf, RawBson) {
    let id = get(document, "_id").unwrap_or(RawBsonRef::Null);
    let is_none = single("_id", single("$in", RawArrayBuf::new()));
    let filter = single("$and", array_of(&[single("_id", single("$eq", id)), is_none]));
    let stage = single("$replaceWith", single("$literal", document));
    (filter, RawBson::Array(array_of(&[stage])))
}

/// The element of `updates` for that upsert. If the `_id` exists, the error is that of an insert.
#[must_use]
pub fn upserting(document: &RawDocument) -> RawDocumentBuf {
    let (filter, change) = inserting(document);
    let mut element = single("q", filter);
    put(&mut element, "u", change);
    put(&mut element, "upsert", true);
    put(&mut element, "collation", single("locale", "simple"));
    element
}

/// Whether a document has a timestamp that an insert would replace.
#[must_use]
pub fn has_empty_timestamp(document: &RawDocument) -> bool {
    let is_empty = |value: RawBsonRef<'_>| matches!(value, RawBsonRef::Timestamp(stamp) if stamp.time == 0 && stamp.increment == 0);
    document.iter().flatten().any(|(_, value)| is_empty(value))
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::outlier::sample;

    fn check(filter: &RawDocument, growth: Growth, expected: Option<&RawDocument>) {
        let found = typical_with_room(&sample(), filter, growth);
        assert_eq!(found.as_deref(), expected, "{filter:?}");
    }

    #[test]
    fn update_with_other_operators_is_not_a_plain_push() {
        let check = |operators: RawDocumentBuf, expected| {
            assert_eq!(
                appends_only(&sample(), Append::Always, &operators),
                expected,
                "{operators:?}"
            );
        };
        check(rawdoc! { "$push": { "buyers": 1 } }, true);
        check(
            rawdoc! { "$set": { "title": "x" }, "$push": { "buyers": 1, "others": 2 } },
            true,
        );
        check(rawdoc! { "$push": { "buyers": 1, "buyers.0": 2 } }, false);
        check(rawdoc! { "$push": { "buyers": { "$each": [1, 2] } } }, true);
        check(
            rawdoc! { "$push": { "buyers": { "$each": [1], "$position": 0 } } },
            false,
        );
        check(
            rawdoc! { "$push": { "buyers": { "$each": [1], "$slice": -60 } } },
            false,
        );
        check(
            rawdoc! { "$push": { "buyers": 1 }, "$pullAll": { "buyers": [2] } },
            false,
        );
        check(rawdoc! { "$addToSet": { "buyers": 1 } }, false);
        check(
            rawdoc! { "$push": { "buyers": 1 }, "$rename": { "buyers": "x" } },
            false,
        );
    }

    #[test]
    fn statement_beyond_the_size_of_a_document_is_refused() {
        let text = |bytes: usize| rawdoc! { "_id": 1, "buyers": [], "text": "x".repeat(bytes) };
        let numbers: RawArrayBuf = (0..200_000).collect();
        for (found, is_found, is_replaced) in [
            (text(7 << 20), true, true),
            (text(9 << 20), true, false),
            // One condition compares all of them.
            (rawdoc! { "_id": 1, "buyers": [], "history": numbers }, true, true),
        ] {
            assert_eq!(unchanged(&found).is_ok(), is_found);
            assert_eq!(replacing(&found, &found).is_ok(), is_replaced);
        }
    }

    #[test]
    fn conditions_are_added_to_the_clients_filter() {
        let none = rawdoc! { "$exists": false };
        let typical = rawdoc! { "has_extras_control": none.clone(), "has_extras": { "$ne": true } };
        check(
            &rawdoc! { "_id": 2 },
            Growth::By(2),
            Some(&rawdoc! {
                "_id": 2, "has_extras_control": none.clone(), "has_extras": { "$ne": true }, "buyers.48": none.clone(),
            }),
        );
        let by_flag = rawdoc! { "has_extras": false };
        let both = rawdoc! { "$and": [by_flag.clone(), typical] };
        check(&by_flag, Growth::None, Some(&both));
        check(&rawdoc! { "_id": 2 }, Growth::By(51), None);
        check(&rawdoc! { "_id": 2 }, Growth::Unknown, None);
        assert_eq!(
            outlier(&sample(), &rawdoc! { "_id": 2 }),
            rawdoc! { "_id": 2, "has_extras_control.v": 1 }
        );
    }
}
