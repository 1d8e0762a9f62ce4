//! Documents in the result of a pipeline that have an application's own fields of the names that are reserved
//! for the proxy: documents of another collection, or parts of documents.
//!
//! A `getMore` does not show whether its cursor returns base documents. So the pipeline encloses such a
//! document in another one, and each reply returns the enclosed document.

use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf};

use crate::command::batch::{BatchKind, ReplyBatch};
use crate::command::document::{array_of, first_field, single};
use crate::command::reply::CursorReply;
use crate::pattern::exact_match::call;
use crate::pattern::shapes::OutlierShape;

/// The field of the enclosed document. The control of a base document has none of that name.
const DOCUMENT: &str = "document";

/// A client's pipeline, with a last stage that encloses documents with fields of the proxy's names. `None`:
/// it returns no such document.
#[must_use]
pub fn enclosing(shape: &OutlierShape, pipeline: &[impl AsRef<RawDocument>]) -> Option<RawArrayBuf> {
    let stages = || pipeline.iter().map(AsRef::as_ref);
    let writes = stages().next_back().is_some_and(writes_result);
    if writes || !stages().any(returns_other_fields) {
        return None;
    }
    let is_there = |name: &str| call("$ne", [single("$type", format!("${name}")).into(), "missing".into()]);
    let is_either = single("$or", array_of(&[is_there(shape.flag()), is_there(shape.control())]));
    let enclosed = single(shape.control(), single(DOCUMENT, "$$ROOT"));
    let document = call("$cond", [is_either.into(), enclosed.into(), "$$ROOT".into()]);
    let last = single("$replaceWith", document);
    Some(stages().chain([&*last]).collect())
}

fn writes_result(stage: &RawDocument) -> bool {
    matches!(first_field(stage), Some(("$out" | "$merge", _)))
}

/// Whether a stage may return documents with fields that neither a stage nor a base document names.
fn returns_other_fields(stage: &RawDocument) -> bool {
    matches!(
        first_field(stage),
        Some((
            "$replaceRoot"
                | "$replaceWith"
                | "$unionWith"
                | "$bucket"
                | "$bucketAuto"
                | "$sortByCount"
                | "$collStats"
                | "$indexStats"
                | "$planCacheStats",
            _
        ))
    )
}

/// The document that another one encloses. `None`: it encloses none.
#[must_use]
pub fn enclosed<'d>(shape: &OutlierShape, document: &'d RawDocument) -> Option<&'d RawDocument> {
    let within = |document: &'d RawDocument, name: &str| {
        let (first, value) = first_field(document)?;
        value.as_document().filter(|_| first == name)
    };
    within(within(document, shape.control())?, DOCUMENT)
}

/// A reply with the enclosed documents.
#[must_use]
pub fn with_enclosed(shape: &OutlierShape, reply: RawDocumentBuf) -> RawDocumentBuf {
    let Some(cursor) = CursorReply::parse(&reply) else {
        return reply;
    };
    if !cursor.documents().any(|document| enclosed(shape, document).is_some()) {
        return reply;
    }
    let mut batch = ReplyBatch::new(BatchKind::First);
    for document in cursor.documents() {
        batch.push(enclosed(shape, document).unwrap_or(document).as_bytes());
    }
    batch.into_reply_like(&reply, cursor.id)
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::rawdoc;

    use super::*;
    use crate::pattern::outlier::layout::Extras;
    use crate::pattern::outlier::sample;

    #[test]
    fn only_results_with_fields_that_no_stage_names_are_enclosed() {
        let check = |stages: &[RawDocumentBuf], expected| {
            let length = enclosing(&sample(), stages).map(|stages| stages.into_iter().count());
            assert_eq!(length, expected, "{stages:?}");
        };
        check(&[], None);
        check(&[rawdoc! { "$match": { "n": 1 } }, rawdoc! { "$count": "n" }], None);
        check(&[rawdoc! { "$unionWith": "x" }, rawdoc! { "$match": {} }], Some(3));
        check(&[rawdoc! { "$replaceWith": "$n" }], Some(2));
        check(&[rawdoc! { "$replaceWith": "$n" }, rawdoc! { "$out": "x" }], None);
    }

    #[test]
    fn a_base_document_encloses_none() {
        let own = rawdoc! { "has_extras": true };
        let enclosing = rawdoc! { "has_extras_control": { "document": own.clone() } };
        assert_eq!(enclosed(&sample(), &enclosing), Some(&*own));
        let control = Extras::none(ObjectId::new()).document();
        for other in [
            rawdoc! {},
            rawdoc! { "_id": 1, "has_extras_control": { "document": {} } },
            rawdoc! { "has_extras_control": control },
            rawdoc! { "has_extras_control": 1 },
        ] {
            assert_eq!(enclosed(&sample(), &other), None);
        }
    }
}
