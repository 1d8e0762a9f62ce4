//! The invariants of the bucket layout, version 1, checked on stored buckets; those of the outlier pattern
//! are in [`outlier`].
//!
//! The checks are written from the documented layout and do not use the proxy's code. There is one file for
//! each group: a single bucket ([`bucket`]), the pages of a key ([`pages`]), the lifted key ([`key`]) and the
//! indexes ([`indexes`]).

mod bucket;
mod indexes;
mod key;
pub mod outlier;
mod pages;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Document, doc};

use crate::raw;
use crate::shape::Shape;

/// The title of the part of a validator that refuses direct writes.
const DIRECT_WRITES: &str = "mongoshape_direct_writes";

/// All violations in a collection, as lines to read. Nothing is wrong with a collection that does not exist.
pub fn violations(
    mongod: &mut raw::Connection,
    database: &str,
    collection: &str,
    shape: &Shape,
) -> Result<Vec<String>> {
    let find = doc! { "find": collection, "hint": { "$natural": 1 }, "$db": database };
    let buckets = read_all(mongod, &find)?;
    let mut found = of_buckets(&buckets, shape);
    let filter = doc! { "name": collection };
    let listed = mongod.command_ok(&doc! { "listCollections": 1, "filter": filter, "$db": database })?;
    if !listed.get_document("cursor")?.get_array("firstBatch")?.is_empty() {
        let indexes = mongod.command_ok(&doc! { "listIndexes": collection, "$db": database })?;
        let indexes = indexes.get_document("cursor")?.get_array("firstBatch")?.iter();
        let indexes: Vec<&Document> = indexes.filter_map(|index| index.as_document()).collect();
        found.extend(indexes::violations(&indexes, shape));
    }
    if shape.reject_direct_writes
        && let Some(listed) = listed.get_document("cursor")?.get_array("firstBatch")?.first()
        && !listed.to_string().contains(DIRECT_WRITES)
    {
        found.push("the validator does not refuse direct writes".to_owned());
    }
    Ok(found)
}

/// Fails with all violations in a collection.
pub fn check(mongod: &mut raw::Connection, database: &str, collection: &str, shape: &Shape) -> Result<()> {
    let found = violations(mongod, database, collection, shape)?;
    ensure!(
        found.is_empty(),
        "{database}.{collection} breaks its layout:\n  {}",
        found.join("\n  ")
    );
    Ok(())
}

/// All violations among a collection's buckets.
#[must_use]
pub fn of_buckets(buckets: &[RawDocumentBuf], shape: &Shape) -> Vec<String> {
    let mut found = Vec::new();
    let mut keys: BTreeMap<Vec<u8>, Vec<&RawDocument>> = BTreeMap::new();
    for bucket in buckets {
        let mut report = |what: String| found.push(format!("{}: {what}", name(bucket)));
        bucket::check(bucket, shape, &mut report);
        key::check(bucket, shape, &mut report);
        keys.entry(key::identity(bucket, shape)).or_default().push(bucket);
    }
    for mut pages in keys.into_values() {
        pages.sort_by_key(|bucket| pages::number(bucket));
        pages::check(&pages, shape, &mut |bucket, what| {
            found.push(format!("{}: {what}", name(bucket)));
        });
    }
    found
}

fn name(bucket: &RawDocument) -> String {
    match value(bucket, "_id") {
        Some(RawBsonRef::String(id)) => format!("bucket {id:?}"),
        other => format!("bucket {other:?}"),
    }
}

fn value<'a>(document: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    document.get(name).ok().flatten()
}

fn control<'a>(bucket: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    value(value(bucket, "control")?.as_document()?, name)
}

fn whole(value: Option<RawBsonRef<'_>>) -> Option<i64> {
    match value? {
        RawBsonRef::Int32(number) => Some(number.into()),
        RawBsonRef::Int64(number) => Some(number),
        _ => None,
    }
}

fn items<'a>(bucket: &'a RawDocument, shape: &Shape) -> Vec<&'a RawDocument> {
    let array = value(bucket, &shape.items).and_then(RawBsonRef::as_array);
    let elements = array.into_iter().flatten().flatten();
    elements.filter_map(RawBsonRef::as_document).collect()
}

/// An item's time in milliseconds, where it is a date.
fn time(item: &RawDocument, shape: &Shape) -> Option<i64> {
    let field = shape.stored(shape.time.as_deref()?);
    value(item, field)?.as_datetime().map(bson::DateTime::timestamp_millis)
}

/// Everything that a `find` or an aggregation answers, from raw bytes: nothing is lost in decoding.
pub fn read_all(connection: &mut raw::Connection, command: &Document) -> Result<Vec<RawDocumentBuf>> {
    let database = command.get_str("$db")?.to_owned();
    let collection = command.iter().next().and_then(|(_, name)| name.as_str());
    let collection = collection.context("a command on a collection")?.to_owned();
    let mut read = Vec::new();
    let mut command = command.clone();
    loop {
        let reply = connection.command_raw(&command)?;
        ensure!(
            value(&reply, "ok").and_then(RawBsonRef::as_f64) == Some(1.0),
            "{command} was refused: {reply:?}"
        );
        let cursor = reply.get_document("cursor")?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        for document in batch {
            read.push(document?.as_document().context("no document in a batch")?.to_owned());
        }
        match cursor.get_i64("id")? {
            0 => return Ok(read),
            id => command = doc! { "getMore": id, "collection": &collection, "$db": &database },
        }
    }
}
