//! `findAndModify` with a projection that fails. mongod evaluates it after the change, so the change is kept,
//! except in a transaction.

use anyhow::Result;
use bson::{Bson, Document, bson, doc};
use proto_tests::Outlier;
use proto_tests::sides::{COLLECTION, Sides};

/// Both sides with the inline document 1 and four outliers.
fn sides() -> Result<Sides<Outlier>> {
    let mut sides = Sides::open(Outlier::new("tags", (5, 7)))?;
    let document = |id: i32| {
        let length = if id == 1 { 3 } else { 20 };
        doc! { "_id": id, "n": id, "name": "a", "tags": tags(length) }
    };
    let documents: Vec<Document> = (1..=5).map(document).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": documents })?;
    Ok(sides)
}

fn tags(length: i32) -> Vec<i32> {
    (0..length).collect()
}

/// Commands on a document each. All fail, because a name is no number.
fn commands() -> Vec<Document> {
    let long = doc! { "name": "a", "tags": tags(20) };
    let short = doc! { "name": "a", "tags": tags(2) };
    let change = |id: i32, update: Bson| doc! { "query": { "_id": id }, "update": update };
    let upsert = |id: i32, set: Document| {
        let mut upsert = change(id, bson!({ "$set": set }));
        upsert.extend(doc! { "upsert": true, "new": true });
        upsert
    };
    let commands = vec![
        doc! { "query": { "_id": 1 }, "remove": true },
        doc! { "query": { "_id": 2 }, "remove": true },
        change(3, bson!({ "$inc": { "n": 1 } })),
        change(4, bson!({ "$push": { "tags": 20 } })),
        change(5, bson!([{ "$set": { "tags": [7] } }])),
        upsert(6, short),
        upsert(7, long),
    ];
    let with_fields = |arguments: Document| {
        let mut command = doc! { "findAndModify": COLLECTION };
        command.extend(arguments);
        command.insert("fields", doc! { "sum": { "$add": ["$name", 1] } });
        command
    };
    commands.into_iter().map(with_fields).collect()
}

#[test]
fn change_is_kept() -> Result<()> {
    let mut sides = sides()?;
    for command in commands() {
        sides.alike(&command)?;
        sides.check()?;
    }
    Ok(())
}

#[test]
fn change_of_a_retryable_command_is_kept() -> Result<()> {
    let mut sides = sides()?;
    for (number, mut command) in (1_i64..).zip(commands()) {
        command.extend(doc! { "lsid": {}, "txnNumber": number });
        sides.alike(&command)?;
        sides.check()?;
    }
    Ok(())
}

#[test]
fn change_in_a_transaction_is_aborted() -> Result<()> {
    let mut sides = sides()?;
    let before = sides.items(true)?;
    for (number, mut command) in (1_i64..).zip(commands()) {
        command.extend(doc! { "lsid": {}, "txnNumber": number, "autocommit": false, "startTransaction": true });
        sides.alike(&command)?;
        sides.check()?;
    }
    assert_eq!(sides.items(true)?, before);
    Ok(())
}

/// Projections that fail for any document, and updates that fail before the projection.
#[test]
fn other_errors_change_what_they_change_in_mongod() -> Result<()> {
    let mut sides = sides()?;
    let (push, failing) = (
        doc! { "$push": { "tags": 1 } },
        doc! { "sum": { "$add": ["$name", 1] } },
    );
    for (update, fields) in [
        (push.clone(), doc! { "one": { "$divide": [1, 0] } }),
        (push, doc! { "n": 1, "name": 0 }),
        (doc! { "$inc": { "name": 1 } }, failing.clone()),
        (doc! { "$push": { "name": 1 } }, failing),
    ] {
        for id in [1, 2] {
            let mut command = doc! { "findAndModify": COLLECTION, "query": { "_id": id } };
            command.extend(doc! { "update": &update, "fields": &fields });
            sides.alike(&command)?;
            sides.check()?;
        }
    }
    Ok(())
}
