//! `$addToSet`: which values an outlier has is asked of its base document and of its pages. The array is not rewritten.

use std::thread;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::raw::Connection;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{Outlier, mongod};

/// The element at a position. The first five are in the base document, and the next ones on pages of seven.
fn element(position: i32) -> Bson {
    match position {
        1 => bson!(1.0),
        2 => Bson::Null,
        3 => bson!({ "x": 1, "y": [2] }),
        6 => Bson::Decimal128("6.0".parse().expect("a number")),
        7 => bson!([7, "seven"]),
        8 => bson!({ "y": 1, "x": [2] }),
        9 => Bson::Decimal128("NaN".parse().expect("a number")),
        10 => Bson::Undefined,
        11 => Bson::Symbol("eleven".to_owned()),
        12 => bson!("Twelve"),
        other => other.into(),
    }
}

fn values() -> Vec<Bson> {
    let mut values: Vec<Bson> = (0..21).map(element).collect();
    values.extend([
        bson!(1),
        Bson::Int64(6),
        bson!({ "y": [2], "x": 1 }),
        bson!({ "x": 1.0, "y": [2] }),
        bson!([7]),
        bson!("eleven"),
        bson!("twelve"),
        bson!("new"),
        bson!({ "$f": 1 }),
        bson!({ "$each": [3, 3, 30, "new", 30] }),
        bson!({ "$each": [] }),
        bson!({ "$each": (0..40).collect::<Vec<i32>>() }),
        bson!({ "$each": [1], "x": 1 }),
        bson!({ "$each": 1 }),
    ]);
    values
}

/// Both sides with a document for each of these lengths.
fn sides(lengths: &[i32]) -> Result<Sides<Outlier>> {
    let mut sides = Sides::open(Outlier::new("tags", (5, 7)))?;
    let document =
        |(id, length): (i32, &i32)| doc! { "_id": id, "tags": (0..*length).map(element).collect::<Vec<_>>() };
    let documents: Vec<Document> = (0..).zip(lengths).map(document).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": documents })?;
    Ok(sides)
}

fn add(id: impl Into<Bson>, value: &Bson) -> Document {
    let change = doc! { "$addToSet": { "tags": value } };
    doc! { "update": COLLECTION, "updates": [{ "q": { "_id": id.into() }, "u": change }] }
}

#[test]
fn values_are_compared_as_in_a_plain_array() -> Result<()> {
    let lengths = [0, 4, 5, 6, 12, 13, 20];
    for value in values() {
        let mut sides = sides(&lengths)?;
        for id in 0..i32::try_from(lengths.len())? {
            for _ in 0..2 {
                sides
                    .alike(&add(id, &value))
                    .with_context(|| format!("{value} to {id}"))?;
            }
        }
        let many = doc! { "$addToSet": { "tags": { "$each": ["many", &value] } }, "$inc": { "n": 1 } };
        sides.alike(&doc! { "update": COLLECTION, "updates": [{ "q": {}, "u": many, "multi": true }] })?;
        sides.check().with_context(|| value.to_string())?;
    }
    Ok(())
}

/// mongod would set another element if the condition on the array determined what `$` denotes.
#[test]
fn a_positional_operator_denotes_an_element_of_the_filter() -> Result<()> {
    let mut sides = Sides::open(Outlier::new("tags", (5, 7)))?;
    let document = |id: i32| doc! { "_id": id, "sizes": [7, 8, 9], "tags": (0..id).collect::<Vec<_>>() };
    let documents: Vec<Document> = [3, 5, 6, 13].map(document).into();
    sides.alike(&doc! { "insert": COLLECTION, "documents": documents })?;
    for id in [3, 5, 6, 13] {
        for values in [[2, 1], [2, 40]] {
            let change = doc! { "$addToSet": { "tags": { "$each": values } }, "$set": { "sizes.$": id } };
            for size in [9, 8] {
                let filter = doc! { "_id": id, "sizes": size };
                sides.alike(&doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": &change }] })?;
            }
        }
    }
    sides.check()
}

/// Any command on the collection or its extras.
fn on_documents(command: &Document) -> Option<String> {
    let (name, collection) = command.iter().next()?;
    let collection = collection.as_str()?;
    collection.contains(COLLECTION).then(|| format!("{name} {collection}"))
}

#[test]
fn an_addition_to_an_outlier_is_two_queries_and_one_statement() -> Result<()> {
    let mongod = mongod::shared();
    let relay = StoppingRelay::to(mongod.address(), on_documents)?;
    let mut sides = Sides::at(Outlier::new("tags", (5, 7)), (relay.uri(), mongod.address()))?;
    let tags: Vec<i32> = (0..700).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": [{ "_id": 1, "tags": tags }] })?;
    sides.alike(&add(1, &bson!("first")))?;
    for value in [
        bson!("second"),
        bson!(3),
        bson!(699),
        bson!({ "$each": [1, 600, "third", "second"] }),
    ] {
        relay.arm(None);
        sides.alike(&add(1, &value))?;
        let expected = [
            format!("find {COLLECTION}"),
            format!("find extra_{COLLECTION}"),
            format!("update {COLLECTION}"),
        ];
        let commands = relay.commands();
        ensure!(
            commands.starts_with(&expected) && commands.len() < 12,
            "{value}: {commands:?}"
        );
        ensure!(
            !commands.iter().any(|command| command.starts_with("insert")),
            "{value}: {commands:?}"
        );
    }
    sides.check()
}

/// Clients of two proxies add the same values, more than a tail takes, to a document that becomes an outlier.
#[test]
fn concurrent_additions_leave_each_value_once() -> Result<()> {
    // With the second document, the collection of extras exists.
    let mut sides = sides(&[0, 20])?;
    let other = sides.another_proxy()?;
    let database = sides.shaped_database();
    let address = sides.shaped.stream().peer_addr()?;
    let clients = (0..8).map(|client: i32| {
        let database = database.clone();
        let address = if client % 2 == 0 { address } else { other.address() };
        move || -> Result<()> {
            let mut connection = Connection::open(address)?;
            for step in 0..60 {
                let number = (step * 7 + client) % 60;
                let mut command = add(0, &format!("tag{number}").into());
                command.insert("$db", &database);
                let reply = connection.command_ok(&command)?;
                ensure!(reply.get_i32("n")? == 1, "{reply}");
            }
            Ok(())
        }
    });
    let threads: Vec<_> = clients.map(thread::spawn).collect();
    for thread in threads {
        thread.join().expect("the client panicked")?;
    }
    let items = sides.items(true)?;
    let item = items.iter().find(|item| item.get_i32("_id").is_ok_and(|id| id == 0));
    let tags = item.context("the document is gone")?.get_array("tags")?;
    let mut tags: Vec<&str> = tags.iter().filter_map(Bson::as_str).collect();
    tags.sort_unstable();
    let mut expected: Vec<String> = (0..60).map(|number| format!("tag{number}")).collect();
    expected.sort_unstable();
    ensure!(tags == expected, "{tags:?}");
    sides.check_layout()
}
