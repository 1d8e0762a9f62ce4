//! The marker of a TTL index.
//!
//! mongod's TTL index would delete whole pages. So the index is stored without `expireAfterSeconds`, and a
//! *marker* records the time: a TTL index on a field that no page has, with a filter that no page satisfies.
//! mongod deletes nothing by it, and `collMod` changes it. Proxies delete the expired items
//! ([decision](../../../../docs/decisions/0034-a-proxy-deletes-expired-items.md)).

use std::fmt::Write as _;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::key_pattern::{is_id_key, key, name};
use crate::command::document::{get, put, single};

/// The option of a TTL index.
pub const EXPIRE_AFTER: &str = "expireAfterSeconds";
/// The prefix of a marker's name. The name of the index follows.
const MARKER: &str = "mongoshape_expire_";

/// The name of the marker of an index.
#[must_use]
pub fn ttl_marker_name(index: &str) -> String {
    format!("{MARKER}{index}")
}

/// The marker for a specification of the application. `None`: the index has no `expireAfterSeconds`.
#[must_use]
pub fn ttl_marker_of(spec: &RawDocument) -> Option<RawDocumentBuf> {
    get(spec, EXPIRE_AFTER).map(|seconds| ttl_marker(name(spec), seconds))
}

/// The marker of the index with that name.
#[must_use]
pub fn ttl_marker(index: &str, seconds: RawBsonRef<'_>) -> RawDocumentBuf {
    // The name may contain characters that a field's name must not contain.
    let mut field = MARKER.to_owned();
    for byte in index.bytes() {
        // Writing to a string cannot fail.
        let _ = write!(field, "{byte:02x}");
    }
    let mut spec = single("key", single(&field, 1));
    put(&mut spec, "name", ttl_marker_name(index).as_str());
    spec.append(
        cstr!("partialFilterExpression"),
        single(&field, single("$exists", true)),
    );
    put(&mut spec, EXPIRE_AFTER, seconds);
    spec
}

/// The marker that a stored specification is.
#[derive(Clone, Debug, PartialEq)]
pub struct TtlMarker<'a> {
    /// The name of the index.
    pub index: &'a str,
    /// Its `expireAfterSeconds`.
    pub seconds: RawBsonRef<'a>,
}

impl<'a> TtlMarker<'a> {
    /// Reads a stored specification. `None` for any other index.
    #[must_use]
    pub fn of(spec: &'a RawDocument) -> Option<Self> {
        Some(Self {
            index: name(spec).strip_prefix(MARKER)?,
            seconds: get(spec, EXPIRE_AFTER)?,
        })
    }
}

/// Whether mongod allows a TTL index with this specification of the application (`coll_mod.cpp`).
#[must_use]
pub fn may_expire(application: &RawDocument) -> bool {
    let key = key(application);
    !is_id_key(key) && key.iter().count() == 1
}

/// The marker of a specification of the application. An earlier version created markers of indexes that
/// cannot be TTL indexes.
#[must_use]
pub fn own_marker<'a>(application: &RawDocument, markers: &'a [TtlMarker<'a>]) -> Option<&'a TtlMarker<'a>> {
    let own = markers.iter().find(|marker| marker.index == name(application));
    own.filter(|_| may_expire(application))
}

/// A specification as the application sees it, with the `expireAfterSeconds` of its marker.
#[must_use]
pub fn with_ttl(mut application: RawDocumentBuf, markers: &[TtlMarker<'_>]) -> RawDocumentBuf {
    if let Some(marker) = own_marker(&application, markers) {
        put(&mut application, EXPIRE_AFTER, marker.seconds);
    }
    application
}
