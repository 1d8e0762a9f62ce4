//! `item_ids = "unique_in_key"`: an `_id` leads to pages by an index, and may occur once in each key.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{ItemIds, Shape};

const KEYS: i32 = 5;
const ITEMS: i32 = 100;

fn item(number: i32) -> Document {
    doc! { "_id": number, "k": number % KEYS, "n": number }
}

fn sides() -> Result<Sides> {
    let mut sides = Sides::on_a_standalone(Shape {
        item_ids: ItemIds::UniqueInKey,
        items_change: true,
        ..Shape::new(&["k"])
    })?;
    let items: Vec<Document> = (0..ITEMS).map(item).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    Ok(sides)
}

#[test]
fn reads_by_id_fetch_the_page_of_the_item() -> Result<()> {
    let mut sides = sides()?;
    for (filter, most) in [
        (doc! { "_id": 42 }, 1),
        (doc! { "_id": 42, "k": 2 }, 1),
        (doc! { "_id": 42, "k": 3 }, 1),
        (doc! { "_id": 42, "n": 7 }, 1),
        (doc! { "_id": { "$in": [42, 43] } }, 2),
        (doc! { "_id": 1_000 }, 0),
    ] {
        let find = doc! { "find": COLLECTION, "filter": filter };
        let read = sides.pages_read(&find)?;
        ensure!(read <= most, "{find}: {read} pages");
    }
    sides.check()
}

#[test]
fn writes_by_id_change_the_item() -> Result<()> {
    let mut sides = sides()?;
    let update = |filter: Document| doc! { "q": filter, "u": { "$inc": { "n": 1 } } };
    for command in [
        doc! { "update": COLLECTION, "updates": [update(doc! { "_id": 1 }), update(doc! { "_id": 2, "k": 2 }), update(doc! { "_id": 3, "k": 1 })] },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 4 }, "update": { "$inc": { "n": 1 } }, "new": true },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 5 }, "remove": true },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 6 }, "limit": 1 }] },
        doc! { "insert": COLLECTION, "documents": [item(7), item(200)], "ordered": false },
        doc! { "insert": COLLECTION, "documents": [item(201), item(201)] },
    ] {
        sides.alike(&command)?;
        sides.check()?;
    }
    Ok(())
}

#[test]
fn items_of_different_keys_have_the_same_id() -> Result<()> {
    let mut sides = sides()?;
    let database = sides.shaped_database();
    let of_key = |key: i32| doc! { "_id": 42, "k": key, "n": 0 };
    let shaped = &mut sides.shaped;
    let insert = |documents: Vec<Document>| doc! { "insert": COLLECTION, "documents": documents, "$db": &database };
    let reply = shaped.command_ok(&insert(vec![of_key(0), of_key(1)]))?;
    ensure!(
        reply.get_i32("n")? == 2 && !reply.contains_key("writeErrors"),
        "{reply}"
    );
    let reply = shaped.command_ok(&insert(vec![of_key(3), of_key(2)]))?;
    ensure!(reply.get_i32("n")? == 1, "{reply}");
    let error = reply.get_array("writeErrors")?[0]
        .as_document()
        .map(|error| error.get_i32("code"));
    ensure!(matches!(error, Some(Ok(11000))), "{reply}");
    let found = shaped.find(&database, COLLECTION, doc! { "_id": 42 })?;
    ensure!(found.len() == 4, "{found:?}");
    let found = shaped.find(&database, COLLECTION, doc! { "_id": 42, "k": 3 })?;
    ensure!(found == [of_key(3)], "{found:?}");
    let update = doc! { "q": { "_id": 42 }, "u": { "$set": { "n": 9 } }, "multi": true };
    let reply = shaped.command_ok(&doc! { "update": COLLECTION, "updates": [update], "$db": &database })?;
    ensure!(reply.get_i32("nModified")? == 4, "{reply}");
    sides.check_layout()
}
