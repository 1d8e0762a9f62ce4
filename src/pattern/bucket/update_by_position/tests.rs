mod paths;
mod statements;
mod whole_items;

use bson::raw::RawBson;
use bson::rawdoc;

use super::*;
use crate::command::document::get;
use crate::command::error::ErrorCode;
use crate::pattern::bucket::expression::miss;
use crate::pattern::bucket::item::FixedMint;
use crate::pattern::bucket::upsert::OperatorUpdate;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn shape() -> BucketShape {
    let options = BucketOptions {
        time: Some("t".to_owned()),
        rename: [("quantity".to_owned(), "qty".to_owned())].into(),
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketShape::new(options).unwrap()
}

fn found() -> LocatedItem {
    let answer = rawdoc! {
        "bucket": "5_1", "page": 0, "count": 3, "place": 2_i64, "key": { "k": 5 }, "control": { "v": 1 },
        "stored": { "_id": 1, "t": bson::DateTime::from_millis(7), "a": { "b": 1 }, "qty": 2, "x": [1] },
    };
    LocatedItem::parse(&shape(), &answer).unwrap()
}

fn operators(update: &RawDocument) -> Result<Planned, Unsupported> {
    operators_on(&found(), update)
}

fn operators_on(item: &LocatedItem, operators: &RawDocument) -> Result<Planned, Unsupported> {
    let update = OperatorUpdate {
        operators,
        array_filters: None,
        collation: None,
    };
    of_operators(&shape(), item, update, &mut FixedMint)
}

#[test]
fn operators_are_rewritten_to_the_items_position() {
    let check = |update: &RawDocument, expected: &RawDocument| match operators(update) {
        Ok(Planned::InPlace(change)) => assert_eq!(&*change.update, expected, "{update:?}"),
        other => panic!("{update:?}: {other:?}"),
    };
    check(
        &rawdoc! { "$inc": { "quantity": 1 }, "$set": { "a.b": 2, "k": 5, "_id": 1 } },
        &rawdoc! { "$inc": { "history.2.qty": 1 }, "$set": { "history.2.a.b": 2 } },
    );
    check(
        &rawdoc! { "$rename": { "a.b": "c", "quantity": "q", "none": "k" }, "$set": { "z": 1 } },
        &rawdoc! {
            "$set": { "history.2.c": 1, "history.2.q": 2, "history.2.z": 1 },
            "$unset": { "history.2.a.b": true, "history.2.qty": true },
        },
    );
}

#[test]
fn collation_is_sent_with_statements_that_compare() {
    let filter = || rawdoc! { "e": { "$gt": 1 } };
    let [none, one] = [RawArrayBuf::new(), RawArrayBuf::from_iter([filter()])];
    let collation = rawdoc! { "locale": "en" };
    for (operators, array_filters, goes_along) in [
        (rawdoc! { "$set": { "a.b": 2 } }, None, false),
        (rawdoc! { "$set": { "a.b": 2 } }, Some(&none), false),
        (rawdoc! { "$set": { "x.$[e]": 2 } }, Some(&one), true),
        (rawdoc! { "$pull": { "x": 1 } }, None, true),
        (rawdoc! { "$max": { "a.b": 2 } }, Some(&none), true),
    ] {
        let update = OperatorUpdate {
            operators: &operators,
            array_filters: array_filters.map(|filters| &**filters),
            collation: Some(&collation),
        };
        let Ok(Planned::InPlace(change)) = of_operators(&shape(), &found(), update, &mut FixedMint) else {
            panic!("{operators:?} is a change in place");
        };
        let expected = goes_along.then(|| collation.clone());
        assert_eq!(change.collation, expected, "{operators:?} {array_filters:?}");
        assert_eq!(change.array_filters.as_ref(), array_filters, "{operators:?}");
    }
}

#[test]
fn setting_the_current_value_is_no_change() {
    let same =
        rawdoc! { "$set": { "k": 5, "t": bson::DateTime::from_millis(7) }, "$unset": {}, "$rename": { "n": "m" } };
    assert!(matches!(operators(&same), Ok(Planned::Unchanged { counted: false })));
}

#[test]
fn item_with_its_own_key_is_not_relocated() {
    let own = LocatedItem {
        stored: rawdoc! { "_id": 1, "n": 2, "k": 5.0 },
        item: rawdoc! { "_id": 1, "k": 5.0, "n": 2 },
        ..found()
    };
    let planned = operators_on(&own, &rawdoc! { "$max": { "k": 4 } });
    assert!(matches!(planned, Ok(Planned::Unchanged { counted: false })));
}

#[test]
fn changes_that_move_an_item_are_distinguished() {
    let key = |planned| matches!(planned, Ok(Planned::Elsewhere(Elsewhere::Key(_))));
    let time = |planned| matches!(planned, Ok(Planned::Elsewhere(Elsewhere::Time(_))));
    assert!(key(operators(&rawdoc! { "$set": { "k": 6 } })));
    // The key stays the same, with the type in which the item stores it; the time stays the same.
    assert!(matches!(
        operators(&rawdoc! { "$set": { "k": 5.0 } }),
        Ok(Planned::InPlace(_))
    ));
    let same = rawdoc! { "$inc": { "k": 0 }, "$max": { "t": bson::DateTime::from_millis(6) } };
    assert!(matches!(operators(&same), Ok(Planned::Unchanged { counted: false })));
    assert!(key(operators(&rawdoc! { "$rename": { "quantity": "k" } })));
    assert!(time(operators(&rawdoc! { "$currentDate": { "t": true } })));
    let replaced = |new: &RawDocument| of_replacement(&shape(), &found(), new, &mut FixedMint);
    let at = bson::DateTime::from_millis(7);
    assert!(key(replaced(&rawdoc! { "k": 6, "t": at })));
    assert!(time(replaced(&rawdoc! { "k": 5 })));
    assert!(matches!(
        replaced(&rawdoc! { "_id": 1.0, "k": 5, "t": at }),
        Ok(Planned::InPlace(_))
    ));
    assert!(matches!(replaced(&rawdoc! { "_id": 2, "k": 5, "t": at }), Ok(Planned::Failed(error)) if error.code == 66));
    assert!(matches!(replaced(&rawdoc! { "k": 5, "t": at, "$x": 1 }), Ok(Planned::Failed(error)) if error.code == 52));
}

#[test]
fn unsupported_updates_are_refused() {
    for update in [
        rawdoc! { "$set": { "x.$": 1, "k": 1 } },
        rawdoc! { "$set": { "k": [1] } },
        rawdoc! { "$set": { "k": 1 }, "$pull": { "x": { "$gt": 1 } } },
        rawdoc! { "$inc": { "_id": 1 } },
        rawdoc! { "$rename": { "x.0": "y" } },
    ] {
        assert!(operators(&update).is_err(), "{update:?}");
    }
    let update = rawdoc! { "$set": { "$y": 1 } };
    assert!(matches!(operators(&update), Ok(Planned::Failed(error)) if error.code == 52));
}

#[test]
fn added_fields_are_sorted_by_name() {
    let bare = LocatedItem {
        stored: rawdoc! { "_id": 1, "t": bson::DateTime::from_millis(7) },
        item: rawdoc! { "_id": 1, "k": 5, "t": bson::DateTime::from_millis(7) },
        ..found()
    };
    let planned = |update: &RawDocument| operators_on(&bare, update);
    let Ok(Planned::InPlace(change)) = planned(&rawdoc! { "$set": { "quantity": 1, "price": 2 } }) else {
        panic!("the order is the same under stored names");
    };
    assert_eq!(
        change.update,
        rawdoc! { "$set": { "history.2.qty": 1, "history.2.price": 2 } }
    );
    let Ok(Planned::InPlace(change)) = planned(&rawdoc! { "$set": { "quantity": 1 }, "$inc": { "qty": 2 } }) else {
        panic!("the item is computed as a whole");
    };
    let whole = rawdoc! { "_id": 1, "t": bson::DateTime::from_millis(7), "quantity": 2, "qty": 1 };
    assert_eq!(change.update, rawdoc! { "$set": { "history.2": whole } });
}

#[test]
fn a_filter_demands_types_and_where_needed_bytes() {
    let change = InPlace::new(rawdoc! { "$set": { "history.2.a": 1 } });
    let filter = change.filter(&shape(), &found(), Demand::Item).unwrap();
    let holds = |filter: &RawDocument, word: &str| {
        let mut parts = filter.as_bytes().windows(word.len());
        parts.any(|part| part == word.as_bytes())
    };
    assert!(holds(&filter, "$$is.a.b") && holds(&filter, "$type"), "{filter:?}");
    assert!(!holds(&filter, "$indexOfBytes"));
    let by_collation = InPlace {
        collation: Some(rawdoc! { "locale": "en" }),
        ..change.clone()
    };
    let filter = by_collation.filter(&shape(), &found(), Demand::Item).unwrap();
    assert!(holds(&filter, "$indexOfBytes"));
    let mut deep = rawdoc! { "n": 1 };
    for _ in 0..60 {
        deep = rawdoc! { "d": deep };
    }
    let deep = LocatedItem {
        stored: deep,
        ..found()
    };
    assert!(change.filter(&shape(), &deep, Demand::Item).is_err());
}

#[test]
fn the_bucket_records_the_changed_position() {
    let mut change = InPlace::new(rawdoc! { "$inc": { "history.2.a": 1 } });
    change.record_place(&found());
    assert_eq!(
        change.update,
        rawdoc! { "$inc": { "history.2.a": 1 }, "$set": { "control.changed": 2_i64 } }
    );
}

#[test]
fn arithmetic_on_a_key_that_is_nan_counts() {
    let nan = |key: RawBson| LocatedItem {
        key: rawdoc! { "k": key.clone() },
        item: rawdoc! { "_id": 1, "k": key, "t": bson::DateTime::from_millis(7), "a": { "b": 1 }, "quantity": 2, "x": [1] },
        ..found()
    };
    let planned = |key: RawBson, update: &RawDocument| {
        operators_on(&nan(key), update).map(|planned| match planned {
            Planned::Unchanged { counted } => counted,
            other => panic!("{update:?}: {other:?}"),
        })
    };
    let not_a_number = || RawBson::Double(f64::NAN);
    assert_eq!(planned(not_a_number(), &rawdoc! { "$inc": { "k": 1 } }), Ok(true));
    assert_eq!(planned(not_a_number(), &rawdoc! { "$mul": { "k": 2 } }), Ok(true));
    assert_eq!(
        planned(not_a_number(), &rawdoc! { "$set": { "k": f64::NAN } }),
        Ok(false)
    );
    assert_eq!(planned(RawBson::Int32(5), &rawdoc! { "$inc": { "k": 0 } }), Ok(false));
}

#[test]
fn update_of_many_fails_on_an_item_that_changed_since_it_was_read() {
    let Ok(Planned::InPlace(change)) = operators(&rawdoc! { "$inc": { "x.0": 1 } }) else {
        panic!("a change in place");
    };
    let plain = change.statement(&shape(), &found()).unwrap();
    let statement = change.statement_or_miss(&shape(), &found()).unwrap();
    let condition = |statement: &RawDocument| {
        get(get(statement, "q")?.as_document()?, "$expr")?
            .as_document()
            .map(ToOwned::to_owned)
    };
    let choice = condition(&statement).unwrap();
    let choice = get(&choice, "$cond").and_then(RawBsonRef::as_document).unwrap();
    assert_eq!(
        get(choice, "if")
            .and_then(RawBsonRef::as_document)
            .map(ToOwned::to_owned),
        condition(&plain)
    );
    assert_eq!(get(choice, "then").and_then(RawBsonRef::as_bool), Some(true));
    // The condition is false on other pages, because mongod may use the index on the key.
    let of_page = rawdoc! { "$cond": {
        "if": { "$ne": ["$_id", { "$literal": found().bucket }] }, "then": false, "else": miss(),
    } };
    assert_eq!(get(choice, "else").and_then(RawBsonRef::as_document), Some(&*of_page));
    assert_eq!(get(&statement, "u"), get(&plain, "u"));
    let error = WriteError {
        code: 241,
        ..WriteError::new(ErrorCode::BadValue, "")
    };
    assert!(is_miss(&error) && !is_miss(&WriteError::new(ErrorCode::BadValue, "")));
}

#[test]
fn an_item_that_was_claimed_is_found_in_the_image_of_its_bucket() {
    let found = found();
    let image = rawdoc! {
        "_id": "5_1", "k": 5, "count": 3, "control": { "v": 1, "page": 0, "changed": 2 },
        "history": [{ "_id": 8 }, { "_id": 9 }, { "_id": 1, "t": bson::DateTime::from_millis(7), "a": { "b": 1 }, "qty": 2, "x": [1] }],
    };
    let claimed = LocatedItem::claimed(&shape(), &image).unwrap();
    assert_eq!((claimed.place, claimed.count, claimed.page), (2, 3, 0));
    assert_eq!(
        (&claimed.stored, &claimed.item, &claimed.key),
        (&found.stored, &found.item, &found.key)
    );
    assert!(
        LocatedItem::claimed(
            &shape(),
            &rawdoc! { "_id": "5_1", "k": 5, "control": { "v": 1, "page": 0 }, "history": [{}] }
        )
        .is_none()
    );
    assert!(
        LocatedItem::claimed(
            &shape(),
            &rawdoc! { "_id": "5_1", "k": 5, "control": { "v": 1, "page": 0, "changed": 1 }, "history": [{}] }
        )
        .is_none()
    );
    let arguments = claim(&shape(), &found).unwrap();
    assert_eq!(
        get(&arguments, "query"),
        Some(RawBsonRef::Document(
            &InPlace::new(rawdoc! {}).filter(&shape(), &found, Demand::Item).unwrap()
        ))
    );
}

#[test]
fn a_change_is_recognised_by_its_kind() {
    let operators = rawdoc! { "$set": { "a": 1 } };
    assert!(
        matches!(Wish::of(RawBsonRef::Document(&operators)), Some(Wish::Operators(change)) if change == &*operators)
    );
    for replacement in [rawdoc! {}, rawdoc! { "a": 1, "$set": 2 }] {
        let wish = Wish::of(RawBsonRef::Document(&replacement));
        assert!(
            matches!(wish, Some(Wish::Replacement(change)) if change == &*replacement),
            "{replacement:?}"
        );
    }
    let stages = RawArrayBuf::new();
    assert!(matches!(Wish::of(RawBsonRef::Array(&stages)), Some(Wish::Pipeline(_))));
    assert!(Wish::of(RawBsonRef::Int32(1)).is_none());
}
