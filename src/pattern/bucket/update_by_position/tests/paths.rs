//! Operators on paths that are not only of the item's own fields.

use super::*;

fn in_place(planned: Result<Planned, Unsupported>) -> RawDocumentBuf {
    match planned {
        Ok(Planned::InPlace(change)) => change.update,
        other => panic!("{other:?}"),
    }
}

fn code(planned: Result<Planned, Unsupported>) -> i32 {
    match planned {
        Ok(Planned::Failed(error)) => error.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn set_on_insert_is_ignored_on_update() {
    for field in ["_id", "k", "t", "k.a", "_id.a"] {
        let planned = operators(&rawdoc! { "$setOnInsert": single(field, 9) });
        assert!(
            matches!(planned, Ok(Planned::Unchanged { counted: false })),
            "{field}: {planned:?}"
        );
    }
}

#[test]
fn positional_operators_within_the_key_are_refused_in_set_on_insert() {
    for field in ["k.$[e]", "t.$[].a", "_id.$[e]"] {
        let planned = operators(&rawdoc! { "$set": { "a.b": 2 }, "$setOnInsert": single(field, 9) });
        assert!(planned.is_err(), "{field}: {planned:?}");
    }
}

#[test]
fn a_missing_time_is_unset_without_computing_the_item() {
    let bare = LocatedItem {
        stored: rawdoc! { "_id": 1, "x": [1] },
        item: rawdoc! { "_id": 1, "k": 5, "x": [1] },
        ..found()
    };
    let planned = operators_on(&bare, &rawdoc! { "$unset": { "t": 1 }, "$pull": { "x": { "$gt": 1 } } });
    assert_eq!(in_place(planned), rawdoc! { "$pull": { "history.2.x": { "$gt": 1 } } });
}

#[test]
fn an_item_without_its_key_or_its_time_belongs_elsewhere() {
    let unset = |field: &str| match operators(&rawdoc! { "$unset": single(field, 1) }) {
        Ok(Planned::Elsewhere(elsewhere)) => elsewhere,
        other => panic!("{field}: {other:?}"),
    };
    let at = bson::DateTime::from_millis(7);
    let [key, time] = [unset("k"), unset("t")];
    assert!(matches!(key, Elsewhere::Key(_)) && matches!(time, Elsewhere::Time(_)));
    assert_eq!(
        key.into_item(),
        rawdoc! { "_id": 1, "t": at, "a": { "b": 1 }, "quantity": 2, "x": [1] }
    );
    assert_eq!(
        time.into_item(),
        rawdoc! { "_id": 1, "k": 5, "a": { "b": 1 }, "quantity": 2, "x": [1] }
    );
}

#[test]
fn a_field_within_the_key_is_not_the_key() {
    assert_eq!(code(operators(&rawdoc! { "$set": { "k.a": 5 } })), 28);
}

#[test]
fn the_id_does_not_change() {
    for update in [
        rawdoc! { "$set": { "_id": 2 } },
        rawdoc! { "$unset": { "_id": 1 } },
        rawdoc! { "$rename": { "_id": "y" } },
        rawdoc! { "$rename": { "quantity": "_id" } },
    ] {
        assert_eq!(code(operators(&update)), 66, "{update:?}");
    }
    let of_document = LocatedItem {
        stored: rawdoc! { "_id": { "x": 1 }, "qty": 2 },
        item: rawdoc! { "_id": { "x": 1 }, "k": 5, "quantity": 2 },
        ..found()
    };
    // mongod's errors for these depend on more than the paths.
    for update in [
        rawdoc! { "$set": { "_id.x": 2 } },
        rawdoc! { "$unset": { "_id.x": 2 } },
        rawdoc! { "$rename": { "quantity": "_id.y" } },
        rawdoc! { "$rename": { "_id.x": "y" } },
    ] {
        let planned = operators_on(&of_document, &update);
        assert!(planned.is_err(), "{update:?}: {planned:?}");
    }
}

#[test]
fn a_renamed_field_with_a_dollar_is_computed() {
    let item = LocatedItem {
        stored: rawdoc! { "_id": 1, "$y": 1, "z": 2 },
        item: rawdoc! { "_id": 1, "k": 5, "$y": 1, "z": 2 },
        ..found()
    };
    let whole = rawdoc! { "_id": 1, "z": 2, "b": 1 };
    assert_eq!(
        in_place(operators_on(&item, &rawdoc! { "$rename": { "$y": "b" } })),
        rawdoc! { "$set": { "history.2": whole } }
    );
    assert_eq!(code(operators_on(&item, &rawdoc! { "$rename": { "z": "$z" } })), 52);
}

#[test]
fn a_path_without_a_name_or_of_a_positional_operator_is_refused() {
    for path in ["a..b", "a.", "$", "$[]", "$[x].b"] {
        for update in [
            rawdoc! { "$set": single(path, 1) },
            rawdoc! { "$rename": single(path, "z") },
            rawdoc! { "$rename": { "a": path } },
        ] {
            let planned = operators(&update);
            assert!(planned.is_err(), "{update:?}: {planned:?}");
        }
    }
}

#[test]
fn an_update_of_all_fields_does_not_search_the_item_for_each() {
    // Searching 30,000 fields for each path would take minutes.
    let mut item = rawdoc! { "_id": 1, "k": 5, "quantity": 2 };
    let mut set = rawdoc! { "quantity": 3 };
    for number in 0..30_000 {
        let name = format!("f{number}");
        put(&mut item, &name, 1);
        put(&mut set, &name, 2);
    }
    let item = LocatedItem { item, ..found() };
    let update = in_place(operators_on(&item, &rawdoc! { "$set": set }));
    let paths = get(&update, "$set").and_then(RawBsonRef::as_document).unwrap();
    assert_eq!(paths.iter().count(), 30_001);
}
