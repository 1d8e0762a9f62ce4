//! Reads the stored pages of a collection.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bson::raw::RawDocumentBuf;
use bson::{Bson, Document};

use crate::{Shape, invariants};

/// The shape that the stored documents are to have; the names that are always configured alike are the
/// defaults.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The one key field.
    pub key: &'static str,
    /// The time field as it is stored.
    pub time: Option<&'static str>,
    /// Items a page.
    pub max_items: usize,
    /// Bytes of items, at which a page is closed early.
    pub max_bytes: usize,
}

/// One key's pages, in order.
pub type Pages = Vec<Document>;

impl Layout {
    /// Asserts every invariant of layout version 1 and gives each key's pages in order.
    pub fn check(&self, buckets: &[Document]) -> Result<Vec<Pages>> {
        let shape = Shape {
            time: self.time.map(str::to_owned),
            max_items: self.max_items,
            max_bytes: self.max_bytes,
            ..Shape::new(&[self.key])
        };
        let raw = buckets
            .iter()
            .map(RawDocumentBuf::try_from)
            .collect::<Result<Vec<_>, _>>()?;
        let violations = invariants::of_buckets(&raw, &shape);
        ensure!(violations.is_empty(), "{}", violations.join("\n"));
        let mut keys: BTreeMap<Vec<u8>, Pages> = BTreeMap::new();
        for bucket in buckets {
            let mut key = Document::new();
            key.extend(bucket.get(self.key).map(|value| (self.key.to_owned(), value.clone())));
            keys.entry(key.to_vec()?).or_default().push(bucket.clone());
        }
        for pages in keys.values_mut() {
            pages.sort_by_key(page);
        }
        Ok(keys.into_values().collect())
    }
}

/// The page number of a bucket; -1 where it has none.
#[must_use]
pub fn page(bucket: &Document) -> i64 {
    let control = bucket.get_document("control").ok();
    control
        .and_then(|control| control.get("page"))
        .and_then(whole)
        .unwrap_or(-1)
}

/// The stored items of a bucket.
#[must_use]
pub fn items(bucket: &Document) -> Vec<Document> {
    let items = bucket.get_array("history").into_iter().flatten();
    items.filter_map(|item| item.as_document().cloned()).collect()
}

/// The names of the shape's indexes that a collection must have, with `item_ids = "unique"` and a time field.
pub const INDEXES: [&str; 7] = [
    "_id_",
    "mongoshape_exceptions",
    "mongoshape_from",
    "mongoshape_item_id",
    "mongoshape_page",
    "mongoshape_shape",
    "mongoshape_to",
];

fn whole(value: &Bson) -> Option<i64> {
    value.as_i64().or_else(|| value.as_i32().map(i64::from))
}
