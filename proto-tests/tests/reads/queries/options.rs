//! Invalid options of reads, and options with a separate access path.

use anyhow::Result;
use bson::{Bson, DateTime, Document, doc};
use proto_tests::Shape;
use proto_tests::sides::{COLLECTION, Sides};

use crate::queries::comparison::Comparison;

fn comparison() -> Result<Comparison> {
    let shape = Shape {
        time: Some("t".to_owned()),
        max_items: 3,
        ..Shape::new(&["k"])
    };
    let item = |number: i64| {
        let at = DateTime::from_millis(1_700_000_000_000 + number);
        doc! { "_id": number, "k": 1, "t": at, "x": number % 4 }
    };
    Comparison::open(Sides::on_a_standalone(shape)?, &(0..12).map(item).collect::<Vec<_>>())
}

fn with(command: &Document, name: &str, value: impl Into<Bson>) -> Document {
    let mut command = command.clone();
    command.insert(name, value);
    command
}

/// Reads by pages and by a pipeline, and writes, all of which leave the collection as it is.
fn commands() -> Vec<Document> {
    let (page, pipeline) = (doc! { "k": 1 }, doc! { "x": 1 });
    let nothing = doc! { "_id": "none" };
    vec![
        doc! { "find": COLLECTION, "filter": &page },
        doc! { "find": COLLECTION, "filter": &pipeline },
        doc! { "count": COLLECTION, "query": &page },
        doc! { "count": COLLECTION, "query": &pipeline },
        doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": &page }], "cursor": {} },
        doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": &pipeline }], "cursor": {} },
        doc! { "update": COLLECTION, "updates": [{ "q": &nothing, "u": { "$set": { "y": 1 } } }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": &nothing, "limit": 1 }] },
        doc! { "findAndModify": COLLECTION, "query": &nothing, "update": { "$set": { "y": 1 } } },
    ]
}

#[test]
fn invalid_time_limit_has_mongods_error() -> Result<()> {
    let mut comparison = comparison()?;
    let decimal = |text: &str| Bson::Decimal128(text.parse().expect("a number"));
    let limits = [
        Bson::Int32(-1),
        Bson::Double(-5.0),
        Bson::Double(20_000.5),
        Bson::Double(f64::NAN),
        Bson::Double(1e300),
        Bson::Int64(1 << 31),
        Bson::Int64((1 << 31) - 1),
        Bson::String("1".to_owned()),
        Bson::Boolean(true),
        Bson::Null,
        Bson::Array(Vec::new()),
        decimal("-5"),
        decimal("20000.5"),
    ];
    let mut commands = commands();
    commands.extend([
        doc! { "distinct": COLLECTION, "key": "x" },
        doc! { "getMore": 5_i64, "collection": COLLECTION },
        doc! { "killCursors": COLLECTION, "cursors": [5_i64] },
        doc! { "drop": "not there" },
        // Refused for that before anything else in them is looked at.
        doc! { "find": COLLECTION, "filter": 1 },
        doc! { "insert": COLLECTION, "documents": [] },
        doc! { "aggregate": COLLECTION, "pipeline": 1, "cursor": {} },
    ]);
    for command in commands {
        for limit in &limits {
            comparison.alike(&with(&command, "maxTimeMS", limit.clone()))?;
        }
    }
    let insert = doc! { "insert": COLLECTION, "documents": [{ "_id": "new", "k": 1 }], "maxTimeMS": -1 };
    comparison.alike(&insert)?;
    comparison.sides.check()
}

#[test]
fn natural_hint_is_validated_by_mongod() -> Result<()> {
    let mut comparison = comparison()?;
    let hints = [
        Bson::Document(doc! { "$natural": 1 }),
        Bson::Document(doc! { "$natural": "x" }),
        Bson::Document(doc! { "$natural": 0 }),
        Bson::Document(doc! { "$natural": 1.5 }),
        Bson::Document(doc! { "$natural": Bson::Null }),
        Bson::Document(doc! { "$natural": 1, "x": 1 }),
        Bson::Document(doc! { "x": 1, "$natural": 1 }),
        Bson::Document(doc! { "x": 1 }),
        Bson::Null,
        Bson::Int32(3),
    ];
    for hint in hints {
        for command in commands() {
            let command = match command.keys().next().map(String::as_str) {
                Some(name @ ("update" | "delete")) => {
                    let list = format!("{name}s");
                    let mut statement = command.get_array(&list)?[0].as_document().expect("a statement").clone();
                    statement.insert("hint", hint.clone());
                    with(&command, &list, vec![statement])
                }
                _ => with(&command, "hint", hint.clone()),
            };
            comparison.alike(&command)?;
        }
    }
    comparison.sides.check()
}

#[test]
fn invalid_aggregate_has_mongods_error_code() -> Result<()> {
    let mut comparison = comparison()?;
    let pipelines = [
        None,
        Some(Bson::Array(Vec::new())),
        Some(Bson::Array(vec![Bson::Document(doc! { "$match": { "k": 1 } })])),
        Some(Bson::Array(vec![Bson::Document(doc! { "$match": { "x": 1 } })])),
        Some(Bson::Array(vec![Bson::Document(doc! { "$nope": 1 })])),
        Some(Bson::Array(vec![Bson::Int32(1)])),
        Some(Bson::Int32(1)),
    ];
    let options = [
        doc! {},
        doc! { "nope": 1 },
        doc! { "cursor": {}, "nope": 1 },
        doc! { "cursor": Bson::Null },
        doc! { "cursor": 1 },
        doc! { "cursor": { "nope": 1 } },
        doc! { "cursor": { "batchSize": -1 } },
        doc! { "cursor": { "batchSize": "x" } },
        doc! { "cursor": { "batchSize": 0 } },
        doc! { "explain": false },
        doc! { "explain": "x" },
        doc! { "cursor": {}, "hint": 1 },
        doc! { "cursor": {}, "collation": 1 },
        doc! { "cursor": {}, "allowDiskUse": 3 },
        doc! { "cursor": {}, "let": 1 },
        doc! { "cursor": {}, "maxTimeMS": -1 },
    ];
    for pipeline in pipelines {
        for option in &options {
            let mut command = doc! { "aggregate": COLLECTION };
            command.extend(pipeline.clone().map(|pipeline| ("pipeline".to_owned(), pipeline)));
            command.extend(option.clone());
            comparison.alike(&command)?;
        }
    }
    Ok(())
}

#[test]
fn system_variables_are_available_as_in_mongod() -> Result<()> {
    let mut comparison = comparison()?;
    let before_now = doc! { "$expr": { "$lt": ["$t", "$$NOW"] } };
    let literal = doc! { "$expr": { "$ne": ["$x", { "$literal": "$$NOW" }] } };
    let queries = [
        before_now.clone(),
        doc! { "k": 1, "$expr": { "$lt": ["$t", "$$NOW"] } },
        doc! { "k": 9, "$expr": { "$lt": ["$t", "$$NOW"] } },
        doc! { "$or": [{ "x": 1 }, { "$expr": { "$eq": ["$x", "$$CLUSTER_TIME"] } }] },
        literal,
    ];
    for query in &queries {
        comparison.alike(&doc! { "count": COLLECTION, "query": query })?;
        comparison.alike(&doc! { "distinct": COLLECTION, "key": "x", "query": query })?;
    }
    comparison.alike(&doc! { "find": COLLECTION, "filter": &before_now })?;
    let stages = vec![doc! { "$match": &before_now }, doc! { "$count": "n" }];
    comparison.alike(&doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {} })?;
    Ok(())
}

/// Of `_id`s in no order, in several pages. mongod reads them by the index on `_id`.
#[test]
fn listed_ids_are_returned_in_the_order_of_the_ids() -> Result<()> {
    let mut comparison = comparison()?;
    let items = [30, 17, 25, 99, 13].map(|number| doc! { "_id": number, "k": number % 2 });
    comparison.insert(&items)?;
    let list = doc! { "_id": { "$in": [25, 7, 99, 3, "none", 13, 30, 11, 25.0, 17] } };
    let find = doc! { "find": COLLECTION, "filter": list };
    for more in [
        doc! {},
        doc! { "limit": 3 },
        doc! { "skip": 2, "limit": 4 },
        doc! { "limit": 1, "singleBatch": true },
        doc! { "projection": { "k": 1, "_id": 0 } },
    ] {
        let mut find = find.clone();
        find.extend(more);
        comparison.alike(&find)?;
    }
    Ok(())
}
