//! TTL indexes of the application on items. A [marker](super::item_index::TtlMarker) records the time to
//! live, and proxies delete the expired items.

use bson::raw::RawDocumentBuf;
use bson::{DateTime, Document, doc};

use super::item_index::{self, TtlMarker, as_application_sees, own_marker};
use crate::command::document::as_whole_number;
use crate::pattern::shapes::BucketShape;

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
        let markers: Vec<TtlMarker<'_>> = specs.iter().filter_map(|spec| TtlMarker::of(spec)).collect();
        let indexes = specs.iter().filter_map(|spec| {
            let application = as_application_sees(shape, spec)?;
            let marker = own_marker(&application, &markers)?;
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

    /// The filter of the items of this date and earlier, as mongod's: a date, or an array with one.
    #[must_use]
    pub fn up_to(&self, until: DateTime) -> Document {
        doc! { &self.path: { "$lte": until } }
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::command::document::get;
    use crate::pattern::bucket::item_index::{EXPIRE_AFTER, ttl_marker_of, with_ttl};
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    fn shape() -> BucketShape {
        let options = BucketOptions {
            time: Some("at".to_owned()),
            ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
        };
        BucketShape::new(options).unwrap()
    }

    #[test]
    fn a_ttl_index_is_an_index_and_a_marker() {
        let shape = shape();
        let spec = rawdoc! { "v": 2, "key": { "at": 1 }, "name": "a.b $", "expireAfterSeconds": 60 };
        let marker = ttl_marker_of(&spec).unwrap();
        assert_eq!(TtlMarker::of(&marker).unwrap().index, "a.b $");
        let stored = item_index::stored(&shape, &spec).unwrap();
        assert_eq!(get(&stored, EXPIRE_AFTER), None);
        assert_eq!(as_application_sees(&shape, &marker), None);
        let listed = as_application_sees(&shape, &stored).unwrap();
        assert_eq!(with_ttl(listed, &[TtlMarker::of(&marker).unwrap()]), spec);
        let [index] = &*ExpiringIndex::all(&shape, &[marker, stored]) else {
            panic!("not one index");
        };
        let expired = doc! { "at": { "$lte": DateTime::from_millis(40_000) } };
        let until = index.until(DateTime::from_millis(100_000));
        assert_eq!(index.up_to(until), expired);
    }

    #[test]
    fn a_marker_of_an_index_that_cannot_expire_has_no_effect() {
        let shape = shape();
        for (name, key) in [
            ("_id_", rawdoc! { "_id": 1 }),
            ("two", rawdoc! { "at": 1, "n": 1 }),
            ("key_time", rawdoc! { "k": 1, "at": 1 }),
        ] {
            let spec = rawdoc! { "v": 2, "key": key, "name": name };
            let stored = item_index::stored(&shape, &spec).unwrap();
            let marker = ttl_marker_of(&rawdoc! { "name": name, "expireAfterSeconds": 60 }).unwrap();
            let listed = as_application_sees(&shape, &stored).unwrap();
            assert_eq!(with_ttl(listed, &[TtlMarker::of(&marker).unwrap()]), spec);
            assert!(ExpiringIndex::all(&shape, &[marker, stored]).is_empty());
        }
    }
}
