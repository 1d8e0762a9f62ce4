//! Answers a `find` from pages.
//!
//! [`bucket_query`] recognises a query that needs no pipeline. A [`page_scan`] along pages, by number, reads
//! the items of one key, of several or of all, from where position arithmetic ([`super::page_locator`]) or a
//! [`range`] of time begins. Where pages of a key overlap in time, [`merge`] orders their items.

pub mod bucket;
pub mod bucket_query;
pub mod documents;
pub mod index_scan;
pub mod merge;
pub mod page_scan;
pub mod range;

use bson::DateTime;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use self::bucket_query::{BucketQuery, Order};
use self::page_scan::ScanDirection;
use super::index;
use super::key::Key;
use super::layout::{VERSION, path};
use super::page_locator::MAX_EXCEPTIONS;
use crate::command::document::{get, put, single};
use crate::pattern::shapes::BucketShape;

/// How a part of an index is named to mongod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By its bounds, so that mongod has nothing to plan: that takes it 15 to 35 us of some 200.
    Bounds,
    /// By conditions that mean the same, for the strict stable API, which has no bounds.
    Conditions,
}

/// Where buckets are read.
#[derive(Clone, Copy, Debug)]
pub struct BucketSource<'a> {
    /// The collection.
    pub collection: &'a str,
    /// How its indexes are read.
    pub reach: Reach,
}

/// Queries about one key's pages, which tell where to read.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// Where they are read.
    pub source: BucketSource<'a>,
    /// The condition that names the key.
    pub key: &'a RawDocument,
}

impl Queries<'_> {
    /// For the pages that arithmetic must know of.
    #[must_use]
    pub fn exceptions(&self, shape: &BucketShape) -> RawDocumentBuf {
        let mut find = single("find", self.source.collection);
        find.append(cstr!("hint"), index::EXCEPTIONS);
        match self.source.reach {
            Reach::Bounds => {
                let paths = [path::PAGE, shape.count(), path::LATE];
                for (name, end) in [("min", RawBsonRef::MinKey), ("max", RawBsonRef::MaxKey)] {
                    put(&mut find, name, bound(self.key, paths.map(|path| (path, end))));
                }
            }
            Reach::Conditions => {
                let mut filter = self.key.to_owned();
                put(&mut filter, path::EXCEPTION, true);
                find.append(cstr!("filter"), filter);
            }
        }
        append_limit(&mut find, i64::from(MAX_EXCEPTIONS));
        find.append(cstr!("batchSize"), i64::from(MAX_EXCEPTIONS));
        find.append(cstr!("projection"), single(shape.items(), 0));
        find
    }

    /// For the highest page, without its items.
    #[must_use]
    pub fn highest(&self, shape: &BucketShape) -> RawDocumentBuf {
        let mut find = self.whole_highest();
        find.append(cstr!("projection"), single(shape.items(), 0));
        find
    }

    /// For the highest page.
    #[must_use]
    pub fn whole_highest(&self) -> RawDocumentBuf {
        let mut find = self.source.pages(self.key, 0, None);
        append_limit(&mut find, 1);
        find.append(cstr!("sort"), single(path::PAGE, -1));
        find
    }

    /// For the first page, without its items: it tells whether the times of all pages ascend.
    #[must_use]
    pub fn first(&self, shape: &BucketShape) -> RawDocumentBuf {
        let mut find = self.source.pages(self.key, 0, Some(1));
        append_limit(&mut find, 1);
        find.append(cstr!("projection"), single(shape.items(), 0));
        find
    }

    /// For the bucket of a name, which mongod finds without planning if it is told nothing else.
    #[must_use]
    pub fn named(&self, id: &str) -> RawDocumentBuf {
        let mut find = single("find", self.source.collection);
        find.append(cstr!("filter"), single("_id", id));
        append_limit(&mut find, 1);
        find
    }

    /// The key's identity; `None` for what cannot be a key.
    #[must_use]
    pub fn identity(&self, shape: &BucketShape) -> Option<Vec<u8>> {
        Some(
            Key::of_values(shape, |field| value_in(get(self.key, field)?))
                .ok()?
                .identity(),
        )
    }

    /// For the first page, in the order of time, that may hold something of the query's range.
    #[must_use]
    pub fn oldest_in_range(&self, query: &BucketQuery) -> Option<RawDocumentBuf> {
        let mut filter = self.key.to_owned();
        put(&mut filter, path::VERSION, VERSION);
        put(&mut filter, path::TO, &query.range.newest_condition()? as &RawDocument);
        let mut find = self.find(&filter, index::TO, 1);
        find.append(cstr!("sort"), single(path::TO, 1));
        Some(find)
    }

    /// For the last.
    #[must_use]
    pub fn newest_in_range(&self, query: &BucketQuery) -> Option<RawDocumentBuf> {
        let mut filter = self.key.to_owned();
        put(&mut filter, path::VERSION, VERSION);
        put(
            &mut filter,
            path::FROM,
            &query.range.oldest_condition()? as &RawDocument,
        );
        let mut find = self.find(&filter, index::FROM, 1);
        find.append(cstr!("sort"), single(path::FROM, -1));
        Some(find)
    }

    /// For so many pages from the end of the range that a scan begins at. `None` if the range is open there.
    /// Pages whose times are not all dates are left out: such a key is not in the order of time.
    #[must_use]
    pub fn from_near_end(&self, query: &BucketQuery, direction: ScanDirection, pages: u64) -> Option<RawDocumentBuf> {
        // These bounds do not change behind the scan: a push raises only the upper bound of the head page.
        let (end, path, hint, order, [open, closed]) = match direction {
            ScanDirection::Forward => (query.range.from, path::TO, index::TO, 1, ["$gt", "$gte"]),
            ScanDirection::Backward => (query.range.to, path::FROM, index::FROM, -1, ["$lt", "$lte"]),
        };
        let end = end?;
        let pages = i64::try_from(pages).unwrap_or(i64::MAX);
        // `min` is included, and `max` is not.
        let is_next = end.inclusive == (direction == ScanDirection::Backward);
        let next = end.at.timestamp_millis().checked_add(i64::from(is_next));
        let mut find = if let (Reach::Bounds, Some(next)) = (self.source.reach, next.map(DateTime::from_millis)) {
            let next = RawBsonRef::DateTime(next);
            let (min, max) = match direction {
                ScanDirection::Forward => (next, RawBsonRef::MaxKey),
                ScanDirection::Backward => (RawBsonRef::MinKey, next),
            };
            let mut find = self.several(&RawDocumentBuf::new(), hint, pages);
            find.append(cstr!("min"), bound(self.key, [(path, min)]));
            find.append(cstr!("max"), bound(self.key, [(path, max)]));
            find
        } else {
            let mut filter = self.key.to_owned();
            put(&mut filter, path::VERSION, VERSION);
            let operator = if end.inclusive { closed } else { open };
            put(&mut filter, path, single(operator, end.at));
            self.several(&filter, hint, pages)
        };
        find.append(cstr!("sort"), single(path, order));
        Some(find)
    }

    /// For so many pages in the order of their bounds, the nearest first.
    #[must_use]
    pub fn by_bounds(&self, query: &BucketQuery, pages: u64) -> RawDocumentBuf {
        let mut filter = self.key.to_owned();
        put(&mut filter, path::VERSION, VERSION);
        query.range.append_to(&mut filter);
        let (path, direction, hint) = match query.order {
            Order::TimeDescending => (path::TO, -1, index::TO),
            _ => (path::FROM, 1, index::FROM),
        };
        let mut find = self.several(&filter, hint, i64::try_from(pages).unwrap_or(i64::MAX));
        find.append(cstr!("sort"), single(path, direction));
        find
    }

    /// For so many of the pages whose bounds have moved since others followed them: by their numbers, which
    /// do not.
    #[must_use]
    pub fn moved(&self, pages: usize) -> RawDocumentBuf {
        let mut filter = self.key.to_owned();
        put(&mut filter, path::EXCEPTION, true);
        put(&mut filter, path::KEPT, single("$exists", true));
        self.several(&filter, index::EXCEPTIONS, i64::try_from(pages).unwrap_or(i64::MAX))
    }

    /// For the bounds of all pages before that one.
    #[must_use]
    pub fn bounds(&self, shape: &BucketShape, query: &BucketQuery, before: u64) -> RawDocumentBuf {
        let mut filter = self.key.to_owned();
        query.range.append_to(&mut filter);
        put(&mut filter, path::PAGE, single("$lt", number(before)));
        let mut projection = single("_id", 0);
        for path in [BucketShape::CONTROL, shape.count()] {
            put(&mut projection, path, 1);
        }
        let mut find = single("find", self.source.collection);
        find.append(cstr!("filter"), filter);
        find.append(cstr!("hint"), index::PAGE);
        find.append(cstr!("projection"), projection);
        find
    }

    /// For the pages of these numbers.
    #[must_use]
    pub fn pages(&self, pages: &[u64]) -> RawDocumentBuf {
        let numbers: bson::raw::RawArrayBuf = pages
            .iter()
            .map(|page| bson::raw::RawBson::Int64(number(*page)))
            .collect();
        let mut filter = self.key.to_owned();
        put(&mut filter, path::PAGE, single("$in", &numbers));
        let mut find = single("find", self.source.collection);
        find.append(cstr!("filter"), filter);
        find.append(cstr!("hint"), index::PAGE);
        find
    }

    fn find(&self, filter: &RawDocument, hint: &str, limit: i64) -> RawDocumentBuf {
        let mut find = single("find", self.source.collection);
        find.append(cstr!("filter"), filter);
        find.append(cstr!("hint"), hint);
        append_limit(&mut find, limit);
        find
    }

    /// For so many pages, with a cursor that stays open where they are more bytes than a reply holds.
    fn several(&self, filter: &RawDocument, hint: &str, limit: i64) -> RawDocumentBuf {
        let mut find = single("find", self.source.collection);
        find.append(cstr!("filter"), filter);
        find.append(cstr!("hint"), hint);
        find.append(cstr!("limit"), limit);
        find.append(cstr!("batchSize"), limit);
        find
    }
}

impl BucketSource<'_> {
    /// The `find` for a key's pages from one on and before another, the lowest first; those before none are
    /// all.
    fn pages(&self, key: &RawDocument, from: u64, before: Option<u64>) -> RawDocumentBuf {
        let mut find = single("find", self.collection);
        find.append(cstr!("hint"), index::PAGE);
        // Bounds of nothing are an error.
        let reach = match before {
            Some(before) if before <= from => Reach::Conditions,
            _ => self.reach,
        };
        // What has the key and no number is no page, and to be found.
        let from = (from > 0).then(|| RawBsonRef::Int64(number(from)));
        let before = before.map(|page| RawBsonRef::Int64(number(page)));
        match reach {
            Reach::Bounds => {
                let from = from.unwrap_or(RawBsonRef::MinKey);
                let before = before.unwrap_or(RawBsonRef::MaxKey);
                find.append(cstr!("min"), bound(key, [(path::PAGE, from)]));
                find.append(cstr!("max"), bound(key, [(path::PAGE, before)]));
            }
            Reach::Conditions => {
                let mut pages = RawDocumentBuf::new();
                for (operator, page) in [("$gte", from), ("$lt", before)] {
                    if let Some(page) = page {
                        put(&mut pages, operator, page);
                    }
                }
                let mut filter = key.to_owned();
                if !pages.is_empty() {
                    put(&mut filter, path::PAGE, &pages as &RawDocument);
                }
                find.append(cstr!("filter"), filter);
            }
        }
        find
    }
}

fn append_limit(find: &mut RawDocumentBuf, limit: i64) {
    find.append(cstr!("limit"), limit);
    find.append(cstr!("singleBatch"), true);
}

/// The value that the condition on a key field sets it equal to.
fn value_in(condition: RawBsonRef<'_>) -> Option<RawBsonRef<'_>> {
    condition.as_document().and_then(|condition| get(condition, "$eq"))
}

/// A place in an index: the values that the key's condition names, and those behind.
fn bound<const N: usize>(key: &RawDocument, rest: [(&str, RawBsonRef<'_>); N]) -> RawDocumentBuf {
    let mut bound = RawDocumentBuf::new();
    for (name, condition) in key.iter().flatten() {
        bound.append(name, value_in(condition).unwrap_or(condition));
    }
    for (name, value) in rest {
        put(&mut bound, name, value);
    }
    bound
}

fn number(page: u64) -> i64 {
    i64::try_from(page).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
