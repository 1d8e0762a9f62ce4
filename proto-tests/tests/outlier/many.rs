//! Writes of more documents, or of more pages, than one command can have.

use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::Outlier;
use proto_tests::sides::{COLLECTION, Sides};

/// What an `_id` weighs: 90 of them are more than one command takes.
const ID_BYTES: usize = 200_000;

/// Both sides with this many documents, each second an outlier, and an index on a number.
fn sides(count: i32) -> Result<Sides<Outlier>> {
    let mut sides = Sides::on_a_standalone(Outlier::new("tags", (5, 7)))?;
    let index = doc! { "key": { "n": 1 }, "name": "n_1" };
    sides.alike(&doc! { "insert": COLLECTION, "documents": [{ "_id": "first", "tags": [] }] })?;
    let [_, _] = sides.run(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    let document = |number: i32| {
        let id = format!("{number:04}{}", "x".repeat(ID_BYTES));
        let length = if number % 2 == 0 { 3 } else { 12 };
        // In another order than that of the `_id`s.
        doc! { "_id": id, "n": (number * 37) % 101, "tags": (0..length).collect::<Vec<_>>() }
    };
    let documents: Vec<Document> = (0..count).map(document).collect();
    for some in documents.chunks(40) {
        sides.alike(&doc! { "insert": COLLECTION, "documents": some })?;
    }
    Ok(sides)
}

fn check(sides: &mut Sides<Outlier>) -> Result<()> {
    let all = |is_shaped: bool, sides: &mut Sides<Outlier>| -> Result<Vec<Document>> {
        let (connection, database) = if is_shaped {
            (&mut sides.shaped, format!("{}_s", sides.database))
        } else {
            (&mut sides.plain, format!("{}_n", sides.database))
        };
        connection.all(&doc! { "find": COLLECTION, "sort": { "_id": 1 }, "batchSize": 20, "$db": database })
    };
    let both = [all(false, sides)?, all(true, sides)?];
    ensure!(both[0] == both[1], "{} and {} documents", both[0].len(), both[1].len());
    Ok(())
}

#[test]
fn update_of_many_changes_each_document_once_if_it_moves_in_an_index() -> Result<()> {
    for filter in [doc! { "n": { "$gte": 0 } }, doc! { "n": { "$gte": 0 }, "tags": 2 }] {
        let mut sides = sides(90)?;
        let change = doc! { "$inc": { "n": 1000 }, "$push": { "tags": "x" } };
        let statement = doc! { "q": filter, "u": change, "multi": true, "hint": "n_1" };
        let reply = sides.alike(&doc! { "update": COLLECTION, "updates": [statement] })?;
        ensure!(reply.get_i32("nModified")? == 90, "{reply}");
        check(&mut sides)?;
    }
    Ok(())
}

#[test]
fn a_delete_of_many_takes_more_ids_than_one_command_holds() -> Result<()> {
    for filter in [doc! { "n": { "$gte": 0 } }, doc! { "tags": 2 }, doc! { "tags": 11 }] {
        let mut sides = sides(90)?;
        sides.alike(&doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": 0 }] })?;
        check(&mut sides)?;
        let pages = doc! { "find": format!("extra_{COLLECTION}"), "limit": 1, "projection": { "_id": 1 }, "$db": sides.shaped_database() };
        let left = sides.plain.all(&pages)?.len();
        let outliers = sides
            .items(true)?
            .iter()
            .filter(|item| item.get_array("tags").is_ok_and(|tags| tags.len() > 5))
            .count();
        ensure!((left == 0) == (outliers == 0), "{left} pages are left");
    }
    Ok(())
}

#[test]
fn a_document_may_have_more_pages_than_one_insert_takes() -> Result<()> {
    let mut sides = Sides::on_a_standalone(Outlier::new("tags", (5, 1)))?;
    for connection in [&sides.plain, &sides.shaped] {
        connection.stream().set_read_timeout(Some(Duration::from_mins(2)))?;
    }
    let long = doc! { "_id": 1, "tags": (0..100_010).collect::<Vec<i32>>() };
    sides.alike(&doc! { "insert": COLLECTION, "documents": [long] })?;
    let count =
        doc! { "aggregate": COLLECTION, "pipeline": [{ "$project": { "n": { "$size": "$tags" } } }], "cursor": {} };
    let mut found = Vec::new();
    let databases = [sides.plain_database(), sides.shaped_database()];
    for (connection, database) in [&mut sides.plain, &mut sides.shaped].into_iter().zip(databases) {
        let mut count = count.clone();
        count.insert("$db", database);
        found.push(connection.all(&count)?);
    }
    ensure!(found[0] == found[1], "{found:?}");
    Ok(())
}
