use bson::rawdoc;

use super::*;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn query(item_ids: ItemIds, filter: &RawDocument, sort: Option<&RawDocument>) -> Option<BucketQuery> {
    let options = BucketOptions {
        time: Some("t".to_owned()),
        item_ids,
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    let find = Find {
        filter: Some(filter),
        sort,
        ..Find::default()
    };
    BucketQuery::of(&BucketShape::new(options).unwrap(), &find)
}

#[test]
fn one_item_is_found_by_an_id_that_no_other_has() {
    let filter = rawdoc! { "_id": 5.0, "k": 1 };
    let found = query(ItemIds::Unique, &filter, None).unwrap();
    let expected = ItemById {
        id: RawBson::Int32(5),
        path: "history._id".to_owned(),
        filter: rawdoc! {
            "$and": [
                { "k": { "$eq": 1 } },
                { "history._id": 5.0 },
                { "count": { "$gt": 0 } },
                { "control.v": { "$gte": 1 } },
            ],
        },
        has_other_conditions: true,
    };
    assert_eq!(found.keys, Keys::Item(expected));
    assert_eq!((found.limit, found.is_of_one_item()), (Some(1), true));
    for item_ids in [ItemIds::Stored, ItemIds::Dropped] {
        assert!(query(item_ids, &filter, None).is_none(), "{item_ids:?}");
    }
    let sort = rawdoc! { "t": 1 };
    for item_ids in [ItemIds::Unique, ItemIds::Stored] {
        assert!(query(item_ids, &filter, Some(&sort)).is_none(), "{item_ids:?}");
    }
}

#[test]
fn a_key_has_several_items() {
    for filter in [rawdoc! {}, rawdoc! { "k": 1 }, rawdoc! { "k": { "$gt": 1 } }] {
        let found = query(ItemIds::Unique, &filter, None).unwrap();
        assert!(!found.is_of_one_item(), "{filter:?}");
    }
}
