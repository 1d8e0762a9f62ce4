use bson::rawdoc;

use super::*;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn shape() -> BucketShape {
    let options = BucketOptions {
        rename: [("quantity".to_owned(), "qty".to_owned())].into(),
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketShape::new(options).unwrap()
}

#[test]
fn located_item_is_parsed_with_its_position() {
    let answer = |version: i32| {
        rawdoc! {
            "bucket": "5_1", "page": 3, "count": 7, "place": 2_i64, "key": { "k": 5 }, "control": { "v": version },
            "stored": { "_id": 1, "qty": 2 },
        }
    };
    assert!(LocatedItem::parse(&shape(), &answer(2)).is_none());
    let found = LocatedItem::parse(&shape(), &answer(1)).unwrap();
    assert_eq!((found.page, found.count, found.place), (3, 7, 2));
    assert_eq!(found.item, rawdoc! { "_id": 1, "k": 5, "quantity": 2 });
    assert!(LocatedItem::parse(&shape(), &rawdoc! { "bucket": 1 }).is_none());
}

#[test]
fn located_item_is_one_of_all_items() {
    let answer = rawdoc! {
        "bucket": "5_1", "page": 3, "count": 2, "place": 1_i64, "key": { "k": 5 }, "control": { "v": 1 },
        "all": [{ "_id": 1 }, { "_id": 2, "qty": 2 }],
    };
    let found = LocatedItem::parse(&shape(), &answer).unwrap();
    assert_eq!(found.item, rawdoc! { "_id": 2, "k": 5, "quantity": 2 });
    assert!(found.all_items.is_some());
}

#[test]
fn added_field_has_no_name_of_the_client() {
    let filter = rawdoc! { "mongoshapePlace": 1 };
    let wanted = ItemSelector {
        filter: Some(&filter),
        ..ItemSelector::default()
    };
    assert_eq!(place_field(&shape(), wanted), "mongoshapePlace00000000");
    assert_eq!(place_field(&shape(), ItemSelector::default()), "mongoshapePlace");
}

#[test]
fn filter_that_could_read_the_added_field_is_refused() {
    for filter in [
        rawdoc! { "$expr": { "$eq": [{ "$size": { "$objectToArray": "$$ROOT" } }, 2] } },
        rawdoc! { "$and": [{ "$expr": "$$CURRENT" }] },
        rawdoc! { "$text": { "$search": "a" } },
        rawdoc! { "$or": [{ "$jsonSchema": { "maxProperties": 3 } }] },
        rawdoc! { "$nor": [{ "$jsonSchema": { "properties": {}, "additionalProperties": false } }] },
    ] {
        assert!(unsupported(&filter).is_some(), "{filter:?}");
    }
    for filter in [
        rawdoc! { "$jsonSchema": { "required": ["a"] } },
        rawdoc! { "$expr": "$a" },
        rawdoc! { "maxProperties": 1 },
    ] {
        assert_eq!(unsupported(&filter), None, "{filter:?}");
    }
}
