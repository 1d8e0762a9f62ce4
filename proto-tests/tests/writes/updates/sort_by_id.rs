//! The sort of a `findAndModify` whose query demands an `_id`. At most one document matches, but the command
//! fails where mongod parses an invalid sort, or sorts a document by two arrays.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::sides::{COLLECTION, Pattern, Sides};
use proto_tests::{Outlier, Shape};

fn document(id: i32) -> Document {
    let tags: Vec<i32> = (0..id).collect();
    doc! { "_id": id, "k": id % 2, "n": id, "tags": tags, "lines": [{ "a": 1, "b": 2 }, { "a": 3, "b": 4 }] }
}

fn commands(id: i32) -> Vec<Document> {
    let sorts = [
        doc! { "n": "x" },
        doc! { "n": 0 },
        doc! { "": 1 },
        doc! { "n..x": 1 },
        doc! { "n": 1, "k": "x" },
        doc! { "tags": 1, "lines": 1 },
        doc! { "lines.a": 1, "lines.b": -1 },
        doc! { "n": -1 },
    ];
    let queries = [
        doc! { "_id": id },
        doc! { "_id": { "$eq": id } },
        doc! { "_id": id, "n": { "$lt": 30 } },
    ];
    let changes = [doc! { "update": { "$inc": { "n": 1 } } }, doc! { "remove": true }];
    let mut commands = Vec::new();
    for sort in &sorts {
        for query in &queries {
            for fields in [doc! {}, doc! { "n": 1, "k": 1 }] {
                for change in &changes {
                    let mut command = doc! { "findAndModify": COLLECTION, "query": query, "sort": sort };
                    command.extend(doc! { "fields": &fields });
                    command.extend(change.clone());
                    commands.push(command);
                }
            }
        }
    }
    commands
}

fn check<P: Pattern>(sides: &mut Sides<P>) -> Result<()> {
    let outcome = |reply: &Document| ["code", "value", "lastErrorObject"].map(|name| reply.get(name).cloned());
    // The array of the second document is long.
    for id in [3, 12] {
        for command in commands(id) {
            // It is there already, unless the command before has removed it.
            sides.run(&doc! { "insert": COLLECTION, "documents": [document(id)] })?;
            let [plain, shaped] = sides.run(&command)?;
            ensure!(
                outcome(&plain) == outcome(&shaped),
                "{command}\n  plain:  {plain}\n  shaped: {shaped}"
            );
        }
        sides.check()?;
    }
    Ok(())
}

#[test]
fn a_sort_fails_on_pages_where_it_fails_on_a_plain_collection() -> Result<()> {
    check(&mut Sides::open(Shape {
        items_change: true,
        ..Shape::new(&["k"])
    })?)
}

#[test]
fn a_sort_fails_on_outliers_where_it_fails_on_a_plain_collection() -> Result<()> {
    check(&mut Sides::open(Outlier::new("tags", (5, 7)))?)
}
