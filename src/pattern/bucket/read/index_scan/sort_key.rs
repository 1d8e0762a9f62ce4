//! The values by which an item is sorted.

use std::cmp::Ordering;

use bson::DateTime;
use bson::raw::RawBsonRef;

use crate::pattern::bucket::item_filter::StoredItem;
use crate::pattern::bucket::value_order::{compare, is_comparable};

/// A field of a sort.
#[derive(Clone, Copy, Debug)]
pub(super) struct SortField<'a> {
    /// Its path in items.
    pub(super) path: &'a str,
    pub(super) is_ascending: bool,
}

/// One value for each sort field. Null if the item does not have the field.
#[derive(Clone, Debug)]
pub(super) struct SortKey<'a>(Vec<RawBsonRef<'a>>);

impl<'a> SortKey<'a> {
    /// The sort key of an item. `None` if the proxy does not order a value as mongod does. With
    /// `takes_arrays`, an array is represented by the element that comes first in the sort, as in
    /// mongod.
    pub(super) fn of(item: &StoredItem<'a>, sort: &[SortField<'_>], takes_arrays: bool) -> Option<Self> {
        let takes_arrays = takes_arrays && sort.len() == 1;
        let values = sort.iter().map(|field| {
            let value = match item.value(field.path).ok()?.unwrap_or(RawBsonRef::Null) {
                RawBsonRef::Array(elements) if takes_arrays => {
                    let mut first: Option<RawBsonRef<'a>> = None;
                    for element in elements {
                        let element = element.ok().filter(|element| is_comparable(*element))?;
                        let is_first = first.is_none_or(|first| field.order(element, first).is_lt());
                        first = if is_first { Some(element) } else { first };
                    }
                    first?
                }
                value => value,
            };
            is_comparable(value).then_some(value)
        });
        values.collect::<Option<_>>().map(Self)
    }

    /// The sort key of a time.
    pub(super) fn of_time(time: DateTime) -> Self {
        Self::of_values(vec![RawBsonRef::DateTime(time)])
    }

    /// The sort key of the first values of a sort, which must be comparable.
    pub(super) fn of_values(values: Vec<RawBsonRef<'a>>) -> Self {
        Self(values)
    }

    /// The number of sort fields that have a value.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The value of the first sort field.
    pub(super) fn first(&self) -> Option<RawBsonRef<'a>> {
        self.0.first().copied()
    }

    pub(super) fn order(&self, other: &Self, sort: &[SortField<'_>]) -> Ordering {
        let values = self.0.iter().zip(&other.0).zip(sort);
        values
            .map(|((one, other), field)| field.order(*one, *other))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    pub(super) fn is_before(&self, other: &Self, sort: &[SortField<'_>]) -> bool {
        self.order(other, sort).is_lt()
    }
}

impl SortField<'_> {
    /// The order of two comparable values.
    fn order(&self, one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> Ordering {
        let order = compare(one, other).unwrap_or(Ordering::Equal);
        if self.is_ascending { order } else { order.reverse() }
    }
}
