//! What is stored, looked at with a bucket shape in mind: its invariants, its items.
//!
//! Written from the layout's description, not with the proxy's own code.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document};

/// The shape that the stored documents are to have; the names that are always configured alike are fixed.
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

/// The stored array of items.
pub const ITEMS: &str = "history";
/// The stored number of items.
pub const COUNT: &str = "count";

/// One key's pages, in order.
pub type Pages = Vec<Document>;

impl Layout {
    /// Asserts every invariant of layout version 1 and gives each key's pages in order.
    pub fn check(&self, buckets: &[Document]) -> Result<Vec<Pages>> {
        let mut keys: BTreeMap<Vec<u8>, Pages> = BTreeMap::new();
        for bucket in buckets {
            self.check_bucket(bucket).with_context(|| format!("{bucket}"))?;
            let mut key = Document::new();
            key.extend(bucket.get(self.key).map(|value| (self.key.to_owned(), value.clone())));
            keys.entry(key.to_vec()?).or_default().push(bucket.clone());
        }
        for pages in keys.values_mut() {
            pages.sort_by_key(page);
            self.check_pages(pages)?;
        }
        Ok(keys.into_values().collect())
    }

    fn check_bucket(&self, bucket: &Document) -> Result<()> {
        let control = bucket.get_document("control")?;
        ensure!(control.get_i32("v")? == 1, "not of version 1");
        ensure!(!matches!(bucket.get(self.key), Some(Bson::Null)), "null is lifted");
        let items = items(bucket);
        let count = bucket.get_i32(COUNT)?;
        ensure!(usize::try_from(count)? == items.len(), "count is not the length");
        ensure!((1..=self.max_items).contains(&items.len()), "{count} items");
        let lengths: Vec<usize> = items.iter().map(length).collect();
        let bytes: usize = lengths.iter().sum();
        ensure!(
            control.get("bytes").and_then(whole) == i64::try_from(bytes).ok(),
            "{bytes} bytes"
        );
        ensure!(
            items.len() == 1 || bytes <= self.max_bytes,
            "{bytes} bytes are too many"
        );
        let marked = ["short", "late"].iter().any(|mark| control.contains_key(*mark));
        ensure!(
            control.contains_key("exception") == marked,
            "exception is not as its reasons"
        );
        let times: Vec<_> = self.times(bucket).into_iter().flatten().collect();
        ensure!(
            control.get("from") == times.iter().min().map(|time| Bson::DateTime(*time)).as_ref(),
            "from"
        );
        ensure!(
            control.get("to") == times.iter().max().map(|time| Bson::DateTime(*time)).as_ref(),
            "to"
        );
        Ok(())
    }

    fn times(&self, bucket: &Document) -> Vec<Option<bson::DateTime>> {
        let Some(field) = self.time else { return Vec::new() };
        items(bucket)
            .iter()
            .map(|item| item.get_datetime(field).ok().copied())
            .collect()
    }

    fn check_pages(&self, pages: &Pages) -> Result<()> {
        let mut newest = None;
        for (number, bucket) in pages.iter().enumerate() {
            let control = bucket.get_document("control")?;
            ensure!(
                page(bucket) == i64::try_from(number)?,
                "page {number} is not there but {bucket}"
            );
            let closed = items(bucket).len() == self.max_items || control.contains_key("short");
            ensure!(
                closed || number + 1 == pages.len(),
                "an inner page is not full: {bucket}"
            );
            let late = self.times(bucket).into_iter().fold(false, |late, time| {
                let this = time.is_none() || time < newest;
                newest = newest.max(time);
                late || this
            });
            ensure!(control.contains_key("late") == late, "late should be {late}: {bucket}");
        }
        Ok(())
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
    let items = bucket.get_array(ITEMS).into_iter().flatten();
    items.filter_map(|item| item.as_document().cloned()).collect()
}

/// The names of the shape's indexes that a collection must have, with `item_ids = "unique"` and a time field.
pub const INDEXES: [&str; 5] = [
    "_id_",
    "mongoshape_exceptions",
    "mongoshape_item_id",
    "mongoshape_page",
    "mongoshape_time",
];

fn length(document: &Document) -> usize {
    document.to_vec().map_or(0, |bytes| bytes.len())
}

fn whole(value: &Bson) -> Option<i64> {
    value.as_i64().or_else(|| value.as_i32().map(i64::from))
}
