//! The two collections of these tests, with items in time order.

use anyhow::{Result, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::{ItemIds, Shape};

pub(crate) use proto_tests::sides::{ALL_IDS, COLLECTION, Sides};

pub(crate) fn at(seconds: i64) -> DateTime {
    DateTime::from_millis(1_700_000_000_000 + seconds * 1000)
}

pub(crate) fn seconds(item: &Document) -> Result<i64> {
    Ok((item.get_datetime("at")?.timestamp_millis() - at(0).timestamp_millis()) / 1000)
}

/// Times that are a thousand seconds apart.
pub(crate) fn item(k: i32, n: i32) -> Document {
    doc! { "_id": k * 10_000 + n, "k": k, "n": n, "at": at(i64::from(n) * 1000) }
}

pub(crate) fn shape(item_ids: ItemIds) -> Shape {
    Shape {
        time: Some("at".to_owned()),
        max_items: 4,
        items_change: true,
        rename: vec![("n".to_owned(), "number".to_owned())],
        item_ids,
        ..Shape::new(&["k"])
    }
}

pub(crate) fn set_time(filter: Document, seconds: i64) -> Document {
    doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": { "$set": { "at": at(seconds) } } }] }
}

/// Fails where items are not in the order of their times, or one is there twice.
pub(crate) fn check_order(items: &[Document], direction: i32) -> Result<()> {
    let mut times = items.iter().map(seconds).collect::<Result<Vec<i64>>>()?;
    if direction < 0 {
        times.reverse();
    }
    ensure!(times.is_sorted(), "out of order: {times:?}");
    let mut numbers: Vec<i32> = items.iter().flat_map(|item| item.get_i32("n")).collect();
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    ensure!(
        numbers.len() == all && all == items.len(),
        "one is there twice: {items:?}"
    );
    Ok(())
}

/// The `control` of each page of a key, in order.
pub(crate) fn controls(direct: &mut Connection, database: &str, k: i32) -> Result<Vec<Document>> {
    let sort = doc! { "control.page": 1 };
    let find = doc! { "find": COLLECTION, "filter": { "k": k }, "sort": sort, "$db": database };
    let pages = direct.all(&find)?;
    pages
        .iter()
        .map(|page| Ok(page.get_document("control")?.clone()))
        .collect()
}
