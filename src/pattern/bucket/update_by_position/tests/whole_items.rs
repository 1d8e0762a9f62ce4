//! Replacements and results of pipelines.

use super::*;

/// The item as the application knows it, with other fields after its `_id`, key and time.
fn item(more: &RawDocument) -> RawDocumentBuf {
    let mut item = rawdoc! { "_id": 1, "k": 5, "t": bson::DateTime::from_millis(7) };
    more.iter().flatten().for_each(|(name, value)| item.append(name, value));
    item
}

fn without_id(item: &RawDocument) -> RawDocumentBuf {
    item.iter().flatten().filter(|(name, _)| *name != "_id").collect()
}

fn replaced(new: &RawDocument) -> Result<Planned, Unsupported> {
    of_replacement(&shape(), &found(), new, &mut FixedMint)
}

#[test]
fn a_replacement_without_an_id_counts_as_a_change() {
    let same = item(&rawdoc! { "a": { "b": 1 }, "quantity": 2, "x": [1] });
    let other = item(&rawdoc! { "a": 2 });
    for (is_counted, same, other) in [
        (false, same.clone(), other.clone()),
        (true, without_id(&same), without_id(&other)),
    ] {
        let planned = replaced(&same);
        assert!(
            matches!(planned, Ok(Planned::Unchanged { counted }) if counted == is_counted),
            "{planned:?}"
        );
        let Ok(Planned::InPlace(change)) = replaced(&other) else {
            panic!("a change in place");
        };
        assert_eq!(change.counted, is_counted);
        let stored = rawdoc! { "_id": 1, "t": bson::DateTime::from_millis(7), "a": 2 };
        assert_eq!(change.update, rawdoc! { "$set": { "history.2": stored } });
    }
}

#[test]
fn an_item_stays_without_a_time() {
    let timeless = LocatedItem {
        stored: rawdoc! { "_id": 1, "a": 1 },
        item: rawdoc! { "_id": 1, "k": 5, "a": 1 },
        ..found()
    };
    let planned = of_replacement(&shape(), &timeless, &rawdoc! { "k": 5, "a": 2 }, &mut FixedMint);
    assert!(matches!(planned, Ok(Planned::InPlace(_))), "{planned:?}");
}

#[test]
fn stages_that_change_nothing_are_no_change() {
    let piped = |made: &RawDocument| of_pipeline(&shape(), &found(), made, &mut FixedMint);
    let planned = piped(&found().item);
    assert!(
        matches!(planned, Ok(Planned::Unchanged { counted: false })),
        "{planned:?}"
    );
    let planned = piped(&item(&rawdoc! { "a": 2 }));
    assert!(
        matches!(&planned, Ok(Planned::InPlace(change)) if change.counted),
        "{planned:?}"
    );
}

#[test]
fn an_item_with_a_dollar_field_is_replaced_by_a_stage() {
    let stored = rawdoc! { "_id": 1, "t": bson::DateTime::from_millis(7), "$x": 1 };
    let slice = |from: i64, length: i64| rawdoc! { "$slice": ["$history", from, length] };
    let literal = || rawdoc! { "$literal": [stored.clone()] };
    for (place, parts) in [
        (2, vec![slice(0, 2), literal(), slice(3, 10)]),
        (0, vec![literal(), slice(1, 10)]),
    ] {
        let found = LocatedItem { place, ..found() };
        let made = item(&rawdoc! { "$x": 1 });
        let Ok(Planned::InPlace(change)) = of_pipeline(&shape(), &found, &made, &mut FixedMint) else {
            panic!("a change in place");
        };
        let parts: RawArrayBuf = parts.into_iter().collect();
        let stage = rawdoc! { "$set": { "history": { "$concatArrays": parts } } };
        let stages = RawArrayBuf::from_iter([stage]);
        assert_eq!(change.update(), RawBsonRef::Array(&stages));
    }
}
