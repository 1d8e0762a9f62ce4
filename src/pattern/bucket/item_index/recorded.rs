//! Sparse, partial, wildcard and geospatial indexes, and indexes with a collation.
//!
//! mongod would apply `sparse` and the filter to pages. So the index is stored as a partial index whose
//! filter *records* the application's key pattern and options: `{$or: [<has items>, {mongoshape_recorded:
//! <record>}]}`. It has an entry for each item, so it answers what the application's index answers. A
//! wildcard index has no entries: its filter is the record alone, which no page satisfies. The collation and
//! the options of a geospatial index are the stored index's own.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::geo_index::{GeoKind, is_geo, is_geo_option};
use super::key_pattern::key;
use super::options::{PARTIAL, collation, is_simple};
use super::stored_path::{MAX_FIELDS, PREFIX, key_of_items};
use super::ttl_marker::EXPIRE_AFTER;
use crate::command::document::{append_fields, array_of, as_flag, first_field, get, put, single};
use crate::pattern::bucket::index::has_items;
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

/// The field of the record. No page has it.
const RECORDED: &str = "mongoshape_recorded";
/// The field of the application's key pattern in the record.
const KEY: &str = "key";
/// The direction of [the prefix](PREFIX). It distinguishes the stored key pattern from that of an index
/// without options, because a hint by key pattern must be unambiguous.
const DIRECTION: i32 = 2;

/// Whether the application's index is recorded.
#[must_use]
pub fn is_recorded(spec: &RawDocument) -> bool {
    omits_items(spec) || collation(spec).is_some()
}

/// Whether the application's index has no entry for some items: a read with its hint may leave them out.
#[must_use]
pub fn omits_items(spec: &RawDocument) -> bool {
    let is_sparse = get(spec, "sparse").is_some_and(|sparse| as_flag(sparse).unwrap_or(true));
    is_sparse || is_partial(spec) || is_wildcard(spec) || is_geo(spec)
}

/// Whether the index is partial.
#[must_use]
pub fn is_partial(spec: &RawDocument) -> bool {
    get(spec, PARTIAL).is_some()
}

fn is_wildcard(spec: &RawDocument) -> bool {
    let mut paths = key(spec).iter().flatten().map(|(path, _)| path.as_str());
    paths.any(|path| path == "$**" || path.ends_with(".$**"))
}

/// The specification to be stored for an index that [is recorded](is_recorded).
///
/// # Errors
/// An option that would work on pages, not on items, with the reason.
pub(super) fn stored(shape: &BucketShape, spec: &RawDocument) -> Result<RawDocumentBuf, Unsupported> {
    if is_partial(spec) && get(spec, EXPIRE_AFTER).is_some() {
        return Err("a partial index with expireAfterSeconds".into());
    }
    if is_partial(spec) && is_geo(spec) {
        return Err("a partial geospatial index".into());
    }
    let entries = if is_wildcard(spec) { None } else { entries(shape, spec)? };
    let mut stored = RawDocumentBuf::new();
    let mut record = single(KEY, key(spec));
    for (name, value) in spec.iter().flatten() {
        match name.as_str() {
            KEY | EXPIRE_AFTER | "unique" | "ns" | "dropDups" => {}
            name @ ("name" | "v" | "background" | "hidden") => put(&mut stored, name, value),
            "collation" if is_simple(value) => {}
            "collation" => put(&mut stored, "collation", value),
            name @ ("sparse" | PARTIAL | "wildcardProjection") => put(&mut record, name, value),
            name if is_geo(spec) && is_geo_option(name) => put(&mut stored, name, value),
            other => return Err(format!("an index with the option '{other}'").into()),
        }
    }
    let filter = single(RECORDED, single("$eq", record));
    if let Some(key) = entries {
        put(&mut stored, KEY, &key);
        put(
            &mut stored,
            PARTIAL,
            single("$or", array_of(&[has_items(shape), filter])),
        );
    } else {
        put(&mut stored, KEY, single(RECORDED, 1));
        put(&mut stored, PARTIAL, &filter);
    }
    Ok(stored)
}

/// The stored key pattern. `None` if there is no room for the prefix. A geospatial index has no prefix, and
/// its locations come first: mongod then uses it for a query without conditions on the other fields.
fn entries(shape: &BucketShape, spec: &RawDocument) -> Result<Option<RawDocumentBuf>, Unsupported> {
    let paths = key_of_items(shape, key(spec))?;
    if is_geo(spec) {
        let fields = || paths.iter().flatten();
        let is_location = |value| GeoKind::of(value).is_some();
        let locations = fields().filter(|(_, value)| is_location(*value));
        let others = fields().filter(|(_, value)| !is_location(*value));
        return Ok(Some(locations.chain(others).collect()));
    }
    let mut stored = single(PREFIX, DIRECTION);
    append_fields(&mut stored, &paths);
    Ok((stored.iter().count() <= MAX_FIELDS).then_some(stored))
}

/// The record in a stored specification. `None` for any other index.
fn record(stored: &RawDocument) -> Option<&RawDocument> {
    let mut filter = get(stored, PARTIAL)?.as_document()?;
    if let Some(("$or", RawBsonRef::Array(alternatives))) = first_field(filter) {
        filter = alternatives.into_iter().flatten().nth(1)?.as_document()?;
    }
    match first_field(filter)? {
        (RECORDED, RawBsonRef::Document(equal)) => get(equal, "$eq")?.as_document(),
        _ => None,
    }
}

/// Whether a stored specification has a record.
pub(super) fn has_record(stored: &RawDocument) -> bool {
    record(stored).is_some()
}

/// The specification as the application created it. `None` if there is no record.
pub(super) fn application(stored: &RawDocument) -> Option<RawDocumentBuf> {
    let record = record(stored)?;
    let mut application = RawDocumentBuf::new();
    for (name, value) in stored.iter().flatten() {
        match name.as_str() {
            KEY => put(&mut application, KEY, get(record, KEY)?),
            PARTIAL => {
                for (name, value) in record.iter().flatten().filter(|(name, _)| *name != KEY) {
                    put(&mut application, name.as_str(), value);
                }
            }
            name => put(&mut application, name, value),
        }
    }
    Some(application)
}
