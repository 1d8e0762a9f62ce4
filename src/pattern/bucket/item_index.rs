//! The application's indexes on items, under its own names and key patterns.
//!
//! In a bucket, a key field is at the top level under its own name. Any other field is in the array
//! of items under its stored name. So an index's key pattern follows from the stored one, and
//! nothing else is recorded ([`StoredIndex`]). An index on the whole key and the time is stored on
//! pages ([`KeyTimeIndex`]). Any other index that was created without the proxy is neither listed
//! nor dropped. Its name is in use.

mod conflict;
mod geo_index;
mod hint;
mod key_pattern;
mod key_time_index;
mod options;
mod recorded;
mod sphere_locations;
mod stored_index;
mod stored_path;
#[cfg(test)]
mod tests;
mod ttl_marker;

use std::collections::{HashMap, HashSet};

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use self::conflict::normal;
pub use self::conflict::{Conflict, conflict};
pub use self::geo_index::{GeoKind, LocationError, is_geo, location_error};
pub use self::hint::{HintedIndex, IndexHint, hint, reads_backward};
use self::key_pattern::as_number;
pub use self::key_pattern::{ID, IndexedField, is_clustered, is_id_key, is_unique, key, name, same_index, same_key};
pub use self::key_time_index::KeyTimeIndex;
use self::options::PARTIAL;
pub use self::options::is_simple;
pub use self::recorded::{is_partial, is_recorded, omits_items};
pub use self::sphere_locations::SphereLocations;
pub use self::stored_index::{GeoIndex, StoredIndex};
use self::stored_index::{prefixed, without_prefix};
use self::stored_path::{application_path, key_of_items};
pub use self::stored_path::{in_items, stored_path};
pub use self::ttl_marker::{
    EXPIRE_AFTER, TtlMarker, may_expire, own_marker, ttl_marker, ttl_marker_name, ttl_marker_of, with_ttl,
};
use super::index::has_items;
use crate::command::arguments::with_replaced;
use crate::command::document::{as_flag, get, put};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

/// The prefix of the names of the shape's own indexes.
const OWN: &str = "mongoshape_";

/// Whether the name is reserved for the proxy's own indexes.
#[must_use]
pub fn is_own(name: &str) -> bool {
    name.starts_with(OWN)
}

/// The indexes of a collection, read from `listIndexes`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Indexes {
    /// The indexes that the application knows, in its terms and in mongod's order.
    pub known: Vec<RawDocumentBuf>,
    /// The stored specifications of known indexes by name. An earlier version stored some in another form.
    stored: HashMap<String, RawDocumentBuf>,
    /// The names of the other indexes.
    pub others: Vec<String>,
}

impl Indexes {
    /// Reads the specifications that `listIndexes` returns.
    #[must_use]
    pub fn of<'a>(shape: &BucketShape, specs: impl Iterator<Item = &'a RawDocument>) -> Self {
        let mut indexes = Self::default();
        let specs: Vec<&RawDocument> = specs.collect();
        let markers: Vec<TtlMarker<'_>> = specs.iter().filter_map(|spec| TtlMarker::of(spec)).collect();
        for spec in specs {
            match as_application_sees(shape, spec) {
                Some(known) => {
                    indexes.stored.insert(name(spec).to_owned(), spec.to_owned());
                    indexes.known.push(with_ttl(known, &markers));
                }
                None => indexes.others.push(name(spec).to_owned()),
            }
        }
        indexes
    }

    /// The known index of that name.
    #[must_use]
    pub fn named(&self, wanted: &str) -> Option<&RawDocument> {
        let found = self.known.iter().find(|spec| name(spec) == wanted);
        found.map(|spec| &**spec)
    }

    /// A stored specification, in the form of the existing index of that name if there is one. mongod then
    /// treats both as the same index.
    #[must_use]
    pub fn as_there(&self, stored: &RawDocument) -> RawDocumentBuf {
        match self.stored.get(name(stored)) {
            Some(there) => {
                let replaced = Some(("key", Some(RawBsonRef::Document(key(there)))));
                let recorded = recorded::has_record(there).then(|| (PARTIAL, get(there, PARTIAL)));
                with_replaced(stored, &replaced.into_iter().chain(recorded).collect::<Vec<_>>())
            }
            None => stored.to_owned(),
        }
    }

    /// The stored specifications of the known indexes, in any order.
    pub fn stored(&self) -> impl Iterator<Item = &RawDocument> {
        self.stored.values().map(|spec| &**spec)
    }

    /// The known indexes with that key pattern.
    #[must_use]
    pub fn with_key(&self, wanted: &RawDocument) -> Vec<&RawDocument> {
        let known = self.known.iter().map(|spec| &**spec);
        known.filter(|spec| same_key(key(spec), wanted)).collect()
    }

    /// These specifications with their fields in the order of mongod's messages.
    #[must_use]
    pub fn as_printed(specs: &[&RawDocument]) -> Vec<RawDocumentBuf> {
        specs.iter().map(|spec| normal(spec)).collect()
    }
}

/// The specification to be stored, for a well-formed specification of the application. mongod has
/// checked it before.
///
/// # Errors
/// An option that would work on pages, not on items, with the reason.
pub fn stored(shape: &BucketShape, spec: &RawDocument) -> Result<RawDocumentBuf, Unsupported> {
    if let Some(name) = given_twice(spec) {
        return Err(format!("an index specification that contains '{name}' twice").into());
    }
    if is_id_key(key(spec)) || is_clustered(spec) {
        // mongod has checked the specification, and the index exists. mongod refuses any other
        // clustered index.
        return Ok(spec.to_owned());
    }
    if is_recorded(spec) && !is_unique(spec) {
        return recorded::stored(shape, spec);
    }
    if is_geo(spec) {
        return Err("a unique geospatial index".into());
    }
    let mut stored = RawDocumentBuf::new();
    for (name, value) in spec.iter().flatten() {
        let name = name.as_str();
        let is_set = || as_flag(value).unwrap_or(true);
        match name {
            "key" if is_unique(spec) => put(&mut stored, "key", &key_of_unique(shape, key(spec))?),
            "key" => put(&mut stored, "key", &stored_key(shape, key(spec))?),
            "name" | "v" | "background" | "hidden" => put(&mut stored, name, value),
            "unique" if is_set() => {
                put(&mut stored, "unique", true);
                put(&mut stored, PARTIAL, has_items(shape));
            }
            "sparse" if !is_set() => put(&mut stored, name, value),
            "collation" if is_simple(value) => {}
            // mongod drops these options, too, and `unique: false`. A marker records the time to live.
            "unique" | "ns" | "dropDups" | EXPIRE_AFTER => {}
            "sparse" => return Err("a sparse unique index (it would omit whole pages, not items)".into()),
            PARTIAL => return Err("a partial unique index (it would omit whole pages, not items)".into()),
            "collation" => return Err("a unique index with a collation".into()),
            other => return Err(format!("an index with the option '{other}'").into()),
        }
    }
    Ok(stored)
}

fn given_twice(spec: &RawDocument) -> Option<&str> {
    let mut seen = HashSet::new();
    let mut names = spec.iter().flatten().map(|(name, _)| name.as_str());
    names.find(|name| !seen.insert(*name))
}

fn stored_key(shape: &BucketShape, key: &RawDocument) -> Result<RawDocumentBuf, Unsupported> {
    match key_time_index::stored_key(shape, key) {
        Some(stored) => Ok(stored),
        None => Ok(prefixed(shape, key_of_items(shape, key)?)),
    }
}

/// The stored key pattern of a unique index.
fn key_of_unique(shape: &BucketShape, key: &RawDocument) -> Result<RawDocumentBuf, Unsupported> {
    let is_position = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let mut paths = key.iter().flatten().map(|(path, _)| path.as_str());
    if paths.any(|path| path.split('.').any(is_position)) {
        return Err("a unique index on a field whose name is a number (it may be a position in an array)".into());
    }
    Ok(prefixed(shape, key_of_items(shape, key)?))
}

/// The specification of an index as the application created it, or could have. `None` for any other
/// index.
#[must_use]
pub fn as_application_sees(shape: &BucketShape, spec: &RawDocument) -> Option<RawDocumentBuf> {
    match name(spec) {
        name if is_own(name) => return None,
        name if name == ID || is_clustered(spec) => return Some(spec.to_owned()),
        _ => {}
    }
    if let Some(application) = recorded::application(spec) {
        return Some(application);
    }
    let is_unique = is_unique(spec);
    let is_ours = spec.iter().flatten().all(|(name, value)| match name.as_str() {
        "v" | "key" | "name" | "background" | "hidden" => true,
        "sparse" => as_flag(value) == Some(false),
        "unique" => is_unique && get(spec, PARTIAL).is_some(),
        PARTIAL => is_unique && value == RawBsonRef::Document(&has_items(shape)),
        _ => false,
    });
    if !is_ours {
        return None;
    }
    let application = match key_time_index::application_key(shape, key(spec)) {
        Some(application) if !is_unique => application,
        Some(_) => return None,
        None => application_key(shape, key(spec))?,
    };
    let application: &RawDocument = &application;
    let replaced = [("key", Some(RawBsonRef::Document(application))), (PARTIAL, None)];
    Some(with_replaced(spec, &replaced))
}

/// The fields of an application's key pattern. `None` if a direction is not a number.
pub(super) fn indexed_fields(shape: &BucketShape, key: &RawDocument) -> Option<Vec<IndexedField>> {
    let fields = key.iter().flatten().map(|(path, direction)| {
        let path = path.as_str();
        Some(IndexedField {
            path: path.to_owned(),
            stored: stored_path(shape, path),
            is_ascending: as_number(direction)? > 0.0,
        })
    });
    fields.collect()
}

/// The key pattern in items of a key pattern on items. `None` for any other key pattern.
fn application_key(shape: &BucketShape, stored: &RawDocument) -> Option<RawDocumentBuf> {
    let mut application = RawDocumentBuf::new();
    for (path, value) in without_prefix(stored).iter().flatten() {
        as_number(value)?;
        put(&mut application, &application_path(shape, path.as_str())?, value);
    }
    Some(application)
}

/// The current stored form of an application's index. `None` for any other index.
#[must_use]
pub fn current_form(shape: &BucketShape, spec: &RawDocument) -> Option<RawDocumentBuf> {
    if name(spec) == ID || is_clustered(spec) {
        return None;
    }
    let application = as_application_sees(shape, spec)?;
    if is_unique(spec) || recorded::has_record(spec) {
        return Some(spec.to_owned());
    }
    let key = stored_key(shape, key(&application)).ok()?;
    let key: &RawDocument = &key;
    Some(with_replaced(spec, &[("key", Some(RawBsonRef::Document(key)))]))
}

/// mongod's message for a document with two arrays that one index cannot contain (error 171),
/// `[one] [other]`, with the application's field names.
#[must_use]
pub fn in_item_names(shape: &BucketShape, text: &str) -> String {
    let mut parts = text.split('[');
    let mut named = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        named.push('[');
        match part.split_once(']') {
            Some((name, rest)) => {
                named.push_str(shape.rename().item(name));
                named.push(']');
                named.push_str(rest);
            }
            None => named.push_str(part),
        }
    }
    named
}
