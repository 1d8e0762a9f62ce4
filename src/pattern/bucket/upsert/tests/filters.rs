//! Upserts: the fields that a filter sets, and the filters that are refused.

use bson::rawdoc;

use super::*;
use crate::command::server_version::ServerVersion;

#[test]
fn an_all_sets_equal_to_each_value_that_is_no_condition() {
    let reference = || doc! { "$ref": "c", "$id": 1 };
    let set = || doc! { "$set": { "z": 1 } };
    for (all, expected) in [
        (bson!([1]), doc! { "a": 1, "z": 1 }),
        (bson!([{ "x": 1 }]), doc! { "a": { "x": 1 }, "z": 1 }),
        (bson!([{}]), doc! { "a": {}, "z": 1 }),
        (bson!([reference()]), doc! { "a": reference(), "z": 1 }),
        (bson!([regex()]), doc! { "z": 1 }),
        (bson!([regex(), 1]), doc! { "a": 1, "z": 1 }),
        (bson!([{ "$elemMatch": { "x": 1 } }]), doc! { "z": 1 }),
    ] {
        check(doc! { "a": { "$all": all } }, set(), expected);
    }
    check_unsupported(doc! { "a": { "$all": [{ "$gt": 1 }] } }, set());
}

#[test]
fn filter_that_mongod_may_simplify_is_refused_at_any_depth() {
    for condition in [
        doc! { "$elemMatch": { "$alwaysFalse": 1 } },
        doc! { "$elemMatch": { "$expr": true } },
        doc! { "$not": { "$elemMatch": { "$jsonSchema": {} } } },
        doc! { "$elemMatch": { "$or": [{ "b": 1 }, { "b": { "$all": [] } }] } },
        doc! { "$all": [{ "$elemMatch": { "$and": [{ "$alwaysTrue": 1 }] } }] },
    ] {
        check_unsupported(doc! { "a": condition }, doc! { "$set": { "z": 1 } });
    }
    check(
        doc! { "a": { "$elemMatch": { "$or": [{ "b": 1 }, { "b": { "$all": [1] } }] } } },
        doc! { "$set": { "z": 1 } },
        doc! { "z": 1 },
    );
}

#[test]
fn a_filter_of_too_many_equalities_is_refused() {
    for (count, is_read) in [(5_000, true), (5_001, false)] {
        let filter: Document = (0..count).map(|number| (format!("f{number}"), Bson::from(1))).collect();
        let filter = RawDocumentBuf::try_from(filter).unwrap();
        let request = UpdateRequest {
            filter: Some(&filter),
            change: RawBsonRef::Null,
            array_filters: None,
            collation: None,
        };
        let read = equalities::of_operators(request);
        assert_eq!(read.map(|found| found.len()).ok(), is_read.then_some(count), "{count}");
    }
}

#[test]
fn several_texts_may_be_equal_under_a_collation() {
    let text = rawdoc! { "locale": "en", "strength": 2 };
    let simple = rawdoc! { "locale": "simple" };
    for (values, collation, is_read) in [
        (bson!(["x", "X"]), Some(&text), false),
        (bson!([{ "y": "x" }, { "y": "X" }]), Some(&text), false),
        (bson!(["x", "x"]), Some(&text), true),
        (bson!(["x", 1, "X"]), Some(&text), true),
        (bson!([1, 2]), Some(&text), true),
        (bson!(["x", "X"]), Some(&simple), true),
        (bson!(["x", "X"]), None, true),
    ] {
        let filter = RawDocumentBuf::try_from(doc! { "_id": { "$in": values } }).unwrap();
        for change in [
            bson!({ "$set": { "z": 1 } }),
            bson!({ "z": 1 }),
            bson!([{ "$set": { "z": 1 } }]),
        ] {
            let change = bson::raw::RawBson::try_from(change).unwrap();
            let request = UpdateRequest {
                filter: Some(&filter),
                change: change.as_raw_bson_ref(),
                array_filters: None,
                collation: collation.map(|collation| &**collation),
            };
            assert_eq!(build(request, &mut FixedMint).is_ok(), is_read, "{filter:?} {change:?}");
        }
    }
}

#[test]
fn a_filter_that_newer_servers_simplify_is_recognised() {
    let versions = [(6, 0, 5), (6, 0, 27), (7, 0, 28), (7, 1, 0), (8, 0, 0)];
    let versions = versions.map(|(major, minor, patch)| ServerVersion::new(major, minor, patch));
    let check = |filter: Document, expected: [bool; 5]| {
        let raw = RawDocumentBuf::try_from(filter.clone()).unwrap();
        let found = simplified(&raw);
        let applies = versions.map(|version| found.is_some_and(|found| found.may_apply(version)));
        assert_eq!(applies, expected, "{filter}");
        let is_refused = found.is_some_and(|found| found.may_apply(ServerVersion::default()));
        assert_eq!(is_refused, expected[4], "{filter}");
    };
    for filter in [
        doc! { "a": 1, "$nor": [{}, { "b": 1 }] },
        doc! { "$or": [{ "$nor": [{ "b": 1 }, { "$and": [{}, { "$comment": "c" }] }] }, { "c": 1 }] },
        doc! { "a": 1, "$nor": [{ "$or": [{ "b": 1 }, {}] }, { "$alwaysTrue": 1 }] },
    ] {
        check(filter, [false, true, true, true, true]);
    }
    let empty = || doc! { "$in": [] };
    for filter in [
        doc! { "a": empty(), "b": 1 },
        doc! { "a": { "$elemMatch": { "x": empty() } } },
        doc! { "$or": [{ "a": empty() }, { "b": 1 }] },
        doc! { "$nor": [{ "a": { "$nin": [] } }] },
        doc! { "a": { "$not": { "$nin": [] } } },
    ] {
        check(filter, [false, false, false, true, true]);
    }
    for filter in [
        doc! { "$or": [{ "a": 1 }, { "a": 1 }] },
        doc! { "$or": [{ "a": 1 }, { "a": 1.0, "b": 2 }] },
        doc! { "$and": [{ "a": 1 }, { "a": { "$eq": 1 } }] },
        doc! { "a": { "$in": [1] }, "$or": [{ "b": 1 }, { "a": { "$all": [1] } }] },
        doc! { "b": { "$ne": 1 }, "$or": [{ "a": 1 }, { "b": 1 }] },
        doc! { "$nor": [{ "a": { "$ne": 1 } }] },
        doc! { "a": { "$not": { "$nin": [1] } } },
        doc! { "$nor": [{ "$nor": [{ "a": 1 }] }] },
    ] {
        check(filter, [false, false, false, false, true]);
    }
    for filter in [
        doc! { "a": 1, "b": 1, "$or": [{ "c": 1 }, { "c": 2 }, { "d": { "$lt": 1 } }] },
        doc! { "a": { "$nin": [] }, "b": 1 },
        doc! { "a": { "$in": [1, 2] }, "b": { "$ne": 1 }, "$nor": [{ "c": 1 }, { "c": regex() }, { "d": regex() }] },
        doc! { "$or": [{ "a": { "$exists": false } }, { "a": { "$lt": 1 } }] },
        doc! { "a": { "$elemMatch": { "x": 1, "$or": [{ "x": 1 }, { "y": 1 }] } } },
        doc! { "a": { "$all": [{ "$elemMatch": { "x": 1 } }, regex(), 1, 2] } },
    ] {
        check(filter, [false; 5]);
    }
}
