//! Unordered inserts of several documents with one `_id`: the first that is not refused for another reason is
//! stored.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::sessions::lsid;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{Shape, mongod};

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

/// The name of a command on the collection.
fn of_collection(command: &Document) -> Option<String> {
    let (name, collection) = command.iter().next()?;
    (collection.as_str() == Some(COLLECTION)).then(|| name.clone())
}

/// Inserts of many repeated values do not take a round trip for each.
#[test]
fn many_repeated_documents_take_a_few_commands() -> Result<()> {
    const PAIRS: i32 = 1000;
    let set = mongod::shared_replica_set();
    let relay = StoppingRelay::to(set.address(), of_collection)?;
    let mut sides = Sides::at(Shape::new(&["k"]), (relay.uri(), set.address()))?;
    let index = doc! { "key": { "email": 1 }, "name": "email_1", "unique": true };
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    let number = |id: i32, of: i32| doc! { "_id": id, "k": of, "email": format!("{of} {id}") };
    let of_one_key = (0..PAIRS).flat_map(|id| [number(id, 1), number(id, 1)]);
    // The repeated documents of each key are between others.
    let of_two_keys = (PAIRS..2 * PAIRS).flat_map(|id| [number(id, id % 2), number(id, 1 - id % 2)]);
    let repeated = |id: i32| doc! { "_id": id, "k": 1, "email": (id / 2).to_string() };
    let of_index = (2 * PAIRS..4 * PAIRS).map(repeated);
    let batches: [Vec<Document>; 3] = [of_one_key.collect(), of_two_keys.collect(), of_index.collect()];
    for (transaction, documents) in (1_i64..).zip(&batches) {
        let command = doc! { "insert": COLLECTION, "documents": documents, "ordered": false };
        let mut retryable = command.clone();
        retryable.extend(doc! { "lsid": lsid("pairs"), "txnNumber": transaction });
        // A retryable push has one document, so there is a statement for each value of the unique index.
        let commands = if transaction < 3 {
            vec![&retryable, &command]
        } else {
            vec![&command]
        };
        for command in commands {
            sides.alike(&doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] })?;
            relay.arm(None);
            let reply = sides.alike(command)?;
            ensure!(reply.get_i32("n")? == PAIRS, "{reply}");
            let commands = relay.commands();
            ensure!(commands.len() <= 30, "{commands:?}");
        }
    }
    sides.check()
}
