//! A collection's statistics and indexes as the server returns them, without its documents. Pure.

use bson::raw::RawDocumentBuf;
use bson::{Bson, Document};

use crate::command::document::{put, single};
use crate::maintenance::upstream::as_integer;
use crate::pattern::bucket::index;
use crate::pattern::outlier;
use crate::pattern::shapes::NamespacePattern;
use crate::wire::Compressor;

#[derive(Debug, Default)]
pub(super) struct CollectionStats {
    /// `database.collection`.
    pub(super) namespace: String,
    /// Number of documents.
    pub(super) documents: u64,
    /// Bytes of the documents, uncompressed.
    pub(super) data: u64,
    /// Bytes on disk, without free space.
    pub(super) storage: u64,
    /// The compressor of its blocks. `None`: they are not compressed.
    pub(super) compressor: Option<Compressor>,
    /// All indexes, including `_id_`.
    pub(super) indexes: Vec<Index>,
    /// Reasons against a shape of either pattern.
    pub(super) unfit: Vec<String>,
    /// Further reasons against a bucket shape.
    pub(super) unfit_for_buckets: Vec<String>,
    /// Names of all collections of the database.
    pub(super) beside: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) name: String,
    /// Its fields, in order.
    pub(super) fields: Vec<String>,
    /// For each field, whether the index is descending on it.
    pub(super) descending: Vec<bool>,
    /// Whether it is unique, other than the index on `_id`.
    pub(super) is_unique: bool,
    /// Whether documents expire by it.
    pub(super) is_expiring: bool,
    /// Properties that an index on buckets cannot have, as text.
    pub(super) kinds: Vec<&'static str>,
    /// Bytes on disk.
    pub(super) bytes: u64,
    /// Uses since the server began to count. `None`: unknown.
    pub(super) used: Option<u64>,
}

impl Index {
    /// Reads an index from `listIndexes`.
    pub(super) fn of(described: &Document) -> Self {
        let key = described.get_document("key").cloned().unwrap_or_default();
        let is = |option| described.get_bool(option).unwrap_or(false);
        let has = |option| described.contains_key(option);
        let name = described.get_str("name").unwrap_or_default().to_owned();
        let is_id = name == "_id_";
        let of_kind = |kind: &str| key.values().any(|value| value.as_str() == Some(kind));
        let kinds = [
            (is("sparse"), "sparse"),
            (has("partialFilterExpression"), "partial"),
            (has("collation"), "an index with a collation"),
            (of_kind("text"), "a text index"),
            (of_kind("hashed"), "hashed"),
            (of_kind("2dsphere") || of_kind("2d"), "geographic"),
            (key.keys().any(|field| field.contains("$**")), "a wildcard index"),
        ];
        Self {
            name,
            fields: key.keys().cloned().collect(),
            descending: key.values().map(is_negative).collect(),
            is_unique: is("unique") && !is_id,
            is_expiring: has("expireAfterSeconds"),
            kinds: kinds
                .into_iter()
                .filter(|(is, _)| *is)
                .map(|(_, words)| words)
                .collect(),
            bytes: 0,
            used: None,
        }
    }

    /// Its specification, without other options than `unique`.
    pub(super) fn spec(&self) -> RawDocumentBuf {
        let mut key = RawDocumentBuf::new();
        for (field, descending) in self.fields.iter().zip(&self.descending) {
            put(&mut key, field, if *descending { -1 } else { 1 });
        }
        let mut spec = single("key", key);
        put(&mut spec, "name", self.name.as_str());
        if self.is_unique {
            put(&mut spec, "unique", true);
        }
        spec
    }

    /// Properties that an index on items of a bucket collection cannot have, as text.
    fn kinds_for_buckets(&self) -> Vec<&'static str> {
        let is_unfit = |kind: &&str| match *kind {
            "partial" => self.is_unique || self.is_expiring,
            "sparse" | "an index with a collation" => self.is_unique,
            _ => true,
        };
        self.kinds.iter().copied().filter(is_unfit).collect()
    }

    /// Properties that an index on the array of an outlier collection cannot have, as text.
    pub(super) fn kinds_for_outliers(&self) -> Vec<&'static str> {
        let unique = self.is_unique.then_some("unique");
        let expiring = self.is_expiring.then_some("a TTL index");
        unique
            .into_iter()
            .chain(expiring)
            .chain(self.kinds.iter().copied())
            .collect()
    }

    /// Whether it has an entry for every document, in the order of values.
    pub(super) fn is_plain(&self) -> bool {
        self.kinds.is_empty()
    }
}

impl CollectionStats {
    /// Reads a collection from `listCollections`.
    pub(super) fn of(database: &str, described: &Document) -> Self {
        let name = described.get_str("name").unwrap_or_default();
        let mut facts = Self {
            namespace: format!("{database}.{name}"),
            ..Self::default()
        };
        if NamespacePattern::parse(&facts.namespace).is_none() {
            facts.unfit.push("has a name that cannot be configured".to_owned());
        }
        match described.get_str("type") {
            Ok("view") => facts.unfit.push("is a view".to_owned()),
            Ok("timeseries") => facts.unfit.push("is a time-series collection".to_owned()),
            _ => {}
        }
        let empty = Document::new();
        let options = described.get_document("options").unwrap_or(&empty);
        let given = |option: &&(&str, &str)| match options.get(option.0) {
            Some(Bson::Boolean(flag)) => *flag,
            Some(_) => true,
            None => false,
        };
        let unfit = [
            ("capped", "is capped"),
            ("validator", "has a validator"),
            ("encryptedFields", "is encrypted"),
            ("collation", "has a default collation"),
            (
                "changeStreamPreAndPostImages",
                "keeps pre- and post-images for change streams",
            ),
        ];
        let words = |(_, words): &(&str, &str)| (*words).to_owned();
        facts.unfit.extend(unfit.iter().filter(given).map(words));
        let unfit_for_buckets = [("expireAfterSeconds", "has expireAfterSeconds")];
        facts
            .unfit_for_buckets
            .extend(unfit_for_buckets.iter().filter(given).map(words));
        facts
    }

    /// Adds the result of `collStats`.
    pub(super) fn add_statistics(&mut self, statistics: &Document) {
        let number = |name| statistics.get(name).and_then(as_count).unwrap_or(0);
        self.documents = number("count");
        self.data = number("size");
        self.storage = number("storageSize").saturating_sub(number("freeStorageSize"));
        self.compressor = compressor(statistics);
        if statistics.get_bool("sharded").unwrap_or(false) {
            self.unfit.push("is sharded".to_owned());
        }
        let sizes = statistics.get_document("indexSizes").cloned().unwrap_or_default();
        for index in &mut self.indexes {
            index.bytes = sizes.get(&index.name).and_then(as_count).unwrap_or(0);
        }
    }

    /// Adds the indexes and the reasons that follow from them.
    pub(super) fn add_indexes(&mut self, described: &[Document]) {
        self.indexes = described.iter().map(Index::of).collect();
        let is_shaped = |index: &Index| index::is_own(&index.name) || index.name == outlier::index::PAGES;
        if self.indexes.iter().any(is_shaped) {
            self.unfit.push("already belongs to a shape".to_owned());
        }
        for index in &self.indexes {
            let kinds = index.kinds_for_buckets();
            if !kinds.is_empty() {
                let kinds = kinds.join(", ");
                let text = format!(
                    "has the index {}, which is {kinds}; bucket collections do not support it",
                    index.name
                );
                self.unfit_for_buckets.push(text);
            }
        }
    }

    /// Adds the uses of an index from `$indexStats`.
    pub(super) fn add_use(&mut self, statistics: &Document) {
        let used = statistics
            .get_document("accesses")
            .ok()
            .and_then(|uses| uses.get("ops"));
        for index in &mut self.indexes {
            if statistics.get_str("name").is_ok_and(|name| name == index.name) {
                index.used = used.and_then(as_count);
            }
        }
    }

    /// Mean bytes of a document.
    pub(super) fn mean_bytes(&self) -> u64 {
        self.data.checked_div(self.documents).unwrap_or(0)
    }

    /// Whether the sizes on disk are from a checkpoint before most documents were stored. Then an
    /// entry of the index on `_id` would take less than a byte, or the documents would be
    /// compressed more than a hundredfold.
    pub(super) fn is_before_checkpoint(&self) -> bool {
        let ids = self.id_index().map_or(u64::MAX, |index| index.bytes);
        ids < self.documents || self.storage.saturating_mul(100) < self.data
    }

    /// The collection's name.
    pub(super) fn collection(&self) -> &str {
        self.namespace.split_once('.').map_or("", |(_, name)| name)
    }

    /// The index on `_id`. `None` if the collection is clustered.
    pub(super) fn id_index(&self) -> Option<&Index> {
        self.indexes.iter().find(|index| index.name == "_id_")
    }
}

/// The compressor in `collStats`. mongod's default if it does not report one, as another storage engine.
fn compressor(statistics: &Document) -> Option<Compressor> {
    let engine = statistics.get_document("wiredTiger");
    let created = engine.and_then(|engine| engine.get_str("creationString"));
    let Ok((_, named)) = created.map(|text| text.split_once("block_compressor=").unwrap_or(("", "snappy"))) else {
        return Some(Compressor::Snappy);
    };
    let name = named.split(',').next().unwrap_or_default();
    Compressor::ALL.into_iter().find(|compressor| compressor.name() == name)
}

fn is_negative(direction: &Bson) -> bool {
    match direction {
        Bson::Double(number) => *number < 0.0,
        other => as_integer(other).is_some_and(|number| number < 0),
    }
}

/// A non-negative number of any of MongoDB's types.
pub(super) fn as_count(value: &Bson) -> Option<u64> {
    as_integer(value).and_then(|number| u64::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn collection_that_cannot_be_shaped_has_a_reason() {
        let check = |described: Document, expected: &[&str]| {
            assert_eq!(CollectionStats::of("d", &described).unfit, expected, "{described}");
        };
        check(doc! { "name": "c", "type": "collection", "options": {} }, &[]);
        check(doc! { "name": "c", "type": "view" }, &["is a view"]);
        check(doc! { "name": "a$b" }, &["has a name that cannot be configured"]);
        check(doc! { "name": "c", "options": { "capped": false } }, &[]);
        let options = doc! { "capped": true, "size": 1, "validator": {} };
        check(
            doc! { "name": "c", "options": options },
            &["is capped", "has a validator"],
        );
        let mut facts = CollectionStats::of("d", &doc! { "name": "c" });
        facts.add_indexes(&[doc! { "key": { "a": 1 }, "name": "mongoshape_page", "unique": true }]);
        assert_eq!(facts.unfit, ["already belongs to a shape"]);
    }

    #[test]
    fn kinds_of_indexes_are_named() {
        let check = |described: Document, expected: &[&str]| assert_eq!(Index::of(&described).kinds, expected);
        check(doc! { "name": "_id_", "key": { "_id": 1 }, "unique": true }, &[]);
        check(doc! { "name": "a_1", "key": { "a": 1, "b": -1 } }, &[]);
        check(doc! { "name": "a_1", "key": { "a": 1 }, "unique": true }, &[]);
        check(
            doc! { "name": "a_1", "key": { "a": 1 }, "unique": true, "sparse": true },
            &["sparse"],
        );
        check(
            doc! { "name": "a", "key": { "_fts": "text", "_ftsx": 1 } },
            &["a text index"],
        );
        check(
            doc! { "name": "a", "key": { "a": 1 }, "expireAfterSeconds": 5, "sparse": true },
            &["sparse"],
        );
    }

    #[test]
    fn sizes_and_uses_are_those_of_the_index_of_that_name() {
        let mut facts = CollectionStats::of("d", &doc! { "name": "c.d" });
        facts.add_indexes(&[
            doc! { "key": { "_id": 1 }, "name": "_id_" },
            doc! { "key": { "a": 1 }, "name": "a_1" },
        ]);
        let sizes = doc! { "_id_": 5, "a_1": 7_i64 };
        facts.add_statistics(
            &doc! { "count": 10, "size": 95.0, "storageSize": 40, "freeStorageSize": 15, "indexSizes": sizes },
        );
        facts.add_use(&doc! { "name": "a_1", "accesses": { "ops": 3_i64 } });
        assert_eq!((facts.mean_bytes(), facts.storage, facts.collection()), (9, 25, "c.d"));
        let found: Vec<_> = facts.indexes.iter().map(|index| (index.bytes, index.used)).collect();
        assert_eq!(found, [(5, None), (7, Some(3))]);
        // Ten documents have ten entries in the index on `_id`, which do not fit in 5 bytes.
        assert!(facts.is_before_checkpoint());
        facts.indexes[0].bytes = 50;
        assert!(!facts.is_before_checkpoint());
        facts.storage = 0;
        assert!(facts.is_before_checkpoint());
    }

    #[test]
    fn compressor_is_that_of_the_collection() {
        let check = |created: &str, expected| {
            let statistics = doc! { "wiredTiger": { "creationString": created } };
            assert_eq!(compressor(&statistics), expected, "{created}");
        };
        check(
            "allocation_size=4KB,block_compressor=snappy,cache_resident=false",
            Some(Compressor::Snappy),
        );
        check("block_compressor=zstd", Some(Compressor::Zstd));
        check("block_compressor=,cache_resident=false", None);
        assert_eq!(compressor(&doc! {}), Some(Compressor::Snappy));
    }
}
