//! The values next to a value in mongod's order.
//!
//! mongod includes the bound `min` of an index and excludes `max`. So a scan that is to end with a
//! value has the next greater value as `max`.

use bson::oid::ObjectId;
use bson::raw::{RawBson, RawBsonRef};
use bson::{Binary, DateTime, Timestamp};

/// The limit below which every whole number is exact as a double.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// The next greater value, or the next less one. No value but a decimal lies in between. `None` if
/// the proxy cannot compute it.
pub(super) fn adjacent(value: RawBsonRef<'_>, greater: bool) -> Option<RawBson> {
    Some(match value {
        RawBsonRef::Null if greater => RawBson::Double(f64::NAN),
        RawBsonRef::String(text) if greater => RawBson::String(format!("{text}\0")),
        RawBsonRef::Boolean(true) if greater => RawBson::DateTime(DateTime::MIN),
        RawBsonRef::Boolean(value) if value != greater => RawBson::Boolean(greater),
        // The greatest values of their types: the least value of the next type.
        RawBsonRef::Double(f64::INFINITY) if greater => RawBson::String(String::new()),
        RawBsonRef::ObjectId(id) if greater && id.bytes() == [u8::MAX; 12] => RawBson::Boolean(false),
        RawBsonRef::DateTime(DateTime::MAX) if greater => RawBson::Timestamp(Timestamp { time: 0, increment: 0 }),
        RawBsonRef::Int32(number) => RawBson::Double(beside(f64::from(number), greater)?),
        #[expect(clippy::cast_precision_loss, reason = "a greater one is refused")]
        RawBsonRef::Int64(number) => RawBson::Double(beside(number as f64, greater)?),
        RawBsonRef::Double(number) => RawBson::Double(beside(number, greater)?),
        RawBsonRef::DateTime(time) => {
            let step = if greater { 1 } else { -1 };
            RawBson::DateTime(DateTime::from_millis(time.timestamp_millis().checked_add(step)?))
        }
        RawBsonRef::ObjectId(id) => {
            let mut bytes = id.bytes();
            step(&mut bytes, greater)?;
            RawBson::ObjectId(ObjectId::from_bytes(bytes))
        }
        // Of the same length and subtype: mongod compares these first.
        RawBsonRef::Binary(binary) => {
            let mut bytes = binary.bytes.to_vec();
            step(&mut bytes, greater)?;
            let subtype = binary.subtype;
            RawBson::Binary(Binary { subtype, bytes })
        }
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

/// Changes a big-endian number by one. `None` if it is the greatest or the least of its length.
fn step(bytes: &mut [u8], greater: bool) -> Option<()> {
    for byte in bytes.iter_mut().rev() {
        let (next, carries) = if greater {
            byte.overflowing_add(1)
        } else {
            byte.overflowing_sub(1)
        };
        *byte = next;
        if !carries {
            return Some(());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use bson::spec::BinarySubtype;

    use super::*;

    #[test]
    fn a_value_has_a_next_one_on_either_side() {
        let double = RawBson::Double;
        let date = |millis: i64| RawBson::DateTime(DateTime::from_millis(millis));
        let stamp = |increment: u32| RawBson::Timestamp(Timestamp { time: 1, increment });
        let id =
            |[one, other]: [u8; 2]| RawBson::ObjectId(ObjectId::from_bytes([1, 1, 1, 1, 1, 1, 1, 1, 1, 1, one, other]));
        let binary = |bytes: &[u8]| {
            let (subtype, bytes) = (BinarySubtype::Uuid, bytes.to_vec());
            RawBson::Binary(Binary { subtype, bytes })
        };
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
            (double(f64::NAN), None, None),
            (date(5), Some(date(6)), Some(date(4))),
            (date(i64::MIN), Some(date(i64::MIN + 1)), None),
            (stamp(5), Some(stamp(6)), Some(stamp(4))),
            (stamp(u32::MAX), None, Some(stamp(u32::MAX - 1))),
            (stamp(0), Some(stamp(1)), None),
            (id([3, 9]), Some(id([3, 10])), Some(id([3, 8]))),
            (id([3, 255]), Some(id([4, 0])), Some(id([3, 254]))),
            (id([3, 0]), Some(id([3, 1])), Some(id([2, 255]))),
            (id_ending(0, 0), Some(id_ending(0, 1)), None),
            (binary(&[1, 255]), Some(binary(&[2, 0])), Some(binary(&[1, 254]))),
            (binary(&[255]), None, Some(binary(&[254]))),
            (binary(&[]), None, None),
            (RawBson::MinKey, None, None),
        ];
        for (value, greater, less) in checks {
            // NaN is not equal to itself.
            let next = [true, false].map(|is_greater| adjacent(value.as_raw_bson_ref(), is_greater));
            assert_eq!(format!("{next:?}"), format!("{:?}", [greater, less]), "{value:?}");
        }
    }

    #[test]
    fn the_greatest_value_of_a_type_is_followed_by_the_least_of_the_next_type() {
        let start = RawBson::Timestamp(Timestamp { time: 0, increment: 0 });
        for (greatest, next) in [
            (RawBson::Double(f64::INFINITY), RawBson::String(String::new())),
            (
                RawBson::ObjectId(ObjectId::from_bytes([u8::MAX; 12])),
                RawBson::Boolean(false),
            ),
            (RawBson::DateTime(DateTime::MAX), start),
        ] {
            assert_eq!(adjacent(greatest.as_raw_bson_ref(), true), Some(next), "{greatest:?}");
        }
    }
}
