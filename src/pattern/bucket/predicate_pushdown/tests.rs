use bson::rawdoc;

use bson::raw::RawArrayBuf;

use super::*;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn narrowing(filter: &RawDocument) -> BucketPredicate {
    let options = BucketOptions {
        rename: [("quantity".to_owned(), "qty".to_owned())].into(),
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketPredicate::of(&BucketShape::new(options).unwrap(), Some(filter))
}

fn check<'a>(filter: &RawDocument, buckets: impl IntoIterator<Item = &'a RawDocumentBuf>) {
    let clauses: Vec<RawDocumentBuf> = buckets.into_iter().cloned().collect();
    assert_eq!(narrowing(filter).clauses(), clauses, "{filter:?}");
}

fn of_items(condition: RawDocumentBuf) -> [RawDocumentBuf; 2] {
    [condition, rawdoc! { "count": { "$gt": 0 } }]
}

#[test]
fn item_conditions_become_elem_match() {
    check(
        &rawdoc! { "a": 1 },
        &of_items(rawdoc! { "history": { "$elemMatch": { "a": 1 } } }),
    );
    check(
        &rawdoc! { "_id": 1 },
        &of_items(rawdoc! { "history": { "$elemMatch": { "_id": 1 } } }),
    );
    check(
        &rawdoc! { "quantity.x": 1 },
        &of_items(rawdoc! { "history": { "$elemMatch": { "qty.x": 1 } } }),
    );
    check(
        &rawdoc! { "qty": 1 },
        &of_items(rawdoc! { "history": { "$elemMatch": { "quantity": 1 } } }),
    );
    check(
        &rawdoc! { "$or": [{ "a": 1 }, { "quantity": 2 }] },
        &of_items(rawdoc! { "history": { "$elemMatch": { "$or": [{ "a": 1 }, { "qty": 2 }] } } }),
    );
    check(
        &rawdoc! { "$and": [{ "a": 1 }, { "b": 2 }], "$comment": "c" },
        &of_items(rawdoc! { "history": { "$elemMatch": { "a": 1, "b": 2 } } }),
    );
}

#[test]
fn condition_without_elem_match_form_is_not_pushed_down() {
    check(&rawdoc! {}, None);
    check(&rawdoc! { "$expr": { "$eq": ["$a", 1] } }, None);
    check(&rawdoc! { "$jsonSchema": {} }, None);
    check(&rawdoc! { "$or": [{ "a": 1 }, { "k": 2 }] }, None);
    check(&rawdoc! { "$or": [{ "a": 1 }, { "$expr": true }] }, None);
    check(&rawdoc! { "a": { "$near": [0, 0] } }, None);
    check(&rawdoc! { "": { "$elemMatch": { "x": 1 } } }, None);
    check(&rawdoc! { "a": { "$elemMatch": { "": 1 } } }, None);
    check(&rawdoc! { "a..b": 1 }, None);
}

#[test]
fn key_conditions_that_compare_by_value_are_pushed_down() {
    check(&rawdoc! { "k": 1 }, Some(&rawdoc! { "k": { "$eq": 1 } }));
    check(&rawdoc! { "k": { "$eq": 1 } }, Some(&rawdoc! { "k": { "$eq": 1 } }));
    check(
        &rawdoc! { "k": { "$gt": 1, "$lte": 5 } },
        Some(&rawdoc! { "k": { "$gt": 1, "$lte": 5 } }),
    );
    check(
        &rawdoc! { "k": { "$in": [1, "a", null] } },
        Some(&rawdoc! { "k": { "$in": [1, "a", null] } }),
    );
    // An item may have its own key value of another type.
    check(&rawdoc! { "k": { "$type": "double" } }, None);
    check(
        &rawdoc! { "k": { "$in": [bson::Regex { pattern: bson::raw::cstr!("a").into(), options: bson::raw::cstr!("").into() }] } },
        None,
    );
    check(&rawdoc! { "k": [1] }, None);
    check(&rawdoc! { "k.x": 1 }, None);
    check(&rawdoc! { "k": { "$ne": 1 } }, None);
}

#[test]
fn filter_on_one_key_is_recognised() {
    let only = |filter: &RawDocument| narrowing(filter).only_one_key();
    assert_eq!(only(&rawdoc! { "k": 1 }), Some(rawdoc! { "k": { "$eq": 1 } }));
    assert_eq!(
        only(&rawdoc! { "$and": [{ "k": { "$eq": "x" } }] }),
        Some(rawdoc! { "k": { "$eq": "x" } })
    );
    assert_eq!(only(&rawdoc! { "k": null }), Some(rawdoc! { "k": { "$eq": null } }));
    for other in [
        rawdoc! { "k": 1, "a": 1 },
        rawdoc! { "k": { "$gt": 1 } },
        rawdoc! { "k": { "$eq": 1, "$lt": 1 } },
        rawdoc! { "$and": [{ "k": 1 }, { "k": 2 }] },
        rawdoc! {},
    ] {
        assert_eq!(only(&other), None, "{other:?}");
    }
    for refused in [
        rawdoc! { "k": 1, "$and": [] },
        rawdoc! { "k": 1, "$and": [1] },
        rawdoc! { "k": 1, "$and": {} },
    ] {
        assert_eq!(only(&refused), None, "{refused:?}");
    }
    assert!(narrowing(&rawdoc! { "k": 1, "a": 1 }).one_key().is_some());
}

#[test]
fn a_key_set_equal_to_a_variable_narrows() {
    let clause = |sides: [&str; 2]| {
        let sides: RawArrayBuf = sides.into_iter().collect();
        rawdoc! { "$or": [{ "$expr": { "$eq": sides } }, { "k": RawBson::Null }] }
    };
    for sides in [["$k", "$$v"], ["$$v.x", "$k"]] {
        let equal: RawArrayBuf = sides.into_iter().collect();
        check(&rawdoc! { "$expr": { "$eq": equal.clone() } }, Some(&clause(sides)));
        let more = rawdoc! { "$expr": { "$and": [{ "$gt": ["$a", 1] }, { "$eq": equal }] } };
        check(&more, Some(&clause(sides)));
    }
    for sides in [
        ["$k", "$x"],
        ["$a", "$$v"],
        ["$k", "$$ROOT"],
        ["$k.a", "$$v"],
        ["$k", "v"],
    ] {
        let equal: RawArrayBuf = sides.into_iter().collect();
        check(&rawdoc! { "$expr": { "$eq": equal } }, None);
    }
    let only = narrowing(&rawdoc! { "$expr": { "$eq": ["$k", "$$v"] } });
    assert!(!only.is_of_key_alone() && only.one_key().is_none());
}

#[test]
fn a_bucket_has_a_matching_item_where_the_filter_is_on_items_alone_or_on_the_key_too() {
    for filter in [
        rawdoc! { "a": 1 },
        rawdoc! { "k": 1, "quantity": { "$gt": 1 } },
        rawdoc! { "_id": 1 },
    ] {
        assert!(narrowing(&filter).guarantees_matching_item(), "{filter:?}");
    }
    // A page may be empty.
    for filter in [
        rawdoc! {},
        rawdoc! { "k": 1 },
        rawdoc! { "a": 1, "$expr": true },
        rawdoc! { "$or": [{ "k": 1 }, { "a": 1 }] },
    ] {
        assert!(!narrowing(&filter).guarantees_matching_item(), "{filter:?}");
    }
}

#[test]
fn a_match_on_pages_is_of_this_layout_and_of_a_write_of_any() {
    let found = narrowing(&rawdoc! { "k": 1, "a": 2 });
    let matching = |version: RawDocumentBuf| {
        let clauses = rawdoc! {
            "$and": [
                { "control.v": version }, { "k": { "$eq": 1 } }, { "history": { "$elemMatch": { "a": 2 } } },
                { "count": { "$gt": 0 } },
            ],
        };
        rawdoc! { "$match": clauses }
    };
    assert_eq!(found.bucket_match(), matching(rawdoc! { "$gte": 1, "$lte": 1 }));
    assert_eq!(found.write_match(), matching(rawdoc! { "$gte": 1 }));
}

#[test]
fn a_filter_of_more_than_1_mib_is_not_repeated_for_buckets() {
    let filter = |length: usize| rawdoc! { "a": "x".repeat(length) };
    let longest = (1 << 20) - filter(0).as_bytes().len();
    for (length, is_repeated) in [(longest, true), (longest + 1, false)] {
        let found = narrowing(&filter(length));
        assert_eq!(!found.clauses().is_empty(), is_repeated);
        assert_eq!(found.guarantees_matching_item(), is_repeated);
    }
}

#[test]
fn filter_on_one_id_is_recognised() {
    let one = RawBson::Int32(1);
    for (filter, is_one) in [
        (rawdoc! { "_id": 1 }, true),
        (rawdoc! { "_id": { "$eq": 1 }, "k": { "$gt": 1 } }, true),
        (rawdoc! { "_id": 1, "a": 1 }, false),
        (rawdoc! { "_id": { "$gt": 1 } }, false),
        (rawdoc! { "k": 1 }, false),
    ] {
        assert_eq!(narrowing(&filter).only_one_id(), is_one.then_some(&one), "{filter:?}");
    }
}

#[test]
fn a_key_is_compared_with_a_document_or_null_only_as_a_whole() {
    check(
        &rawdoc! { "k": { "x": 1 } },
        Some(&rawdoc! { "k": { "$eq": { "x": 1 } } }),
    );
    check(&rawdoc! { "k": {} }, Some(&rawdoc! { "k": { "$eq": {} } }));
    check(
        &rawdoc! { "k": { "$eq": 1, "$lt": 5 } },
        Some(&rawdoc! { "k": { "$eq": 1, "$lt": 5 } }),
    );
    for value in [RawBson::Null, rawdoc! { "x": 1 }.into()] {
        check(&rawdoc! { "k": { "$gt": value.clone() } }, None);
        check(&rawdoc! { "k": { "$lte": value } }, None);
    }
    check(&rawdoc! { "k": { "$gt": [1] } }, None);
}
