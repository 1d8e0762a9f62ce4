//! An `updateMany` that fails at one item. Earlier items are changed, later items are not.

use anyhow::{Context as _, Result};
use bson::{Bson, Document, doc};
use proto_tests::measure::rows;
use proto_tests::{ItemIds, Shape};

use crate::updates::sides::{ALL_IDS, COLLECTION, Sides, at};

/// More than pages, statements in flight, or a batch have.
const ITEMS: i32 = 220;

fn sides(item_ids: ItemIds, fails: i32) -> Result<Sides> {
    let mut sides = Sides::open(Shape {
        item_ids,
        time: Some("at".to_owned()),
        max_items: 16,
        items_change: true,
        ..Shape::new(&["k"])
    })?;
    let item = |n: i32| {
        let value = if n == fails {
            Bson::String("none".into())
        } else {
            Bson::Int32(n)
        };
        doc! { "_id": n, "k": 1, "at": at(i64::from(n)), "n": value, "u": n, "inner": { "a": n } }
    };
    sides.alike(&doc! { "insert": COLLECTION, "documents": (0..ITEMS).map(item).collect::<Vec<_>>() })?;
    Ok(sides)
}

fn many(filter: Document, change: impl Into<Bson>) -> Document {
    doc! { "q": filter, "u": change, "multi": true }
}

fn run_all(item_ids: ItemIds, fails: i32) -> Result<()> {
    let mut sides = sides(item_ids, fails)?;
    let changes: Vec<Bson> = vec![
        doc! { "$inc": { "n": 1 } }.into(),
        doc! { "$inc": { "n": 1 }, "$set": { "x": 1 } }.into(),
        doc! { "$set": { "n.a": 1, "y": 1 } }.into(),
        vec![doc! { "$set": { "n": { "$add": ["$n", 1] } } }].into(),
        // With another key or time.
        doc! { "$inc": { "n": 1 }, "$set": { "k": 2 } }.into(),
        doc! { "$inc": { "n": 1 }, "$set": { "at": at(5000) } }.into(),
        vec![doc! { "$set": { "k": { "$cond": [{ "$eq": [{ "$mod": ["$u", 3] }, 0] }, 7, "$k"] }, "n": { "$add": ["$n", 1] } } }]
            .into(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let options = [doc! {}, doc! { "writeConcern": { "w": "majority" } }];
        for options in rows(options, 2, number) {
            let mut command = doc! { "update": COLLECTION, "updates": [many(doc! { "k": 1 }, change.clone())] };
            command.extend(options);
            sides.alike(&command)?;
            sides
                .check()
                .with_context(|| format!("{item_ids:?}, fails at {fails}: {command}"))?;
        }
    }
    Ok(())
}

#[test]
fn an_update_of_many_ends_with_the_first_item_that_fails() -> Result<()> {
    for item_ids in ALL_IDS {
        run_all(item_ids, 3)?;
    }
    Ok(())
}

#[test]
fn update_of_many_ends_at_a_failing_first_middle_or_last_item() -> Result<()> {
    for fails in [0, 70, ITEMS - 1] {
        run_all(ItemIds::Unique, fails)?;
    }
    Ok(())
}

#[test]
fn ordered_option_decides_whether_statements_after_a_partial_failure_run() -> Result<()> {
    for ordered in [true, false] {
        let mut sides = sides(ItemIds::Unique, 70)?;
        let updates = vec![
            many(doc! { "u": { "$lt": 5 } }, doc! { "$inc": { "n": 100 } }),
            many(doc! { "k": 1 }, doc! { "$inc": { "n": 1 } }),
            doc! { "q": { "u": 7 }, "u": { "$set": { "z": 1 } } },
            many(doc! { "u": { "$gt": 60 } }, doc! { "$inc": { "n": 1000 } }),
            doc! { "q": { "u": 500 }, "u": { "$set": { "_id": 500, "z": 1, "k": 3, "at": at(1) } }, "upsert": true },
        ];
        sides.alike(&doc! { "update": COLLECTION, "updates": updates, "ordered": ordered })?;
        sides.check()?;
    }
    Ok(())
}
