//! Repeated fields, and equal values of different types.

use anyhow::{Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::measure::rows;
use proto_tests::raw::{self, Connection};
use proto_tests::{ItemIds, replies};

use super::{Table, documents};
use crate::updates::sides::{COLLECTION, at};

/// Runs a command whose fields `twin` become a second `name`.
fn run(connection: &mut Connection, command: &Document) -> Result<Document> {
    let mut frame = raw::request(1, command)?;
    let positions: Vec<usize> = (0..frame.len().saturating_sub(5))
        .filter(|start| &frame[*start..*start + 5] == b"twin\0")
        .collect();
    for start in positions {
        frame[start..start + 4].copy_from_slice(b"name");
    }
    connection.send(&frame)?;
    raw::document(&connection.receive()?)
}

/// Updates of the field, of what it lies in, and of others.
fn updates() -> Vec<Bson> {
    // Without a pipeline that sets a repeated field: it ends mongod 6.0.5.
    vec![
        bson!({ "$set": { "n": 5 } }),
        bson!({ "$set": { "name": 5 } }),
        bson!({ "$unset": { "name": 1 } }),
        bson!({ "$inc": { "name": 5 } }),
        bson!({ "$rename": { "name": "renamed" } }),
        bson!({ "$set": { "inner.name": 5 } }),
        bson!({ "$set": { "k": 5 } }),
        bson!({ "$set": { "at": at(900) } }),
        bson!([{ "$set": { "n": 5 } }]),
        bson!([{ "$set": { "inner.other": 5 } }]),
        bson!([{ "$set": { "copy": "$inner" } }]),
        bson!([{ "$set": { "copy": "$$ROOT" } }]),
        bson!([{ "$set": { "n": "$name" } }]),
        bson!([{ "$unset": "n" }]),
        bson!([{ "$set": { "k": 5 } }]),
        bson!([{ "$set": { "at": at(900) } }]),
        bson!([{ "$set": { "n": "$n" } }]),
        bson!([{ "$replaceWith": "$$ROOT" }]),
        bson!([{ "$replaceWith": { "$mergeObjects": ["$$ROOT", { "n": 5 }] } }]),
        bson!({ "k": 1, "at": at(1), "inner": { "name": 1, "twin": 2 } }),
    ]
}

#[test]
fn fields_repeated_in_a_field_are_changed_as_in_a_plain_collection() -> Result<()> {
    let mut differing = Vec::new();
    for (place, item_ids) in [ItemIds::Unique, ItemIds::Stored].into_iter().enumerate() {
        let mut table = Table::open(item_ids)?;
        let sides = &mut table.sides;
        let databases = [sides.plain_database(), sides.shaped_database()];
        for (number, update) in updates().into_iter().enumerate() {
            let filters = [
                (doc! { "_id": 1 }, false),
                (doc! { "n": 1 }, false),
                (doc! { "_id": 7 }, true),
            ];
            for (q, upsert) in rows(filters, 3, number + place) {
                let mut stored = Vec::new();
                for (connection, database) in [&mut sides.plain, &mut sides.shaped].into_iter().zip(&databases) {
                    let all = doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }], "$db": database };
                    connection.command_ok(&all)?;
                    let item = doc! {
                        "_id": 1, "k": 1, "at": at(1), "name": 1, "n": 1,
                        "inner": { "name": 1, "x": 1, "twin": 2 }, "list": [{ "name": 1, "twin": 2 }],
                    };
                    let other = doc! { "_id": 2, "k": 1, "at": at(2), "n": 2 };
                    let insert = doc! { "insert": COLLECTION, "documents": [item, other], "$db": database };
                    run(connection, &insert)?;
                    let updates = [doc! { "q": q.clone(), "u": update.clone(), "upsert": upsert }];
                    let reply = run(
                        connection,
                        &doc! { "update": COLLECTION, "updates": updates.to_vec(), "$db": database },
                    )?;
                    let texts: Vec<String> = documents(connection, database)?
                        .into_iter()
                        .map(|stored| stored.text)
                        .collect();
                    stored.push(format!(
                        "{} {}",
                        replies::comparable(&reply, &["n", "nModified", "code"], database),
                        texts.join("; ")
                    ));
                }
                if stored[0] != stored[1] {
                    differing.push(format!(
                        "{item_ids:?} {q} {update}\n  plain:  {}\n  shaped: {}",
                        stored[0], stored[1]
                    ));
                }
            }
        }
    }
    ensure!(
        differing.is_empty(),
        "{} differ\n{}",
        differing.len(),
        differing.join("\n")
    );
    Ok(())
}

#[test]
fn equal_keys_of_different_types_keep_their_types() -> Result<()> {
    let symbol = |text: &str| Bson::Symbol(text.to_owned());
    let keys = [
        bson!("x"),
        bson!({ "s": "x" }),
        bson!({ "s": symbol("x") }),
        bson!({ "s": { "t": ["x"] } }),
        bson!({ "s": { "t": [symbol("x")] } }),
        bson!({ "s": 1 }),
        bson!({ "s": 1_i64 }),
        bson!({ "s": 1.0 }),
        Bson::Null,
        bson!({ "s": Bson::Null }),
        bson!({ "s": Bson::Undefined }),
    ];
    for reversed in [false, true] {
        let mut table = Table::open(ItemIds::Unique)?;
        let mut keys: Vec<Bson> = keys.to_vec();
        if reversed {
            keys.reverse();
        }
        let items = (0..)
            .zip(&keys)
            .map(|(id, key): (i32, _)| doc! { "_id": id, "k": key, "n": id, "at": at(id.into()) });
        let items: Vec<Document> = items.collect();
        let mut alike = |command: &Document| -> Result<()> {
            let [plain, shaped] = table.sides.run(command)?;
            ensure!(
                super::outcome(&plain) == super::outcome(&shaped),
                "{command}\n {plain}\n {shaped}"
            );
            let texts = |stored: Vec<super::Stored>| stored.into_iter().map(|stored| stored.text).collect::<Vec<_>>();
            let (plain, shaped) = (texts(table.all(false)?), texts(table.all(true)?));
            for (plain, shaped) in plain.iter().zip(&shaped) {
                ensure!(plain == shaped, "{command}\n {plain}\n {shaped}");
            }
            Ok(())
        };
        alike(&doc! { "insert": COLLECTION, "documents": items })?;
        let statement = |u: Bson| doc! { "update": COLLECTION, "updates": [{ "q": {}, "u": u, "multi": true }] };
        alike(&statement(bson!({ "$inc": { "n": 1 } })))?;
        alike(&statement(bson!([{ "$set": { "n": 7 } }])))?;
        alike(&statement(bson!([{ "$set": { "copy": "$k" } }])))?;
        for key in &keys {
            alike(&statement(bson!({ "$set": { "k": key.clone() } })))?;
        }
        for key in &keys {
            alike(&statement(bson!([{ "$set": { "k": { "$literal": key.clone() } } }])))?;
        }
    }
    Ok(())
}

#[test]
fn a_field_repeated_at_the_top_is_refused_by_every_write() -> Result<()> {
    let mut table = Table::open(ItemIds::Unique)?;
    let database = table.sides.shaped_database();
    let item = doc! { "_id": 1, "k": 1, "at": at(1), "name": 1 };
    table
        .sides
        .alike(&doc! { "insert": COLLECTION, "documents": [&item] })?;
    let twins = doc! { "_id": 1, "k": 1, "name": 1, "twin": 2 };
    let update = |u: Bson| doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 1 }, "u": u }] };
    let literal = bson!([{ "$replaceWith": { "$literal": &twins } }]);
    for mut command in [
        doc! { "insert": COLLECTION, "documents": [{ "_id": 2, "k": 1, "name": 1, "twin": 2 }] },
        update(bson!(&twins)),
        update(literal.clone()),
        doc! { "findAndModify": COLLECTION, "query": { "_id": 1 }, "update": &twins },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 1 }, "update": literal },
    ] {
        command.insert("$db", &database);
        let reply = run(&mut table.sides.shaped, &command)?;
        ensure!(
            super::is_refusal(&reply) && reply.to_string().contains("the field 'name' twice"),
            "{command}: {reply}"
        );
    }
    ensure!(table.sides.items(true)? == [item]);
    Ok(())
}
