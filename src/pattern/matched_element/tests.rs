use bson::{Regex, rawdoc};

use super::*;

/// The condition on elements of the array `a`, if the filter is one that determines the element.
fn parsed(filter: &RawDocument) -> Option<RawDocumentBuf> {
    let conditions = path_conditions(filter)?;
    let [condition] = conditions[..] else { return None };
    let ElementCondition { within, operator } = ElementCondition::of("a", condition)?;
    Some(single(&format!("element{within}"), operator))
}

#[test]
fn one_operator_determines_the_element() {
    let pattern = || Regex {
        pattern: "x".try_into().unwrap(),
        options: "".try_into().unwrap(),
    };
    for (filter, expected) in [
        (rawdoc! { "a": 1 }, rawdoc! { "element": { "$eq": 1 } }),
        (
            rawdoc! { "a": { "b": 1 } },
            rawdoc! { "element": { "$eq": { "b": 1 } } },
        ),
        (
            rawdoc! { "a": pattern() },
            rawdoc! { "element": { "$regex": pattern() } },
        ),
        (
            rawdoc! { "a.b.c": { "$size": 2 } },
            rawdoc! { "element.b.c": { "$size": 2 } },
        ),
        (rawdoc! { "a.b": [1] }, rawdoc! { "element.b": { "$eq": [1] } }),
        (
            rawdoc! { "$and": [{ "a": { "$gt": 1 } }], "$comment": 1 },
            rawdoc! { "element": { "$gt": 1 } },
        ),
    ] {
        assert_eq!(parsed(&filter), Some(expected), "{filter:?}");
    }
    for filter in [
        rawdoc! { "a": { "$in": [1, null, pattern()] } },
        rawdoc! { "a": { "$regex": "x", "$options": "i" } },
        rawdoc! { "a": { "$type": "string" } },
        rawdoc! { "a": { "$elemMatch": { "$gt": 1, "$lt": 5 } } },
        rawdoc! { "a": { "$mod": [2, 1] } },
        rawdoc! { "a": { "$bitsAllSet": 4 } },
        rawdoc! { "a.b": { "$exists": true } },
        rawdoc! { "a.b": { "$type": "array" } },
        rawdoc! { "a.b": { "$in": [[1], 2] } },
    ] {
        assert!(parsed(&filter).is_some(), "{filter:?}");
    }
}

#[test]
fn no_other_condition_determines_the_element() {
    for filter in [
        rawdoc! {},
        rawdoc! { "a": [1] },
        rawdoc! { "a": { "$gt": [1] } },
        rawdoc! { "a": { "$lt": bson::RawBson::MaxKey } },
        rawdoc! { "a": { "$gte": 1, "$lt": 5 } },
        rawdoc! { "a": { "$elemMatch": { "$gt": 1 }, "$ne": 5 } },
        rawdoc! { "a": { "$ne": 1 } },
        rawdoc! { "a": { "$nin": [1] } },
        rawdoc! { "a": { "$not": { "$gt": 1 } } },
        rawdoc! { "a": { "$in": [1, [2]] } },
        rawdoc! { "a": { "$all": [1] } },
        rawdoc! { "a": { "$size": 1 } },
        rawdoc! { "a": { "$exists": true } },
        rawdoc! { "a": { "$type": "array" } },
        rawdoc! { "a": { "$type": ["string"] } },
        rawdoc! { "a": { "$geoWithin": { "$center": [[0, 0], 5] } } },
        rawdoc! { "a.b": { "$exists": false } },
        rawdoc! { "a.b": { "$ne": 1 } },
        rawdoc! { "a.b": { "$all": [1] } },
        rawdoc! { "a.0": 1 },
        rawdoc! { "a.b.0": 1 },
        rawdoc! { "a.": 1 },
        rawdoc! { "ab": 1 },
        rawdoc! { "b": 1 },
        rawdoc! { "a": 1, "a.b": 1 },
        rawdoc! { "$or": [{ "a": 1 }] },
        rawdoc! { "$expr": { "$eq": ["$a", 1] } },
    ] {
        assert_eq!(parsed(&filter), None, "{filter:?}");
    }
}
