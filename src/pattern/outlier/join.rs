//! Joins an outlier: the base document gets all elements of its array, and is inline afterwards.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::layout::{DocumentState, tail};
use super::reassemble::{merged, merged_by_hand};
use super::resplit::{beyond_base, still_by_hand};
use crate::command::document::{array_of, get, put, single};
use crate::pattern::exact_match::call;
use crate::pattern::shapes::OutlierShape;

/// The document as the application sees it. `None`: pages are missing, or it has no extras.
#[must_use]
pub fn whole(
    shape: &OutlierShape,
    stored: &RawDocument,
    state: &DocumentState,
    pages: &[&RawDocument],
) -> Option<RawDocumentBuf> {
    match state {
        DocumentState::Outlier(extras) => merged(shape, stored, extras, pages),
        DocumentState::Unmanaged => Some(merged_by_hand(shape, stored, pages)),
        DocumentState::Inline | DocumentState::Invalid => None,
    }
}

/// The element of `updates` that joins a document. It changes no other field, and demands the control as it
/// was read: no statement changes the array and leaves the control. `None`: pages are missing, the array is
/// none, or the document has no extras.
#[must_use]
pub fn joining(
    shape: &OutlierShape,
    stored: &RawDocument,
    state: &DocumentState,
    pages: &[&RawDocument],
) -> Option<RawDocumentBuf> {
    let id = get(stored, "_id")?;
    get(stored, shape.array())?.as_array()?;
    let mut elements: RawArrayBuf = beyond_base(shape, state, pages)?.into_iter().collect();
    let mut query = match state {
        DocumentState::Outlier(extras) => {
            extras
                .tail
                .into_iter()
                .flatten()
                .for_each(|element| elements.push(element));
            let mut query = single("_id", single("$eq", id));
            put(
                &mut query,
                shape.control(),
                single("$eq", get(stored, shape.control())?),
            );
            // Equal numbers of two types are equal in a filter. A tail only grows.
            let length = i32::try_from(extras.tail.into_iter().count()).ok()?;
            put(&mut query, &tail(shape), single("$size", length));
            query
        }
        _ => still_by_hand(shape, id),
    };
    put(&mut query, shape.array(), single("$type", "array"));
    let array = format!("${}", shape.array());
    let elements = single("$literal", &elements);
    let joined = call("$concatArrays", [array.as_str().into(), elements.into()]);
    let own: RawArrayBuf = [shape.flag(), shape.control()]
        .into_iter()
        .map(RawBsonRef::from)
        .collect();
    let stages = [single("$set", single(shape.array(), joined)), single("$unset", &own)];
    let mut statement = single("q", query);
    put(&mut statement, "u", array_of(&stages));
    put(&mut statement, "collation", single("locale", "simple"));
    Some(statement)
}
