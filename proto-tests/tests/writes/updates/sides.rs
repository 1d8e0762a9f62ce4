//! The two collections of these tests, with the same items.

use std::thread;

use anyhow::{Result, anyhow, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::{ItemIds, Proxy, Shape};

pub(crate) use proto_tests::sides::{ALL_IDS, COLLECTION, Sides};

/// Writers of [`write_concurrently`].
pub(crate) const WRITERS: i32 = 4;

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

/// Each writer sends so many updates, half of the writers through each of two proxies. `command`: of a writer,
/// with the number of the update.
pub(crate) fn write_concurrently(
    sides: &Sides,
    second: &Proxy,
    updates: i32,
    command: impl Fn(i32, i32) -> Document + Copy + Send + 'static,
) -> Result<()> {
    let addresses = [sides.proxy.address(), second.address()];
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let address = addresses[usize::try_from(writer).unwrap_or(0) % 2];
            let database = sides.shaped_database();
            thread::spawn(move || -> Result<()> {
                let mut connection = Connection::open(address)?;
                for number in 0..updates {
                    let mut command = command(writer, number);
                    command.insert("$db", &database);
                    let reply = connection.command_ok(&command)?;
                    ensure!(reply.get("writeErrors").is_none(), "{command}: {reply}");
                }
                Ok(())
            })
        })
        .collect();
    for writer in writers {
        writer.join().map_err(|_| anyhow!("a writer panicked"))??;
    }
    Ok(())
}
