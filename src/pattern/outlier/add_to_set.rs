//! `$addToSet` on the array of an outlier. mongod reports which values the base document and its pages contain. The
//! others are added to the tail, as a set too.

use bson::oid::ObjectId;
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::page::of_generation;
use super::statement::{Append, appended, appends_only, with_conditions};
use crate::command::arguments::with_replaced;
use crate::command::document::{array_of, get, put, single};
use crate::pattern::exact_match::call;
use crate::pattern::shapes::OutlierShape;

/// More values are compared on a copy of the document: each is compared with every element.
const MAX_VALUES: usize = 16;

/// The values that an update adds to the array as a set.
#[derive(Clone, Debug, PartialEq)]
pub struct SetValues(RawArrayBuf);

/// The values of an update, by their presence in the array.
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    /// The values that the array contains.
    pub present: SetValues,
    /// The values that it does not contain.
    pub absent: SetValues,
}

impl SetValues {
    /// The values of an update whose operators change the array in no other way. `None`: it is another update, or it
    /// has no value, more than 16, or one that a filter cannot contain.
    #[must_use]
    pub fn of(shape: &OutlierShape, operators: &RawDocument) -> Option<Self> {
        let values = appended(shape, Append::ToSet, operators)?;
        let is_accepted = (1..=MAX_VALUES).contains(&values.into_iter().count())
            && !values.into_iter().flatten().any(|value| value == RawBsonRef::Undefined)
            && appends_only(shape, Append::ToSet, operators);
        is_accepted.then_some(Self(values))
    }

    /// The projection of a base document to its control and, in the array's field, to the presence of each value.
    #[must_use]
    pub fn presence_in_base(&self, shape: &OutlierShape) -> RawDocumentBuf {
        let mut projection = single(shape.flag(), 1);
        put(&mut projection, shape.control(), 1);
        put(&mut projection, shape.array(), self.presence_in(shape.array()));
        projection
    }

    /// The projection of a page to the presence of each value, in the field of the elements.
    #[must_use]
    pub fn presence_in_page(&self, shape: &OutlierShape) -> RawDocumentBuf {
        single(shape.extras_array(), self.presence_in(shape.extras_array()))
    }

    /// The filter for the pages of one generation that contain any of the values. Other pages may match, because `$eq`
    /// takes an undefined element for null.
    #[must_use]
    pub fn pages(&self, shape: &OutlierShape, id: RawBsonRef<'_>, generation: ObjectId) -> RawDocumentBuf {
        let contains = |value| single(shape.extras_array(), single("$elemMatch", single("$eq", value)));
        let mut each: Vec<RawDocumentBuf> = self.0.into_iter().flatten().map(contains).collect();
        let any = if each.len() == 1 { each.pop() } else { None };
        let any = any.unwrap_or_else(|| single("$or", array_of(&each)));
        with_conditions(&of_generation(shape, id, generation), &any)
    }

    /// The expression for an array of booleans: whether the array in this field contains each value. `$in` compares
    /// as `$addToSet` does.
    fn presence_in(&self, field: &str) -> RawDocumentBuf {
        let path = format!("${field}");
        let is_array = single("$isArray", path.as_str());
        let contains = call("$in", ["$$value".into(), path.into()]);
        let mut presence = single("input", single("$literal", &self.0));
        put(&mut presence, "as", "value");
        put(&mut presence, "in", single("$and", array_of(&[is_array, contains])));
        single("$map", presence)
    }

    /// Divides the values by their presence. `base` and `pages`: documents in the projections of
    /// [`Self::presence_in_base`] and [`Self::presence_in_page`]. `None`: one is in another projection.
    #[must_use]
    pub fn partition<'d>(
        &self,
        shape: &OutlierShape,
        base: &RawDocument,
        pages: impl IntoIterator<Item = &'d RawDocument>,
    ) -> Option<Partition> {
        let count = self.0.into_iter().count();
        let booleans = |array: &RawArray| Some(booleans(array)).filter(|booleans| booleans.len() == count);
        let mut presence = booleans(get(base, shape.array())?.as_array()?)?;
        for page in pages {
            let in_page = booleans(get(page, shape.extras_array())?.as_array()?)?;
            for (is_present, is_in_page) in presence.iter_mut().zip(in_page) {
                *is_present |= is_in_page;
            }
        }
        let with = |wanted: bool| {
            let values = self.0.into_iter().flatten().zip(&presence);
            let values = values.filter(|(_, is_present)| **is_present == wanted);
            Self(values.map(|(value, _)| value).collect())
        };
        Some(Partition {
            present: with(true),
            absent: with(false),
        })
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.0.into_iter().count()).unwrap_or(u32::MAX)
    }

    /// The client's operators, which add these values instead of the client's.
    #[must_use]
    pub fn replacing(&self, shape: &OutlierShape, operators: &RawDocument) -> RawDocumentBuf {
        let name = Append::ToSet.operator();
        let each = single("$each", &self.0);
        let fields = get(operators, name).and_then(RawBsonRef::as_document);
        let fields = fields.map(|fields| with_replaced(fields, &[(shape.array(), Some(RawBsonRef::Document(&each)))]));
        with_replaced(operators, &[(name, fields.as_deref().map(RawBsonRef::Document))])
    }

    /// A filter, with the condition that the inline array contains these values.
    #[must_use]
    pub fn demanded(&self, shape: &OutlierShape, filter: &RawDocument) -> RawDocumentBuf {
        if self.count() == 0 {
            return filter.to_owned();
        }
        // `$elemMatch` would determine the element that a positional `$` denotes.
        let all = call("$allElementsTrue", [self.presence_in(shape.array()).into()]);
        with_conditions(filter, &single("$expr", all))
    }
}

fn booleans(array: &RawArray) -> Vec<bool> {
    let values = array.into_iter().flatten();
    values.map(|value| value == RawBsonRef::Boolean(true)).collect()
}

#[cfg(test)]
mod tests {
    use bson::{rawbson, rawdoc};

    use super::*;
    use crate::pattern::outlier::sample;

    fn values(operand: impl Into<bson::RawBson>) -> Option<SetValues> {
        SetValues::of(&sample(), &rawdoc! { "$addToSet": { "buyers": operand.into() } })
    }

    #[test]
    fn updates_with_a_few_comparable_values_are_recognised() {
        let some = |count: i32| rawdoc! { "$each": (0..count).collect::<RawArrayBuf>() };
        for (operand, count) in [
            (rawbson!(1), Some(1)),
            (rawbson!(null), Some(1)),
            (rawbson!([1, 2]), Some(1)),
            (bson::RawBson::Undefined, None),
            (some(0).into(), None),
            (some(16).into(), Some(16)),
            (some(17).into(), None),
            (rawbson!({ "$each": [1], "$slice": 2 }), None),
        ] {
            let found = values(operand.clone()).map(|values| values.count());
            assert_eq!(found, count, "{operand:?}");
        }
        for operators in [
            rawdoc! { "$push": { "buyers": 1 } },
            rawdoc! { "$addToSet": { "buyers": 1, "buyers.0": 2 } },
            rawdoc! { "$addToSet": { "buyers": 1 }, "$push": { "buyers": 2 } },
        ] {
            assert_eq!(SetValues::of(&sample(), &operators), None, "{operators:?}");
        }
    }

    #[test]
    fn values_are_divided_by_their_presence_in_any_part() {
        let values = values(rawdoc! { "$each": [1, 2, 3] }).expect("three values");
        let base = rawdoc! { "buyers": [false, true, false] };
        let page = rawdoc! { "buyers_extra": [true, false, false] };
        let found = values.partition(&sample(), &base, [&*page]).expect("booleans");
        assert_eq!(found.present, SetValues([1, 2].into_iter().collect()));
        assert_eq!(found.absent, SetValues([3].into_iter().collect()));
        let operators = rawdoc! { "$addToSet": { "others": 1, "buyers": 9 }, "$inc": { "n": 1 } };
        let expected = rawdoc! { "$addToSet": { "others": 1, "buyers": { "$each": [3] } }, "$inc": { "n": 1 } };
        assert_eq!(found.absent.replacing(&sample(), &operators), expected);
        assert_eq!(values.partition(&sample(), &rawdoc! {}, []), None);
    }
}
