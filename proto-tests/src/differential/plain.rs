//! Plain documents on both sides, before the shaped side is packed.

use anyhow::{Result, ensure};
use bson::raw::RawBsonRef;
use bson::{Bson, Document, doc};

use super::refusal;
use super::sides::{COLLECTION, field, show};
use super::{Generator, Sides};
use crate::{Proxy, invariants};

/// Documents in one command.
const BATCH: usize = 500;

/// Generates documents, inserts them on the plain side, copies them directly on mongod, and packs the copy.
pub(super) fn pack(sides: &mut Sides, generator: &mut Generator, proxy: &Proxy, count: u32) -> Result<()> {
    generator.is_packed = true;
    for _ in 0..count {
        let document = plain(generator);
        let keys = &generator.shape.key;
        if keys.iter().any(|key| document.get(key).is_some_and(refusal::is_no_key)) {
            continue;
        }
        // Not all: an `_id` may be one that was given before.
        sides
            .plain
            .run(&doc! { "insert": COLLECTION, "documents": [document] })?;
    }
    let find = doc! { "find": COLLECTION, "$db": &sides.plain.database };
    let stored = invariants::read_all(sides.plain.routes.any(), &find)?;
    ensure!(
        stored.len() * 2 > usize::try_from(count)?,
        "few were stored: {}",
        stored.len()
    );
    for part in stored.chunks(BATCH) {
        let part: Vec<Document> = part
            .iter()
            .map(|one| Document::try_from(&**one))
            .collect::<Result<_, _>>()?;
        let reply = sides.stored.run(&doc! { "insert": COLLECTION, "documents": part })?;
        ensure!(field(&reply, "writeErrors").is_none(), "{}", show(&reply));
    }
    let namespace = format!("{}.{COLLECTION}", sides.shaped.database);
    let output = proxy.run_with("setup", &["--pack", "--namespace", &namespace])?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{printed}");
    let counted = sides.shaped.run(&doc! { "count": COLLECTION })?;
    let counted = field(&counted, "n").and_then(RawBsonRef::as_i32);
    ensure!(
        counted == i32::try_from(stored.len()).ok(),
        "{counted:?} of {}: {printed}",
        stored.len()
    );
    Ok(())
}

/// A document that cannot be meant as a bucket.
fn plain(generator: &mut Generator) -> Document {
    let mut document = generator.document();
    if matches!(document.get(&generator.shape.items), Some(Bson::Array(_))) {
        document.remove(&generator.shape.count);
    }
    if document
        .get_document("control")
        .is_ok_and(|control| control.contains_key("v"))
    {
        document.remove("control");
    }
    // What mongod would give, a proxy may give once more.
    document.remove("stamp");
    document
}
