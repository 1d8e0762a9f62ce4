//! Checks that all variants have the same books in the end.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};

use super::variants::{DATABASE, Variant, Variants};
use crate::bench::client::{Client, Retries};

/// Books of a batch.
const BATCH: i32 = 1000;

/// Fails unless every variant has the documents of the first: the same fields, order and bits.
pub(super) fn check(variants: &Variants) -> Result<()> {
    let mut expected: Option<Vec<(i32, u64)>> = None;
    for variant in variants.all() {
        let found = books(variants, variant).with_context(|| variant.name)?;
        let Some(expected) = &expected else {
            expected = Some(found);
            continue;
        };
        let differs = expected.iter().zip(&found).find(|(one, other)| one != other);
        ensure!(
            differs.is_none() && expected.len() == found.len(),
            "{} has {} books, not {}; the first that differs: {differs:?}",
            variant.name,
            found.len(),
            expected.len()
        );
    }
    println!(
        "\nall variants have the same {} books",
        expected.map_or(0, |all| all.len())
    );
    Ok(())
}

/// The `_id` of every book, and a hash of its content.
fn books(variants: &Variants, variant: &Variant) -> Result<Vec<(i32, u64)>> {
    let mut client = Client::open(variants.whole(variant), DATABASE, Retries::None)?;
    let mut reply = client.command(doc! { "find": variant.collection, "sort": { "_id": 1 }, "batchSize": BATCH })?;
    let mut all = Vec::new();
    loop {
        let cursor = reply.get_document("cursor")?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        for book in batch {
            all.push(mark(book.as_document().context("a book")?)?);
        }
        let id = cursor.get_i64("id")?;
        if id == 0 {
            return Ok(all);
        }
        reply = client.command(doc! { "getMore": id, "collection": variant.collection, "batchSize": BATCH })?;
    }
}

fn mark(book: &Document) -> Result<(i32, u64)> {
    let mut hasher = DefaultHasher::new();
    book.to_vec()?.hash(&mut hasher);
    Ok((book.get_i32("_id")?, hasher.finish()))
}
