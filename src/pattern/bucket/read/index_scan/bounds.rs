//! Where a scan begins in an index.
//!
//! mongod includes `min` and excludes `max`. So a backward scan begins at the value after the first
//! wanted value.

use bson::oid::ObjectId;
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use bson::{DateTime, Timestamp};

use super::{Equality, IndexPart};
use crate::command::document::put;
use crate::pattern::bucket::item_index::StoredIndex;
use crate::pattern::bucket::layout::VERSION;

/// The limit below which every whole number is exact as a double.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

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
        values.push(behind(last.as_raw_bson_ref(), field.is_ascending)?);
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

/// The next greater value, or the next less one. No value but a decimal lies in between. `None` if
/// the proxy cannot compute it.
fn behind(value: RawBsonRef<'_>, greater: bool) -> Option<RawBson> {
    Some(match value {
        RawBsonRef::Null if greater => RawBson::Double(f64::NAN),
        RawBsonRef::String(text) if greater => RawBson::String(format!("{text}\0")),
        RawBsonRef::Boolean(true) if greater => RawBson::DateTime(DateTime::MIN),
        RawBsonRef::Boolean(value) if value != greater => RawBson::Boolean(greater),
        RawBsonRef::Int32(number) => RawBson::Double(beside(f64::from(number), greater)?),
        #[expect(clippy::cast_precision_loss, reason = "a greater one is refused")]
        RawBsonRef::Int64(number) => RawBson::Double(beside(number as f64, greater)?),
        RawBsonRef::Double(number) => RawBson::Double(beside(number, greater)?),
        RawBsonRef::DateTime(time) => {
            let step = if greater { 1 } else { -1 };
            RawBson::DateTime(DateTime::from_millis(time.timestamp_millis().checked_add(step)?))
        }
        RawBsonRef::ObjectId(id) => RawBson::ObjectId(beside_id(id, greater)?),
        RawBsonRef::Timestamp(Timestamp { time, increment }) => {
            let increment = if greater {
                increment.checked_add(1)?
            } else {
                increment.checked_sub(1)?
            };
            RawBson::Timestamp(Timestamp { time, increment })
        }
        _ => return None,
    })
}

fn beside(number: f64, greater: bool) -> Option<f64> {
    let next = if greater { number.next_up() } else { number.next_down() };
    (number.abs() < MAX_EXACT).then_some(next)
}

fn beside_id(id: ObjectId, greater: bool) -> Option<ObjectId> {
    let mut bytes = id.bytes();
    for byte in bytes.iter_mut().rev() {
        let (next, carries) = if greater {
            byte.overflowing_add(1)
        } else {
            byte.overflowing_sub(1)
        };
        *byte = next;
        if !carries {
            return Some(ObjectId::from_bytes(bytes));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_a_next_one_on_either_side() {
        let double = RawBson::Double;
        let date = |millis: i64| RawBson::DateTime(DateTime::from_millis(millis));
        let stamp = |increment: u32| RawBson::Timestamp(Timestamp { time: 1, increment });
        let id =
            |[one, other]: [u8; 2]| RawBson::ObjectId(ObjectId::from_bytes([1, 1, 1, 1, 1, 1, 1, 1, 1, 1, one, other]));
        let id_ending = |all: u8, last: u8| {
            let mut bytes = [all; 12];
            bytes[11] = last;
            RawBson::ObjectId(ObjectId::from_bytes(bytes))
        };
        // A value, the next greater one, and the next less one.
        let checks = [
            (RawBson::Null, Some(double(f64::NAN)), None),
            (
                RawBson::String("x".to_owned()),
                Some(RawBson::String("x\0".to_owned())),
                None,
            ),
            (RawBson::Boolean(false), Some(RawBson::Boolean(true)), None),
            (
                RawBson::Boolean(true),
                Some(RawBson::DateTime(DateTime::MIN)),
                Some(RawBson::Boolean(false)),
            ),
            (
                RawBson::Int32(7),
                Some(double(7_f64.next_up())),
                Some(double(7_f64.next_down())),
            ),
            (
                RawBson::Int64(-7),
                Some(double((-7_f64).next_up())),
                Some(double((-7_f64).next_down())),
            ),
            (
                double(0.5),
                Some(double(0.5_f64.next_up())),
                Some(double(0.5_f64.next_down())),
            ),
            (RawBson::Int64(1 << 53), None, None),
            (double(f64::INFINITY), None, None),
            (double(f64::NAN), None, None),
            (date(5), Some(date(6)), Some(date(4))),
            (date(i64::MAX), None, Some(date(i64::MAX - 1))),
            (date(i64::MIN), Some(date(i64::MIN + 1)), None),
            (stamp(5), Some(stamp(6)), Some(stamp(4))),
            (stamp(u32::MAX), None, Some(stamp(u32::MAX - 1))),
            (stamp(0), Some(stamp(1)), None),
            (id([3, 9]), Some(id([3, 10])), Some(id([3, 8]))),
            (id([3, 255]), Some(id([4, 0])), Some(id([3, 254]))),
            (id([3, 0]), Some(id([3, 1])), Some(id([2, 255]))),
            (id_ending(255, 255), None, Some(id_ending(255, 254))),
            (id_ending(0, 0), Some(id_ending(0, 1)), None),
            (RawBson::MinKey, None, None),
        ];
        for (value, greater, less) in checks {
            // NaN is not equal to itself.
            let next = [true, false].map(|is_greater| behind(value.as_raw_bson_ref(), is_greater));
            assert_eq!(format!("{next:?}"), format!("{:?}", [greater, less]), "{value:?}");
        }
    }
}
