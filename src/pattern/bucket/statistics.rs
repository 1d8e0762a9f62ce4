//! Replies to `collStats`, `dataSize`, `validate` and `dbStats` in the application's terms.
//!
//! The number of documents is the number of items. Sizes are those of the stored data. The sizes of
//! the shape's own indexes are added to the index on `_id`, which they replace for items. A
//! clustered collection has no such index, so there they are added to the storage size.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::index;
use crate::command::document::{as_whole_number, get, put, single};

/// The index that every collection has, unless it is clustered.
const ID: &str = "_id_";

/// A collection's items and their stored bytes, not scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemTotals {
    /// The number of items.
    pub items: i64,
    /// The stored bytes in total.
    pub bytes: i64,
}

/// The share of a database's numbers that belongs to the proxy and is subtracted for the
/// application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hidden {
    /// The number of collections.
    pub collections: i64,
    /// The number of views.
    pub views: i64,
    /// The number of documents. Negative if there are more items than buckets.
    pub objects: i64,
    /// The number of indexes.
    pub indexes: i64,
}

/// Converts the reply to a `dbStats`. The numbers of items on single shards are not known, so it has no
/// `raw`.
#[must_use]
pub fn of_database(reply: &RawDocument, hidden: Hidden) -> RawDocumentBuf {
    let objects = get(reply, "objects").and_then(as_whole_number).unwrap_or(0);
    let left = objects.saturating_sub(hidden.objects);
    let mut converted = RawDocumentBuf::new();
    for (name, value) in reply.iter().flatten() {
        let less = match name.as_str() {
            "collections" => hidden.collections,
            "views" => hidden.views,
            "objects" => hidden.objects,
            "indexes" => hidden.indexes,
            "avgObjSize" => {
                put(&mut converted, "avgObjSize", average(value, objects, left));
                continue;
            }
            "raw" => continue,
            _ => 0,
        };
        match as_whole_number(value).filter(|_| less != 0) {
            Some(number) => converted.append(name, like(value, number.saturating_sub(less))),
            None => converted.append(name, value),
        }
    }
    converted
}

/// Converts an average over `others` documents into one over `number` documents.
#[expect(clippy::cast_precision_loss, reason = "an average is a double")]
fn average(value: RawBsonRef<'_>, others: i64, number: i64) -> RawBson {
    match value {
        RawBsonRef::Double(_) if number <= 0 => RawBson::Double(0.0),
        RawBsonRef::Double(average) if number != others => RawBson::Double(average * others as f64 / number as f64),
        _ => value.into(),
    }
}

/// Converts the reply to a `collStats`, or the `storageStats` of a `$collStats`.
///
/// The reply of a mongos has the statistics of each shard in `shards`. If there are several, the numbers of
/// their items are not known, and `shards` has no counts and averages.
#[must_use]
pub fn of_collection(statistics: &RawDocument, contents: ItemTotals) -> RawDocumentBuf {
    of_shard(statistics, Some(contents))
}

fn of_shard(statistics: &RawDocument, contents: Option<ItemTotals>) -> RawDocumentBuf {
    let mut converted = RawDocumentBuf::new();
    let of_records = get(statistics, "indexSizes")
        .and_then(RawBsonRef::as_document)
        .filter(|sizes| get(sizes, ID).is_none())
        .map_or(0, own);
    for (name, value) in statistics.iter().flatten() {
        match (name.as_str(), value) {
            ("storageSize", _) => put(&mut converted, "storageSize", more(value, of_records)),
            ("totalIndexSize", _) => put(
                &mut converted,
                "totalIndexSize",
                more(value, of_records.saturating_neg()),
            ),
            ("count", _) => {
                if let Some(contents) = contents {
                    put(&mut converted, "count", like(value, contents.items));
                }
            }
            ("avgObjSize", _) => {
                let average = contents.and_then(|contents| contents.bytes.checked_div(contents.items));
                // Without documents mongod returns no average, and a mongos 0.
                let average = average.or_else(|| contents.and(value.as_f64()).map(|_| 0));
                if let Some(average) = average {
                    put(&mut converted, "avgObjSize", like(value, average));
                }
            }
            ("shards", RawBsonRef::Document(shards)) => {
                let is_one = shards.iter().flatten().nth(1).is_none();
                let contents = contents.filter(|_| is_one);
                let of_shards = shards.iter().flatten().map(|(name, value)| match value {
                    RawBsonRef::Document(of_one) => (name, RawBson::Document(of_shard(of_one, contents))),
                    value => (name, value.into()),
                });
                put(&mut converted, "shards", of_shards.collect::<RawDocumentBuf>());
            }
            ("nindexes", _) => {
                let sizes = get(statistics, "indexSizes").and_then(RawBsonRef::as_document);
                let own = sizes.map_or(0, |sizes| sizes.iter().count().saturating_sub(known(sizes).count()));
                // mongod 7.0 counts the index of a clustered collection, which `indexSizes` does not have.
                put(
                    &mut converted,
                    "nindexes",
                    more(value, i64::try_from(own).map_or(i64::MIN, i64::saturating_neg)),
                );
            }
            ("indexSizes", RawBsonRef::Document(sizes)) => put(&mut converted, "indexSizes", with_own_in_id(sizes)),
            ("indexDetails", RawBsonRef::Document(details)) => {
                put(
                    &mut converted,
                    "indexDetails",
                    known(details).collect::<RawDocumentBuf>(),
                );
            }
            ("indexBuilds", RawBsonRef::Array(builds)) => {
                let builds = builds.into_iter().flatten();
                let builds = builds.filter(|name| !name.as_str().is_some_and(index::is_own));
                put(&mut converted, "indexBuilds", builds.collect::<RawArrayBuf>());
            }
            _ => converted.append(name, value),
        }
    }
    converted
}

/// Converts the reply to a `dataSize` of the whole collection.
#[must_use]
pub fn of_data_size(reply: &RawDocument, items: i64) -> RawDocumentBuf {
    with_number(reply, "numObjects", items)
}

/// The document with another number in `field`, of the same type.
#[must_use]
pub fn with_number(document: &RawDocument, field: &str, number: i64) -> RawDocumentBuf {
    let mut converted = RawDocumentBuf::new();
    for (name, value) in document.iter().flatten() {
        if name.as_str() == field {
            put(&mut converted, field, like(value, number));
        } else {
            converted.append(name, value);
        }
    }
    converted
}

/// Converts the reply to a `validate`. `None` if the stored data is not valid, if the application has
/// indexes, or if a mongos has replied for several shards. The number of keys of an index differs between
/// buckets and items, and the number of a shard's items is not known.
#[must_use]
pub fn of_validation(reply: &RawDocument, items: i64) -> Option<RawDocumentBuf> {
    if get(reply, "valid") != Some(RawBsonRef::Boolean(true)) {
        return None;
    }
    let mut converted = RawDocumentBuf::new();
    for (name, value) in reply.iter().flatten() {
        match (name.as_str(), value) {
            ("nrecords", _) => put(&mut converted, "nrecords", like(value, items)),
            ("raw", RawBsonRef::Document(shards)) => {
                let mut shards = shards.iter().flatten();
                let (name, of_shard) = shards.next()?;
                if shards.next().is_some() {
                    return None;
                }
                let of_shard = of_validation(of_shard.as_document()?, items)?;
                put(&mut converted, "raw", single(name.as_str(), &of_shard));
            }
            ("nIndexes", _) => {
                let keys = get(reply, "keysPerIndex")?.as_document()?;
                let known = i64::try_from(known(keys).count()).unwrap_or(i64::MAX);
                put(&mut converted, "nIndexes", like(value, known));
            }
            ("keysPerIndex", RawBsonRef::Document(keys)) => {
                let mut of_id = RawDocumentBuf::new();
                // A clustered collection has no index on `_id`.
                for (name, number) in known(keys) {
                    if name != ID {
                        return None;
                    }
                    put(&mut of_id, ID, like(number, items));
                }
                put(&mut converted, "keysPerIndex", of_id);
            }
            ("indexDetails", RawBsonRef::Document(details)) => {
                put(
                    &mut converted,
                    "indexDetails",
                    known(details).collect::<RawDocumentBuf>(),
                );
            }
            _ => converted.append(name, value),
        }
    }
    Some(converted)
}

/// The fields of a document of indexes, without the shape's own indexes.
fn known(of_indexes: &RawDocument) -> impl Iterator<Item = (&bson::raw::CStr, RawBsonRef<'_>)> {
    of_indexes
        .iter()
        .flatten()
        .filter(|(name, _)| !index::is_own(name.as_str()))
}

fn with_own_in_id(sizes: &RawDocument) -> RawDocumentBuf {
    let mut converted = RawDocumentBuf::new();
    for (name, size) in known(sizes) {
        if name == ID {
            converted.append(name, more(size, own(sizes)));
        } else {
            converted.append(name, size);
        }
    }
    converted
}

/// The sum of the sizes of the shape's own indexes.
fn own(sizes: &RawDocument) -> i64 {
    let own = sizes.iter().flatten().filter(|(name, _)| index::is_own(name.as_str()));
    own.filter_map(|(_, size)| as_whole_number(size))
        .fold(0, i64::saturating_add)
}

/// The number increased by `number`, of the same type.
fn more(value: RawBsonRef<'_>, number: i64) -> RawBson {
    match as_whole_number(value).filter(|_| number != 0) {
        Some(is) => like(value, is.saturating_add(number)),
        None => value.into(),
    }
}

/// A number in the type of `value`.
fn like(value: RawBsonRef<'_>, number: i64) -> RawBson {
    match value {
        #[expect(
            clippy::cast_precision_loss,
            reason = "what mongod tells as a double has lost it before"
        )]
        RawBsonRef::Double(_) => RawBson::Double(number as f64),
        RawBsonRef::Int32(_) => i32::try_from(number).map_or(RawBson::Int64(number), RawBson::Int32),
        _ => RawBson::Int64(number),
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn statistics_of_several_shards_have_no_number_of_items() {
        let of_shard =
            rawdoc! { "count": 1, "size": 100, "avgObjSize": 100, "indexSizes": { "_id_": 1, "mongoshape_page": 2 } };
        let converted = rawdoc! { "size": 100, "indexSizes": { "_id_": 3 } };
        let contents = ItemTotals { items: 20, bytes: 200 };
        let statistics = |shards: RawDocumentBuf| rawdoc! { "count": 2_i64, "avgObjSize": 100.0, "shards": shards };
        let several = statistics(rawdoc! { "a": of_shard.clone(), "b": of_shard.clone() });
        let expected =
            rawdoc! { "count": 20_i64, "avgObjSize": 10.0, "shards": { "a": converted.clone(), "b": converted } };
        assert_eq!(of_collection(&several, contents), expected);
        let of_one = rawdoc! { "count": 20, "size": 100, "avgObjSize": 10, "indexSizes": { "_id_": 3 } };
        let expected = rawdoc! { "count": 20_i64, "avgObjSize": 10.0, "shards": { "a": of_one } };
        assert_eq!(
            of_collection(&statistics(rawdoc! { "a": of_shard }), contents),
            expected
        );
        let nothing = ItemTotals { items: 0, bytes: 0 };
        let of_mongos = rawdoc! { "count": 0_i64, "avgObjSize": 0.0 };
        assert_eq!(of_collection(&of_mongos, nothing), of_mongos);
    }

    #[test]
    fn collection_statistics_count_items_and_omit_own_indexes() {
        let stored = rawdoc! {
            "ns": "d.c", "size": 700, "count": 2, "avgObjSize": 350, "nindexes": 3,
            "indexDetails": { "_id_": { "a": 1 }, "mongoshape_page": {}, "x_1": {} },
            "indexBuilds": ["mongoshape_to", "y_1"],
            "indexSizes": { "_id_": 10, "mongoshape_page": 20, "x_1": 30 }, "totalIndexSize": 60,
        };
        let contents = ItemTotals { items: 20, bytes: 700 };
        let expected = rawdoc! {
            "ns": "d.c", "size": 700, "count": 20, "avgObjSize": 35, "nindexes": 2,
            "indexDetails": { "_id_": { "a": 1 }, "x_1": {} },
            "indexBuilds": ["y_1"],
            "indexSizes": { "_id_": 30, "x_1": 30 }, "totalIndexSize": 60,
        };
        assert_eq!(of_collection(&stored, contents), expected);
        let clustered = rawdoc! {
            "count": 2, "storageSize": 500, "nindexes": 2, "indexSizes": { "mongoshape_page": 20, "x_1": 30 },
            "totalIndexSize": 50,
        };
        let expected = rawdoc! {
            "count": 20, "storageSize": 520, "nindexes": 1, "indexSizes": { "x_1": 30 }, "totalIndexSize": 30,
        };
        assert_eq!(of_collection(&clustered, contents), expected);
        let of_version_7 = rawdoc! { "nindexes": 3, "indexSizes": { "mongoshape_page": 20, "x_1": 30 } };
        let expected = rawdoc! { "nindexes": 2, "indexSizes": { "x_1": 30 } };
        assert_eq!(of_collection(&of_version_7, contents), expected);
        let nothing = ItemTotals { items: 0, bytes: 700 };
        assert!(of_collection(&stored, nothing).get("avgObjSize").unwrap().is_none());
    }

    #[test]
    fn a_validation_omits_own_indexes() {
        let reply = |valid: bool, other: &str| {
            let mut keys = rawdoc! { "_id_": 2 };
            put(&mut keys, other, 2);
            rawdoc! {
                "nrecords": 2, "nIndexes": 2, "keysPerIndex": keys,
                "indexDetails": { "_id_": { "valid": valid }, "mongoshape_page": { "valid": true } }, "valid": valid,
            }
        };
        let expected = rawdoc! {
            "nrecords": 13, "nIndexes": 1, "keysPerIndex": { "_id_": 13 },
            "indexDetails": { "_id_": { "valid": true } }, "valid": true,
        };
        assert_eq!(of_validation(&reply(true, "mongoshape_page"), 13), Some(expected));
        assert_eq!(of_validation(&reply(false, "mongoshape_page"), 13), None);
        assert_eq!(of_validation(&reply(true, "x_1"), 13), None);
        let clustered = rawdoc! {
            "nrecords": 2, "nIndexes": 1, "keysPerIndex": { "mongoshape_page": 2 }, "valid": true,
        };
        let expected = rawdoc! { "nrecords": 13, "nIndexes": 0, "keysPerIndex": {}, "valid": true };
        assert_eq!(of_validation(&clustered, 13), Some(expected));
    }
}
