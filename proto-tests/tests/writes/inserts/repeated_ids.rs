//! Unordered inserts of several documents with one `_id`: the first that is not refused for another reason is
//! stored.

use anyhow::{Context as _, Result};
use bson::{Document, doc};
use proto_tests::Shape;
use proto_tests::sessions::lsid;
use proto_tests::sides::{COLLECTION, Sides};

fn item(id: i32, key: i32, email: &str) -> Document {
    doc! { "_id": id, "k": key, "email": email }
}

/// Batches beside a stored document with the email `x`.
fn batches() -> Vec<Vec<Document>> {
    vec![
        vec![item(1, 1, "x"), item(1, 1, "y")],
        vec![item(2, 1, "x"), item(2, 2, "a"), item(2, 1, "b"), item(3, 1, "c")],
        vec![item(4, 1, "d"), item(4, 2, "x"), item(5, 1, "e"), item(5, 1, "e")],
        // One waits for its `_id`, and another for its email.
        vec![item(6, 2, "x"), item(6, 1, "f"), item(7, 2, "f"), item(7, 1, "g")],
        vec![item(9, 1, "h"), item(9, 2, "i"), item(8, 2, "j"), item(8, 2, "x")],
    ]
}

fn sides(max_items: usize) -> Result<Sides> {
    let mut sides = Sides::open(Shape {
        max_items,
        ..Shape::new(&["k"])
    })?;
    sides.alike(&doc! { "create": COLLECTION, "validator": { "email": { "$ne": "" } } })?;
    let index = doc! { "key": { "email": 1 }, "name": "email_1", "unique": true };
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    sides.alike(&doc! { "insert": COLLECTION, "documents": [item(9, 1, "x")] })?;
    Ok(sides)
}

#[test]
fn a_refused_document_keeps_no_other_with_its_id_from_being_stored() -> Result<()> {
    for max_items in [2, 50] {
        for ordered in [false, true] {
            let mut sides = sides(max_items)?;
            // The last one has two documents that do not satisfy the validator.
            let invalid = vec![item(10, 1, ""), item(10, 2, "k"), item(10, 2, "")];
            for documents in batches().into_iter().chain([invalid]) {
                let command = doc! { "insert": COLLECTION, "documents": documents, "ordered": ordered };
                sides.alike(&command).with_context(|| format!("{max_items} a page"))?;
                sides.check()?;
            }
        }
    }
    Ok(())
}

#[test]
fn a_resent_insert_stores_none_of_them_again() -> Result<()> {
    for max_items in [2, 50] {
        let mut sides = sides(max_items)?;
        for (number, documents) in (1_i64..).zip(batches()) {
            let command = doc! {
                "insert": COLLECTION, "documents": documents, "ordered": false, "lsid": lsid("repeated"),
                "txnNumber": number,
            };
            for sent in 1..=3 {
                sides.alike(&command).with_context(|| format!("sent {sent} times"))?;
                sides.check()?;
            }
        }
    }
    Ok(())
}
