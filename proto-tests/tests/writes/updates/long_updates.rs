//! Updates of many items that are much longer than the items.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::Shape;

use crate::updates::sides::{COLLECTION, Sides};

fn sides(max_items: usize) -> Result<Sides> {
    Sides::open(Shape {
        max_items,
        items_change: true,
        ..Shape::new(&["k"])
    })
}

fn many(change: Document) -> Document {
    doc! { "update": COLLECTION, "updates": [{ "q": {}, "u": change, "multi": true }] }
}

fn insert(items: impl Iterator<Item = Document>) -> Document {
    doc! { "insert": COLLECTION, "documents": items.collect::<Vec<_>>() }
}

/// The proxy keeps the planned changes of the first items only. Some of the changes are about the key.
#[test]
fn all_items_are_changed() -> Result<()> {
    let mut sides = sides(2)?;
    sides.alike(&insert((0..60).map(|id| doc! { "_id": id, "k": id % 2 })))?;
    let text = "x".repeat(1 << 20);
    sides.alike(&many(doc! { "$set": { "k": 1, "text": text } }))?;
    sides.check()
}

/// The first item fails. Statements for all of them would have 600 MB.
#[test]
fn statements_of_all_items_are_not_in_memory_at_once() -> Result<()> {
    let mut sides = sides(100)?;
    sides.alike(&insert((0..6000).map(|id| doc! { "_id": id, "k": 1, "name": "x" })))?;
    let text = "x".repeat(100_000);
    sides.alike(&many(doc! { "$set": { "text": text }, "$inc": { "name": 1 } }))?;
    sides.check()?;
    let peak = sides.proxy.peak_kib()?;
    ensure!(peak < 300 * 1024, "{peak} KiB");
    Ok(())
}
