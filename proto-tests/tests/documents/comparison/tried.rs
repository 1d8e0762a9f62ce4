//! The features that are tried on each kind of collection.

use bson::{DateTime, Document, doc};

use crate::comparison::COLLECTION;

/// What is tried: commands on `trades`, of which the last one is to do something.
pub(crate) struct Tried {
    pub(crate) what: &'static str,
    pub(crate) commands: Vec<Document>,
    pub(crate) expected: Expected,
}

/// What the last command does where it is possible.
#[derive(Clone, Copy)]
pub(crate) enum Expected {
    Success,
    /// It writes to, or finds, something.
    Effect,
    /// It is refused as a duplicate.
    Duplicate,
}

fn trade(id: i32) -> Document {
    let date = DateTime::from_millis(1_698_335_223_000 + i64::from(id) * 1000);
    doc! { "_id": id, "customerId": 123, "date": date, "ticker": "MDB", "quantity": id }
}

fn insert(trades: &[Document]) -> Document {
    doc! { "insert": COLLECTION, "documents": trades }
}

fn update(filter: Document, change: Document) -> Document {
    doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change, "multi": false }] }
}

fn update_many(filter: Document, change: Document) -> Document {
    doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change, "multi": true }] }
}

fn delete(filter: Document, limit: i32) -> Document {
    doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": limit }] }
}

fn index(key: Document, options: Document) -> Document {
    let mut spec = doc! { "key": key, "name": "of_application" };
    spec.extend(options);
    doc! { "createIndexes": COLLECTION, "indexes": [spec] }
}

fn aggregate(stage: Document) -> Document {
    doc! { "aggregate": COLLECTION, "pipeline": [stage], "cursor": {} }
}

fn writes() -> Vec<(&'static str, Document, Expected)> {
    use Expected::{Duplicate, Effect, Success};
    let set = doc! { "$set": { "quantity": 7 } };
    let later = DateTime::from_millis(1_798_335_223_000);
    vec![
        ("a duplicate `_id` is refused", insert(&[trade(1)]), Duplicate),
        (
            "insert a document without a date",
            insert(&[doc! { "_id": 9, "customerId": 123 }]),
            Success,
        ),
        ("`updateOne` by `_id`", update(doc! { "_id": 1 }, set.clone()), Effect),
        (
            "`updateMany` by a field",
            update_many(doc! { "ticker": "MDB" }, set.clone()),
            Effect,
        ),
        (
            "`updateMany` of the key, by the key",
            update_many(doc! { "customerId": 123 }, doc! { "$set": { "customerId": 9 } }),
            Effect,
        ),
        (
            "change a document's date",
            update(doc! { "_id": 1 }, doc! { "$set": { "date": later } }),
            Effect,
        ),
        (
            "`replaceOne`",
            update(doc! { "_id": 1 }, doc! { "customerId": 123, "date": later }),
            Effect,
        ),
        (
            "upsert",
            doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 9, "customerId": 1, "date": later }, "u": set.clone(), "upsert": true }] },
            Effect,
        ),
        (
            "`findOneAndUpdate`",
            doc! { "findAndModify": COLLECTION, "query": { "_id": 1 }, "update": set },
            Effect,
        ),
        ("`deleteOne` by `_id`", delete(doc! { "_id": 1 }, 1), Effect),
        ("`deleteMany` by a field", delete(doc! { "ticker": "MDB" }, 0), Effect),
        ("`deleteMany` by the key", delete(doc! { "customerId": 123 }, 0), Effect),
        (
            "`$merge` into it",
            doc! { "aggregate": "others", "pipeline": [{ "$merge": COLLECTION }], "cursor": {} },
            Success,
        ),
    ]
}

fn indexes() -> Vec<(&'static str, Document, Expected)> {
    use Expected::Success;
    vec![
        ("an index on a field", index(doc! { "ticker": 1 }, doc! {}), Success),
        (
            "a unique index",
            index(doc! { "quantity": 1 }, doc! { "unique": true }),
            Success,
        ),
        (
            "a TTL index on the date",
            index(doc! { "date": 1 }, doc! { "expireAfterSeconds": 1_000_000_000 }),
            Success,
        ),
        (
            "a partial index",
            index(
                doc! { "ticker": 1 },
                doc! { "partialFilterExpression": { "quantity": { "$gt": 1 } } },
            ),
            Success,
        ),
        (
            "a sparse index",
            index(doc! { "ticker": 1 }, doc! { "sparse": true }),
            Success,
        ),
        ("a hashed index", index(doc! { "ticker": "hashed" }, doc! {}), Success),
        (
            "a text index, for `$text`",
            index(doc! { "ticker": "text" }, doc! {}),
            Success,
        ),
        (
            "a geospatial index",
            index(doc! { "place": "2dsphere" }, doc! {}),
            Success,
        ),
    ]
}

fn others() -> Vec<(&'static str, Document, Expected)> {
    use Expected::{Effect, Success};
    vec![
        (
            "`find` with a filter, a sort and a projection of fields",
            doc! { "find": COLLECTION, "filter": { "quantity": { "$gt": 1 } }, "sort": { "ticker": -1 }, "projection": { "date": 1 } },
            Effect,
        ),
        (
            "an aggregation with `$lookup`",
            aggregate(
                doc! { "$lookup": { "from": COLLECTION, "localField": "_id", "foreignField": "_id", "as": "same" } },
            ),
            Effect,
        ),
        ("`distinct`", doc! { "distinct": COLLECTION, "key": "ticker" }, Success),
        ("a change stream", aggregate(doc! { "$changeStream": {} }), Success),
        (
            "a validator",
            doc! { "collMod": COLLECTION, "validator": { "quantity": { "$type": "int" } } },
            Success,
        ),
        ("rename the collection", Document::new(), Success),
    ]
}

/// Of the session that [`outcome`] has in each database.
fn in_transaction(mut command: Document) -> Document {
    command.extend(doc! { "txnNumber": 1_i64, "startTransaction": true, "autocommit": false });
    command
}

/// The rows of the table.
pub(crate) fn all() -> Vec<Tried> {
    let of_transactions = vec![
        (
            "read in a transaction",
            in_transaction(doc! { "find": COLLECTION }),
            Expected::Effect,
        ),
        (
            "insert in a transaction",
            in_transaction(insert(&[trade(9)])),
            Expected::Success,
        ),
    ];
    let features = [writes(), indexes(), of_transactions, others()].concat();
    features
        .into_iter()
        .map(|(what, command, expected)| Tried {
            what,
            commands: vec![
                doc! { "insert": "others", "documents": [trade(9)] },
                insert(&[trade(1), trade(2), trade(3)]),
                command,
            ],
            expected,
        })
        .collect()
}
