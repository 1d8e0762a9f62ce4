//! BSON's order of values, and bytes that are equal for equal values. The proxy has an order of its own, which is
//! not used here: a fault in it would otherwise be on both sides of a comparison.

use std::cmp::Ordering;

use bson::{Bson, Document, doc};

/// The position of a type in BSON's order.
fn rank(value: &Bson) -> u8 {
    match value {
        Bson::MinKey => 0,
        Bson::Undefined => 1,
        Bson::Null => 2,
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => 3,
        Bson::String(_) | Bson::Symbol(_) => 4,
        Bson::Document(_) => 5,
        Bson::Array(_) => 6,
        Bson::Binary(_) => 7,
        Bson::ObjectId(_) => 8,
        Bson::Boolean(_) => 9,
        Bson::DateTime(_) => 10,
        Bson::Timestamp(_) => 11,
        Bson::RegularExpression(_) => 12,
        Bson::DbPointer(_) => 13,
        Bson::JavaScriptCode(_) => 14,
        Bson::JavaScriptCodeWithScope(_) => 15,
        Bson::MaxKey => 16,
    }
}

/// The nearest double. Different values may have one: they then share a slot.
fn double(value: &Bson) -> f64 {
    let number = match value {
        Bson::Int32(number) => f64::from(*number),
        Bson::Double(number) => *number,
        other => other.to_string().parse().unwrap_or(f64::NAN),
    };
    if number.is_nan() { f64::NAN } else { number + 0.0 }
}

fn whole(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        _ => None,
    }
}

fn text(value: &Bson) -> &str {
    match value {
        Bson::String(text) | Bson::Symbol(text) => text,
        _ => "",
    }
}

/// The order of two values. Decimals are compared as doubles.
pub(super) fn compare(one: &Bson, other: &Bson) -> Ordering {
    rank(one).cmp(&rank(other)).then_with(|| of_one_rank(one, other))
}

fn of_one_rank(one: &Bson, other: &Bson) -> Ordering {
    match (one, other) {
        (Bson::Document(one), Bson::Document(other)) => documents(one, other),
        (Bson::Array(one), Bson::Array(other)) => {
            let differing = one.iter().zip(other).map(|(one, other)| compare(one, other));
            first_difference(differing).then(one.len().cmp(&other.len()))
        }
        (Bson::Binary(one), Bson::Binary(other)) => {
            let key = |binary: &bson::Binary| (binary.bytes.len(), u8::from(binary.subtype));
            key(one).cmp(&key(other)).then_with(|| one.bytes.cmp(&other.bytes))
        }
        (Bson::ObjectId(one), Bson::ObjectId(other)) => one.bytes().cmp(&other.bytes()),
        (Bson::Boolean(one), Bson::Boolean(other)) => one.cmp(other),
        (Bson::DateTime(one), Bson::DateTime(other)) => one.cmp(other),
        (Bson::Timestamp(one), Bson::Timestamp(other)) => (one.time, one.increment).cmp(&(other.time, other.increment)),
        _ => match rank(one) {
            3 => numbers(one, other),
            4 => text(one).cmp(text(other)),
            12..=15 => one.to_string().cmp(&other.to_string()),
            _ => Ordering::Equal,
        },
    }
}

fn numbers(one: &Bson, other: &Bson) -> Ordering {
    if let (Some(one), Some(other)) = (whole(one), whole(other)) {
        return one.cmp(&other);
    }
    let (one, other) = (double(one), double(other));
    // NaN is less than all other numbers.
    one.partial_cmp(&other)
        .unwrap_or_else(|| other.is_nan().cmp(&one.is_nan()))
}

fn documents(one: &Document, other: &Document) -> Ordering {
    let fields = one.iter().zip(other);
    let differing = fields.map(|((name, value), (other_name, other_value))| {
        rank(value)
            .cmp(&rank(other_value))
            .then_with(|| name.cmp(other_name))
            .then_with(|| compare(value, other_value))
    });
    first_difference(differing).then(one.len().cmp(&other.len()))
}

fn first_difference(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Appends bytes that are equal for equal values, numbers of any types included.
pub(super) fn append_canonical(bytes: &mut Vec<u8>, value: &Bson) {
    if *value == Bson::Undefined {
        return append_canonical(bytes, &Bson::Null);
    }
    bytes.push(rank(value));
    match value {
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => {
            bytes.extend(double(value).to_bits().to_le_bytes());
        }
        Bson::String(text) | Bson::Symbol(text) => append_text(bytes, text),
        Bson::Document(document) => {
            for (name, value) in document {
                append_text(bytes, name);
                append_canonical(bytes, value);
            }
        }
        Bson::Array(values) => values.iter().for_each(|value| append_canonical(bytes, value)),
        other => bytes.extend(doc! { "": other.clone() }.to_vec().unwrap_or_default()),
    }
}

fn append_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(text.as_bytes());
    bytes.push(0);
}

#[cfg(test)]
mod tests {
    use bson::{Decimal128, bson};

    use super::*;

    fn canonical(value: &Bson) -> Vec<u8> {
        let mut bytes = Vec::new();
        append_canonical(&mut bytes, value);
        bytes
    }

    #[test]
    fn equal_numbers_have_equal_bytes() {
        let decimal: Decimal128 = "1.0".parse().unwrap();
        for value in [bson!(1_i64), bson!(1.0), Bson::Decimal128(decimal)] {
            assert_eq!(canonical(&value), canonical(&bson!(1)));
            assert_eq!(compare(&value, &bson!(1)), Ordering::Equal);
        }
        assert_ne!(canonical(&bson!(2)), canonical(&bson!(1)));
    }

    #[test]
    fn values_are_in_bsons_order() {
        let ascending = [
            Bson::MinKey,
            Bson::Null,
            bson!(-1.5),
            bson!(2_i64),
            bson!(3),
            bson!("a"),
            bson!("b"),
            bson!({ "a": 1 }),
            bson!([1]),
            bson!([1, 2]),
            bson!(false),
            Bson::MaxKey,
        ];
        for (one, other) in ascending.iter().zip(&ascending[1..]) {
            assert_eq!(compare(one, other), Ordering::Less, "{one} {other}");
        }
    }
}
