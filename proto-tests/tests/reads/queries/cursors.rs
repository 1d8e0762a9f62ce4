//! Cursors that are opened without reading a batch.

use anyhow::Result;
use bson::{DateTime, Document, doc};
use proto_tests::Shape;
use proto_tests::raw::Connection;
use proto_tests::sides::{COLLECTION, Sides};

fn at(second: i64) -> DateTime {
    DateTime::from_millis(1_700_000_000_000 + second * 1000)
}

/// For each batch of a cursor whether it is left open, and how many documents it brings.
fn batches(connection: &mut Connection, command: &Document, database: &str) -> Result<Vec<(bool, usize)>> {
    let mut command = command.clone();
    command.insert("$db", database);
    let mut reply = connection.command_ok(&command)?;
    let mut batches = Vec::new();
    loop {
        let cursor = reply.get_document("cursor")?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        let id = cursor.get_i64("id")?;
        batches.push((id != 0, batch.len()));
        if id == 0 || batches.len() > 20 {
            return Ok(batches);
        }
        reply = connection.command_ok(&doc! { "getMore": id, "collection": COLLECTION, "$db": database })?;
    }
}

#[test]
fn a_batch_of_none_opens_a_cursor_whether_anything_matches_or_not() -> Result<()> {
    let shape = Shape {
        time: Some("t".to_owned()),
        max_items: 3,
        ..Shape::new(&["k"])
    };
    let mut sides = Sides::on_a_standalone(shape)?;
    let filters = [
        doc! {},
        doc! { "k": 1 },
        doc! { "k": 9 },
        doc! { "k": { "$in": [8, 9] } },
        doc! { "k": 1, "t": { "$gt": at(5000) } },
        doc! { "k": 1, "t": { "$lt": at(3) } },
        doc! { "_id": 4 },
        doc! { "_id": 4444 },
        doc! { "x": 1 },
        doc! { "x": 9 },
    ];
    let options = [
        doc! {},
        doc! { "sort": { "t": 1 } },
        doc! { "sort": { "t": -1 } },
        doc! { "skip": 50 },
        doc! { "sort": { "t": -1 }, "skip": 50 },
        doc! { "limit": 3 },
        doc! { "sort": { "_id": 1 }, "limit": 3 },
        doc! { "sort": { "_id": 1 }, "limit": 3, "skip": 50 },
        doc! { "singleBatch": true },
    ];
    let of_both = |sides: &mut Sides| -> Result<()> {
        for filter in &filters {
            for option in &options {
                let mut find = doc! { "find": COLLECTION, "filter": filter, "batchSize": 0 };
                find.extend(option.clone());
                let stages = vec![doc! { "$match": filter }];
                let aggregate = doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": { "batchSize": 0 } };
                let (plain, shaped) = (sides.plain_database(), sides.shaped_database());
                for command in [find, aggregate] {
                    let plain = batches(&mut sides.plain, &command, &plain)?;
                    let shaped = batches(&mut sides.shaped, &command, &shaped)?;
                    assert_eq!(plain, shaped, "{command}");
                }
            }
        }
        Ok(())
    };
    // The collections are not there.
    of_both(&mut sides)?;
    let items: Vec<Document> = (0..12)
        .map(|number| doc! { "_id": number, "k": 1, "t": at(number), "x": number % 4 })
        .collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    of_both(&mut sides)
}
