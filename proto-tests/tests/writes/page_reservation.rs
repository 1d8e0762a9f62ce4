//! Inserts over several keys with full highest pages: the next pages are reserved in one command.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sides::{ALL_IDS, COLLECTION, Sides};
use proto_tests::{ItemIds, Shape};

/// Keys that are of one value only if taken for what they are.
fn keys() -> Vec<Bson> {
    let strange = doc! { "$gt": 1 };
    let mut keys = vec![
        Bson::Null,
        "$k".into(),
        "".into(),
        "1".into(),
        1.5.into(),
        strange.into(),
    ];
    keys.extend((1..50).map(Bson::from));
    keys
}

/// `per_key` items of each key, from `from` on.
fn insert(from: i32, per_key: i32, ordered: bool) -> Document {
    let item = |number: i32, (place, key): (usize, &Bson)| -> Result<Document> {
        let place = i32::try_from(place)?;
        let mut item = doc! { "_id": number * 1000 + place, "k": key };
        let at = Bson::DateTime(DateTime::from_millis(i64::from(number) * 1000));
        // Of every seventh key the times do not ascend, of every eleventh some items have none.
        match (place % 7, place % 11) {
            (6, _) if number % 4 == 0 => item.insert("at", DateTime::from_millis(5)),
            (_, 10) if number % 5 == 0 => item.insert("at", "no date"),
            _ => item.insert("at", at),
        };
        Ok(item)
    };
    let items = (from..from + per_key).flat_map(|number| {
        keys()
            .iter()
            .enumerate()
            .filter_map(|key| item(number, key).ok())
            .collect::<Vec<_>>()
    });
    doc! { "insert": COLLECTION, "documents": items.collect::<Vec<_>>(), "ordered": ordered }
}

fn shape(item_ids: ItemIds) -> Shape {
    Shape {
        time: Some("at".into()),
        item_ids,
        ..Shape::new(&["k"])
    }
}

#[test]
fn batches_create_pages_after_full_ones() -> Result<()> {
    for item_ids in ALL_IDS {
        let mut sides = Sides::open(shape(item_ids))?;
        for (from, per_key) in [(0, 10), (10, 20), (30, 3), (33, 7), (40, 11)] {
            sides.alike(&insert(from, per_key, from % 20 == 0))?;
            sides.check()?;
        }
    }
    Ok(())
}

/// Another proxy has changed some of the pages that are full in this one's cache.
#[test]
fn stale_cached_pages_are_detected() -> Result<()> {
    let mut sides = Sides::open(Shape {
        items_change: true,
        ..shape(ItemIds::Unique)
    })?;
    let other = sides.another_proxy()?;
    sides.alike(&insert(0, 10, true))?;
    let here = std::mem::replace(&mut sides.shaped, Connection::open(other.address())?);
    for key in [3, 40] {
        let delete = doc! { "q": { "k": key }, "limit": 1 };
        sides.alike(&doc! { "delete": COLLECTION, "deletes": [delete] })?;
    }
    let delete = doc! { "q": { "k": 41 }, "limit": 0 };
    sides.alike(&doc! { "delete": COLLECTION, "deletes": [delete] })?;
    sides.shaped = here;
    sides.alike(&insert(10, 10, true))?;
    sides.check()?;
    // What was announced and not begun would keep its page from going.
    sides.alike(&doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] })?;
    ensure!(sides.buckets()?.is_empty());
    Ok(())
}

/// Another proxy has added a newer item and has deleted another item: the page has as many items as
/// this proxy knows, but another greatest time. The next page is compared with that time.
#[test]
fn a_push_that_reserves_knows_the_greatest_time() -> Result<()> {
    let items = |from: i32, seconds: &[i64]| {
        let items = (from..).zip(seconds).map(|(id, seconds)| {
            doc! { "_id": id, "k": 1, "at": DateTime::from_millis(seconds * 1000) }
        });
        doc! { "insert": COLLECTION, "documents": items.collect::<Vec<_>>() }
    };
    for item_ids in ALL_IDS {
        let mut sides = Sides::open(Shape {
            items_change: true,
            ..shape(item_ids)
        })?;
        let other = sides.another_proxy()?;
        sides.alike(&items(0, &[100, 50, 60, 70, 80, 81, 82, 83]))?;
        let here = std::mem::replace(&mut sides.shaped, Connection::open(other.address())?);
        sides.alike(&items(10, &[150]))?;
        let oldest = doc! { "q": { "k": 1, "at": DateTime::from_millis(50_000) }, "limit": 1 };
        sides.alike(&doc! { "delete": COLLECTION, "deletes": [oldest] })?;
        sides.shaped = here;
        sides.alike(&items(20, &[120, 121, 130]))?;
        sides.check()?;
    }
    Ok(())
}
