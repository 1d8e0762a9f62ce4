//! The conditions of a sorted read.

use bson::{Bson, DateTime, Document, bson, doc};

use super::{DOCUMENTS, KEYS};
use crate::differential::Generator;
use crate::differential::grammar::{SortedKeys, SortedRange, SortedResidual};

/// Adds the condition on keys. Returns whether it is one.
pub(super) fn append_keys(generator: &mut Generator, keys: SortedKeys, filter: &mut Document) -> bool {
    let fields = generator.shape.key.clone();
    if keys == SortedKeys::Any || filter.contains_key(&fields[0]) {
        return false;
    }
    let mut number = || generator.between(0, KEYS);
    if keys == SortedKeys::One {
        filter.insert(fields[0].clone(), number());
        filter.extend(fields[1..].iter().map(|field| (field.clone(), Bson::Int32(1))));
    } else {
        let listed: Vec<i32> = (0..5).map(|_| number()).collect();
        let count = generator.pick(&[1, 2, 5]);
        filter.insert(fields[0].clone(), doc! { "$in": &listed[..count] });
    }
    true
}

/// A value of a field that the index may begin with.
pub(super) fn value_of(generator: &mut Generator, path: &str) -> Bson {
    if path == "status" {
        return generator.pick(&[
            bson!("open"),
            bson!("open"),
            bson!(1),
            bson!(1.0),
            Bson::Null,
            bson!(true),
            bson!("none"),
        ]);
    }
    if generator.shape.time.as_deref() == Some(path) {
        return Bson::DateTime(DateTime::from_millis(i64::from(generator.between(0, 60)) * 1000));
    }
    if generator.shape.key[0] == path {
        return generator.between(0, KEYS).into();
    }
    if path == "_id" {
        return generator.between(0, DOCUMENTS + 1).into();
    }
    generator.between(0, 30).into()
}

/// Bounds of the first sort field, as a page behind another has them. The value of one of them; null where
/// any is.
pub(super) fn append_range(generator: &mut Generator, filter: &mut Document, sort: &Document) -> Option<Bson> {
    let (path, direction) = sort.iter().next()?;
    let (path, is_ascending) = (path.clone(), direction.as_i32() == Some(1));
    let (behind, before) = if is_ascending { ("$gt", "$lte") } else { ("$lt", "$gte") };
    let from = value_of(generator, &path);
    let condition = match generator.take::<SortedRange>() {
        SortedRange::None => return None,
        SortedRange::Begin => bson!({ behind: from.clone() }),
        SortedRange::InclusiveBegin => bson!({ format!("{behind}e"): from.clone() }),
        SortedRange::End => {
            let condition = bson!({ before: from.clone() });
            filter.entry(path).or_insert(condition);
            // No text is the greatest, so a descending scan has no place to begin at.
            let is_open = !is_ascending && matches!(from, Bson::String(_));
            return Some(if is_open { Bson::Null } else { from });
        }
        SortedRange::Both => {
            let to = value_of(generator, &path);
            let condition = bson!({ behind: from.clone(), before: to.clone() });
            filter.entry(path).or_insert(condition);
            // Of two types: nothing matches.
            let is_empty =
                matches!(from, Bson::String(_)) != matches!(to, Bson::String(_)) || is_flag(&from) != is_flag(&to);
            return Some(if is_empty || to == Bson::Null { Bson::Null } else { from });
        }
        SortedRange::Equal => from.clone(),
        SortedRange::Ties => {
            let number = generator.between(1, DOCUMENTS);
            let ties = doc! { &path: from.clone(), "n": { behind: number } };
            filter.insert("$or", bson!([{ &path: { behind: from.clone() } }, ties]));
            return Some(from);
        }
    };
    filter.entry(path).or_insert(condition);
    Some(from)
}

fn is_flag(value: &Bson) -> bool {
    matches!(value, Bson::Boolean(_))
}

/// A condition that the index does not answer. Whether the proxy leaves it to mongod.
pub(super) fn append_residual(generator: &mut Generator, filter: &mut Document) -> Option<bool> {
    let number = generator.between(1, DOCUMENTS);
    let (path, condition, is_left) = match generator.take::<SortedResidual>() {
        SortedResidual::None => return None,
        SortedResidual::Range => ("n", bson!({ "$gte": number / 2 }), false),
        SortedResidual::In => ("status", bson!({ "$in": ["open", Bson::Null] }), false),
        SortedResidual::NotEqual => ("status", bson!({ "$ne": "open" }), false),
        SortedResidual::NotIn => ("status", bson!({ "$nin": ["open", 1] }), false),
        SortedResidual::Exists => ("status", bson!({ "$exists": generator.chance(50) }), false),
        SortedResidual::Not => ("n", bson!({ "$not": { "$lt": number / 2, "$gt": 3 } }), false),
        SortedResidual::Nor => (
            "$nor",
            bson!([{ "status": "open", "n": { "$lt": number } }, { "status": 1 }]),
            false,
        ),
        SortedResidual::And => (
            "$and",
            bson!([{ "n": { "$lt": number } }, { "status": { "$lte": "open" } }]),
            false,
        ),
        SortedResidual::Modulo => ("n", bson!({ "$mod": [2, 0] }), true),
        SortedResidual::Expression => ("$expr", bson!({ "$gt": ["$n", number / 2] }), true),
    };
    if !filter.contains_key(path) {
        filter.insert(path, condition);
        return Some(is_left);
    }
    None
}
