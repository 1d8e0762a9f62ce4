//! Where a scan begins in an index.
//!
//! mongod includes `min` and excludes `max`. So a forward scan without the first value, and a backward scan with
//! it, begin at the next value in the order of the index.

use bson::raw::{RawBson, RawDocumentBuf};

use super::{Equality, IndexPart};
use crate::command::document::put;
use crate::pattern::bucket::item_filter::RangeBound;
use crate::pattern::bucket::item_index::{IndexedField, StoredIndex};
use crate::pattern::bucket::layout::VERSION;
use crate::pattern::bucket::read::adjacent_value::adjacent;

/// The values at which a scan begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'p, 'a> {
    pub(super) index: &'p StoredIndex,
    pub(super) equalities: &'p [Equality<'a>],
    /// The first value of the field after the equalities.
    pub(super) begin: Option<RangeBound<'a>>,
}

/// The part of an index that is read, and the first value in it.
pub(super) struct ScanStart<'a> {
    pub(super) part: IndexPart,
    pub(super) begin: Option<RangeBound<'a>>,
}

impl<'a> Place<'_, 'a> {
    /// Where a scan starts. The part contains an excluded value if no position behind it is known. `None` if the
    /// scan cannot begin there.
    pub(super) fn start(&self, is_forward: bool) -> Option<ScanStart<'a>> {
        let mut begin = self.begin;
        let part = if self.equalities.is_empty() && begin.is_none() {
            IndexPart::Whole
        } else if !is_forward {
            self.index.is_read_backward().then_some(())?;
            IndexPart::BackFrom(if self.is_included() {
                self.after_first()?
            } else {
                self.first()
            })
        } else if self.is_included() {
            IndexPart::From(self.first())
        } else if let Some(next) = self.after_first() {
            IndexPart::From(next)
        } else if let Some(last) = self.last() {
            IndexPart::Behind(last)
        } else {
            begin = begin.map(|begin| begin.value.into());
            IndexPart::From(self.first())
        };
        Some(ScanStart { part, begin })
    }

    fn is_included(&self) -> bool {
        self.begin.is_none_or(|begin| begin.is_included)
    }

    /// The first position in the index that begins with the equalities and the value.
    pub(super) fn first(&self) -> RawDocumentBuf {
        self.bound(&self.values(), first_of_all)
    }

    /// The last position in the index that begins with the equalities and the value. `None` if no field follows.
    fn last(&self) -> Option<RawDocumentBuf> {
        let values = self.values();
        (values.len() < self.index.fields().len()).then(|| self.bound(&values, last_of_all))
    }

    /// The first position behind all that begin with the equalities and the value. `None` if the proxy cannot
    /// compute the next value.
    fn after_first(&self) -> Option<RawDocumentBuf> {
        let mut values = self.values();
        let last = values.pop()?;
        let field = self.index.fields().get(values.len())?;
        values.push(adjacent(last.as_raw_bson_ref(), field.is_ascending)?);
        Some(self.bound(&values, first_of_all))
    }

    fn values(&self) -> Vec<RawBson> {
        let begin = self.begin.map(|begin| begin.value);
        let values = self.equalities.iter().map(|equality| equality.value).chain(begin);
        values.map(RawBson::from).collect()
    }

    /// The position in the index that begins with these values. `rest` returns the values of later fields.
    fn bound(&self, values: &[RawBson], rest: fn(&IndexedField) -> RawBson) -> RawDocumentBuf {
        let mut bound = RawDocumentBuf::new();
        if self.index.is_prefixed() {
            put(&mut bound, StoredIndex::PREFIX, VERSION);
        }
        let mut values = values.iter();
        for field in self.index.fields() {
            let value = values.next().cloned();
            put(&mut bound, &field.stored, value.unwrap_or_else(|| rest(field)));
        }
        bound
    }
}

/// The first value of all types in the order of an index.
fn first_of_all(field: &IndexedField) -> RawBson {
    if field.is_ascending {
        RawBson::MinKey
    } else {
        RawBson::MaxKey
    }
}

/// The last value of all types in the order of an index.
pub(super) fn last_of_all(field: &IndexedField) -> RawBson {
    if field.is_ascending {
        RawBson::MaxKey
    } else {
        RawBson::MinKey
    }
}
