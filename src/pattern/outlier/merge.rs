//! A document as the application has it, out of its base and its pages.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::layout::{Extras, field};
use crate::command::document::{as_whole_number, get};
use crate::pattern::shapes::OutlierShape;

/// The document that a base and its pages are, in the order of [`field::FROM`]. `None` where pages are missing: the document is
/// another one by now.
#[must_use]
pub fn merged(
    shape: &OutlierShape,
    base: &RawDocument,
    extras: &Extras,
    pages: &[&RawDocument],
) -> Option<RawDocumentBuf> {
    let elements = elements_of(shape, extras, pages)?;
    Some(with_elements(shape, base, &elements))
}

/// The document that a base and the documents of extras are that were written by hand for it.
#[must_use]
pub fn merged_by_hand(shape: &OutlierShape, base: &RawDocument, pages: &[&RawDocument]) -> RawDocumentBuf {
    let arrays = pages
        .iter()
        .filter_map(|page| get(page, shape.extras_array())?.as_array());
    let elements: Vec<RawBsonRef<'_>> = arrays.flat_map(|array| array.into_iter().flatten()).collect();
    with_elements(shape, base, &elements)
}

fn with_elements(shape: &OutlierShape, base: &RawDocument, elements: &[RawBsonRef<'_>]) -> RawDocumentBuf {
    let mut merged = RawDocumentBuf::new();
    for (name, value) in base.iter().flatten() {
        let name_text = name.as_str();
        if shape.is_own(name_text) {
            continue;
        }
        match value {
            RawBsonRef::Array(kept) if name_text == shape.array() => {
                let all: RawArrayBuf = kept.into_iter().flatten().chain(elements.iter().copied()).collect();
                merged.append(name, &all);
            }
            value => merged.append(name, value),
        }
    }
    merged
}

/// The extras, with those of the tail.
fn elements_of<'a>(shape: &OutlierShape, extras: &'a Extras, pages: &[&'a RawDocument]) -> Option<Vec<RawBsonRef<'a>>> {
    let mut elements = counted(shape, extras.count, pages)?;
    elements.extend(extras.tail.into_iter().flatten());
    Some(elements)
}

/// The first elements of pages, which may hold more than counts. `None` where there are less.
#[must_use]
pub fn counted<'a>(shape: &OutlierShape, count: u64, pages: &[&'a RawDocument]) -> Option<Vec<RawBsonRef<'a>>> {
    let count = usize::try_from(count).ok()?;
    let mut elements = Vec::new();
    for page in pages {
        let from = get(get(page, field::CONTROL)?.as_document()?, field::FROM).and_then(as_whole_number)?;
        if elements.len() >= count {
            break;
        }
        if usize::try_from(from).ok()? != elements.len() {
            return None;
        }
        let array = get(page, shape.extras_array())?.as_array()?;
        elements.extend(array.into_iter().flatten());
    }
    if elements.len() < count {
        return None;
    }
    elements.truncate(count);
    Some(elements)
}

/// A base document without what is the proxy's own: all but `keep`.
#[must_use]
pub fn without_own(shape: &OutlierShape, base: &RawDocument, keep: Option<&str>) -> RawDocumentBuf {
    let mut rest = RawDocumentBuf::new();
    for (name, value) in base.iter().flatten() {
        let name_text = name.as_str();
        if !shape.is_own(name_text) || keep == Some(name_text) {
            rest.append(name, value);
        }
    }
    rest
}
