use bson::rawdoc;

use super::*;

/// The `aggregate` for the element of one item. `None`: it fails with mongod's error.
fn probed(path: &str, item: &RawDocument, filter: &RawDocument) -> Result<Option<RawDocumentBuf>, Unsupported> {
    let positional = Positional { path: path.to_owned() };
    let probes = positional.probes(std::iter::once(item), Some(filter))?;
    let queries = probes.queries.into_iter().map(|query| query.command);
    let queries: Vec<RawDocumentBuf> = queries.collect();
    assert_eq!(queries.is_empty(), probes.failed.is_some());
    Ok(queries.into_iter().next())
}

#[test]
fn the_element_takes_the_operators_place() {
    let operators = rawdoc! { "$set": { "a.b.$.c": 1, "x": 2 }, "$unset": { "a.b.$": 1 } };
    let positional = Positional::of(&operators).unwrap().unwrap();
    let expected = rawdoc! { "$set": { "a.b.3.c": 1, "x": 2 }, "$unset": { "a.b.3": 1 } };
    assert_eq!(positional.resolved(&operators, 3), expected);
    assert_eq!(
        Positional::of(&rawdoc! { "$set": { "a.$[].b": 1, "a.$[x]": 1 } }),
        Ok(None)
    );
    assert!(Positional::of(&rawdoc! { "$set": { "a.$": 1, "b.$": 1 } }).is_err());
    assert!(Positional::of(&rawdoc! { "$set": { "a.$.b.$": 1 } }).is_err());
}

#[test]
fn only_one_condition_may_be_on_an_array() {
    let item = rawdoc! { "_id": 1, "a": [1, 2], "b": [3], "n": 5, "d": { "e": 5 } };
    let is_clear = |filter: &RawDocument| matches!(probed("a", &item, filter), Ok(Some(_)));
    assert!(is_clear(&rawdoc! { "_id": 1, "a": 2 }));
    assert!(is_clear(&rawdoc! { "n": 5, "a": { "$gt": 1 } }));
    assert!(is_clear(&rawdoc! { "$and": [{ "a": 2 }, { "n": { "$ne": 6 } }] }));
    assert!(is_clear(
        &rawdoc! { "a": 2, "d": { "e": 5 }, "d.e": { "$gte": 5, "$lte": 5 } }
    ));
    assert!(!is_clear(&rawdoc! { "a": 2, "b": 3 }));
    assert!(!is_clear(&rawdoc! { "b": 3 }));
    assert!(!is_clear(&rawdoc! { "$or": [{ "a": 2 }] }));
    assert!(!is_clear(&rawdoc! { "a": { "$ne": 1 } }));
    assert!(!is_clear(&rawdoc! { "a": { "$gte": 2, "$lte": 2 } }));
    assert!(!is_clear(&rawdoc! { "a": [1, 2] }));
    assert!(is_clear(&rawdoc! { "a.x": { "$exists": true } }));
    assert!(!is_clear(&rawdoc! { "a.x": { "$exists": false } }));
    assert!(!is_clear(&rawdoc! { "a.x": { "$exists": true, "$ne": 1 } }));
    assert!(!is_clear(&rawdoc! { "a.0": { "$exists": true } }));
    assert!(!is_clear(&rawdoc! { "a": { "$exists": true } }));
    let none = probed("a", &item, &rawdoc! { "n": 5 });
    assert!(matches!(none, Ok(None)));
}

#[test]
fn the_array_of_the_operator_is_that_of_the_condition() {
    let filter = rawdoc! { "a.x": 1 };
    let probed = |path: &str, item: &RawDocument| probed(path, item, &filter);
    let is_clear = |path: &str, item: &RawDocument| matches!(probed(path, item), Ok(Some(_)));
    let beside = rawdoc! { "a": { "x": [0, 1], "y": [5, 6] } };
    assert!(is_clear("a.x", &beside));
    for (path, item) in [
        ("a.y", &beside),
        ("a", &beside),
        // mongod records the element of the outer array.
        ("a.x", &rawdoc! { "a": [{ "x": [1] }] }),
    ] {
        assert!(probed(path, item).is_err(), "{path} {item:?}");
    }
    let none = probed("a.x", &rawdoc! { "a": { "x": 1 } });
    assert!(matches!(none, Ok(None)));
}

/// The query for these documents.
fn query(documents: &[RawDocumentBuf], items: usize) -> ElementQuery {
    let documents = crate::command::document::array_of(documents);
    let command = rawdoc! {
        "aggregate": 1,
        "pipeline": [
            { "$documents": { "$literal": documents } },
            { "$match": { "a.b": { "$gt": 1 } } },
            { "$group": { "_id": "$mongoshapeItem", "mongoshapeElement": { "$min": "$mongoshapeElement" } } },
        ],
        "cursor": { "batchSize": i64::try_from(items).unwrap() + 1 },
    };
    ElementQuery { command, items }
}

/// The queries for the elements of items with these arrays.
fn queries(arrays: &[RawArrayBuf]) -> Probes {
    let items: Vec<RawDocumentBuf> = arrays
        .iter()
        .map(|elements| rawdoc! { "_id": 1, "a": { "b": elements.clone(), "c": 3 }, "n": 5 })
        .collect();
    let filter = rawdoc! { "n": 5, "a": { "b": [7, 8], "c": 3 }, "a.b": { "$gt": 1 } };
    let positional = Positional { path: "a.b".to_owned() };
    let items = items.iter().map(|item| &**item);
    positional.probes(items, Some(&filter)).unwrap()
}

#[test]
fn mongod_is_asked_with_one_document_for_each_element() {
    let array = |elements: &[i32]| elements.iter().copied().collect::<RawArrayBuf>();
    let of_element = |element: i32, place: i32| rawdoc! { "a": { "b": [element] }, "mongoshapeElement": place };
    let of_item = |item: i32, element: i32, place: i32| {
        let mut document = of_element(element, place);
        put(&mut document, "mongoshapeItem", item);
        document
    };
    let one = queries(&[array(&[7, 8])]);
    assert_eq!(one.queries, [query(&[of_element(7, 0), of_element(8, 1)], 1)]);
    assert_eq!(queries(&[array(&[])]).queries, [query(&[], 1)]);
    let several = queries(&[array(&[7]), array(&[]), array(&[8, 9])]);
    let documents = [of_element(7, 0), of_item(2, 8, 0), of_item(2, 9, 1)];
    assert_eq!(several.queries, [query(&documents, 3)]);
    assert!(several.failed.is_none());
}

#[test]
fn items_are_queried_together_up_to_a_limit() {
    let text = "x".repeat(3 << 20);
    let long: RawArrayBuf = [text.as_str()].into_iter().collect();
    let items = vec![long; 5];
    let counts: Vec<usize> = queries(&items).queries.iter().map(|query| query.items).collect();
    assert_eq!(counts, [2, 2, 1]);
}

#[test]
fn items_behind_one_without_an_array_are_not_queried() {
    let positional = Positional { path: "a".to_owned() };
    let items = [rawdoc! { "a": [1] }, rawdoc! { "a": 1 }, rawdoc! { "a": [1], "b": [1] }];
    let filter = rawdoc! { "a": 1, "b": null };
    let items = items.iter().map(|item| &**item);
    let probes = positional.probes(items, Some(&filter)).unwrap();
    let counts: Vec<usize> = probes.queries.iter().map(|query| query.items).collect();
    assert_eq!(counts, [1]);
    assert!(probes.failed.is_some());
}

#[test]
fn matched_positions_are_read_from_mongods_reply() {
    let found = [
        rawdoc! { "_id": 2, "mongoshapeElement": 0 },
        rawdoc! { "_id": null, "mongoshapeElement": 3 },
        rawdoc! { "_id": 9, "mongoshapeElement": 1 },
    ];
    let found = found.iter().map(|document| &**document);
    assert_eq!(Positional::numbers(3, found), [Some(3), None, Some(0)]);
}

#[test]
fn an_array_within_a_document_makes_another_condition_unclear() {
    let filter = rawdoc! { "a": 2, "d.e.f": 3 };
    for (within, is_clear) in [(rawdoc! { "f": 3 }, true), (rawdoc! { "f": [3] }, false)] {
        let item = rawdoc! { "_id": 1, "a": [1, 2], "d": { "e": within } };
        assert_eq!(probed("a", &item, &filter).is_ok(), is_clear, "{item:?}");
    }
}

#[test]
fn errors_before_the_positional_path_are_distinguished() {
    let positional = Positional { path: "a.b".to_owned() };
    let operators = rawdoc! {
        "$set": { "A": 1, "a.b.$": 2, "a.c": 3, "b": 4 }, "$inc": { "a.a": 5, "a.B": 6 }, "$unset": { "c": 7 },
    };
    assert_eq!(
        positional.before(&operators),
        rawdoc! { "$set": { "A": 1 }, "$inc": { "a.a": 5, "a.B": 6 } }
    );
}
