//! Empty timestamps: mongod replaces them by its clock at the top level of an inserted document.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, Timestamp, bson, doc};
use proto_tests::Outlier;
use proto_tests::sides::{COLLECTION, Sides};

fn empty() -> Bson {
    Bson::Timestamp(Timestamp { time: 0, increment: 0 })
}

fn long(id: &Bson, length: i32) -> Document {
    let mut tags: Vec<Bson> = (0..length).map(Bson::from).collect();
    tags.push(empty());
    tags.push(bson!({ "t": empty() }));
    doc! { "_id": id, "n": 1, "tags": tags, "nested": { "t": empty() } }
}

/// What is done to the document of an `_id`, one after another.
fn changes(id: &Bson) -> Vec<Document> {
    let update = |change: Document| {
        let statement = doc! { "q": { "_id": id }, "u": change, "upsert": true };
        doc! { "update": COLLECTION, "updates": [statement] }
    };
    let numbers: Vec<i32> = (0..20).collect();
    let all = doc! { "$each": numbers.clone() };
    let delete = doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": id }, "limit": 1 }] };
    vec![
        doc! { "insert": COLLECTION, "documents": [long(id, 20)] },
        update(doc! { "$push": { "tags": all.clone() } }),
        update(doc! { "$push": { "tags": empty() } }),
        update(doc! { "$pull": { "tags": 3 } }),
        doc! { "insert": COLLECTION, "documents": [long(id, 9)] },
        doc! {
            "findAndModify": COLLECTION, "query": { "_id": id }, "update": { "$push": { "tags": { "$each": ["a"], "$position": 0 } } },
            "new": true,
        },
        delete.clone(),
        update(doc! { "$set": { "tags": numbers } }),
        delete.clone(),
        update(doc! { "$push": { "tags": all } }),
        delete,
    ]
}

#[test]
fn an_outlier_whose_id_holds_an_empty_timestamp_keeps_its_extras() -> Result<()> {
    for id in [empty(), bson!({ "t": empty() }), bson!({ "t": [empty()] })] {
        for mut sides in [
            Sides::on_a_standalone(Outlier::new("tags", (5, 7)))?,
            Sides::open(Outlier::new("tags", (5, 7)))?,
        ] {
            for change in changes(&id) {
                sides.alike(&change)?;
                sides.check().with_context(|| format!("after {change}"))?;
            }
        }
    }
    Ok(())
}

#[test]
fn setup_splits_a_document_whose_id_is_an_empty_timestamp() -> Result<()> {
    let mut sides = Sides::on_a_standalone(Outlier::new("tags", (5, 7)))?;
    let whole = long(&empty(), 30);
    let insert = doc! { "insert": COLLECTION, "documents": [whole.clone()], "$db": sides.shaped_database() };
    sides.plain.command_ok(&insert)?;
    let output = sides.proxy.run_with("setup", &["--split"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    ensure!(sides.items(true)? == [whole]);
    sides.check_layout()
}
