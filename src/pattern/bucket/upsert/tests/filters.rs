//! Upserts: the fields that a filter sets, and the filters that are refused.

use bson::rawdoc;

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
