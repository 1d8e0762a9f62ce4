use bson::rawdoc;

use super::*;

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
    let positional = Positional { path: "a".to_owned() };
    let is_clear = |filter: &RawDocument| matches!(positional.probe(&item, Some(filter)), Ok(Probe::Ask(_)));
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
    let none = positional.probe(&item, Some(&rawdoc! { "n": 5 }));
    assert!(matches!(none, Ok(Probe::Failed(_))));
}

#[test]
fn the_array_of_the_operator_is_that_of_the_condition() {
    let filter = rawdoc! { "a.x": 1 };
    let probed = |path: &str, item: &RawDocument| {
        let positional = Positional { path: path.to_owned() };
        positional.probe(item, Some(&filter))
    };
    let is_clear = |path: &str, item: &RawDocument| matches!(probed(path, item), Ok(Probe::Ask(_)));
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
    assert!(matches!(none, Ok(Probe::Failed(_))));
}

#[test]
fn mongod_is_asked_with_one_document_for_each_element() {
    let filter = rawdoc! { "n": 5, "a": { "b": [7, 8], "c": 3 }, "a.b": { "$gt": 1 } };
    let pipeline = |documents: RawArrayBuf| {
        rawdoc! {
            "aggregate": 1,
            "pipeline": [
                { "$documents": { "$literal": documents } },
                { "$match": { "a.b": { "$gt": 1 } } },
                { "$sort": { "mongoshapeElement": 1 } },
                { "$limit": 1 },
                { "$project": { "mongoshapeElement": 1 } },
            ],
            "cursor": {},
        }
    };
    let probed = |item: &RawDocument| {
        let positional = Positional { path: "a.b".to_owned() };
        match positional.probe(item, Some(&filter)) {
            Ok(Probe::Ask(command)) => command,
            other => panic!("{other:?}"),
        }
    };
    let item = |elements: RawArrayBuf| rawdoc! { "_id": 1, "a": { "b": elements, "c": 3 }, "n": 5 };
    let of_element = |element: i32, place: i32| rawdoc! { "a": { "b": [element] }, "mongoshapeElement": place };
    assert_eq!(
        probed(&item([7, 8].into_iter().collect())),
        pipeline([of_element(7, 0), of_element(8, 1)].into_iter().collect())
    );
    assert_eq!(probed(&item(RawArrayBuf::new())), pipeline(RawArrayBuf::new()));
}

#[test]
fn matched_position_is_read_from_mongods_reply() {
    for number in [0, 3] {
        let found = rawdoc! { "_id": 1, "mongoshapeElement": number };
        assert_eq!(Positional::number(&found), Some(number));
    }
    assert_eq!(Positional::number(&rawdoc! { "_id": 1 }), None);
}

#[test]
fn an_array_within_a_document_makes_another_condition_unclear() {
    let positional = Positional { path: "a".to_owned() };
    let filter = rawdoc! { "a": 2, "d.e.f": 3 };
    for (within, is_clear) in [(rawdoc! { "f": 3 }, true), (rawdoc! { "f": [3] }, false)] {
        let item = rawdoc! { "_id": 1, "a": [1, 2], "d": { "e": within } };
        assert_eq!(positional.probe(&item, Some(&filter)).is_ok(), is_clear, "{item:?}");
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
        rawdoc! { "$set": { "A": 1 }, "$inc": { "a.a": 5, "a.B": 6 }, "$unset": {} }
    );
}
