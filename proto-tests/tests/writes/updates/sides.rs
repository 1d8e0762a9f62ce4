//! The two collections of these tests, with the same items.

use anyhow::Result;
use bson::{Bson, DateTime, Document, doc};
use proto_tests::{ItemIds, Shape};

pub(crate) use proto_tests::sides::{ALL_IDS, COLLECTION, Sides};

pub(crate) fn at(seconds: i64) -> DateTime {
    DateTime::from_millis(1_700_000_000_000 + seconds * 1000)
}

fn items() -> Vec<Document> {
    let item = |id: i32| {
        let mut item = doc! { "_id": id, "k": id % 3, "at": at(i64::from(id)), "n": id, "name": format!("name {id}") };
        item.insert(
            "tags",
            vec![Bson::Int32(id), Bson::Int32(id + 1), Bson::String("x".into())],
        );
        item.insert("lines", vec![doc! { "a": id, "b": 1 }, doc! { "a": 7, "b": 2 }]);
        item.insert("inner", doc! { "deep": { "er": id }, "other": Bson::Null });
        item.insert("quantity", f64::from(id) / 2.0);
        item.insert("u", id);
        item
    };
    (0..40).map(item).collect()
}

/// With unique `_id`s.
pub(crate) fn open() -> Result<Sides> {
    of(ItemIds::Unique)
}

pub(crate) fn of(item_ids: ItemIds) -> Result<Sides> {
    filled(Sides::open(shape(item_ids))?)
}

pub(crate) fn shape(item_ids: ItemIds) -> Shape {
    Shape {
        item_ids,
        time: Some("at".to_owned()),
        max_items: 4,
        items_change: true,
        rename: vec![("quantity".to_owned(), "qty".to_owned())],
        ..Shape::new(&["k"])
    }
}

/// The two collections with the items.
pub(crate) fn filled(mut sides: Sides) -> Result<Sides> {
    sides.alike(&doc! { "insert": COLLECTION, "documents": items() })?;
    Ok(sides)
}

pub(crate) fn update(filter: Document, change: Document) -> Document {
    doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change }] }
}
