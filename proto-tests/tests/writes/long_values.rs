//! Values that are looked up before a write, and that together have more bytes than the body of a
//! command may have.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use mongodb::Collection;
use mongodb::error::ErrorKind;
use proto_tests::measure::is_full;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{Shape, client, mongod};

const DOCUMENTS: i32 = 17;
const DUPLICATE_KEY: i32 = 11000;

/// So long that the values of all documents exceed a command.
fn long(number: i32) -> String {
    format!("{number} {}", "x".repeat(1_000_000))
}

/// A document with a long value in the field.
fn with_long(field: &str, number: i32) -> Document {
    let mut document = doc! { "_id": number, "k": number % 2, "v": number };
    document.insert(field, long(number));
    document
}

/// The positions and codes of the errors.
async fn insert(collection: &Collection<Document>, documents: &[Document], ordered: bool) -> Result<Vec<(usize, i32)>> {
    match collection.insert_many(documents).ordered(ordered).await {
        Ok(_) => Ok(Vec::new()),
        Err(error) => match &*error.kind {
            ErrorKind::InsertMany(many) => {
                let errors = many.write_errors.iter().flatten();
                Ok(errors.map(|error| (error.index, error.code)).collect())
            }
            _ => Err(error.into()),
        },
    }
}

/// Several threads: the driver encodes a command without a pause, and has other connections to greet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_values_are_looked_up_before_an_insert() -> Result<()> {
    let cases = [
        ("_id", None),
        ("k", None),
        ("v", Some(doc! { "v": 1 })),
        ("v", Some(doc! { "k": 1, "v": 1 })),
    ];
    for (field, index) in cases {
        // An ordinary run has of the unique indexes only that of two fields.
        if !is_full("MONGOSHAPE_TABLES") && index.as_ref().is_some_and(|key| key.len() == 1) {
            continue;
        }
        let mut sides = Sides::open(Shape {
            // Of each key, the first page is full with the first document.
            max_items: 1,
            ..Shape::new(&["k"])
        })?;
        if let Some(key) = &index {
            let index = doc! { "key": key, "name": "unique", "unique": true };
            sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
        }
        let mut collections = Vec::new();
        for (uri, database) in [
            (mongod::shared_replica_set().uri(), sides.plain_database()),
            (sides.proxy.uri(), sides.shaped_database()),
        ] {
            collections.push(client(&uri).await?.database(&database).collection(COLLECTION));
        }
        let keys: Vec<String> = (0..DOCUMENTS).map(long).collect();
        let mut before = None;
        for (round, ordered) in [(0, true), (1, false)] {
            let numbers = round * DOCUMENTS..(round + 1) * DOCUMENTS;
            let mut documents: Vec<Document> = numbers.map(|number| with_long(field, number)).collect();
            if field == "k" {
                // The documents of the second round go to pages behind full ones.
                for (document, key) in documents.iter_mut().zip(&keys) {
                    document.insert("k", key);
                }
            }
            let next = documents[0].clone();
            let repeated = before.replace(next);
            let expected: Vec<_> = repeated.iter().map(|_| (documents.len(), DUPLICATE_KEY)).collect();
            documents.extend(repeated);
            for collection in &collections {
                let errors = insert(collection, &documents, ordered).await?;
                ensure!(
                    errors == expected,
                    "{} {field} {index:?} {round}: {errors:?}",
                    collection.namespace()
                );
            }
        }
        sides.check()?;
    }
    Ok(())
}
