//! Several statements of one command on the same item, and statements that match nothing.

use anyhow::{Context as _, Result};
use bson::{Document, doc};
use proto_tests::ItemIds;
use proto_tests::sessions::lsid;

use crate::updates::sides::{self, COLLECTION, Sides};

fn statement(filter: Document, change: Document) -> Document {
    doc! { "q": filter, "u": change }
}

/// Statements whose results depend on their order.
fn statements() -> Vec<Vec<Document>> {
    let named = |name: &str| doc! { "$set": { "name": name } };
    let id = |id: i32| doc! { "_id": id };
    let with_name = |name: &str| doc! { "_id": 1, "name": name };
    vec![
        // The first matches nothing before the second is executed.
        vec![
            statement(with_name("b"), named("c")),
            statement(with_name("name 1"), named("b")),
        ],
        // The first leaves the item unchanged, so mongod keeps no retry record of it.
        vec![
            statement(id(2), doc! { "$set": { "n": 2 } }),
            statement(id(2), doc! { "$set": { "n": 20 } }),
            statement(id(99), doc! { "$set": { "n": 1 } }),
        ],
        vec![
            statement(id(3), doc! { "$push": { "tags": "one" } }),
            statement(id(98), doc! { "$push": { "tags": "two" } }),
            statement(doc! { "_id": 3.0 }, doc! { "$push": { "tags": "three" } }),
            statement(doc! { "_id": 3, "tags": "three" }, doc! { "$push": { "tags": "four" } }),
            statement(doc! { "_id": 3, "tags": "none" }, doc! { "$push": { "tags": "five" } }),
            statement(id(4), doc! { "$inc": { "n": 1 } }),
        ],
        // One fails between two of an item.
        vec![
            statement(id(5), doc! { "$inc": { "n": 1 } }),
            statement(id(97), doc! { "$inc": { "n": 1 } }),
            statement(id(5), doc! { "$inc": { "name": 1 } }),
            statement(id(5), doc! { "$inc": { "n": 1 } }),
            statement(id(6), doc! { "$inc": { "n": 1 } }),
        ],
    ]
}

#[test]
fn statements_on_one_item_are_executed_in_order() -> Result<()> {
    for (is_retryable, ordered) in [(false, true), (false, false), (true, true), (true, false)] {
        let mut sides = sides::open()?;
        for (number, updates) in (1_i64..).zip(statements()) {
            let mut command = doc! { "update": COLLECTION, "updates": updates, "ordered": ordered };
            if is_retryable {
                command.extend(doc! { "lsid": lsid("repeated"), "txnNumber": number });
            }
            sides.alike(&command)?;
            sides.check().with_context(|| command.to_string())?;
        }
    }
    Ok(())
}

#[test]
fn statements_on_one_item_are_executed_in_order_on_a_standalone() -> Result<()> {
    let shape = sides::shape(ItemIds::Unique);
    let mut sides = sides::filled(Sides::on_a_standalone(shape)?)?;
    for updates in statements() {
        sides.alike(&doc! { "update": COLLECTION, "updates": updates })?;
        sides.check()?;
    }
    Ok(())
}

/// The second statement would make room for the first, which was refused.
#[test]
fn a_failed_statement_is_not_executed_again() -> Result<()> {
    let mut sides = sides::open()?;
    let index = doc! { "key": { "u": 1 }, "name": "u_1", "unique": true };
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    let updates = vec![
        statement(doc! { "_id": 1 }, doc! { "$set": { "u": 2 } }),
        statement(doc! { "_id": 2 }, doc! { "$set": { "u": 100 } }),
        statement(doc! { "_id": 99 }, doc! { "$set": { "u": 101 } }),
    ];
    sides.alike(&doc! { "update": COLLECTION, "updates": updates, "ordered": false })?;
    sides.check()
}
