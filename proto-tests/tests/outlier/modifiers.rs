//! Pushes with `$position`, `$slice` and `$sort`.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::Outlier;
use proto_tests::sides::{COLLECTION, Sides};

/// Both sides with a document for each of these lengths.
fn sides(lengths: &[i32]) -> Result<Sides<Outlier>> {
    let mut sides = Sides::open(Outlier::new("tags", (5, 7)))?;
    let document = |(id, length): (i32, &i32)| doc! { "_id": id, "tags": (0..*length).collect::<Vec<_>>() };
    let documents: Vec<Document> = (0..).zip(lengths).map(document).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": documents })?;
    Ok(sides)
}

/// The operands of pushes.
fn operands() -> [Document; 8] {
    [
        doc! { "$each": [9], "$position": 0 },
        doc! { "$each": [9, 8], "$position": -1 },
        doc! { "$each": [9, 8, 7, 6, 5, 4, 3], "$slice": -4 },
        doc! { "$each": [], "$slice": 5 },
        doc! { "$each": [9, 8], "$slice": -6, "$sort": 1 },
        doc! { "$each": [9, 8], "$sort": -1 },
        doc! { "$each": [9], "$slice": 0 },
        doc! { "$each": [9], "$position": 1, "$slice": 3 },
    ]
}

fn commands(id: i32, operand: &Document) -> [Document; 2] {
    let push = doc! { "$push": { "tags": operand } };
    let update = doc! { "update": COLLECTION, "updates": [{ "q": { "_id": id }, "u": push.clone() }] };
    let modify = doc! { "findAndModify": COLLECTION, "query": { "_id": id }, "update": push, "new": true };
    [update, modify]
}

#[test]
fn push_with_modifiers_changes_documents_of_any_length() -> Result<()> {
    for operand in operands() {
        let mut sides = sides(&[0, 3, 4, 5, 6, 20])?;
        for id in 0..6 {
            for command in commands(id, &operand) {
                sides.alike(&command)?;
            }
        }
        sides.check()?;
    }
    Ok(())
}

/// mongod changes an inline document itself. No collection for its evaluation or its extras is created.
#[test]
fn push_with_modifiers_to_an_inline_document_is_one_statement() -> Result<()> {
    let mut sides = sides(&[1; 8])?;
    for (id, operand) in (0..).zip(operands()) {
        for command in commands(id, &operand) {
            sides.alike(&command)?;
        }
    }
    sides.check()?;
    let list = doc! { "listCollections": 1, "nameOnly": true, "$db": sides.shaped_database() };
    let reply = sides.plain.command_ok(&list)?;
    let listed = reply.get_document("cursor")?.get_array("firstBatch")?;
    ensure!(listed.len() == 1, "{listed:?}");
    Ok(())
}
