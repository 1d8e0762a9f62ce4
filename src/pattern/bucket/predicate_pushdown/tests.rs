use bson::rawdoc;

use bson::raw::RawArrayBuf;

use super::*;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn shape() -> BucketShape {
    let options = BucketOptions {
        rename: [("quantity".to_owned(), "qty".to_owned())].into(),
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketShape::new(options).unwrap()
}

fn narrowing(filter: &RawDocument) -> BucketPredicate {
    BucketPredicate::of(&shape(), Some(filter))
}

fn check<'a>(filter: &RawDocument, buckets: impl IntoIterator<Item = &'a RawDocumentBuf>) {
    let clauses: Vec<RawDocumentBuf> = buckets.into_iter().cloned().collect();
    assert_eq!(narrowing(filter).clauses(), clauses, "{filter:?}");
}

fn of_items(condition: RawDocumentBuf) -> [RawDocumentBuf; 2] {
    [condition, rawdoc! { "count": { "$gt": 0 } }]
}

#[test]
fn item_conditions_other_than_one_id_become_elem_match() {
    check(
        &rawdoc! { "a": 1 },
        &of_items(rawdoc! { "history": { "$elemMatch": { "a": 1 } } }),
    );
    check(&rawdoc! { "_id": 1 }, &of_items(rawdoc! { "history._id": 1 }));
    check(
        &rawdoc! { "_id": 1, "a": 2 },
        &of_items(rawdoc! { "history": { "$elemMatch": { "_id": 1, "a": 2 } } }),
    );
    check(
        &rawdoc! { "_id": { "$gt": 1, "$lt": 3 } },
        &of_items(rawdoc! { "history": { "$elemMatch": { "_id": { "$gt": 1, "$lt": 3 } } } }),
    );
    // The condition on the `_id` is left out.
    check(
        &rawdoc! { "_id": { "": 1 }, "a": { "$ne": 2 } },
        &of_items(rawdoc! { "history": { "$elemMatch": { "a": { "$ne": 2 } } } }),
    );
    check(
        &rawdoc! { "_id": 1, "$and": [{ "_id": { "$ne": 2 } }] },
        &of_items(rawdoc! { "history": { "$elemMatch": { "_id": 1, "$and": [{ "_id": { "$ne": 2 } }] } } }),
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
    check(
        &rawdoc! { "$and": [{ "a": 1 }, { "b": 2 }, { "a": 3 }], "b": 4 },
        &of_items(rawdoc! { "history": { "$elemMatch": { "a": 1, "b": 2, "$and": [{ "a": 3 }, { "b": 4 }] } } }),
    );
}

#[test]
fn conditions_on_stored_items_are_those_of_the_elem_match() {
    let check = |filter: RawDocumentBuf, expected: RawDocumentBuf| {
        assert_eq!(narrowing(&filter).stored_conditions(&shape()), expected, "{filter:?}");
    };
    check(rawdoc! {}, rawdoc! {});
    check(rawdoc! { "k": 1, "$expr": { "$eq": ["$a", 1] } }, rawdoc! {});
    check(
        rawdoc! { "_id": { "$in": [1, 2] }, "k": 1, "$expr": { "$eq": ["$a", 1] } },
        rawdoc! { "history._id": { "$in": [1, 2] } },
    );
    check(
        rawdoc! { "$or": [{ "quantity": 1 }, { "a.b": { "$gt": 2 } }] },
        rawdoc! { "$or": [{ "history.qty": 1 }, { "history.a.b": { "$gt": 2 } }] },
    );
}

#[test]
fn condition_without_elem_match_form_is_not_pushed_down() {
    check(&rawdoc! {}, None);
    check(&rawdoc! { "$expr": { "$eq": ["$a", 1] } }, None);
    check(&rawdoc! { "$jsonSchema": {} }, None);
    check(&rawdoc! { "$or": [{ "a": 1 }, { "$expr": true }] }, None);
    check(&rawdoc! { "$or": [{ "k": 1 }, { "$expr": true }] }, None);
    check(&rawdoc! { "$or": [{ "k": 1 }, {}] }, None);
    check(&rawdoc! { "$or": [{ "k": 1 }, { "k": { "$ne": 1 } }] }, None);
    check(&rawdoc! { "$nor": [{ "k": 1 }] }, None);
    check(&rawdoc! { "a": { "$near": [0, 0] } }, None);
    check(&rawdoc! { "": { "$elemMatch": { "x": 1 } } }, None);
    check(&rawdoc! { "a": { "$elemMatch": { "": 1 } } }, None);
    check(&rawdoc! { "a..b": 1 }, None);
}

#[test]
fn a_disjunction_is_pushed_down_if_each_branch_implies_a_condition() {
    check(
        &rawdoc! { "$or": [{ "k": 1 }, { "k": { "$gt": 5, "$lt": 9 } }] },
        Some(&rawdoc! { "$or": [{ "k": { "$eq": 1 } }, { "k": { "$gt": 5, "$lt": 9 } }] }),
    );
    let of_items = rawdoc! { "$and": [
        { "history": { "$elemMatch": { "a": 1, "qty": 2 } } }, { "count": { "$gt": 0 } },
        { "control.v": { "$gte": 1 } },
    ] };
    let of_both = rawdoc! { "$and": [
        { "k": { "$eq": 2 } }, { "history": { "$elemMatch": { "b": 3 } } }, { "count": { "$gt": 0 } },
        { "control.v": { "$gte": 1 } },
    ] };
    let divided = rawdoc! { "$or": [of_items, of_both] };
    let filter = rawdoc! { "$or": [{ "a": 1, "quantity": 2 }, { "$and": [{ "k": 2 }, { "b": 3, "$expr": true }] }] };
    check(&filter, Some(&divided));
    check(
        &rawdoc! { "$and": [filter.clone(), { "$comment": "c" }] },
        Some(&divided),
    );
    assert!(!narrowing(&filter).is_of_key_alone() && !narrowing(&filter).guarantees_matching_item());
    // A branch with a disjunction has its other conditions.
    check(
        &rawdoc! { "$or": [{ "k": 1 }, { "k": { "$gte": 2 }, "$or": [{ "a": 1 }, { "k": 3 }] }] },
        Some(&rawdoc! { "$or": [{ "k": { "$eq": 1 } }, { "k": { "$gte": 2 } }] }),
    );
    check(
        &rawdoc! { "$or": [{ "k": 1 }, { "$or": [{ "a": 1 }, { "k": 3 }] }] },
        None,
    );
}

#[test]
fn a_pattern_of_a_key_is_pushed_down_and_matched_on_items_again() {
    let pattern = || {
        RawBson::RegularExpression(bson::Regex {
            pattern: bson::raw::cstr!("^a").into(),
            options: bson::raw::cstr!("").into(),
        })
    };
    for condition in [
        pattern(),
        rawdoc! { "$in": ["b", pattern()] }.into(),
        rawdoc! { "$regex": "^a", "$options": "i" }.into(),
        rawdoc! { "$gt": "a", "$regex": pattern() }.into(),
    ] {
        let filter = rawdoc! { "k": condition };
        check(&filter, Some(&filter));
        let found = narrowing(&filter);
        assert!(!found.is_of_key_alone() && found.only_keys().is_none() && found.of_unwound(&shape()).is_none());
    }
    for condition in [
        rawdoc! { "$not": pattern() },
        rawdoc! { "$regex": 1 },
        rawdoc! { "$in": [[pattern()]] },
    ] {
        check(&rawdoc! { "k": condition }, None);
    }
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
fn a_list_of_keys_is_not_repeated_for_buckets_if_a_command_has_no_room_for_it_twice() {
    let filter = |length: usize, other: &str| rawdoc! { "k": { "$in": ["x".repeat(length)] }, "a": other };
    let half = (14 << 20) / 2;
    let (fitting, large) = (filter(half - 1000, "y"), filter(half, "y"));
    assert_eq!(narrowing(&fitting).clauses().len(), 3);
    for filter in [large, rawdoc! { "k": { "$in": ["x".repeat(half)] } }] {
        let found = narrowing(&filter);
        assert!(found.clauses().is_empty() && !found.is_of_key_alone() && found.only_keys().is_none());
        assert!(!found.has_key_conditions() && found.exactly_one_id().is_none());
    }
    // A short condition on the key is repeated beside any other.
    let found = narrowing(&rawdoc! { "k": 1, "a": "x".repeat(15 << 20) });
    check(&rawdoc! { "k": 1 }, found.clauses());
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
