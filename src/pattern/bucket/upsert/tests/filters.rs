//! Upserts: the fields that a filter sets, and the filters that are refused.

use super::*;

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
        let read = equalities::of_operators(Some(&filter));
        assert_eq!(read.map(|found| found.len()).ok(), is_read.then_some(count), "{count}");
    }
}
