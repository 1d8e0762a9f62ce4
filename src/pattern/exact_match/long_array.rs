//! The condition on a long array: mongod computes the types of all values in it, and compares them with those
//! of the expected array. The size of this condition does not depend on the length of the array.
//!
//! Applies to arrays that are known to be equal.

use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf};

use super::call;
use crate::command::document::{array_of, put, single};

/// The most values of an array that have conditions of their own.
const MAX_VALUES: usize = 8;
/// The most levels of arrays and documents in a long array. Each uses four of the 200 levels that a command
/// may have.
const MAX_LEVELS: usize = 16;
/// The variable for an element.
const THIS: &str = "$$this";

/// The levels of arrays and documents in a long array. `None`: its values have conditions of their own.
pub(super) fn levels(array: &RawArray) -> Option<usize> {
    let mut extent = Extent::default();
    array.into_iter().flatten().for_each(|value| extent.add(value, 0));
    (extent.values > MAX_VALUES && extent.levels <= MAX_LEVELS).then_some(extent.levels)
}

/// The extent of an array's content.
#[derive(Default)]
struct Extent {
    /// Numbers and texts.
    values: usize,
    levels: usize,
}

impl Extent {
    /// Adds a value inside of `outer` arrays and documents.
    fn add(&mut self, value: RawBsonRef<'_>, outer: usize) {
        let inner = outer.saturating_add(1);
        match value {
            RawBsonRef::Document(document) => {
                self.levels = self.levels.max(inner);
                document.iter().flatten().for_each(|(_, value)| self.add(value, inner));
            }
            RawBsonRef::Array(array) => {
                self.levels = self.levels.max(inner);
                array.into_iter().flatten().for_each(|value| self.add(value, inner));
            }
            RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Double(_)
            | RawBsonRef::Decimal128(_)
            | RawBsonRef::String(_)
            | RawBsonRef::Symbol(_)
            | RawBsonRef::JavaScriptCode(_) => self.values = self.values.saturating_add(1),
            _ => {}
        }
    }
}

/// The array with each value replaced by its [`bits_of_scalar`]. `levels`: those of [`levels`].
pub(super) fn bits(array: RawBson, levels: usize) -> RawBson {
    let mut of_element = bits_of_scalar();
    for _ in 0..levels {
        of_element = bits_of_container(of_element);
    }
    map(array, of_element).into()
}

/// Replaces the values in an array or a document. A document becomes the array of its values, because the
/// names are known to be equal.
fn bits_of_container(of_element: RawDocumentBuf) -> RawDocumentBuf {
    let kinds: RawArrayBuf = ["array", "object"].into_iter().collect();
    let is_container = call("$in", [of_type(), kinds.into()]);
    let is_array: RawArrayBuf = [THIS].into_iter().collect();
    let fields = map(single("$objectToArray", THIS).into(), "$$this.v");
    let elements = choice(single("$isArray", &is_array), THIS.into(), fields.into());
    choice(
        is_container,
        map(elements.into(), of_element).into(),
        bits_of_scalar().into(),
    )
}

/// The type of a value. A zero has a sign, and a decimal has an exponent, so their text follows.
fn bits_of_scalar() -> RawDocumentBuf {
    let is_zero = call("$eq", [THIS.into(), 0.into()]);
    let is_decimal = call("$eq", [of_type(), "decimal".into()]);
    let has_text = single("$or", array_of(&[is_zero, is_decimal]));
    let with_text = call("$concat", [of_type(), single("$toString", THIS).into()]);
    choice(has_text, with_text.into(), of_type())
}

/// The type of the element.
fn of_type() -> RawBson {
    single("$type", THIS).into()
}

fn map(input: RawBson, of_element: impl Into<RawBson>) -> RawDocumentBuf {
    let mut arguments = single("input", input);
    put(&mut arguments, "in", of_element.into());
    single("$map", &arguments)
}

fn choice(condition: RawDocumentBuf, then: RawBson, otherwise: RawBson) -> RawDocumentBuf {
    call("$cond", [condition.into(), then, otherwise])
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::super::same;
    use super::*;

    fn size(value: &RawArrayBuf) -> usize {
        let condition = same("$$ROOT".into(), RawBsonRef::Array(value), false).unwrap();
        condition.as_bytes().len()
    }

    #[test]
    fn a_condition_on_a_long_array_has_the_array_once() {
        let doubles: RawArrayBuf = (0_i32..100_000).map(|number| f64::from(number) / 2.0).collect();
        let points = (0_i32..50_000).map(|number| [RawBson::Int32(number), RawBson::Double(0.5)]);
        let points: RawArrayBuf = points.map(|point| point.into_iter().collect::<RawArrayBuf>()).collect();
        let zeros: RawArrayBuf = std::iter::repeat_n(0.0, 100_000).collect();
        let items: RawArrayBuf = (0_i32..10_000).map(|n| rawdoc! { "n": n, "price": 0.5 }).collect();
        for value in [doubles, points, zeros, items] {
            assert!(size(&value) < value.as_bytes().len() + 4096);
        }
    }

    #[test]
    fn values_of_a_short_or_deep_array_have_conditions_of_their_own() {
        let short: RawArrayBuf = (0_i32..8).collect();
        assert_eq!(levels(&short), None);
        let longer: RawArrayBuf = (0_i32..9).collect();
        assert_eq!(levels(&longer), Some(0));
        // Values of other types are the same if they are equal.
        let flags: RawArrayBuf = std::iter::repeat_n(true, 100).collect();
        assert_eq!(levels(&flags), None);
        let mut deep = longer;
        for expected in 1..=MAX_LEVELS {
            deep = [deep].into_iter().collect();
            assert_eq!(levels(&deep), Some(expected));
        }
        deep = [deep].into_iter().collect();
        assert_eq!(levels(&deep), None);
    }
}
