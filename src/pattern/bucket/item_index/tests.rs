use bson::rawdoc;

use super::*;
use crate::command::document::single;
use crate::pattern::bucket::readable_indexes::ReadableIndexes;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn shape() -> BucketShape {
    let namespace = NamespacePattern::parse("shop.trades").unwrap();
    let options = BucketOptions {
        rename: [("quantity".to_owned(), "qty".to_owned())].into(),
        ..BucketOptions::new(namespace, vec!["customer".to_owned(), "day".to_owned()])
    };
    BucketShape::new(options).unwrap()
}

#[test]
fn key_patterns_are_stored_and_returned() {
    let shape = shape();
    for (application, is_stored) in [
        (rawdoc! { "customer": 1 }, rawdoc! { "customer": 1 }),
        (
            rawdoc! { "customer.name": -1 },
            rawdoc! { "control.v": 1, "customer.name": -1 },
        ),
        (
            rawdoc! { "customers": 1 },
            rawdoc! { "control.v": 1, "history.customers": 1 },
        ),
        (
            rawdoc! { "day": 1, "quantity": -1.0, "price.net": 2 },
            rawdoc! { "day": 1, "history.qty": -1.0, "history.price.net": 2 },
        ),
        (rawdoc! { "qty": 1 }, rawdoc! { "control.v": 1, "history.quantity": 1 }),
        (
            rawdoc! { "a.quantity": 1 },
            rawdoc! { "control.v": 1, "history.a.quantity": 1 },
        ),
        (
            rawdoc! { "history.a": 1 },
            rawdoc! { "control.v": 1, "history.history.a": 1 },
        ),
        (
            rawdoc! { "count": 1, "_id": 1 },
            rawdoc! { "control.v": 1, "history.count": 1, "history._id": 1 },
        ),
        (rawdoc! { "_id": 1 }, rawdoc! { "_id": 1 }),
        (rawdoc! { "_id": -2 }, rawdoc! { "control.v": 1, "history._id": -2 }),
    ] {
        let name = if is_id_key(&application) { ID } else { "x" };
        let spec = rawdoc! { "v": 2, "key": application, "name": name, "hidden": true };
        let made = stored(&shape, &spec).unwrap();
        assert_eq!(key(&made), &*is_stored);
        assert_eq!(as_application_sees(&shape, &made).unwrap(), spec);
    }
}

fn shape_with_time() -> BucketShape {
    let options = BucketOptions {
        time: Some("at".to_owned()),
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into(), "l".into()])
    };
    BucketShape::new(options).unwrap()
}

#[test]
fn indexes_on_the_whole_key_and_the_time_are_stored_on_pages() {
    let shape = shape_with_time();
    for (application, on_pages) in [
        (
            rawdoc! { "k": 1, "l": -1, "at": -1.0 },
            Some(rawdoc! { "k": 1, "l": -1, "control.page": -1.0, "control.v": 1 }),
        ),
        (
            rawdoc! { "l": 1, "k": 1, "at": 1 },
            Some(rawdoc! { "l": 1, "k": 1, "control.page": 1, "control.v": 1 }),
        ),
        (rawdoc! { "k": 1, "at": 1 }, None),
        (rawdoc! { "k": 1, "at": 1, "l": 1 }, None),
        (rawdoc! { "k": 1, "l": 1 }, None),
        (rawdoc! { "k": 1, "l": 1, "at": 1, "n": 1 }, None),
        (rawdoc! { "k": 1, "l": 1, "n": 1 }, None),
    ] {
        let spec = rawdoc! { "v": 2, "key": application.clone(), "name": "x" };
        let made = stored(&shape, &spec).unwrap();
        let indexes = ReadableIndexes::of(&shape, [&*made].into_iter());
        assert_eq!(
            indexes.on_key_and_time.len(),
            usize::from(on_pages.is_some()),
            "{application:?}"
        );
        assert_eq!(
            indexes.on_items.len(),
            usize::from(on_pages.is_none()),
            "{application:?}"
        );
        if let Some(on_pages) = on_pages {
            assert_eq!(key(&made), &*on_pages);
        }
        assert_eq!(as_application_sees(&shape, &made).unwrap(), spec);
        assert_eq!(current_form(&shape, &made).unwrap(), made);
    }
}

#[test]
fn an_index_of_an_earlier_version_keeps_its_form_until_it_is_renewed() {
    let shape = shape_with_time();
    let earlier = rawdoc! { "v": 2, "key": { "k": 1, "l": 1, "history.at": -1 }, "name": "x" };
    let spec = rawdoc! { "v": 2, "key": { "k": 1, "l": 1, "at": -1 }, "name": "x" };
    assert_eq!(as_application_sees(&shape, &earlier).unwrap(), spec);
    let indexes = Indexes::of(&shape, [&*earlier].into_iter());
    let current = stored(&shape, &spec).unwrap();
    assert_eq!(indexes.as_there(&current), earlier);
    assert_eq!(current_form(&shape, &earlier).unwrap(), current);
    let readable = ReadableIndexes::of(&shape, [&*earlier].into_iter());
    assert_eq!(readable.on_items.len(), 1);
}

#[test]
fn indexes_on_pages_that_the_application_has_not_created_are_not_its_own() {
    let shape = shape_with_time();
    for key in [
        rawdoc! { "k": 1, "l": 1, "control.page": 1 },
        rawdoc! { "k": 1, "control.page": 1, "control.v": 1 },
        rawdoc! { "control.v": 1, "k": 1, "l": 1, "control.page": 1 },
        rawdoc! { "k": 1, "l": 1, "control.page": "hashed", "control.v": 1 },
    ] {
        let spec = rawdoc! { "v": 2, "key": key, "name": "x" };
        assert_eq!(as_application_sees(&shape, &spec), None, "{spec:?}");
    }
}

#[test]
fn unsupported_index_kinds_are_refused() {
    let shape = shape();
    let of = |key: RawDocumentBuf| rawdoc! { "key": key, "name": "x" };
    for (spec, reason) in [
        (of(rawdoc! { "a": "text" }), "text"),
        (
            rawdoc! { "key": { "a": "2dsphere" }, "unique": true },
            "a unique geospatial",
        ),
        (of(rawdoc! { "customer": "hashed" }), "hashed"),
        (of(rawdoc! { "b": 1, "0": 1 }), "number"),
        (of(rawdoc! { "12.a": 1 }), "number"),
        (rawdoc! { "key": { "a.0": 1 }, "unique": true }, "number"),
        (
            rawdoc! { "key": { "a": 1 }, "unique": true, "sparse": true },
            "a sparse unique",
        ),
        (
            rawdoc! { "key": { "a": 1 }, "partialFilterExpression": {}, "expireAfterSeconds": 5 },
            "a partial index with expireAfterSeconds",
        ),
        (
            rawdoc! { "key": { "a": 1 }, "unique": true, "collation": { "locale": "de" } },
            "collation",
        ),
        (rawdoc! { "key": { "a": 1 }, "storageEngine": {} }, "storageEngine"),
    ] {
        let refused = stored(&shape, &spec).unwrap_err();
        assert!(refused.contains(reason), "{spec:?}: {refused}");
    }
    let mut twice = of(rawdoc! { "_id": 1 });
    put(&mut twice, "key", &rawdoc! { "a": 1 });
    assert!(stored(&shape, &twice).unwrap_err().contains("'key' twice"));
    let plain = rawdoc! { "key": { "control.v": 1, "history.a": 1 }, "name": "x", "sparse": false };
    let spec = rawdoc! {
        "key": { "a": 1 }, "name": "x", "unique": false, "sparse": false, "collation": { "locale": "simple" }, "ns": "a.b",
    };
    assert_eq!(stored(&shape, &spec).unwrap(), plain);
    assert!(stored(&shape, &of(rawdoc! { "a.0": 1, "customer.0": 1 })).is_ok());
}

#[test]
fn internal_indexes_are_not_listed_as_application_indexes() {
    let shape = shape();
    for spec in [
        rawdoc! { "v": 2, "key": { "customer": 1 }, "name": "mongoshape_page" },
        rawdoc! { "v": 2, "key": { "control.page": 1 }, "name": "x" },
        rawdoc! { "v": 2, "key": { "history": 1 }, "name": "x" },
        rawdoc! { "v": 2, "key": { "history.customer": 1 }, "name": "x" },
        rawdoc! { "v": 2, "key": { "history.a": 1 }, "name": "x", "unique": true },
        rawdoc! { "v": 2, "key": { "history.a": 1 }, "name": "x", "sparse": true },
        rawdoc! { "v": 2, "key": { "history.a": "hashed" }, "name": "x" },
        rawdoc! { "v": 2, "key": { "customer": 1, "count": 1 }, "name": "x" },
    ] {
        assert_eq!(as_application_sees(&shape, &spec), None, "{spec:?}");
    }
}

#[test]
fn clustered_index_is_listed_as_the_id_index() {
    let shape = shape();
    let clustered = rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "by id", "unique": true, "clustered": true };
    assert_eq!(as_application_sees(&shape, &clustered), Some(clustered.clone()));
    assert_eq!(stored(&shape, &clustered).unwrap(), clustered);
    let indexes = Indexes::of(&shape, [&*clustered].into_iter());
    let conflict = |spec: RawDocumentBuf| conflict(&indexes, &[&spec]);
    assert!(matches!(
        conflict(rawdoc! { "key": { "a": 1 }, "name": "by id" }),
        Some(Conflict::Clustered(_))
    ));
    assert_eq!(conflict(rawdoc! { "key": { "_id": 1 }, "name": "other" }), None);
    for (of, is_usable) in [
        (rawdoc! { "hint": "by id" }, true),
        (rawdoc! { "hint": "_id_" }, false),
        (rawdoc! { "hint": { "_id": 1 } }, true),
    ] {
        let hint = hint(get(&of, "hint").unwrap()).unwrap();
        assert_eq!(hint.resolve(&indexes) == HintedIndex::Complete, is_usable, "{of:?}");
    }
}

#[test]
fn conflicts_are_found_in_mongods_order() {
    let spec = |field: &str, name: &str| {
        let mut spec = single("key", single(field, 1));
        put(&mut spec, "name", name);
        spec
    };
    let there = Indexes {
        known: vec![spec("_id", ID), spec("a", "a"), spec("b", "b")],
        others: vec!["other".to_owned()],
        ..Indexes::default()
    };
    let check = |wanted: &[RawDocumentBuf], expected: Option<&str>| {
        let wanted: Vec<&RawDocument> = wanted.iter().map(|spec| &**spec).collect();
        let found = conflict(&there, &wanted).map(|conflict| match conflict {
            Conflict::Identical(name) => format!("identical {name}"),
            Conflict::OtherName(name) => format!("name {name}"),
            Conflict::OtherKey(specs) => format!("key {}", name(&specs[1])),
            Conflict::OtherOptions(specs) => format!("options {}", name(&specs[1])),
            Conflict::Clustered(specs) => format!("clustered {}", name(&specs[1])),
            Conflict::Taken(name) => format!("taken {name}"),
            Conflict::TooMany => "too many".to_owned(),
        });
        assert_eq!(found.as_deref(), expected, "{wanted:?}");
    };
    check(&[spec("a", "a"), spec("c", "c"), spec("_id", "x")], None);
    check(&[spec("a", "c")], Some("name a"));
    check(&[spec("a", "b")], Some("key b"));
    check(&[spec("c", "c"), spec("c", "d"), spec("a", "d")], Some("name a"));
    check(&[spec("c", "c"), spec("c", "d")], Some("name c"));
    check(&[spec("c", "c"), spec("c", "c")], Some("identical c"));
    check(&[spec("c", "c"), spec("d", "c")], Some("key c"));
    check(&[spec("a", "a"), spec("a", "a")], None);
    check(&[spec("c", "other")], Some("taken other"));
    let expiring = |field: &str, name: &str| {
        let mut spec = spec(field, name);
        put(&mut spec, "expireAfterSeconds", 60);
        spec
    };
    check(&[expiring("a", "a")], Some("options a"));
    check(&[expiring("a", "z")], Some("options a"));
    check(&[expiring("c", "c"), expiring("c", "c")], Some("identical c"));
    check(&[spec("c", "c"), expiring("c", "c")], Some("options c"));
}

#[test]
fn an_equivalent_index_with_other_geospatial_options_is_a_conflict() {
    let spec = |name: &str| rawdoc! { "key": { "at": "2d" }, "name": name, "bits": 20, "min": -180, "max": 90 };
    let there = Indexes {
        known: vec![spec("at_2d")],
        ..Indexes::default()
    };
    let is_other = |wanted: RawDocumentBuf| match conflict(&there, &[&wanted]) {
        None => false,
        Some(Conflict::OtherOptions(_)) => true,
        other => panic!("{wanted:?}: {other:?}"),
    };
    for (option, value, expected) in [
        ("bits", Some(21), true),
        ("bits", None, true),
        ("max", Some(91), true),
        ("min", Some(-90), true),
        ("bits", Some(20), false),
    ] {
        let replaced = [(option, value.map(RawBsonRef::Int32))];
        assert_eq!(is_other(with_replaced(&spec("at_2d"), &replaced)), expected, "{option}");
    }
    let double = [("bits", Some(RawBsonRef::Double(20.0)))];
    assert!(!is_other(with_replaced(&spec("at_2d"), &double)));
    let renamed = [("name", Some(RawBsonRef::String("new"))), ("bits", None)];
    assert!(is_other(with_replaced(&spec("at_2d"), &renamed)));
}

#[test]
fn a_long_list_of_indexes_is_compared_up_to_mongods_limit() {
    // Comparing each with all others would take minutes.
    let mut specs: Vec<RawDocumentBuf> = (0..100_000)
        .map(|number| {
            let name = format!("f{number}");
            let mut spec = single("key", single(&name, 1));
            put(&mut spec, "name", name.as_str());
            spec
        })
        .collect();
    let there = Indexes {
        known: vec![specs.remove(0)],
        ..Indexes::default()
    };
    let found = |specs: &[RawDocumentBuf]| {
        let wanted: Vec<&RawDocument> = specs.iter().map(|spec| &**spec).collect();
        conflict(&there, &wanted)
    };
    assert_eq!(found(&specs), Some(Conflict::TooMany));
    assert_eq!(found(&specs[..64]), Some(Conflict::TooMany));
    assert_eq!(found(&specs[..63]), None);
    specs[63] = specs[0].clone();
    assert!(matches!(found(&specs), Some(Conflict::Identical(_))));
}

#[test]
fn a_hint_matches_indexes_of_the_application() {
    let indexes = Indexes {
        known: vec![
            rawdoc! { "key": { "_id": 1 }, "name": ID },
            rawdoc! { "key": { "a": 1, "b": -1 }, "name": "ab" },
            rawdoc! { "key": { "h": 1 }, "name": "h", "hidden": true },
        ],
        ..Indexes::default()
    };
    let check = |of: RawDocumentBuf, expected: bool| {
        let found = hint(get(&of, "hint").unwrap()).is_some_and(|hint| hint.resolve(&indexes) == HintedIndex::Complete);
        assert_eq!(found, expected, "{of:?}");
    };
    check(rawdoc! { "hint": "_id_" }, true);
    check(rawdoc! { "hint": "ab" }, true);
    check(rawdoc! { "hint": "h" }, false);
    check(rawdoc! { "hint": "nope" }, false);
    check(rawdoc! { "hint": "" }, false);
    check(rawdoc! { "hint": { "_id": 1_i64 } }, true);
    check(rawdoc! { "hint": { "_id": -1 } }, false);
    check(rawdoc! { "hint": { "a": 1.0, "b": -1 } }, true);
    check(rawdoc! { "hint": { "b": -1, "a": 1 } }, false);
    check(rawdoc! { "hint": { "a": 1 } }, false);
    check(rawdoc! { "hint": { "h": 1 } }, false);
    check(rawdoc! { "hint": { "$natural": -1 } }, true);
    check(rawdoc! { "hint": { "$hint": "ab" } }, true);
    check(rawdoc! { "hint": 1 }, false);
}

#[test]
fn negative_natural_hint_reads_backward() {
    let check = |of: RawDocumentBuf, expected: bool| {
        let given = get(&of, "hint").unwrap();
        assert_eq!(reads_backward(given), expected, "{of:?}");
    };
    check(rawdoc! { "hint": { "$natural": -1 } }, true);
    check(rawdoc! { "hint": { "$natural": -2.0 } }, true);
    check(rawdoc! { "hint": { "a": 1, "$natural": -1_i64 } }, true);
    check(rawdoc! { "hint": { "$natural": 1 } }, false);
    check(rawdoc! { "hint": { "a": -1 } }, false);
    check(rawdoc! { "hint": "$natural" }, false);
}

#[test]
fn arrays_are_named_as_the_application_names_them() {
    let text = "cannot index parallel arrays [quantity] [a]";
    assert_eq!(in_item_names(&shape(), text), "cannot index parallel arrays [qty] [a]");
    assert_eq!(in_item_names(&shape(), "[qty"), "[qty");
}

#[test]
fn an_index_without_a_prefix_is_kept_as_it_is() {
    let shape = shape();
    let older = rawdoc! { "v": 2, "key": { "history.a": 1 }, "name": "older" };
    let newer = rawdoc! { "v": 2, "key": { "control.v": 1, "history.a": 1 }, "name": "newer" };
    let by_key = rawdoc! { "v": 2, "key": { "day": -1, "history.a": 1 }, "name": "by_key" };
    let there = Indexes::of(&shape, [&*older, &newer, &by_key].into_iter());
    for spec in [older, newer, by_key] {
        let application = there.named(name(&spec)).unwrap();
        assert_eq!(there.as_there(&stored(&shape, application).unwrap()), spec);
        let index = StoredIndex::of(&shape, &spec).unwrap();
        assert_eq!(index.fields().last().unwrap().path, "a");
        assert_eq!(index.is_read_backward(), name(&spec) != "older");
        assert_eq!(index.is_prefixed(), name(&spec) == "newer");
    }
}

#[test]
fn an_index_that_lacks_items_is_not_read() {
    let shape = shape();
    for spec in [
        rawdoc! { "key": { "_id": 1 }, "name": ID },
        rawdoc! { "key": { "history.a": 1 }, "name": "x", "hidden": true },
        rawdoc! { "key": { "history.a": 1 }, "name": "x", "sparse": true },
        rawdoc! { "key": { "history.a": 1 }, "name": "x", "partialFilterExpression": { "history.a": 1 } },
        rawdoc! { "key": { "history.a": 1 }, "name": "x", "collation": { "locale": "de" } },
        rawdoc! { "key": { "control.page": 1 }, "name": "x" },
        rawdoc! { "key": { "customer": 1, "day": 1, "control.page": 1 }, "name": "mongoshape_page" },
    ] {
        assert_eq!(StoredIndex::of(&shape, &spec), None, "{spec:?}");
    }
    let ids = rawdoc! { "key": { "history._id": 1 }, "name": "mongoshape_item_id", "unique": true, "sparse": true };
    assert_eq!(StoredIndex::of(&shape, &ids).unwrap().fields()[0].path, "_id");
}
