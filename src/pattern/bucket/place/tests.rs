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

fn found() -> Found {
    let answer = rawdoc! {
        "bucket": "5_1", "page": 0, "count": 3, "place": 2_i64, "key": { "k": 5 }, "control": { "v": 1 },
        "stored": { "_id": 1, "t": bson::DateTime::from_millis(7), "a": { "b": 1 }, "qty": 2, "x": [1] },
    };
    Found::parse(&shape(), &answer).unwrap()
}

fn operators(update: &RawDocument) -> Result<Planned, String> {
    of_operators(&shape(), &found(), (update, None, None), &mut FixedMint)
}

#[test]
fn operators_go_to_the_items_place() {
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
fn what_an_item_is_already_is_no_change() {
    let same =
        rawdoc! { "$set": { "k": 5, "t": bson::DateTime::from_millis(7) }, "$unset": {}, "$rename": { "n": "m" } };
    assert!(matches!(operators(&same), Ok(Planned::Unchanged { counted: false })));
}

#[test]
fn an_item_with_a_key_of_its_own_is_no_other_for_it() {
    let own = Found {
        stored: rawdoc! { "_id": 1, "n": 2, "k": 5.0 },
        item: rawdoc! { "_id": 1, "k": 5.0, "n": 2 },
        ..found()
    };
    let planned = of_operators(
        &shape(),
        &own,
        (&rawdoc! { "$max": { "k": 4 } }, None, None),
        &mut FixedMint,
    );
    assert!(matches!(planned, Ok(Planned::Unchanged { counted: false })));
}

#[test]
fn what_decides_where_an_item_lies_is_told_apart() {
    let key = |planned| matches!(planned, Ok(Planned::Elsewhere(Elsewhere::Key(_))));
    let time = |planned| matches!(planned, Ok(Planned::Elsewhere(Elsewhere::Time(_))));
    assert!(key(operators(&rawdoc! { "$set": { "k": 6 } })));
    // The same key, which the item holds in its own way; the same time.
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
fn what_cannot_be_done_is_refused() {
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
fn added_fields_come_in_the_order_of_their_names() {
    let bare = Found {
        stored: rawdoc! { "_id": 1, "t": bson::DateTime::from_millis(7) },
        item: rawdoc! { "_id": 1, "k": 5, "t": bson::DateTime::from_millis(7) },
        ..found()
    };
    let planned = |update: &RawDocument| of_operators(&shape(), &bare, (update, None, None), &mut FixedMint);
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
    let deep = Found {
        stored: deep,
        ..found()
    };
    assert!(change.filter(&shape(), &deep, Demand::Item).is_err());
}

#[test]
fn the_bucket_is_told_which_item_it_was() {
    let mut change = InPlace::new(rawdoc! { "$inc": { "history.2.a": 1 } });
    change.tell_place(&found());
    assert_eq!(
        change.update,
        rawdoc! { "$inc": { "history.2.a": 1 }, "$set": { "control.changed": 2_i64 } }
    );
}
