use bson::rawdoc;

use super::*;
use crate::pattern::bucket::item::FixedMint;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn shape() -> BucketShape {
    let options = BucketOptions {
        time: Some("t".to_owned()),
        rename: [("quantity".to_owned(), "qty".to_owned())].into(),
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketShape::new(options).unwrap()
}

fn change(filter: &RawDocument, change: &RawDocument) -> Result<ItemUpdateById, Unsupported> {
    let request = UpdateRequest {
        filter: Some(filter),
        change: RawBsonRef::Document(change),
        array_filters: None,
        collation: None,
    };
    ItemUpdateById::of(&shape(), request, &mut FixedMint)
}

#[test]
fn a_statement_that_must_match_cannot_insert() {
    let invalid = rawdoc! { "control.v.none": 1 };
    let own = rawdoc! { "history.$[mongoshapeItem].a": 1, "control.v.none": 1 };
    for (operators, expected) in [
        (rawdoc! { "$inc": { "n": 1 } }, invalid),
        (rawdoc! { "$inc": { "n": 1 }, "$setOnInsert": { "a": 1 } }, own),
    ] {
        let statement = change(&rawdoc! { "_id": 5 }, &operators)
            .unwrap()
            .statement_or_failure();
        assert_eq!(statement.get_document("q").unwrap().get_i32("control.v").unwrap(), 1);
        assert!(statement.get_bool("upsert").unwrap());
        let update = statement.get_document("u").unwrap();
        assert_eq!(update.get_document("$setOnInsert").unwrap(), &*expected);
    }
}

#[test]
fn operators_are_rewritten_to_the_item_in_its_bucket() {
    let found = change(
        &rawdoc! { "_id": 5, "quantity": { "$gt": 1 } },
        &rawdoc! { "$inc": { "quantity": 1 }, "$set": { "a.b": 2 } },
    )
    .unwrap();
    let update = rawdoc! {
        "$inc": { "history.$[mongoshapeItem].qty": 1 }, "$set": { "history.$[mongoshapeItem].a.b": 2 },
    };
    assert_eq!(found.update, update);
    let filter = rawdoc! {
        "$and": [{ "history": { "$elemMatch": { "_id": 5, "qty": { "$gt": 1 } } } }, { "count": { "$gt": 0 } }],
        "control.v": 1,
    };
    assert_eq!(found.filter, filter);
    assert!(!found.has_demands);
}

#[test]
fn field_set_to_its_required_value_becomes_a_condition() {
    let time = bson::DateTime::from_millis(7);
    let found = change(
        &rawdoc! { "_id": 5 },
        &rawdoc! { "$set": { "_id": 5, "k": "x", "t": time, "a": 1 } },
    )
    .unwrap();
    assert_eq!(found.update, rawdoc! { "$set": { "history.$[mongoshapeItem].a": 1 } });
    let of_item = rawdoc! {
        "$and": [
            { "_id": { "$eq": 5 } },
            { "_id": { "$type": 16 } },
            { "k": { "$exists": false } },
            { "t": { "$eq": time, "$not": { "$type": "array" } } },
        ],
    };
    let [of_item_id, has_items, page] = [
        rawdoc! { "history._id": 5 },
        rawdoc! { "count": { "$gt": 0 } },
        rawdoc! { "control.v": { "$gte": 1 } },
    ];
    let condition = rawdoc! { "$and": [of_item_id.clone(), has_items.clone(), page] };
    let demanded = rawdoc! {
        "$and": [{ "$and": [of_item_id, has_items] }, { "k": { "$eq": "x" } }, { "history": { "$elemMatch": of_item } }],
        "control.v": 1,
    };
    assert_eq!(found.filter, demanded);
    assert!(found.has_demands);
    assert_eq!(found.condition, condition);
}

#[test]
fn update_that_cannot_be_done_in_place_is_refused() {
    let check = |filter: &RawDocument, update: &RawDocument| {
        assert!(change(filter, update).is_err(), "{filter:?} {update:?}");
    };
    let id = rawdoc! { "_id": 5 };
    check(&rawdoc! { "a": 5 }, &rawdoc! { "$set": { "a": 1 } });
    check(&rawdoc! { "_id": 5, "$expr": true }, &rawdoc! { "$set": { "a": 1 } });
    check(&rawdoc! { "_id": { "$in": [5] } }, &rawdoc! { "$set": { "a": 1 } });
    check(&id, &rawdoc! { "$rename": { "a": "b" } });
    check(&id, &rawdoc! { "$set": { "a.$": 1 } });
    check(&id, &rawdoc! { "$set": { "_id": 6 } });
    check(&id, &rawdoc! { "$set": { "_id": 5.0 } });
    check(&id, &rawdoc! { "$inc": { "k": 1 } });
    check(&id, &rawdoc! { "$set": { "k": 1.0 } });
    check(&id, &rawdoc! { "$set": { "t": 1 } });
    check(&id, &rawdoc! { "$unset": { "t": 1 } });
    check(&id, &rawdoc! { "$set": { "$a": 1 } });
    // Stored as p, qty, and added by mongod as p, quantity. With r in place of p the order would
    // change.
    check(&id, &rawdoc! { "$set": { "quantity": 1, "qu": 2 } });
    check(&id, &rawdoc! { "$set": { "k": 1 }, "$setOnInsert": { "k": 1 } });
    check(&id, &rawdoc! { "$setOnInsert": { "k": 5, "k.a": 1 } });
    check(&id, &rawdoc! { "$setOnInsert": { "_id.a": 1 } });
    check(&id, &rawdoc! { "$setOnInsert": { "t.": 1 } });
    check(&id, &rawdoc! { "a": 1 });
}

#[test]
fn error_messages_use_item_paths() {
    let check = |message: &str, expected: &str| {
        assert_eq!(in_terms_of_items(&shape(), message, RawBsonRef::Int32(5)), expected);
    };
    check("the field 'history.3.a' is", "the field 'a' is");
    check("{history.$[mongoshapeItem].a: 1}", "{a: 1}");
    check("history.a", "history.a");
    check(
        "apply it. {_id: \"x_7\"} has the field 'a'",
        "apply it. {_id: 5} has the field 'a'",
    );
}

#[test]
fn ids_of_some_types_are_the_same_in_every_bit_if_equal() {
    use bson::raw::RawBson;
    let binary = bson::Binary {
        subtype: bson::spec::BinarySubtype::Generic,
        bytes: vec![1],
    };
    let ids: [(RawBson, Option<i32>); 12] = [
        (RawBson::Double(1.5), Some(1)),
        (RawBson::Double(0.0), None),
        (RawBson::Double(f64::NAN), None),
        (RawBson::String("a".to_owned()), Some(2)),
        (RawBson::Document(rawdoc! { "a": 1 }), None),
        (RawBson::Binary(binary), Some(5)),
        (RawBson::ObjectId(bson::oid::ObjectId::new()), Some(7)),
        (RawBson::Boolean(true), Some(8)),
        (RawBson::DateTime(bson::DateTime::from_millis(1)), Some(9)),
        (RawBson::Null, None),
        (RawBson::Int32(1), Some(16)),
        (RawBson::Int64(1), Some(18)),
    ];
    for (id, expected) in ids {
        assert_eq!(replacement::type_of(id.as_raw_bson_ref()).ok(), expected, "{id:?}");
    }
}

#[test]
fn a_replacement_demands_its_key_and_time() {
    let time = bson::DateTime::from_millis(7);
    let of_item = rawdoc! {
        "$and": [
            { "_id": { "$eq": 5 } },
            { "_id": { "$type": 16 } },
            { "t": { "$eq": time, "$not": { "$type": "array" } } },
        ],
    };
    let [of_item_id, has_items, page] = [
        rawdoc! { "history._id": 5 },
        rawdoc! { "count": { "$gt": 0 } },
        rawdoc! { "control.v": { "$gte": 1 } },
    ];
    let condition = rawdoc! { "$and": [of_item_id.clone(), has_items.clone(), page] };
    let demanded = rawdoc! {
        "$and": [{ "$and": [of_item_id, has_items] }, { "k": { "$eq": "x" } }, { "history": { "$elemMatch": of_item } }],
        "control.v": 1,
    };
    for (id, always_modifies) in [(None, true), (Some(5), false)] {
        let mut replacement: RawDocumentBuf = id.into_iter().map(|id| (cstr!("_id"), id)).collect();
        replacement.append(cstr!("k"), "x");
        replacement.append(cstr!("t"), time);
        replacement.append(cstr!("quantity"), 2);
        let found = change(&rawdoc! { "_id": 5 }, &replacement).unwrap();
        let item = rawdoc! { "_id": 5, "t": time, "qty": 2 };
        assert_eq!(found.update, rawdoc! { "$set": { "history.$[mongoshapeItem]": item } });
        assert_eq!((&found.filter, &found.condition), (&demanded, &condition));
        assert_eq!((found.has_demands, found.always_modifies), (true, always_modifies));
    }
    let moved = rawdoc! { "k": "x", "t": time, "_id": 5 };
    assert!(change(&rawdoc! { "_id": 5 }, &moved).unwrap().always_modifies);
    let other = rawdoc! { "_id": 6, "k": "x", "t": time };
    assert!(change(&rawdoc! { "_id": 5 }, &other).is_err());
}

#[test]
fn a_replacement_with_a_dollar_field_is_left_to_mongod() {
    let replaced = change(
        &rawdoc! { "_id": 5 },
        &rawdoc! { "k": 1, "t": bson::DateTime::from_millis(1), "$a": 1 },
    );
    assert_eq!(&*replaced.unwrap_err(), "a field whose name begins with $");
}

#[test]
fn an_item_is_found_in_its_bucket_by_an_equal_id() {
    let bucket =
        rawdoc! { "k": 1, "history": [{ "_id": 1 }, 7, { "n": 2 }, { "_id": 5, "n": 3 }, { "_id": 5, "n": 4 }] };
    let element = rawdoc! { "_id": 5, "n": 3 };
    for id in [RawBson::Int32(5), RawBson::Double(5.0)] {
        assert_eq!(element_of(&shape(), &bucket, &id), Some(&*element), "{id:?}");
        assert_eq!(place_of(&shape(), &bucket, &id), Some((2, &*element)), "{id:?}");
    }
    assert_eq!(element_of(&shape(), &bucket, &RawBson::Int32(2)), None);
    assert_eq!(element_of(&shape(), &rawdoc! { "k": 1 }, &RawBson::Int32(5)), None);
}

#[test]
fn a_statement_has_the_options_that_it_needs() {
    let with = |update: RawDocumentBuf, options: RawDocumentBuf| {
        let found = change(&rawdoc! { "_id": 5 }, &update).unwrap();
        let mut expected = rawdoc! { "q": found.filter.clone(), "u": found.update.clone() };
        options
            .iter()
            .flatten()
            .for_each(|(name, value)| expected.append(name, value));
        (found, expected)
    };
    let filters = || rawdoc! { "arrayFilters": [{ "mongoshapeItem._id": { "$eq": 5 } }], "hint": "mongoshape_item_id" };
    let (found, expected) = with(rawdoc! { "$set": { "a": 1 } }, filters());
    assert_eq!(found.statement(false), expected);
    let mut of_many = rawdoc! { "multi": true };
    filters()
        .iter()
        .flatten()
        .for_each(|(name, value)| of_many.append(name, value));
    let (found, expected) = with(rawdoc! { "$set": { "a": 1 } }, of_many);
    assert_eq!(found.statement(true), expected);
    // mongod refuses an array filter that no path refers to.
    let (found, expected) = with(
        rawdoc! { "$set": { "_id": 5 } },
        rawdoc! { "hint": "mongoshape_item_id" },
    );
    assert_eq!(found.statement(false), expected);
    assert!(found.has_demands);
}

#[test]
fn no_array_filter_of_the_client_has_the_items_identifier() {
    let filter = rawdoc! { "_id": 5 };
    for (name, identifier) in [
        ("e", "mongoshapeItem"),
        ("mongoshapeItem", "mongoshapeItem00000000"),
        ("mongoshapeItem00000000", "mongoshapeItem00000001"),
    ] {
        let of_client = single(&format!("{name}.value"), rawdoc! { "$gt": 1 });
        let operators = single("$inc", single(&format!("a.$[{name}]"), 1));
        let array_filters = RawArrayBuf::from_iter([of_client.clone()]);
        let request = UpdateRequest {
            filter: Some(&filter),
            change: RawBsonRef::Document(&operators),
            array_filters: Some(&array_filters),
            collation: None,
        };
        let found = ItemUpdateById::of(&shape(), request, &mut FixedMint).unwrap();
        let path = format!("history.$[{identifier}].a.$[{name}]");
        assert_eq!(found.update, single("$inc", single(&path, 1)));
        let of_item = single(&format!("{identifier}._id"), rawdoc! { "$eq": 5 });
        assert_eq!(found.array_filters, RawArrayBuf::from_iter([of_client, of_item]));
    }
}

#[test]
fn a_projection_is_to_the_key_and_the_item() {
    assert_eq!(
        only_item(&shape(), &RawBson::Int32(5)),
        rawdoc! { "history": { "$elemMatch": { "_id": { "$eq": 5 } } }, "k": 1 }
    );
}

#[test]
fn error_text_path_is_of_an_item_if_it_has_its_position() {
    for text in [
        "'history.x.a'",
        "'history..a'",
        "'history.$[other].a'",
        "'history.$[mongoshapeItem.a'",
        "'history.mongoshapeItem].a'",
    ] {
        assert_eq!(in_terms_of_items(&shape(), text, RawBsonRef::Int32(5)), text);
    }
}

#[test]
fn key_condition_is_added_only_if_equal_bytes_imply_equality() {
    let id = rawdoc! { "_id": 5 };
    for value in [RawBson::Int32(5), "x".into(), true.into(), RawBson::Int64(1 << 40)] {
        assert!(
            change(&id, &rawdoc! { "$set": { "k": value.clone() } }).is_ok(),
            "{value:?}"
        );
    }
    for value in [
        RawBson::Int64(5),
        RawBson::Double(5.0),
        RawBson::Null,
        rawdoc! { "x": 1 }.into(),
    ] {
        assert!(
            change(&id, &rawdoc! { "$set": { "k": value.clone() } }).is_err(),
            "{value:?}"
        );
    }
    assert!(change(&id, &rawdoc! { "$set": { "k.x": 1 } }).is_err());
}

#[test]
fn paths_and_names_are_refused_with_a_reason() {
    let id = rawdoc! { "_id": 5 };
    let at = bson::DateTime::from_millis(7);
    for (update, reason) in [
        (rawdoc! { "$set": { "a..b": 1 } }, "an update of a field without a name"),
        (rawdoc! { "$set": { "": 1 } }, "an update of a field without a name"),
        (rawdoc! { "_id": 6, "k": 1, "t": at }, "an update of '_id'"),
        // Each is stored under the other's name.
        (
            rawdoc! { "$set": { "quantity": 1, "qty": 2 } },
            "an update that may add several fields, one of them renamed (mongod would add them in the order of their stored names)",
        ),
        (
            rawdoc! { "$set": { "quantity": 1 }, "$inc": { "qty": 2 } },
            "an update that may add several fields, one of them renamed (mongod would add them in the order of their stored names)",
        ),
    ] {
        assert_eq!(&*change(&id, &update).unwrap_err(), reason, "{update:?}");
    }
}
