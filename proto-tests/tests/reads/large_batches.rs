//! Items that exceed a reply together. A page stores the key of its items once, so a few pages may have many
//! of them.

use anyhow::{Result, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::Shape;
use proto_tests::raw::Connection;
use proto_tests::sides::{COLLECTION, Sides};

/// The items. Their keys have more than 16 MB together.
const ITEMS: i32 = 60;
const KEY_BYTES: usize = 300_000;

/// The number of documents in each batch of a `find`.
fn batches(connection: &mut Connection, find: &Document) -> Result<Vec<usize>> {
    let mut reply = connection.command_ok(find)?;
    let mut sizes = Vec::new();
    loop {
        let cursor = reply.get_document("cursor")?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        sizes.push(batch.len());
        let id = cursor.get_i64("id")?;
        if id == 0 {
            return Ok(sizes);
        }
        let more = doc! { "getMore": id, "collection": COLLECTION, "$db": find.get_str("$db")? };
        reply = connection.command_ok(&more)?;
    }
}

#[test]
fn a_batch_of_items_in_the_order_of_an_index_fits_in_a_reply() -> Result<()> {
    let mut sides = Sides::on_a_standalone(Shape {
        time: Some("at".to_owned()),
        max_items: 30,
        ..Shape::new(&["k"])
    })?;
    let index = doc! { "key": { "n": 1 }, "name": "by_number" };
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    let item = |number: i32| {
        let key = (number % 3).to_string().repeat(KEY_BYTES);
        doc! { "_id": number, "k": key, "at": DateTime::from_millis(number.into()), "n": number }
    };
    for numbers in [0..ITEMS / 2, ITEMS / 2..ITEMS] {
        let items: Vec<Document> = numbers.map(item).collect();
        sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    }
    let find = |database: String| {
        doc! { "find": COLLECTION, "sort": { "n": 1 }, "limit": ITEMS, "batchSize": 2, "$db": database }
    };
    let (of_plain, of_shaped) = (find(sides.plain_database()), find(sides.shaped_database()));
    let mut explained = of_shaped.clone();
    explained.remove("$db");
    let explain = doc! { "explain": explained, "verbosity": "queryPlanner", "$db": sides.shaped_database() };
    let explained = sides.shaped.command_ok(&explain)?;
    ensure!(explained.get_document("mongoshape")?.get_str("strategy")? == "index");
    let expected = batches(&mut sides.plain, &of_plain)?;
    ensure!(expected.len() > 2, "{expected:?}");
    let found = batches(&mut sides.shaped, &of_shaped)?;
    ensure!(found == expected, "{found:?} instead of {expected:?}");
    Ok(())
}

#[test]
fn overlapping_pages_that_exceed_a_reply_are_sorted_by_mongod() -> Result<()> {
    const PAGES: i64 = 24;
    let mut sides = Sides::on_a_standalone(Shape {
        time: Some("at".to_owned()),
        max_items: 3,
        ..Shape::new(&["k"])
    })?;
    let text = "x".repeat(400_000);
    // Each page has an item with an early time, so all of them may have the first items.
    let of_page = |page: i64| {
        let item = |number: i64, at: i64| doc! { "_id": page * 3 + number, "k": 1, "at": DateTime::from_millis(at) };
        let [mut first, mut second] = [0, 1].map(|number| item(number, 1000 + page * 2 + number));
        first.insert("text", &text);
        second.insert("text", &text);
        [first, second, item(2, page)]
    };
    for pages in [0..PAGES / 3, PAGES / 3..PAGES / 3 * 2, PAGES / 3 * 2..PAGES] {
        let items: Vec<Document> = pages.flat_map(of_page).collect();
        sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    }
    sides.pages_read(&doc! { "find": COLLECTION, "filter": { "k": 1 }, "sort": { "at": 1 }, "limit": 10 })?;
    let pipelines = sides.proxy.metric(&format!(
        "mongoshape_reads_total{{namespace=\"{}.{COLLECTION}\",strategy=\"pipeline\"}}",
        sides.shaped_database()
    ));
    ensure!(pipelines > 0.5, "the pages were merged by the proxy");
    Ok(())
}
