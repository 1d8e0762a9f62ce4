//! Texts of a client that contain a name which the proxy adds beside those of the client: it selects another
//! one in a time that does not depend on how the text continues.

use anyhow::Result;
use bson::{DateTime, Document, doc};
use proto_tests::sides::{COLLECTION, Sides};

use crate::proxies::small_pages;

/// The number of characters behind a name.
const LENGTH: usize = 1 << 20;

fn start() -> Result<Sides> {
    let mut sides = Sides::on_a_standalone(small_pages())?;
    let item = |number: i32| {
        let at = DateTime::from_millis(number.into());
        doc! { "_id": number, "k": number % 2, "at": at, "n": number, "list": [{ "y": number }] }
    };
    let items: Vec<Document> = (0..8).map(item).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    sides.alike(&doc! { "insert": "orders", "documents": [{ "_id": 1, "item": 3 }] })?;
    Ok(sides)
}

fn long(name: &str, character: &str) -> String {
    format!("{name}{}", character.repeat(LENGTH))
}

#[test]
fn a_lookup_contains_the_variable_of_the_proxy() -> Result<()> {
    let mut sides = start()?;
    let filter = doc! { "x": { "$ne": long("mongoshape_local", "_") } };
    let by_fields = |foreign: &str| doc! { "localField": "item", "foreignField": foreign };
    for fields in [by_fields("n"), by_fields("k"), doc! {}] {
        let pipeline = [doc! { "$match": &filter }, doc! { "$sort": { "_id": 1 } }];
        let mut lookup = doc! { "from": COLLECTION, "pipeline": pipeline.to_vec(), "as": "found" };
        lookup.extend(fields);
        sides.pages_read(&doc! { "aggregate": "orders", "pipeline": [{ "$lookup": lookup }], "cursor": {} })?;
    }
    Ok(())
}

#[test]
fn a_write_contains_the_field_or_the_identifier_of_the_proxy() -> Result<()> {
    let mut sides = start()?;
    let filter = doc! { "n": { "$lt": 5 }, "x": { "$ne": long("mongoshapePlace", "x") } };
    let many = doc! { "q": filter, "u": { "$inc": { "n": 1 } }, "multi": true };
    sides.alike(&doc! { "update": COLLECTION, "updates": [many] })?;
    let one = doc! {
        "q": { "_id": 3 }, "u": { "$set": { "list.$[e].y": 7 } },
        "arrayFilters": [{ "e.y": { "$ne": long("mongoshapeItem", "x") } }],
    };
    sides.alike(&doc! { "update": COLLECTION, "updates": [one] })?;
    sides.check()
}
