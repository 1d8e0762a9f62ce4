//! Writes whose filter selects by distance.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::measure::rows;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{Outlier, replies};

/// Both sides with documents at x = 0, 1, 2 .., the odd ones outliers, and both kinds of geospatial indexes.
fn sides() -> Result<Sides<Outlier>> {
    let mut sides = Sides::open(Outlier::new("tags", (5, 7)))?;
    let document = |id: i32| {
        let at = [f64::from(id), 0.0];
        let tags: Vec<i32> = (0..3 + 10 * (id % 2)).collect();
        doc! { "_id": id, "at": at, "place": { "type": "Point", "coordinates": at }, "marks": [id, id + 1], "tags": tags }
    };
    sides.alike(&doc! { "insert": COLLECTION, "documents": (0..6).map(document).collect::<Vec<_>>() })?;
    let indexes = [
        doc! { "key": { "at": "2d" }, "name": "flat" },
        doc! { "key": { "place": "2dsphere" }, "name": "sphere" },
    ];
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": indexes.to_vec() })?;
    Ok(sides)
}

/// Filters by distance. The nearest document differs.
fn filters() -> Vec<Document> {
    let point = |x: f64| doc! { "type": "Point", "coordinates": [x, 0.0] };
    vec![
        doc! { "at": { "$near": [1.2, 0] } },
        doc! { "at": { "$near": [1.2, 0], "$maxDistance": 2.5 }, "_id": { "$gt": 1 } },
        doc! { "$and": [{ "at": { "$nearSphere": [3.2, 0] } }, { "marks": { "$gte": 4 } }] },
        doc! { "place": { "$near": { "$geometry": point(4.8), "$maxDistance": 500_000 } } },
        doc! { "place": { "$nearSphere": { "$geometry": point(3.0), "$minDistance": 1, "$maxDistance": 150_000 } } },
        doc! { "_id": 3, "at": { "$near": [3, 0] } },
        // It matches nothing.
        doc! { "_id": 3, "at": { "$near": [9, 0], "$maxDistance": 1 } },
        doc! { "at": { "$near": [90, 0], "$maxDistance": 1 } },
    ]
}

#[test]
fn outliers_are_updated_by_distance() -> Result<()> {
    let changes = [
        doc! { "$push": { "tags": "new" } },
        doc! { "$pull": { "tags": { "$gt": 4 } } },
        doc! { "$set": { "tags.9": "x", "near": true } },
        doc! { "$set": { "near": true } },
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut sides = sides()?;
        // Three changes take different statements, and the three together all.
        for statement in rows(statements(change), 3, number) {
            let [plain, shaped] = sides.run(&doc! { "update": COLLECTION, "updates": [&statement] })?;
            let counts = |reply: &Document| (reply.get_i32("n").ok(), reply.get_i32("nModified").ok());
            ensure!(
                counts(&plain) == counts(&shaped) && plain.get("code") == shaped.get("code"),
                "{statement}\n  plain:  {plain}\n  shaped: {shaped}"
            );
            remove_upserted(&mut sides)?;
            sides.check()?;
        }
    }
    Ok(())
}

/// Statements that make the change, with each filter.
fn statements(change: &Document) -> Vec<Document> {
    let mut statements = Vec::new();
    for filter in filters() {
        for (multi, upsert) in [(false, false), (false, true), (true, false), (true, true)] {
            statements.push(doc! { "q": &filter, "u": change, "multi": multi, "upsert": upsert });
        }
    }
    statements
}

/// Documents that an upsert has inserted have generated `_id`s.
fn remove_upserted(sides: &mut Sides<Outlier>) -> Result<()> {
    let generated = doc! { "q": { "_id": { "$type": "objectId" } }, "limit": 0 };
    sides.alike(&doc! { "delete": COLLECTION, "deletes": [generated] })?;
    Ok(())
}

#[test]
fn outliers_are_found_and_modified_by_distance() -> Result<()> {
    let mut sides = sides()?;
    for filter in filters() {
        for more in [
            doc! { "update": { "$push": { "tags": "new" } }, "new": true },
            doc! { "update": { "$pull": { "tags": 7 } }, "fields": { "tags": { "$slice": -2 } } },
            doc! { "update": { "$set": { "marks.0": 7 } }, "new": true },
            doc! { "remove": true },
        ] {
            let mut command = doc! { "findAndModify": COLLECTION, "query": &filter };
            command.extend(more);
            sides.alike(&command)?;
            sides.check()?;
        }
    }
    Ok(())
}

#[test]
fn outliers_are_deleted_by_distance() -> Result<()> {
    for limit in [0, 1] {
        for filter in filters() {
            let mut sides = sides()?;
            sides.alike(&doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": limit }] })?;
            sides.check()?;
        }
    }
    Ok(())
}

/// mongod evaluates a distance by an index, which merged documents and the copy of an outlier do not have.
#[test]
fn an_array_element_beside_a_distance_is_refused() -> Result<()> {
    let mut sides = sides()?;
    let before = sides.items(true)?;
    let near = || doc! { "at": { "$near": [3, 0] } };
    let with = |mut filter: Document, more: Document| {
        filter.extend(more);
        filter
    };
    let first = doc! { "$push": { "tags": { "$each": [1], "$position": 0 } } };
    let element = doc! { "$set": { "marks.$": "x", "tags.11": "y" } };
    for (filter, change) in [
        (with(near(), doc! { "_id": 3, "tags": 12 }), &first),
        (with(near(), doc! { "_id": { "$gt": 1 }, "tags": 12 }), &first),
        (with(near(), doc! { "marks": 4 }), &element),
    ] {
        let statement = doc! { "q": &filter, "u": change };
        let modify = doc! { "findAndModify": COLLECTION, "query": &filter, "update": change };
        for command in [doc! { "update": COLLECTION, "updates": [statement] }, modify] {
            let [_, shaped] = sides.run(&command)?;
            ensure!(replies::first_code(&shaped) == 115, "{command}: {shaped}");
        }
        ensure!(sides.items(true)? == before, "{filter} has changed something");
    }
    Ok(())
}
