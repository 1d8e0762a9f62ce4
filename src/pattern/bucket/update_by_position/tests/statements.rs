//! The statements of planned updates.

use super::*;

#[test]
fn a_statement_has_its_options() {
    let filters = RawArrayBuf::from_iter([rawdoc! { "e": 1 }]);
    let collation = rawdoc! { "locale": "en" };
    for (array_filters, collation) in [(None, None), (Some(filters), Some(collation))] {
        let change = InPlace {
            array_filters: array_filters.clone(),
            collation: collation.clone(),
            ..InPlace::new(rawdoc! { "$set": { "history.2.x.$[e]": 2 } })
        };
        let mut expected = single("q", change.filter(&shape(), &found(), Demand::Item).unwrap());
        put(&mut expected, "u", rawdoc! { "$set": { "history.2.x.$[e]": 2 } });
        if let Some(filters) = &array_filters {
            put(&mut expected, "arrayFilters", filters);
        }
        put(
            &mut expected,
            "collation",
            collation.unwrap_or_else(|| rawdoc! { "locale": "simple" }),
        );
        assert_eq!(change.statement(&shape(), &found()), Ok(expected));
    }
}

#[test]
fn a_statement_of_more_than_16_mib_is_refused() {
    let change = InPlace::new(rawdoc! { "$inc": { "history.2.n": 1 } });
    let statement = |length: usize| {
        let stored = rawdoc! { "s": "x".repeat(length) };
        change.statement(&shape(), &LocatedItem { stored, ..found() })
    };
    let most = 16 * 1024 * 1024;
    let longest = most - statement(0).unwrap().as_bytes().len();
    assert_eq!(statement(longest).unwrap().as_bytes().len(), most);
    assert!(statement(longest + 1).is_err());
}

#[test]
fn changed_item_is_computed_from_its_statement() {
    let after = |planned: Result<Planned, Unsupported>| match planned {
        Ok(Planned::InPlace(change)) => change.stored_after(&shape(), &found(), &mut FixedMint),
        other => panic!("{other:?}"),
    };
    let at = bson::DateTime::from_millis(7);
    let planned = operators(&rawdoc! { "$set": { "quantity": 3, "x.0": 2 }, "$unset": { "a": 1 }, "$inc": { "n": 1 } });
    let expected = rawdoc! { "_id": 1, "t": at, "qty": 3, "x": [2], "n": 1 };
    assert_eq!(after(planned), Some(expected));
    let planned = of_replacement(&shape(), &found(), &rawdoc! { "k": 5, "t": at, "n": 1 }, &mut FixedMint);
    assert_eq!(after(planned), Some(rawdoc! { "_id": 1, "t": at, "n": 1 }));
    // Only mongod evaluates conditions of `$pull`.
    let planned = operators(&rawdoc! { "$pull": { "x": { "$gt": 1 } } });
    assert_eq!(after(planned), None);
}

#[test]
fn position_is_recorded_with_the_other_changes() {
    let mut change = InPlace::new(rawdoc! { "$set": { "history.2.a": 1 }, "$inc": { "history.2.n": 1 } });
    change.record_place(&found());
    assert_eq!(
        change.update,
        rawdoc! { "$set": { "history.2.a": 1, "control.changed": 2_i64 }, "$inc": { "history.2.n": 1 } }
    );
}

#[test]
fn time_is_changed_in_place_if_it_stays_in_order() {
    let at = bson::DateTime::from_millis(9);
    let stored = rawdoc! { "_id": 1, "t": at };
    let fits = |before: Option<&RawDocument>, behind: RawDocumentBuf| {
        let in_order: RawArrayBuf = before.into_iter().chain([&*behind]).collect();
        rawdoc! { "$or": [{ "control.late": true }, { "$and": in_order }] }
    };
    let before = rawdoc! { "history.1.t": { "$lte": at } };
    for (place, before, behind) in [(2, Some(&*before), 3), (0, None, 1)] {
        let found = LocatedItem { place, ..found() };
        let [next_time, next] = [format!("history.{behind}.t"), format!("history.{behind}")];
        let none_behind = single(&next, rawdoc! { "$exists": false });
        let next_or_none = rawdoc! { "$or": [single(&next_time, rawdoc! { "$gte": at }), none_behind.clone()] };
        let within = rawdoc! {
            "$and": [
                { "control.from": { "$lte": at } },
                { "control.to": { "$gte": at } },
                fits(before, next_or_none),
            ],
        };
        let grown = rawdoc! {
            "$and": [
                { "control.next": { "$in": [RawBson::Null, []] } },
                { "control.from": { "$lte": at } },
                { "control.to": { "$lt": at } },
                fits(before, none_behind),
            ],
        };
        let unchanged = InPlace::new(rawdoc! {}).filter(&shape(), &found, Demand::Item).unwrap();
        let mut set = single(&format!("history.{place}"), stored.clone());
        put(&mut set, "control.revision", 0);
        let expected = rawdoc! {
            "q": { "$and": [unchanged, { "$or": [within, grown] }] },
            "u": { "$set": set, "$max": { "control.to": at } },
            "collation": { "locale": "simple" },
        };
        let statement = with_time(&shape(), &found, RawBsonRef::Document(&stored), at);
        assert_eq!(statement, Ok(expected), "{place}");
    }
}
