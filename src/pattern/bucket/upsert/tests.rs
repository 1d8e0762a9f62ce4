//! Tests of the single rules. `proto-tests/tests/writes/upserts` compares them with mongod.

mod arrays;
mod filters;
mod numbers;
mod paths;
mod results;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, Regex, Timestamp, bson, doc};

use super::super::item::FixedMint;
use super::*;

fn built(filter: Document, change: impl Into<Bson>) -> Result<Built, UpsertError> {
    let filter = RawDocumentBuf::try_from(filter).unwrap();
    let change = bson::raw::RawBson::try_from(change.into()).unwrap();
    let request = UpdateRequest {
        filter: Some(&filter),
        change: change.as_raw_bson_ref(),
        array_filters: None,
        collation: None,
    };
    build(request, &mut FixedMint)
}

/// Checks the inserted document, which has a new `_id`.
fn check(filter: Document, change: Document, expected: Document) {
    let mut with_id = doc! { "_id": ObjectId::from_bytes([7; 12]) };
    with_id.extend(expected);
    check_whole(filter, change, with_id);
}

fn check_whole(filter: Document, change: Document, expected: Document) {
    let context = format!("{filter} {change}");
    let expected = RawDocumentBuf::try_from(expected).unwrap();
    match built(filter, change) {
        Ok(Built::Document(document)) => assert_eq!(document, expected, "{context}"),
        other => panic!("{context}: {other:?}"),
    }
}

fn check_error(filter: Document, change: Document, code: i32, message: &str) {
    let context = format!("{filter} {change}");
    match built(filter, change) {
        Err(UpsertError::Mongod(error)) => assert_eq!((error.code, error.message.as_str()), (code, message)),
        other => panic!("{context}: {other:?}"),
    }
}

fn check_unsupported(filter: Document, change: Document) {
    let context = format!("{filter} {change}");
    let refused = built(filter, change);
    assert!(
        matches!(refused, Err(UpsertError::Unsupported(_))),
        "{context}: {refused:?}"
    );
}

fn regex() -> Bson {
    Bson::RegularExpression(Regex {
        pattern: "x".try_into().unwrap(),
        options: "".try_into().unwrap(),
    })
}

#[test]
fn equalities_come_first_and_by_path() {
    let set = || doc! { "$set": { "B": 0 } };
    let checks = [
        (doc! { "b": 1, "a": 2 }, doc! { "a": 2, "b": 1, "B": 0 }),
        (
            doc! { "b.c": 1, "a": 2, "b.a": 3 },
            doc! { "a": 2, "b": { "a": 3, "c": 1 }, "B": 0 },
        ),
        (
            doc! { "a": { "$gt": 1 }, "c": regex(), "d": { "$in": [1, 2] } },
            doc! { "B": 0 },
        ),
        (
            doc! { "a": { "$eq": regex() }, "b": { "$in": [[1]] } },
            doc! { "a": regex(), "b": [1], "B": 0 },
        ),
        (
            doc! { "$and": [{ "a": 1 }, { "$or": [{ "b": { "$all": [2] } }] }] },
            doc! { "a": 1, "b": 2, "B": 0 },
        ),
        (
            doc! { "$or": [{ "a": 1 }, { "a": 2 }], "$nor": [{ "c": 1 }] },
            doc! { "B": 0 },
        ),
        (doc! { "a.10": 1, "a.2": 1 }, doc! { "a": { "10": 1, "2": 1 }, "B": 0 }),
    ];
    for (filter, expected) in checks {
        check(filter, set(), expected);
    }
    check_whole(
        doc! { "a": 1, "_id.x": 2 },
        set(),
        doc! { "_id": { "x": 2 }, "a": 1, "B": 0 },
    );
    check_unsupported(doc! { "a": { "$all": [] } }, set());
    check_unsupported(doc! { "a": { "$in": [1, 1.0] } }, set());
    check_unsupported(doc! { "$alwaysFalse": 1, "a": 1 }, set());
    check_unsupported(doc! { "a..b": 1 }, set());
}

#[test]
fn operators_add_fields_in_path_order() {
    check(
        doc! { "z": 1 },
        doc! { "$set": { "b": 1, "a": 2 }, "$inc": { "aa": 3_i64 }, "$setOnInsert": { "10": 0, "2": 0 } },
        doc! { "z": 1, "2": 0, "10": 0, "a": 2, "aa": 3_i64, "b": 1 },
    );
    check(
        doc! { "a": [1], "b": i32::MAX, "c": 5 },
        doc! { "$set": { "a.2.x": 1 }, "$inc": { "b": 1 }, "$min": { "c": 3.5 }, "$mul": { "d": 2_i64 }, "$unset": { "e": 1 } },
        doc! { "a": [1, null, { "x": 1 }], "b": 2_147_483_648_i64, "c": 3.5, "d": 0_i64 },
    );
    check(
        doc! { "a": [3, 1] },
        doc! {
            "$push": { "a": { "$each": [2], "$position": 0, "$sort": -1, "$slice": 2 }, "b": { "x": 1 } },
            "$addToSet": { "c": { "$each": [1, 1.0, 2] } },
            "$bit": { "d": { "or": 5 } },
            "$pop": { "e": 1 },
        },
        doc! { "a": [3, 2], "b": [{ "x": 1 }], "c": [1, 2], "d": 5 },
    );
    check(
        doc! { "a": 1, "b": 2 },
        doc! { "$rename": { "a": "c", "none": "d" }, "$currentDate": { "now": true, "stamp": { "$type": "timestamp" } } },
        doc! {
            "b": 2, "c": 1, "now": DateTime::from_millis(77_000), "stamp": Timestamp { time: 1, increment: 2 },
        },
    );
    check(
        doc! { "a": 0.0, "b": -0.0 },
        doc! { "$mul": { "a": -1 }, "$inc": { "b": 0 } },
        doc! { "a": 0.0, "b": -0.0 },
    );
    check_unsupported(doc! {}, doc! { "$set": { "a.$[].b": 1 } });
    let empty = Timestamp { time: 0, increment: 0 };
    check(doc! {}, doc! { "$set": { "a": empty } }, doc! { "a": empty });
    check_unsupported(
        doc! { "a": Bson::Decimal128("1".parse().unwrap()) },
        doc! { "$inc": { "a": 1 } },
    );
    check_unsupported(doc! {}, doc! { "$set": { "1a": 1, "2": 1 } });
    for malformed in [
        doc! { "$inc": { "a": "x" } },
        doc! { "$mul": { "a": "x" } },
        doc! { "$bit": { "a": 1 } },
    ] {
        check_unsupported(doc! {}, malformed);
    }
}

#[test]
fn replacements_take_the_id_alone() {
    check(
        doc! { "a": 1, "a.b": 2 },
        doc! { "z": 1, "b": 2 },
        doc! { "z": 1, "b": 2 },
    );
    check_whole(doc! { "_id": 5, "a": 1 }, doc! { "b": 2 }, doc! { "_id": 5, "b": 2 });
    check_whole(
        doc! { "_id": 5 },
        doc! { "b": 2, "_id": 5.0 },
        doc! { "_id": 5.0, "b": 2 },
    );
    check(doc! { "_id": { "$gt": 5 } }, doc! {}, doc! {});
}

#[test]
fn a_pipeline_begins_with_the_equalities() {
    let base = built(doc! { "b": 1, "_id": 3, "a": 2 }, bson!([{ "$set": { "c": 1 } }])).unwrap();
    let expected = RawDocumentBuf::try_from(doc! { "_id": 3, "a": 2, "b": 1 }).unwrap();
    assert_eq!(base, Built::Base(expected.clone()));
    let result = RawDocumentBuf::try_from(doc! { "x": 1 }).unwrap();
    let inserted = after_stages(&expected, &result, &mut FixedMint).unwrap();
    assert_eq!(Document::try_from(inserted).unwrap(), doc! { "_id": 3, "x": 1 });
}

#[test]
fn errors_are_those_of_mongod() {
    let set = || doc! { "$set": { "z": 0 } };
    check_error(
        doc! { "a.b": 1, "a": 2 },
        set(),
        54,
        "cannot infer query fields to set, both paths 'a.b' and 'a' are matched",
    );
    check_error(
        doc! { "a": { "$all": [1, 1] } },
        set(),
        54,
        "cannot infer query fields to set, path 'a' is matched twice",
    );
    check_error(
        doc! { "_id.x": 1 },
        doc! { "a": 1 },
        111,
        "field at '_id' must be exactly specified, field at sub-path '_id.x'found",
    );
    check_error(
        doc! { "_id": 1 },
        doc! { "$set": { "_id": 2 } },
        66,
        "Performing an update on the path '_id' would modify the immutable field '_id'",
    );
    check_error(
        doc! {},
        doc! { "$set": { "a.b": 1 }, "$inc": { "a": 1 } },
        40,
        "Updating the path 'a' would create a conflict at 'a'",
    );
    check_error(
        doc! { "a": { "b": [1] } },
        doc! { "$set": { "a.b.c": 1 } },
        28,
        "Cannot create field 'c' in element {b: [ 1 ]}",
    );
    check_error(
        doc! { "_id": 3, "a": "x" },
        doc! { "$inc": { "a": 1 } },
        14,
        "Cannot apply $inc to a value of non-numeric type. {_id: 3} has the field 'a' of non-numeric type string",
    );
    check_error(
        doc! { "a": i64::MAX },
        doc! { "$inc": { "a": 1 } },
        2,
        "Failed to apply $inc operations to current value ((NumberLong)9223372036854775807) for document {no id}",
    );
    let expression = RawDocumentBuf::try_from(doc! { "$or": [{ "a": 1 }, { "$expr": true }] }).unwrap();
    assert_eq!(check_filter(&expression).unwrap_err().code, 224);
}

#[test]
fn bits_are_combined_by_their_operation() {
    for (operation, expected) in [("and", 8), ("or", 14), ("xor", 6)] {
        check(
            doc! { "a": 12 },
            doc! { "$bit": { "a": { operation: 10 } } },
            doc! { "a": expected },
        );
        let long = doc! { "$bit": { "a": { operation: 10_i64 } } };
        check(doc! { "a": 12 }, long, doc! { "a": i64::from(expected) });
    }
    check_unsupported(doc! { "a": 12 }, doc! { "$bit": { "a": { "not": 10 } } });
}

#[test]
fn types_compare_in_the_order_of_bson() {
    let binary = bson::Binary {
        subtype: bson::spec::BinarySubtype::Generic,
        bytes: vec![1],
    };
    let ascending: [Bson; 12] = [
        Bson::MinKey,
        Bson::Null,
        1.into(),
        "a".into(),
        doc! { "b": 1 }.into(),
        bson!([1]),
        binary.into(),
        ObjectId::from_bytes([1; 12]).into(),
        true.into(),
        DateTime::from_millis(1).into(),
        Bson::Timestamp(Timestamp { time: 1, increment: 1 }),
        Bson::MaxKey,
    ];
    for (position, less) in ascending.iter().enumerate() {
        for greater in &ascending[position + 1..] {
            let filter = |value: &Bson| doc! { "a": { "$eq": value.clone() } };
            check(filter(less), doc! { "$max": { "a": greater } }, doc! { "a": greater });
            check(filter(greater), doc! { "$max": { "a": less } }, doc! { "a": greater });
            check(filter(greater), doc! { "$min": { "a": less } }, doc! { "a": less });
        }
    }
}

#[test]
fn nothing_is_compared_under_a_collation() {
    let collation = RawDocumentBuf::try_from(doc! { "locale": "en" }).unwrap();
    let stored = RawDocumentBuf::try_from(doc! { "_id": 1, "a": [1], "b": 1 }).unwrap();
    for (operators, is_done) in [
        (doc! { "$set": { "c": "x" }, "$push": { "a": "x" } }, false),
        (doc! { "$addToSet": { "a": "x" } }, false),
        (doc! { "$pull": { "a": "x" } }, false),
        (doc! { "$pullAll": { "a": ["x"] } }, false),
        (doc! { "$max": { "b": "x" } }, false),
        (doc! { "$min": { "b": "x" } }, false),
        (
            doc! { "$set": { "b": "x" }, "$pop": { "a": 1 }, "$inc": { "c": 1 } },
            true,
        ),
    ] {
        let operators = RawDocumentBuf::try_from(operators).unwrap();
        let update = OperatorUpdate {
            operators: &operators,
            array_filters: None,
            collation: Some(&collation),
        };
        let changed = changed(&stored, update, &mut FixedMint);
        assert_eq!(changed.is_ok(), is_done, "{operators:?}: {changed:?}");
        let request = UpdateRequest {
            filter: Some(&stored),
            change: RawBsonRef::Document(&operators),
            array_filters: None,
            collation: Some(&collation),
        };
        let built = build(request, &mut FixedMint);
        assert_eq!(built.is_ok(), is_done, "{operators:?}: {built:?}");
    }
}

#[test]
fn a_field_is_renamed_within_documents_alone() {
    check(
        doc! { "a.b": 1, "c.d": 2 },
        doc! { "$rename": { "a.b": "c.e", "none.x": "f.g" } },
        doc! { "a": {}, "c": { "d": 2, "e": 1 } },
    );
    check(
        doc! { "a.b": 1 },
        doc! { "$rename": { "a.b": "x.y" } },
        doc! { "a": {}, "x": { "y": 1 } },
    );
    for (filter, from, to) in [
        (doc! { "a": [1] }, "a.0", "b"),
        (doc! { "a": 1, "b": [1] }, "a", "b.0"),
        (doc! { "a": 1, "b": 2 }, "a", "b.c"),
        (doc! { "_id": 1 }, "_id", "b"),
    ] {
        check_unsupported(filter, doc! { "$rename": { from: to } });
    }
}

#[test]
fn values_of_types_that_equal_others_are_not_compared() {
    let code = bson::JavaScriptCodeWithScope {
        code: "x".to_owned(),
        scope: doc! {},
    };
    for value in [
        Bson::Symbol("x".to_owned()),
        Bson::Undefined,
        Bson::JavaScriptCodeWithScope(code),
    ] {
        for compared in [value.clone(), doc! { "b": value.clone() }.into(), bson!([1, value])] {
            check_unsupported(doc! {}, doc! { "$addToSet": { "a": compared.clone() } });
            check_unsupported(doc! { "a": [compared] }, doc! { "$pullAll": { "a": [1] } });
        }
    }
}

#[test]
fn alternatives_that_set_nothing_are_read_all_the_same() {
    let set = || doc! { "$set": { "c": 1 } };
    let empty_all = || doc! { "b": { "$all": [] } };
    check_unsupported(doc! { "$or": [{ "a": 1 }, empty_all()] }, set());
    check_unsupported(doc! { "$nor": [empty_all()] }, set());
    check_unsupported(doc! { "$nor": [{ "$text": { "$search": "x" } }] }, set());
    check_error(
        doc! { "$nor": [{ "a": 1 }, { "$expr": true }] },
        set(),
        224,
        "$expr is not allowed in the query predicate for an upsert",
    );
}

#[test]
fn empty_all_is_refused_at_any_depth() {
    check(
        doc! { "a": { "$elemMatch": { "b": { "$all": [1] } } } },
        doc! { "$set": { "c": 1 } },
        doc! { "c": 1 },
    );
    check_unsupported(
        doc! { "a": { "$elemMatch": { "b": { "$all": [] } } } },
        doc! { "$set": { "c": 1 } },
    );
}

/// The error code of an update of an existing document, or the result.
fn changed_to(document: Document, operators: Document) -> Result<Document, i32> {
    let [document, operators] = [document, operators].map(|document| RawDocumentBuf::try_from(document).unwrap());
    let update = OperatorUpdate {
        operators: &operators,
        array_filters: None,
        collation: None,
    };
    match changed(&document, update, &mut FixedMint) {
        Ok(changed) => Ok(Document::try_from(changed).unwrap()),
        Err(UpsertError::Mongod(error)) => Err(error.code),
        Err(UpsertError::Unsupported(what)) => panic!("{what}"),
    }
}

#[test]
fn dollar_field_is_refused_if_set_or_created() {
    let stored = doc! { "$f": { "a": 1 } };
    let update = |path: &str, value: i32| doc! { "$set": { path: value } };
    assert_eq!(changed_to(stored.clone(), update("$f", 2)), Err(52));
    assert_eq!(changed_to(doc! {}, update("$f", 2)), Err(52));
    assert_eq!(changed_to(doc! {}, update("$f.a", 2)), Err(52));
    assert_eq!(
        changed_to(stored.clone(), update("$f.a", 2)),
        Ok(doc! { "$f": { "a": 2 } })
    );
    let same = doc! { "$set": { "$f": { "a": 1 } } };
    assert_eq!(changed_to(stored.clone(), same), Ok(stored));
}

#[test]
fn a_large_document_is_not_copied_for_each_path_below_a_dollar_field() {
    // Copying the document for each path would take minutes.
    let paths = |root: &str| -> Document {
        let names = (0..4_000).map(|number| format!("{root}p{number}"));
        names.map(|name| (name, Bson::from(1))).collect()
    };
    let stored = doc! { "text": "x".repeat(15 << 20), "$f": paths("") };
    let update = doc! { "$inc": paths("$f.") };
    let changed = changed_to(stored, update).unwrap();
    let fields = changed.get_document("$f").unwrap();
    assert!(fields.len() == 4_000 && fields.values().all(|value| *value == Bson::from(2)));
}
