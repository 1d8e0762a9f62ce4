//! Several statements of one command on the same item, and statements that match nothing.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::measure::rows;
use proto_tests::sessions::lsid;
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{ItemIds, mongod};

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

/// The name of a command on the collection.
fn of_collection(command: &Document) -> Option<String> {
    let (name, collection) = command.iter().next()?;
    (collection.as_str() == Some(COLLECTION)).then(|| name.clone())
}

/// The collections, with a proxy before the first that counts its commands.
fn counted() -> Result<(Sides, StoppingRelay)> {
    let set = mongod::shared_replica_set();
    let relay = StoppingRelay::to(set.address(), of_collection)?;
    let sides = Sides::at(sides::shape(ItemIds::Unique), (relay.uri(), set.address()))?;
    Ok((sides::filled(sides)?, relay))
}

/// Many statements on few items take a few commands, also if one of them matches nothing and another fails.
#[test]
fn many_statements_on_few_items_take_a_few_commands() -> Result<()> {
    let (mut sides, relay) = counted()?;
    let increment = |number: i32| statement(doc! { "_id": number % 10 }, doc! { "$inc": { "n": 1 } });
    let all_match: Vec<Document> = (0..2500).map(increment).collect();
    let mut some_do_not = all_match.clone();
    some_do_not[500] = statement(doc! { "_id": 5, "name": "none" }, doc! { "$set": { "n": 0 } });
    some_do_not[1800] = statement(doc! { "_id": 7 }, doc! { "$inc": { "name": 1 } });
    let mut number = 0_i64;
    let cases = [
        (&all_match, true, 2),
        (&all_match, false, 2),
        (&some_do_not, true, 12),
        (&some_do_not, false, 12),
    ];
    for (place, (updates, ordered, most)) in cases.into_iter().enumerate() {
        for is_retryable in rows([false, true], 2, place + place / 2) {
            number += 1;
            let mut command = doc! { "update": COLLECTION, "updates": updates, "ordered": ordered };
            if is_retryable {
                command.extend(doc! { "lsid": lsid("counted"), "txnNumber": number });
            }
            relay.arm(None);
            sides.alike(&command)?;
            let commands = relay.commands();
            ensure!(commands.len() <= most, "{commands:?}");
            sides.check()?;
        }
    }
    Ok(())
}

/// Each statement fails or matches no item, so they are sent in several commands.
#[test]
fn statements_that_do_not_match_are_executed_in_order() -> Result<()> {
    let (mut sides, _relay) = counted()?;
    let missing = |number: i32| statement(doc! { "_id": 1000 + number % 3 }, doc! { "$inc": { "n": 1 } });
    let failing = |number: i32| statement(doc! { "_id": number % 3 }, doc! { "$inc": { "name": 1 } });
    let increment = |number: i32| statement(doc! { "_id": number % 3 }, doc! { "$inc": { "n": 1 } });
    let kinds = |number: i32| [missing(number), failing(number), increment(number)];
    let updates: Vec<Document> = (0..12).flat_map(kinds).collect();
    for ordered in [true, false] {
        sides.alike(&doc! { "update": COLLECTION, "updates": &updates, "ordered": ordered })?;
        sides.check()?;
    }
    Ok(())
}

#[test]
fn missing_items_are_not_looked_up_one_by_one() -> Result<()> {
    let (mut sides, relay) = counted()?;
    let set = |id: i32| statement(doc! { "_id": id }, doc! { "$set": { "z": id } });
    let updates: Vec<Document> = (30..1030).map(set).collect();
    relay.arm(None);
    let reply = sides.alike(&doc! { "update": COLLECTION, "updates": updates })?;
    ensure!(reply.get_i32("n")? == 10, "{reply}");
    let commands = relay.commands();
    ensure!(commands.len() <= 20, "{commands:?}");
    sides.check()
}
