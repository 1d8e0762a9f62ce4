//! Splits an existing document: one with more elements than a base document may have, or one that
//! was split by hand.
//!
//! An inline document first becomes an outlier without pages. From then on only a statement that
//! sets another generation changes its array, and pushes go to its tail. So its elements can be
//! copied to pages of a new generation for any length of time. Then one statement references these
//! pages and keeps only the first elements in the base document. The statement demands the previous
//! generation and count or, for a document split by hand, that the document was not adopted.

use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::layout::{DocumentState, Extras, VERSION, field, is_of_generation, tail};
use super::page::begun;
use super::reassemble::counted;
use crate::command::document::{append_fields, array_of, get, put, single};
use crate::pattern::exact_match::call;
use crate::pattern::shapes::OutlierShape;

/// The filter for documents that may have too many elements.
#[must_use]
pub fn overlong(shape: &OutlierShape) -> RawDocumentBuf {
    let beyond = format!("{}.{}", shape.array(), shape.threshold());
    single(&beyond, single("$exists", true))
}

/// The filter for base documents that may have been split by hand.
#[must_use]
pub fn flagged_by_hand(shape: &OutlierShape) -> RawDocumentBuf {
    let mut filter = single(shape.control(), single("$exists", false));
    put(&mut filter, shape.flag(), true);
    filter
}

/// The filter for one document that is not adopted yet.
#[must_use]
pub fn still_by_hand(shape: &OutlierShape, id: RawBsonRef<'_>) -> RawDocumentBuf {
    let mut filter = single("_id", single("$eq", id));
    append_fields(&mut filter, &flagged_by_hand(shape));
    filter
}

/// The filter for the hand-written extras of one document.
#[must_use]
pub fn by_hand(shape: &OutlierShape, reference: RawBsonRef<'_>) -> RawDocumentBuf {
    let mut filter = single(shape.reference(), single("$eq", reference));
    put(&mut filter, field::CONTROL, single("$exists", false));
    filter
}

/// The element of `deletes` for the hand-written extras of one document.
#[must_use]
pub fn removal_by_hand(shape: &OutlierShape, reference: RawBsonRef<'_>) -> RawDocumentBuf {
    let mut statement = single("q", by_hand(shape, reference));
    put(&mut statement, "limit", 0);
    statement
}

/// Whether a stored document has too many elements.
#[must_use]
pub fn is_overlong(shape: &OutlierShape, stored: &RawDocument) -> bool {
    let array = get(stored, shape.array()).and_then(RawBsonRef::as_array);
    array.is_some_and(|array| super::layout::is_long(shape, array))
}

/// The elements beyond the threshold, without those of the tail: of the base document, then of its
/// pages or of its hand-written extras. `None` if some are missing or not in an array.
#[must_use]
pub fn elements<'a>(
    shape: &OutlierShape,
    stored: &'a RawDocument,
    state: &DocumentState,
    pages: &[&'a RawDocument],
) -> Option<Vec<RawBsonRef<'a>>> {
    let threshold = usize::try_from(shape.threshold()).ok()?;
    let array = get(stored, shape.array())?.as_array()?;
    let mut elements: Vec<_> = array.into_iter().flatten().skip(threshold).collect();
    elements.extend(beyond_base(shape, state, pages)?);
    Some(elements)
}

/// The elements of a document's pages or of its hand-written extras. `None` if some are missing or not in an
/// array, or the document has no extras.
pub(super) fn beyond_base<'a>(
    shape: &OutlierShape,
    state: &DocumentState,
    pages: &[&'a RawDocument],
) -> Option<Vec<RawBsonRef<'a>>> {
    match state {
        DocumentState::Outlier(extras) => counted(shape, extras.count, pages),
        DocumentState::Unmanaged => {
            let mut elements = Vec::new();
            for page in pages {
                elements.extend(get(page, shape.extras_array())?.as_array()?.into_iter().flatten());
            }
            Some(elements)
        }
        DocumentState::Inline | DocumentState::Invalid => None,
    }
}

/// The pages for elements of which the first `written` are on pages already.
#[must_use]
pub fn pages(
    shape: &OutlierShape,
    reference: RawBsonRef<'_>,
    generation: ObjectId,
    written: usize,
    elements: &[RawBsonRef<'_>],
) -> Vec<RawDocumentBuf> {
    let rest = elements.iter().skip(written).copied();
    let from = u64::try_from(written).unwrap_or(u64::MAX);
    begun(shape, reference, generation, from, rest)
}

/// The element of `updates` that references the pages of a new generation in a document of this
/// state. `None` if the state is not that of a document with extras.
#[must_use]
pub fn counting(
    shape: &OutlierShape,
    stored: &RawDocument,
    state: &DocumentState,
    generation: ObjectId,
    count: usize,
) -> Option<RawDocumentBuf> {
    let mut query = single("_id", single("$eq", get(stored, "_id")?));
    let tail_then = match state {
        DocumentState::Outlier(Extras { generation, count, .. }) => {
            append_fields(&mut query, &is_of_generation(shape, *generation));
            let path = format!("{}.{}", shape.control(), field::COUNT);
            put(&mut query, &path, i64::try_from(*count).ok()?);
            Some(format!("${}", tail(shape)))
        }
        DocumentState::Unmanaged => {
            put(&mut query, shape.control(), single("$exists", false));
            put(&mut query, shape.flag(), true);
            None
        }
        DocumentState::Inline | DocumentState::Invalid => return None,
    };
    put(&mut query, shape.array(), single("$type", "array"));
    let mut control = single(field::VERSION, single("$literal", VERSION));
    put(&mut control, field::GENERATION, single("$literal", generation));
    put(
        &mut control,
        field::COUNT,
        single("$literal", i64::try_from(count).ok()?),
    );
    match tail_then {
        Some(path) => put(&mut control, field::TAIL, path.as_str()),
        None => put(&mut control, field::TAIL, RawArrayBuf::new()),
    }
    let array = format!("${}", shape.array());
    let threshold = i64::from(shape.threshold());
    let mut changes = single(shape.array(), call("$slice", [array.as_str().into(), threshold.into()]));
    put(&mut changes, shape.flag(), single("$literal", true));
    put(&mut changes, shape.control(), &control);
    let mut statement = single("q", query);
    put(&mut statement, "u", array_of(&[single("$set", changes)]));
    put(&mut statement, "collation", single("locale", "simple"));
    Some(statement)
}
