//! Statements on inline documents that fail with a known error if a document is not inline or cannot stay so.
//! A statement that matches nothing would not tell that from a document that no longer matches the filter.

use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::classify::Growth;
use super::statement::{typical_with_room, with_conditions};
use crate::command::document::{array_of, single};
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::exact_match::call;
use crate::pattern::shapes::OutlierShape;

/// The text of mongod's error. The type of the document's `_id` follows.
const NOT_INLINE: &str = "mongoshape: not an inline document: ";
/// The most stages of a client's pipeline to which one is added. mongod's limit is 1000.
const MAX_STAGES: usize = 100;

/// A filter for the document with this `_id`, with the condition that the document is inline and has room for
/// the growth. If it has not, the statement fails ([`is_not_inline`]). `None` if the growth is unknown or
/// exceeds the threshold.
#[must_use]
pub fn inline_or_failure(
    shape: &OutlierShape,
    filter: &RawDocument,
    id: RawBsonRef<'_>,
    growth: Growth,
) -> Option<RawDocumentBuf> {
    let inline = typical_with_room(shape, &RawDocumentBuf::new(), growth)?;
    // mongod may evaluate the condition on other documents, before it compares the `_id`.
    let is_it = call("$eq", ["$_id".into(), single("$literal", id).into()]);
    let fails = call("$cond", [is_it.into(), failure().into(), false.into()]);
    let either = array_of(&[inline, single("$expr", fails)]);
    Some(with_conditions(filter, &single("$or", either)))
}

/// A client's pipeline with one more stage, for an inline document. It fails ([`is_not_inline`]) if the array
/// exceeds the threshold, or if the document has a field that is reserved for the proxy. `None` if the
/// pipeline is too long.
#[must_use]
pub fn pipeline_or_failure(shape: &OutlierShape, stages: &RawArray) -> Option<RawArrayBuf> {
    if stages.into_iter().count() > MAX_STAGES {
        return None;
    }
    let array = format!("${}", shape.array());
    let is_array = single("$isArray", array.as_str());
    let size = single("$size", array.as_str());
    let length = call("$cond", [is_array.into(), size.into(), 0.into()]);
    let is_there = |name: &str| call("$ne", [single("$type", format!("${name}")).into(), "missing".into()]);
    let reasons = [
        call("$gt", [length.into(), i64::from(shape.threshold()).into()]),
        is_there(shape.flag()),
        is_there(shape.control()),
    ];
    let fails = single("$or", array_of(&reasons));
    // The stage changes nothing. It must not set the array: it would set all fields of that name.
    let nothing = call("$cond", [fails.into(), failure().into(), "$$REMOVE".into()]);
    let check = single("$set", single(shape.control(), nothing));
    let stages = stages.into_iter().flatten();
    Some(stages.chain([RawBsonRef::Document(&check)]).collect())
}

/// An expression that fails. It names a field, because mongod evaluates a constant when it parses it.
fn failure() -> RawDocumentBuf {
    let text = call("$concat", [NOT_INLINE.into(), single("$type", "$_id").into()]);
    single("$toInt", text)
}

/// Whether the error is that of [`inline_or_failure`] or [`pipeline_or_failure`].
#[must_use]
pub fn is_not_inline(error: &WriteError) -> bool {
    error.code == ErrorCode::ConversionFailure.number() && error.message.contains(NOT_INLINE)
}

#[cfg(test)]
mod tests {
    use bson::{RawBson, rawdoc};

    use super::*;
    use crate::pattern::outlier::sample;

    #[test]
    fn a_document_that_is_not_inline_fails_the_statement() {
        let failing = rawdoc! { "$toInt": { "$concat": [NOT_INLINE, { "$type": "$_id" }] } };
        let none = rawdoc! { "$exists": false };
        let inline = rawdoc! {
            "has_extras_control": none.clone(), "has_extras": { "$ne": true }, "buyers.48": none,
        };
        let fails = rawdoc! { "$expr": { "$cond": [{ "$eq": ["$_id", { "$literal": 2 }] }, failing, false] } };
        let found = inline_or_failure(&sample(), &rawdoc! { "_id": 2 }, RawBsonRef::Int32(2), Growth::By(2));
        assert_eq!(found, Some(rawdoc! { "_id": 2, "$or": [inline, fails] }));
        for growth in [Growth::By(51), Growth::Unknown] {
            let found = inline_or_failure(&sample(), &rawdoc! { "_id": 2 }, RawBsonRef::Int32(2), growth);
            assert_eq!(found, None);
        }
    }

    #[test]
    fn one_stage_is_added_to_a_pipeline() {
        let stage = rawdoc! { "$unset": "x" };
        let stages = array_of(std::slice::from_ref(&stage));
        let found = pipeline_or_failure(&sample(), &stages).expect("a short pipeline");
        let found: Vec<RawBson> = found.into_iter().flatten().map(RawBson::from).collect();
        let Some(RawBson::Document(check)) = found.get(1) else {
            panic!("{found:?}");
        };
        assert_eq!(found.len(), 2);
        assert_eq!(check.iter().flatten().count(), 1);
        let long: Vec<RawDocumentBuf> = std::iter::repeat_n(stage, MAX_STAGES + 1).collect();
        assert_eq!(pipeline_or_failure(&sample(), &array_of(&long)), None);
    }
}
