use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, Timestamp, rawbson, rawdoc};

use super::*;
use crate::command::document::single;
use crate::command::namespace::Namespace;
use crate::pattern::bucket::item_index::{self, as_application_sees};
use crate::pattern::shapes::{BucketOptions, BucketShape, NamespacePattern};

const NAMESPACE: Namespace<'static> = Namespace {
    database: "d",
    collection: "c",
};

fn shape() -> BucketShape {
    let options = BucketOptions {
        rename: [("n".to_owned(), "name".to_owned())].into(),
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketShape::new(options).unwrap()
}

fn index(key: RawDocumentBuf) -> UniqueIndex {
    let spec = rawdoc! { "v": 2, "key": key, "name": "x", "unique": true };
    let stored = item_index::stored(&shape(), &spec).unwrap();
    assert_eq!(as_application_sees(&shape(), &stored), Some(spec));
    UniqueIndex::of(&shape(), &stored).unwrap()
}

#[test]
fn stored_form_is_partial_and_other_unique_indexes_are_not_the_applications() {
    let index = index(rawdoc! { "name.first": 1, "k": -1 });
    let stored = rawdoc! { "control.v": 1, "history.n.first": 1, "k": -1 };
    assert!(index.has_stored_key(&stored));
    let there = rawdoc! { "v": 2, "key": stored, "name": "x", "unique": true };
    assert_eq!(UniqueIndex::of(&shape(), &there), None);
    let not_unique = rawdoc! { "v": 2, "key": { "history.a": 1 }, "name": "x" };
    assert_eq!(UniqueIndex::of(&shape(), &not_unique), None);
}

fn texts(index: &UniqueIndex, item: &RawDocument) -> Vec<String> {
    let keys = index.keys_on(&shape(), &rawdoc! { "k": 7 }, item).unwrap();
    let messages = keys.iter().map(|key| index.duplicate(NAMESPACE, key).message);
    messages
        .map(|message| message.split(" dup key: ").nth(1).unwrap().to_owned())
        .collect()
}

#[test]
fn an_item_has_the_keys_that_mongod_would_index() {
    let one = index(rawdoc! { "name": 1 });
    for (item, keys) in [
        (rawdoc! { "n": 1.0 }, vec!["{ name: 1.0 }"]),
        (rawdoc! { "name": 1 }, vec!["{ name: null }"]),
        (rawdoc! { "n": [] }, vec!["{ name: undefined }"]),
        (
            rawdoc! { "n": [3, 1, [2]] },
            vec!["{ name: 1 }", "{ name: 3 }", "{ name: [ 2 ] }"],
        ),
        (rawdoc! { "n": { "a": 1 } }, vec!["{ name: { a: 1 } }"]),
    ] {
        assert_eq!(texts(&one, &item), keys, "{item:?}");
    }
    let two = index(rawdoc! { "k": 1, "a.b": -1 });
    assert_eq!(texts(&two, &rawdoc! { "a": { "b": "x" } }), ["{ k: 7, a.b: \"x\" }"]);
    assert_eq!(texts(&two, &rawdoc! { "a": 1 }), ["{ k: 7, a.b: null }"]);
    let through_array = rawdoc! { "a": [{ "b": 1 }] };
    let keys = two.keys_on(&shape(), &rawdoc! {}, &through_array);
    assert_eq!(keys, Err(NoKeys::ThroughArray));
}

/// The keys of an item whose field is an array of these elements.
fn keys_of_elements(index: &UniqueIndex, elements: &[RawBson]) -> Vec<IndexKey> {
    let elements: RawArrayBuf = elements.iter().map(RawBson::as_raw_bson_ref).collect();
    index
        .keys_on(&shape(), &rawdoc! {}, &rawdoc! { "n": elements })
        .unwrap()
}

fn texts_of(values: impl Iterator<Item = RawBson>) -> Vec<String> {
    values.map(|value| format!("{value:?}")).collect()
}

fn texts_of_keys(keys: &[IndexKey]) -> Vec<String> {
    texts_of(keys.iter().map(|key| key.values().next().unwrap().into()))
}

/// Takes long if decimals are parsed for each comparison.
#[test]
fn many_decimals_are_sorted() {
    const COUNT: u64 = 100_003;
    let decimal = |number: u64| RawBson::Decimal128(format!("{number}.1").parse().unwrap());
    let mixed: Vec<RawBson> = (0..COUNT).map(|number| decimal(number * 7919 % COUNT)).collect();
    let keys = keys_of_elements(&index(rawdoc! { "name": 1 }), &mixed);
    let expected: Vec<RawBson> = (0..COUNT).map(decimal).collect();
    let found = keys.iter().filter_map(|key| key.values().next());
    assert!(found.eq(expected.iter().map(RawBson::as_raw_bson_ref)));
}

#[test]
fn keys_are_a_set_in_the_order_of_the_index() {
    let decimal = |text: &str| RawBson::Decimal128(text.parse().unwrap());
    let binary = |bytes: &[u8]| {
        RawBson::Binary(Binary {
            subtype: BinarySubtype::Generic,
            bytes: bytes.to_vec(),
        })
    };
    let ascending = [
        RawBson::MinKey,
        RawBson::Undefined,
        RawBson::Null,
        RawBson::Double(f64::NAN),
        decimal("-1.5"),
        rawbson!(0),
        decimal("0.1"),
        rawbson!(0.1),
        rawbson!(2_i64),
        rawbson!("a"),
        rawbson!("ab"),
        rawbson!({}),
        rawbson!({ "a": 1 }),
        rawbson!({ "a": 1, "b": 1 }),
        rawbson!({ "b": 0 }),
        rawbson!({ "a": "x" }),
        rawbson!([]),
        rawbson!([1]),
        rawbson!([1, 1]),
        rawbson!([decimal("1.5")]),
        binary(&[9]),
        binary(&[1, 1]),
        RawBson::ObjectId(ObjectId::from_bytes([7; 12])),
        rawbson!(false),
        rawbson!(true),
        RawBson::DateTime(DateTime::from_millis(1)),
        RawBson::Timestamp(Timestamp { time: 1, increment: 2 }),
        RawBson::MaxKey,
    ];
    let mut elements: Vec<RawBson> = ascending.iter().rev().cloned().collect();
    elements.extend(ascending.clone());
    let mut expected = texts_of(ascending.into_iter());
    let of = |key: RawDocumentBuf| texts_of_keys(&keys_of_elements(&index(key), &elements));
    assert_eq!(of(rawdoc! { "name": 1 }), expected);
    expected.reverse();
    assert_eq!(of(rawdoc! { "name": -1 }), expected);
}

#[test]
fn a_changed_item_adds_the_keys_that_it_did_not_have() {
    let index = index(rawdoc! { "name": 1 });
    let before = keys_of_elements(&index, &[rawbson!(3), rawbson!(1)]);
    let after = keys_of_elements(&index, &[rawbson!(4), rawbson!(1.0), rawbson!(2.0), rawbson!(2)]);
    let added = added_keys(&before, after);
    assert_eq!(texts_of_keys(&added), ["Double(2.0)", "Int32(4)"]);
}

#[test]
fn an_item_with_two_arrays_has_no_keys() {
    let index = index(rawdoc! { "name": 1, "a.b": 1, "k": 1 });
    let item = rawdoc! { "n": [1, 2], "a": { "b": [] } };
    let reason = index.keys_on(&shape(), &rawdoc! {}, &item).unwrap_err();
    assert_eq!(reason, NoKeys::ParallelArrays { first: 0, second: 1 });
    let error = index.without_keys(NAMESPACE, reason);
    assert_eq!(error.code, 171);
    assert_eq!(error.message, "cannot index parallel arrays [b] [name]");
}

#[test]
fn keys_of_an_item_are_bounded() {
    let index = index(rawdoc! { "name": 1, "a": 1 });
    let of = |length: i32| {
        let elements: RawArrayBuf = (0..length).collect();
        let item = rawdoc! { "n": elements, "a": "x".repeat(100_000) };
        index.keys_on(&shape(), &rawdoc! {}, &item).map(|keys| keys.len())
    };
    assert_eq!(of(10), Ok(10));
    assert_eq!(of(1000), Err(NoKeys::TooLarge));
}

#[test]
fn equal_keys_have_one_identity() {
    let index = index(rawdoc! { "name": 1 });
    let identity = |value: RawDocumentBuf| {
        let keys = index.keys_on(&shape(), &rawdoc! {}, &value).unwrap();
        keys.first().unwrap().identity().to_vec()
    };
    assert_eq!(identity(rawdoc! { "n": 1 }), identity(rawdoc! { "n": 1.0 }));
    assert_eq!(identity(rawdoc! { "n": [1, 2] }), identity(rawdoc! { "n": 1_i64 }));
    assert_ne!(identity(rawdoc! { "n": 1 }), identity(rawdoc! { "n": "1" }));
    assert_ne!(identity(rawdoc! { "n": [] }), identity(rawdoc! {}));
}

#[test]
fn errors_name_the_fields_of_the_application() {
    let index = index(rawdoc! { "name": 1, "k": 1 });
    let error = rawdoc! {
        "code": 11000,
        "keyPattern": { "control.v": 1, "history.n": 1, "k": 1 },
        "keyValue": { "control.v": 1, "history.n": "x", "k": 2 },
    };
    let found = violation(&error).unwrap();
    let Violation::OtherPage { values, .. } = &found else {
        panic!("{found:?}");
    };
    assert_eq!(found.index(std::slice::from_ref(&index)), Some(&index));
    let duplicate = index.duplicate(NAMESPACE, &index.key_of_values(values));
    assert_eq!(
        duplicate.message,
        "E11000 duplicate key error collection: d.c index: x dup key: { name: \"x\", k: 2 }"
    );
    let detail = rawdoc! { "keyPattern": { "name": 1, "k": 1 }, "keyValue": { "name": "x", "k": 2 } };
    assert_eq!(duplicate.detail, detail);
    let details = single("specifiedAs", clause(&shape(), &index));
    let refused = rawdoc! { "code": 121, "errInfo": { "details": details } };
    assert_eq!(violation(&refused), Some(Violation::SamePage("x".to_owned())));
    assert_eq!(violation(&rawdoc! { "code": 121, "errInfo": { "details": {} } }), None);
}

/// The checks of a clause for pages without arrays at the indexed paths.
fn checks_of_values(index: &UniqueIndex) -> RawDocumentBuf {
    let clause = clause(&shape(), index);
    let alternatives = clause.get_array("$or").unwrap();
    let without_arrays = alternatives.into_iter().next().unwrap().unwrap();
    let conditions = without_arrays.as_document().unwrap().get_array("$and").unwrap();
    let last = conditions.into_iter().last().unwrap().unwrap();
    last.as_document().unwrap().to_owned()
}

#[test]
fn a_clause_checks_stored_values_before_it_makes_arrays() {
    let check = |key: RawDocumentBuf, values: bson::raw::RawBson| {
        let checks = checks_of_values(&index(key));
        let cheaper = checks.get_array("$or").unwrap().into_iter().next().unwrap().unwrap();
        let expected = rawdoc! { "$expr": { "$eq": [
            { "$size": { "$setUnion": [values] } },
            { "$size": "$history" },
        ] } };
        assert_eq!(cheaper.as_document(), Some(&*expected));
    };
    check(rawdoc! { "name.first": 1, "k": 1 }, "$history.n.first".into());
    let both = rawdoc! { "$zip": { "inputs": ["$history.n", "$history.a.b"] } };
    check(rawdoc! { "name": 1, "a.b": 1 }, both.into());
    let of_key = checks_of_values(&index(rawdoc! { "k": 1 }));
    assert!(of_key.get_document("$expr").is_ok());
}

#[test]
fn lookups_read_entries_of_the_index() {
    let index = index(rawdoc! { "k": 1, "name": 1 });
    let of = |k: i32, n: RawDocumentBuf| index.keys_on(&shape(), &rawdoc! { "k": k }, &n).unwrap().remove(0);
    let keys = [
        of(1, rawdoc! { "n": 1 }),
        of(1, rawdoc! { "n": 2 }),
        of(2, rawdoc! {}),
        of(1, rawdoc! { "n": [] }),
    ];
    let keys: Vec<&IndexKey> = keys.iter().collect();
    let lookups = lookups(&shape(), &index, &keys);
    let finds: Vec<RawDocumentBuf> = lookups.iter().map(|lookup| lookup.find("c")).collect();
    let page = |mut condition: RawDocumentBuf| {
        for (name, value) in rawdoc! { "control.v": { "$gte": 1 }, "count": { "$gt": 0 } }
            .iter()
            .flatten()
        {
            condition.append(name, value);
        }
        condition
    };
    let filter = rawdoc! { "$or": [
        page(rawdoc! { "k": { "$eq": 1 }, "$or": [{ "history.n": { "$type": "undefined" } }, { "history.n": { "$size": 0 } }] }),
        page(rawdoc! { "k": { "$eq": 1 }, "history.n": { "$in": [1, 2] } }),
        page(rawdoc! { "k": { "$eq": 2 }, "history.n": { "$in": [bson::raw::RawBson::Null] } }),
    ] };
    let expected = rawdoc! { "find": "c", "filter": filter, "projection": { "_id": 0, "k": 1, "history.n": 1 } };
    assert_eq!(finds, [expected]);
}
