//! Compares whole collections: each has every inserted document, and the documents of each key in insertion
//! order.

use anyhow::{Context as _, Result};
use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{Bson, Document, doc};

use super::compare::{self, Canon, Order};
use super::sides::{COLLECTION, Side, field};
use super::values::OUR_OBJECT_IDS;
use super::{Generator, Sides};
use crate::invariants;

/// Compares all documents, in any order.
pub(super) fn all(sides: &mut Sides, generator: &Generator) -> Result<usize> {
    let find = doc! { "find": COLLECTION };
    let plain = read(&mut sides.plain, &find)?;
    let shaped = read(&mut sides.shaped, &find)?;
    compare::documents(generator.canon(), &Order::Free, &plain, &shaped, &[]).context("whole contents")?;
    Ok(plain.len())
}

/// Checks that a refusal has changed nothing. The plain side did not get the command.
pub(super) fn unchanged(sides: &mut Sides, canon: Canon) -> Result<()> {
    let find = doc! { "find": COLLECTION };
    let plain = read(&mut sides.plain, &find)?;
    let shaped = read(&mut sides.shaped, &find)?;
    compare::documents(canon, &Order::Free, &plain, &shaped, &[]).context("whole contents after a refusal")
}

/// Compares the documents of each key, in order if they keep it.
pub(super) fn of_each_key(sides: &mut Sides, generator: &Generator) -> Result<()> {
    for key in generator.all_keys() {
        let fields = generator.shape.key.iter().zip(&key);
        let filter: Document = fields
            .map(|(field, value)| {
                (
                    field.clone(),
                    doc! { "$eq": value.clone().unwrap_or(Bson::Null) }.into(),
                )
            })
            .collect();
        let find = doc! { "find": COLLECTION, "filter": &filter };
        let plain = read(&mut sides.plain, &find)?;
        let shaped = read(&mut sides.shaped, &find)?;
        let order = if generator.keeps_order() {
            Order::Defined
        } else {
            Order::Free
        };
        compare::documents(generator.canon(), &order, &plain, &shaped, &[])
            .with_context(|| format!("the order of {filter}"))?;
    }
    Ok(())
}

/// All documents of the plain side, in their natural order.
pub(super) fn of_plain(sides: &mut Sides) -> Result<Vec<Document>> {
    let documents = read(&mut sides.plain, &doc! { "find": COLLECTION })?;
    let documents = documents.iter().map(|document| Document::try_from(&**document));
    Ok(documents.collect::<std::result::Result<_, _>>()?)
}

/// Stores on both sides the documents that the shaped one takes, but those whose `_id` a server gave: two
/// servers give theirs in no common order.
pub(super) fn store(sides: &mut Sides, documents: &[Document]) -> Result<()> {
    let is_given = |document: &&Document| match document.get("_id") {
        Some(Bson::ObjectId(id)) => id.bytes()[..4] == OUR_OBJECT_IDS,
        _ => true,
    };
    for document in documents.iter().filter(is_given) {
        let insert = doc! { "insert": COLLECTION, "documents": [document] };
        let reply = sides.shaped.run(&insert)?;
        if field(&reply, "n") == Some(RawBsonRef::Int32(1)) {
            sides.plain.run(&insert)?;
        }
    }
    Ok(())
}

fn read(side: &mut Side, find: &Document) -> Result<Vec<RawDocumentBuf>> {
    let mut find = find.clone();
    find.insert("$db", side.database.as_str());
    invariants::read_all(side.routes.any(), &find)
}
