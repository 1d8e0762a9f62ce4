//! Changes of documents that were stored before the shape was configured, and whose long arrays were not split.
//! And changes of outliers whose other fields are long.

use anyhow::{Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{Outlier, replies};

/// The comparison of so many elements one by one would exceed 16 MiB.
const LENGTH: i32 = 20_000;

/// Elements whose comparison takes many expressions.
fn elements(length: i32) -> Vec<Bson> {
    let element = |number: i32| bson!({ "n": number, "a": 0.0, "b": 0.0, "c": 0.0 });
    (0..length).map(element).collect()
}

/// Both sides with documents of these `_id`s. They are not inserted through the proxy.
fn sides(ids: std::ops::Range<i32>) -> Result<Sides<Outlier>> {
    let mut sides = Sides::open(Outlier::new("tags", (50, 1000)))?;
    let documents: Vec<Document> = ids
        .map(|id| doc! { "_id": id, "n": id, "tags": elements(LENGTH) })
        .collect();
    for database in [sides.plain_database(), sides.shaped_database()] {
        let insert = doc! { "insert": COLLECTION, "documents": &documents, "$db": database };
        let reply = sides.plain.command_ok(&insert)?;
        ensure!(!reply.contains_key("writeErrors"), "{reply}");
    }
    Ok(sides)
}

fn update(filter: Document, change: Bson) -> Document {
    doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change }] }
}

/// Changes whose result mongod evaluates first, of the documents 0 to 4.
fn evaluated() -> [Document; 5] {
    let first = bson!({ "$push": { "tags": { "$each": ["x"], "$position": 0 } } });
    [
        update(doc! { "_id": 0 }, first.clone()),
        update(
            doc! { "_id": 1, "tags.n": 70 },
            bson!([{ "$set": { "tags": { "$slice": ["$tags", 100] } } }]),
        ),
        update(doc! { "n": 2 }, bson!({ "$set": { "tags.60": "x" } })),
        update(doc! { "_id": 3 }, bson!({ "$set": { "tags": elements(60) } })),
        doc! { "findAndModify": COLLECTION, "query": { "_id": 4 }, "update": first, "fields": { "n": 1 } },
    ]
}

#[test]
fn a_document_is_split_before_it_is_replaced() -> Result<()> {
    let mut sides = sides(0..8)?;
    for command in evaluated() {
        sides.alike(&command)?;
    }
    // The first push makes an outlier of a document, whose elements stay where they are.
    for id in 5..8 {
        sides.alike(&update(doc! { "_id": id }, bson!({ "$push": { "tags": "x" } })))?;
    }
    for command in [
        update(doc! { "_id": 5 }, bson!({ "$pull": { "tags": { "n": 3 } } })),
        doc! { "findAndModify": COLLECTION, "query": { "_id": 6, "tags.n": 60 }, "remove": true, "fields": { "n": 1 } },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 7, "tags.n": 60 }, "limit": 1 }] },
    ] {
        sides.alike(&command)?;
    }
    sides.check()
}

/// The stored document is compared in one statement. A text of 9 MiB is too long for it, a long array is not.
#[test]
fn changes_of_outliers_with_more_than_8_mib_of_other_fields_are_refused() -> Result<()> {
    let mut sides = Sides::open(Outlier::new("tags", (50, 1000)))?;
    let outlier = |id: i32| {
        let mut outlier = doc! { "_id": id, "n": id, "tags": elements(120) };
        if id < 7 {
            outlier.insert("history", elements(LENGTH));
        } else {
            outlier.insert("text", "x".repeat(9 << 20));
        }
        outlier
    };
    for id in 0..8 {
        sides.alike(&doc! { "insert": COLLECTION, "documents": [outlier(id)] })?;
    }
    let pages = |sides: &mut Sides<Outlier>| -> Result<usize> {
        let database = sides.shaped_database();
        Ok(sides.plain.find(&database, "extra_items", doc! {})?.len())
    };
    let first = doc! { "$push": { "tags": { "$each": ["x"], "$position": 0 } } };
    let commands = evaluated().into_iter().chain([
        doc! { "findAndModify": COLLECTION, "query": { "_id": 5, "tags.n": 3 }, "remove": true, "fields": { "n": 1 } },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 6, "tags.n": 3 }, "limit": 1 }] },
    ]);
    for command in commands {
        sides.alike(&command)?;
    }
    let before = pages(&mut sides)?;
    let mut refused = update(doc! { "_id": 7 }, first.into());
    refused.insert("$db", sides.shaped_database());
    let reply = sides.shaped.command(&refused)?;
    ensure!(replies::first_code(&reply) == 115, "{reply}");
    ensure!(pages(&mut sides)? == before, "pages are left");
    // Pushes and changes of other fields are not evaluated.
    for change in [bson!({ "$push": { "tags": "x" } }), bson!({ "$inc": { "n": 10 } })] {
        sides.alike(&update(doc! { "n": 3 }, change))?;
    }
    // A delete that does not depend on the array demands only the generation.
    sides.alike(&doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": { "$ne": 13 } }, "limit": 0 }] })?;
    sides.check()
}

#[test]
fn a_document_that_does_not_match_is_not_split() -> Result<()> {
    let mut sides = sides(0..1)?;
    let before = sides.buckets()?;
    for filter in [doc! { "_id": 0, "n": 1 }, doc! { "_id": 0, "tags.n": -1 }] {
        sides.alike(&update(filter.clone(), bson!([{ "$set": { "tags": [] } }])))?;
        sides.alike(&doc! { "findAndModify": COLLECTION, "query": filter, "update": { "$set": { "tags.60": 1 } } })?;
    }
    ensure!(sides.buckets()? == before, "the document is changed");
    Ok(())
}

/// While a collection is converted to plain documents, and after that, no document is split.
#[test]
fn behind_the_split_fence_documents_stay_whole() -> Result<()> {
    let mut sides = sides(0..5)?;
    let control = sides.shape.control();
    let fence = doc! { control: { "$exists": false }, &sides.shape.flag: { "$ne": true } };
    let database = sides.shaped_database();
    sides.plain.command_ok(&doc! {
        "collMod": COLLECTION, "validator": fence, "validationLevel": "moderate", "$db": database,
    })?;
    for command in evaluated() {
        sides.alike(&command)?;
    }
    ensure!(sides.buckets()? == sides.items(false)?, "the stored documents differ");
    Ok(())
}
