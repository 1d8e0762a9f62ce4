//! TTL indexes of the application on items.
//!
//! mongod's TTL index would delete whole pages. So the index is stored without `expireAfterSeconds`, and a
//! *marker* records the time: a TTL index on a field that no page has, with a filter that no page satisfies.
//! mongod deletes nothing by it, and `collMod` changes it. Proxies delete the expired items
//! ([decision](../../../docs/decisions/0034-a-proxy-deletes-expired-items.md)).

use std::fmt::Write as _;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{DateTime, Document, doc};

use super::item_index::{self, as_application_sees};
use crate::command::document::{as_whole_number, get, put, single};
use crate::pattern::shapes::BucketShape;

/// The option of a TTL index.
pub const EXPIRE_AFTER: &str = "expireAfterSeconds";
/// The prefix of a marker's name. The name of the index follows.
const MARKER: &str = "mongoshape_expire_";

/// The name of the marker of an index.
#[must_use]
pub fn marker_name(index: &str) -> String {
    format!("{MARKER}{index}")
}

/// The marker for a specification of the application. `None`: the index has no `expireAfterSeconds`.
#[must_use]
pub fn marker_of(spec: &RawDocument) -> Option<RawDocumentBuf> {
    get(spec, EXPIRE_AFTER).map(|seconds| marker(item_index::name(spec), seconds))
}

/// The marker of the index with that name.
#[must_use]
pub fn marker(index: &str, seconds: RawBsonRef<'_>) -> RawDocumentBuf {
    // The name may contain characters that a field's name must not contain.
    let mut field = MARKER.to_owned();
    for byte in index.bytes() {
        // Writing to a string cannot fail.
        let _ = write!(field, "{byte:02x}");
    }
    let mut spec = single("key", single(&field, 1));
    put(&mut spec, "name", marker_name(index).as_str());
    spec.append(
        cstr!("partialFilterExpression"),
        single(&field, single("$exists", true)),
    );
    put(&mut spec, EXPIRE_AFTER, seconds);
    spec
}

/// The marker that a stored specification is.
#[derive(Clone, Debug, PartialEq)]
pub struct Marker<'a> {
    /// The name of the index.
    pub index: &'a str,
    /// Its `expireAfterSeconds`.
    pub seconds: RawBsonRef<'a>,
}

impl<'a> Marker<'a> {
    /// Reads a stored specification. `None` for any other index.
    #[must_use]
    pub fn of(spec: &'a RawDocument) -> Option<Self> {
        Some(Self {
            index: item_index::name(spec).strip_prefix(MARKER)?,
            seconds: get(spec, EXPIRE_AFTER)?,
        })
    }
}

/// A specification as the application sees it, with the `expireAfterSeconds` of its marker.
#[must_use]
pub fn with_marker(mut application: RawDocumentBuf, markers: &[Marker<'_>]) -> RawDocumentBuf {
    let own = markers
        .iter()
        .find(|marker| marker.index == item_index::name(&application));
    if let Some(marker) = own {
        put(&mut application, EXPIRE_AFTER, marker.seconds);
    }
    application
}

/// A TTL index of the application.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpiringIndex {
    /// Its name.
    pub name: String,
    /// The path of the date in items.
    pub path: String,
    /// Seconds after the date until an item expires.
    pub seconds: i64,
}

impl ExpiringIndex {
    /// The TTL indexes among the stored specifications.
    #[must_use]
    pub fn all(shape: &BucketShape, specs: &[RawDocumentBuf]) -> Vec<Self> {
        let markers: Vec<Marker<'_>> = specs.iter().filter_map(|spec| Marker::of(spec)).collect();
        let indexes = specs.iter().filter_map(|spec| {
            let application = as_application_sees(shape, spec)?;
            let marker = markers
                .iter()
                .find(|marker| marker.index == item_index::name(&application))?;
            let (path, _) = item_index::key(&application).iter().flatten().next()?;
            Some(Self {
                name: marker.index.to_owned(),
                path: path.as_str().to_owned(),
                seconds: as_whole_number(marker.seconds)?,
            })
        });
        indexes.collect()
    }

    /// The latest date of an item that has expired at this time.
    #[must_use]
    pub fn until(&self, now: DateTime) -> DateTime {
        let after = self.seconds.saturating_mul(1000);
        DateTime::from_millis(now.timestamp_millis().saturating_sub(after))
    }

    /// The filter of the items that have expired at this time, as mongod's: a date, or an array with one.
    #[must_use]
    pub fn expired(&self, now: DateTime) -> Document {
        doc! { &self.path: { "$lte": self.until(now) } }
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    #[test]
    fn a_ttl_index_is_an_index_and_a_marker() {
        let options = BucketOptions {
            time: Some("at".to_owned()),
            ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
        };
        let shape = BucketShape::new(options).unwrap();
        let spec = rawdoc! { "v": 2, "key": { "at": 1 }, "name": "a.b $", "expireAfterSeconds": 60 };
        let marker = marker_of(&spec).unwrap();
        assert_eq!(Marker::of(&marker).unwrap().index, "a.b $");
        let stored = item_index::stored(&shape, &spec).unwrap();
        assert_eq!(get(&stored, EXPIRE_AFTER), None);
        assert_eq!(as_application_sees(&shape, &marker), None);
        let listed = as_application_sees(&shape, &stored).unwrap();
        assert_eq!(with_marker(listed, &[Marker::of(&marker).unwrap()]), spec);
        let [index] = &*ExpiringIndex::all(&shape, &[marker, stored]) else {
            panic!("not one index");
        };
        let expired = doc! { "at": { "$lte": DateTime::from_millis(40_000) } };
        assert_eq!(index.expired(DateTime::from_millis(100_000)), expired);
    }
}
