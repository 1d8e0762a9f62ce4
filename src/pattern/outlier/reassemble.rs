//! Puts a document together from its base document and its pages.

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};

use super::layout::{Extras, begins_at};
use crate::command::batch::{begin, count_on, end};
use crate::command::document::{Element, elements, get};
use crate::pattern::shapes::OutlierShape;

/// The BSON type of an array.
const ARRAY: u8 = 4;

/// The whole document of a base document and its pages, which must be in order. `None` if pages are missing:
/// the document has changed since its base was read.
#[must_use]
pub fn merged(
    shape: &OutlierShape,
    base: &RawDocument,
    extras: &Extras,
    pages: &[&RawDocument],
) -> Option<RawDocumentBuf> {
    let extras = extras_of(shape, extras, pages)?;
    Some(with_extras(shape, base, &extras))
}

/// The whole document of a base document and its hand-written extras.
#[must_use]
pub fn merged_by_hand(shape: &OutlierShape, base: &RawDocument, pages: &[&RawDocument]) -> RawDocumentBuf {
    let arrays = pages
        .iter()
        .filter_map(|page| get(page, shape.extras_array())?.as_array());
    let extras: Vec<Element<'_>> = arrays.flat_map(elements_of).collect();
    with_extras(shape, base, &extras)
}

fn with_extras(shape: &OutlierShape, base: &RawDocument, extras: &[Element<'_>]) -> RawDocumentBuf {
    let mut bytes = Vec::new();
    let start = begin(&mut bytes);
    let mut is_merged = false;
    for field in elements(base) {
        if [shape.flag(), shape.control()].map(str::as_bytes).contains(&field.name) {
            continue;
        }
        // A further field of that name, which a program without the proxy has written, is not the array.
        let is_array = !is_merged && field.name == shape.array().as_bytes();
        is_merged |= is_array;
        match field.as_document().filter(|_| is_array) {
            Some(kept) if field.whole.first() == Some(&ARRAY) => {
                bytes.push(ARRAY);
                bytes.extend_from_slice(field.name);
                bytes.push(0);
                append_array(&mut bytes, elements(kept).chain(extras.iter().copied()));
            }
            _ => bytes.extend_from_slice(field.whole),
        }
    }
    end(&mut bytes, start);
    // The lengths are right, and `from_bytes` checks nothing else.
    RawDocumentBuf::from_bytes(bytes).unwrap_or_default()
}

/// Appends an array of these elements, with new positions.
fn append_array<'a>(bytes: &mut Vec<u8>, elements: impl Iterator<Item = Element<'a>>) {
    let start = begin(bytes);
    let mut place = b"0".to_vec();
    for element in elements {
        bytes.extend_from_slice(element.whole.get(..1).unwrap_or_default());
        bytes.extend_from_slice(&place);
        bytes.push(0);
        bytes.extend_from_slice(element.value());
        count_on(&mut place);
    }
    end(bytes, start);
}

/// The elements of the pages, then those of the tail.
fn extras_of<'a>(shape: &OutlierShape, extras: &'a Extras, pages: &[&'a RawDocument]) -> Option<Vec<Element<'a>>> {
    let mut all = first_of(shape, extras.count, pages, elements_of)?;
    all.extend(elements_of(&extras.tail));
    Some(all)
}

fn elements_of(array: &RawArray) -> impl Iterator<Item = Element<'_>> {
    RawDocument::from_bytes(array.as_bytes()).into_iter().flat_map(elements)
}

/// The first `count` elements of pages, which may have more. `None` if they have fewer.
#[must_use]
pub fn counted<'a>(shape: &OutlierShape, count: u64, pages: &[&'a RawDocument]) -> Option<Vec<RawBsonRef<'a>>> {
    first_of(shape, count, pages, |array| array.into_iter().flatten())
}

fn first_of<'a, T, I: Iterator<Item = T>>(
    shape: &OutlierShape,
    count: u64,
    pages: &[&'a RawDocument],
    elements_of: impl Fn(&'a RawArray) -> I,
) -> Option<Vec<T>> {
    let count = usize::try_from(count).ok()?;
    let mut all = Vec::new();
    for page in pages {
        let from = begins_at(page)?;
        if all.len() >= count {
            break;
        }
        if usize::try_from(from).ok()? != all.len() {
            return None;
        }
        all.extend(elements_of(get(page, shape.extras_array())?.as_array()?));
    }
    if all.len() < count {
        return None;
    }
    all.truncate(count);
    Some(all)
}

/// A base document without the fields that are reserved for the proxy, except `keep`.
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

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::raw::cstr;
    use bson::{RawDocumentBuf, rawdoc};

    use super::*;
    use crate::pattern::outlier::layout::{DocumentState, repeats_array, split};
    use crate::pattern::outlier::sample;

    /// A document with this number of buyers, one of them an array, and its stored form.
    fn stored(buyers: usize) -> (RawDocumentBuf, RawDocumentBuf, Vec<RawDocumentBuf>) {
        let mut all: bson::RawArrayBuf = (1..buyers).map(|buyer| rawdoc! { "b": buyer.to_string() }).collect();
        all.push([1, 2].into_iter().collect::<bson::RawArrayBuf>());
        let whole = rawdoc! { "_id": 2, "buyers": all, "title": "x", "nothing": null };
        let split = split(&sample(), &whole, ObjectId::new());
        (whole, split.base, split.pages)
    }

    #[test]
    fn reassembled_document_equals_the_original() {
        for buyers in [51, 60, 1050, 1051, 12_345] {
            let (whole, base, pages) = stored(buyers);
            let DocumentState::Outlier(extras) = DocumentState::of(&sample(), &base) else {
                panic!("{buyers} buyers are many");
            };
            let pages: Vec<&RawDocument> = pages.iter().map(AsRef::as_ref).collect();
            assert_eq!(merged(&sample(), &base, &extras, &pages), Some(whole), "{buyers}");
            assert_eq!(merged(&sample(), &base, &extras, &pages[1..]), None, "{buyers}");
        }
    }

    #[test]
    fn extras_are_those_of_the_first_field_of_the_name() {
        let (_, mut base, pages) = stored(60);
        let other: bson::RawArrayBuf = ["other"].into_iter().collect();
        base.append(cstr!("buyers"), other);
        let DocumentState::Outlier(extras) = DocumentState::of(&sample(), &base) else {
            panic!("60 buyers are many");
        };
        assert!(repeats_array(&sample(), &base));
        let whole = merged(&sample(), &base, &extras, &[&pages[0]]).expect("all pages");
        let lengths: Vec<usize> = whole
            .iter()
            .flatten()
            .filter(|(name, _)| name.as_str() == "buyers")
            .filter_map(|(_, value)| Some(value.as_array()?.into_iter().count()))
            .collect();
        assert_eq!(lengths, [60, 1]);
    }

    #[test]
    fn unreferenced_pages_are_ignored_and_the_tail_is_last() {
        let (_, base, pages) = stored(52);
        let DocumentState::Outlier(mut extras) = DocumentState::of(&sample(), &base) else {
            panic!("52 buyers are many");
        };
        extras.count = 1;
        extras.tail = ["last"].into_iter().collect();
        let whole = merged(&sample(), &base, &extras, &[&pages[0]]).expect("all pages");
        let buyers: Vec<_> = whole.get_array("buyers").unwrap().into_iter().flatten().collect();
        assert_eq!(buyers.len(), 52);
        assert_eq!(buyers[51].as_str(), Some("last"));
    }
}
