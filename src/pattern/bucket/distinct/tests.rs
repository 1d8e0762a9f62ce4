use bson::rawdoc;

use super::*;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn shape() -> BucketShape {
    let options = BucketOptions {
        rename: [("quantity".to_owned(), "qty".to_owned())].into(),
        ..BucketOptions::new(
            NamespacePattern::parse("d.c").unwrap(),
            vec!["k".into(), "region".into()],
        )
    };
    BucketShape::new(options).unwrap()
}

#[test]
fn mongod_finds_the_values_of_a_path_of_names() {
    let page = rawdoc! { "$expr": { "$in": ["$control.v", [1]] } };
    for (path, stored) in [
        ("a.b", "history.a.b"),
        ("quantity.x", "history.qty.x"),
        ("_id", "history._id"),
    ] {
        let expected = rawdoc! { "distinct": "c", "key": stored, "query": page.clone() };
        assert_eq!(of_stored_path(&shape(), "c", path), Some(expected), "{path}");
    }
    for path in ["k", "k.x", "region", "a.0", "0", "a.00.b"] {
        assert_eq!(of_stored_path(&shape(), "c", path), None, "{path}");
    }
}

#[test]
fn the_first_key_field_has_its_values_on_first_pages() {
    let stages = of_first_pages(&shape(), "k").unwrap();
    assert_eq!(
        stages[0],
        rawdoc! { "$sort": { "k": 1, "region": 1, "control.page": 1 } }
    );
    assert_eq!(of_first_pages(&shape(), "region"), None);
    assert_eq!(of_first_pages(&shape(), "a"), None);
}

#[test]
fn a_first_page_without_items_or_of_null_does_not_show_all() {
    assert!(is_first_page(&rawdoc! { "_id": 1, "v": 1, "n": 2 }));
    for document in [
        rawdoc! { "_id": 1, "v": 1, "n": 0 },
        rawdoc! { "_id": 1, "v": 1 },
        rawdoc! { "_id": RawBson::Null, "n": 2 },
    ] {
        assert!(!is_first_page(&document), "{document:?}");
    }
}
