//! Where a scan begins in an index.
//!
//! mongod includes `min` and excludes `max`. So a backward scan begins at the value after the first
//! wanted value.

use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};

use super::{Equality, IndexPart};
use crate::command::document::put;
use crate::pattern::bucket::item_index::StoredIndex;
use crate::pattern::bucket::layout::VERSION;
use crate::pattern::bucket::read::adjacent_value::adjacent;

/// The values at which a scan begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) index: &'a StoredIndex,
    pub(super) equalities: &'a [Equality<'a>],
    /// The value of the field after the equalities.
    pub(super) value: Option<RawBsonRef<'a>>,
}

impl Place<'_> {
    /// The part of the index that a scan reads. `None` if the scan cannot begin there.
    pub(super) fn part(&self, is_forward: bool) -> Option<IndexPart> {
        if self.equalities.is_empty() && self.value.is_none() {
            return Some(IndexPart::Whole);
        }
        if is_forward {
            return Some(IndexPart::From(self.first()));
        }
        if !self.index.is_read_backward() {
            return None;
        }
        let mut values = self.values();
        let last = values.pop()?;
        let field = self.index.fields().get(values.len())?;
        values.push(adjacent(last.as_raw_bson_ref(), field.is_ascending)?);
        Some(IndexPart::BackFrom(self.bound(&values)))
    }

    /// The first position in the index that begins with the equalities and the value.
    pub(super) fn first(&self) -> RawDocumentBuf {
        self.bound(&self.values())
    }

    fn values(&self) -> Vec<RawBson> {
        let values = self.equalities.iter().map(|equality| equality.value).chain(self.value);
        values.map(RawBson::from).collect()
    }

    /// The first position in the index that begins with these values.
    fn bound(&self, values: &[RawBson]) -> RawDocumentBuf {
        let mut bound = RawDocumentBuf::new();
        if self.index.is_prefixed() {
            put(&mut bound, StoredIndex::PREFIX, VERSION);
        }
        let mut values = values.iter();
        for field in self.index.fields() {
            match values.next() {
                Some(value) => put(&mut bound, &field.stored, value),
                None if field.is_ascending => put(&mut bound, &field.stored, RawBson::MinKey),
                None => put(&mut bound, &field.stored, RawBson::MaxKey),
            }
        }
        bound
    }
}
