//! An application's index on all key fields and then the time.
//!
//! Its stored key pattern has the page number in place of the time: `{key…, control.page, control.v}`. So it
//! has one entry for each page, and no write moves an entry. Within a key, pages have the order of time
//! unless one is late, and pages show that. `control.v` distinguishes the key pattern from that of the page
//! index, because mongod allows one index for each key pattern. An earlier version stored such an index on
//! items.

use bson::raw::{RawDocument, RawDocumentBuf};

use super::key_pattern::{IndexedField, as_number, is_key};
use crate::command::document::put;
use crate::pattern::bucket::layout::path;
use crate::pattern::shapes::BucketShape;

/// An index that has the pages of each key in the order of their numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyTimeIndex {
    key: RawDocumentBuf,
    fields: Vec<IndexedField>,
}

impl KeyTimeIndex {
    /// The index with a stored key pattern. `None` for any other key pattern.
    #[must_use]
    pub fn of(shape: &BucketShape, key: &RawDocument) -> Option<Self> {
        application_key(shape, key)?;
        Self::of_key(shape, key)
    }

    /// The shape's own page index. `None` if items have no time.
    #[must_use]
    pub fn of_pages(shape: &BucketShape) -> Option<Self> {
        let mut key = RawDocumentBuf::new();
        for field in shape.key().iter().map(String::as_str).chain([path::PAGE]) {
            put(&mut key, field, 1);
        }
        Self::of_key(shape, &key)
    }

    fn of_key(shape: &BucketShape, key: &RawDocument) -> Option<Self> {
        let time = shape.time()?;
        let mut fields = Vec::new();
        for (stored, direction) in key.iter().flatten().filter(|(name, _)| *name != path::VERSION) {
            let stored = stored.as_str();
            fields.push(IndexedField {
                path: if stored == path::PAGE { time } else { stored }.to_owned(),
                stored: stored.to_owned(),
                is_ascending: as_number(direction)? > 0.0,
            });
        }
        let key = key.to_owned();
        Some(Self { key, fields })
    }

    /// The stored key pattern.
    #[must_use]
    pub fn key(&self) -> &RawDocument {
        &self.key
    }

    /// The application's fields. The last one is the time, stored as the page number.
    #[must_use]
    pub fn fields(&self) -> &[IndexedField] {
        &self.fields
    }
}

/// The stored key pattern for a key pattern of the application. `None` if it is not on all key fields and
/// then the time.
pub(super) fn stored_key(shape: &BucketShape, key: &RawDocument) -> Option<RawDocumentBuf> {
    let mut stored = RawDocumentBuf::new();
    let mut is_complete = false;
    for (name, direction) in key.iter().flatten() {
        as_number(direction)?;
        // Nothing may follow the time.
        let is_open = !is_complete;
        is_complete = shape.time() == Some(name.as_str());
        (is_open && (is_complete || is_key(shape, name.as_str()))).then_some(())?;
        put(
            &mut stored,
            if is_complete { path::PAGE } else { name.as_str() },
            direction,
        );
    }
    let is_whole = is_complete && key.iter().count() == shape.key().len().checked_add(1)?;
    put(&mut stored, path::VERSION, 1);
    is_whole.then_some(stored)
}

/// The application's key pattern for a [stored](stored_key) one. `None` for any other key pattern.
pub(super) fn application_key(shape: &BucketShape, stored: &RawDocument) -> Option<RawDocumentBuf> {
    let mut application = RawDocumentBuf::new();
    for (name, direction) in stored.iter().flatten() {
        match name.as_str() {
            path::VERSION => {}
            path::PAGE => put(&mut application, shape.time()?, direction),
            name => put(&mut application, name, direction),
        }
    }
    let expected = stored_key(shape, &application)?;
    stored
        .iter()
        .flatten()
        .map(|(name, _)| name)
        .eq(expected.iter().flatten().map(|(name, _)| name))
        .then_some(application)
}
