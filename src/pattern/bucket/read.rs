//! Answers a `find` from pages.
//!
//! [`bucket_query`] recognises a query that needs no pipeline. A [`page_scan`] along pages, by number, reads
//! the items of one key, of several or of all, from where position arithmetic ([`super::page_locator`]) or a
//! [`range`] of time begins. Where pages of a key overlap in time, [`merge`] orders their items.

mod adjacent_value;
pub mod bucket;
pub mod bucket_query;
pub mod documents;
pub mod index_scan;
pub mod merge;
pub mod numbered_pages;
pub mod page_scan;
pub mod range;

use bson::DateTime;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use self::bucket_query::{BucketQuery, Order};
use self::page_scan::ScanDirection;
use self::range::TimeRange;
use super::index;
use super::key::Key;
use super::layout::{VERSION, path};
use super::page_locator::MAX_EXCEPTIONS;
use crate::command::document::{get, put, single};
use crate::pattern::shapes::BucketShape;

/// The form in which a query states the range of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// `min` and `max`. mongod does not plan such a query, which saves 15 to 35 us of about 200 us.
    Bounds,
    /// Equivalent conditions in the filter. The strict stable API has no `min` and `max`, and a mongos finds
    /// the shard of a key only in the filter.
    Conditions,
}

/// The collection that is read, and the form of its queries.
#[derive(Clone, Copy, Debug)]
pub struct BucketSource<'a> {
    /// The name of the collection.
    pub collection: &'a str,
    /// The form in which a query states the range of an index.
    pub reach: Reach,
    /// Whether the collection has the current index on the items' `_id`. An earlier version created another
    /// one, which needs other bounds.
    pub has_item_id_index: bool,
}

/// Builds the `find` commands on the pages of one key that determine where a read begins.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// The collection.
    pub source: BucketSource<'a>,
    /// The filter for buckets of the key.
    pub key: &'a RawDocument,
}

/// An index on a time bound.
#[derive(Clone, Copy)]
enum BoundIndex {
    From,
    To,
}

impl Queries<'_> {
    /// The `find` for the key's exceptions: the pages that position arithmetic must take into account.
    /// Returns page headers, at most [`MAX_EXCEPTIONS`].
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

    /// The `find` for the header of the highest page.
    #[must_use]
    pub fn highest(&self, shape: &BucketShape) -> RawDocumentBuf {
        let mut find = self.whole_highest();
        find.append(cstr!("projection"), single(shape.items(), 0));
        find
    }

    /// The `find` for the highest page with its items.
    #[must_use]
    pub fn whole_highest(&self) -> RawDocumentBuf {
        let mut find = self.source.pages(self.key, 0, None);
        append_limit(&mut find, 1);
        find.append(cstr!("sort"), single(path::PAGE, -1));
        find
    }

    /// The `find` for the header of page 0, which records whether the times of all pages ascend.
    #[must_use]
    pub fn first(&self, shape: &BucketShape) -> RawDocumentBuf {
        let mut find = self.source.pages(self.key, 0, Some(1));
        append_limit(&mut find, 1);
        find.append(cstr!("projection"), single(shape.items(), 0));
        find
    }

    /// The `find` for the bucket with this `_id`. Without other conditions, mongod does not plan it.
    #[must_use]
    pub fn named(&self, id: &str) -> RawDocumentBuf {
        let mut filter = single("_id", id);
        if self.source.reach == Reach::Conditions {
            for (field, condition) in self.key.iter().flatten() {
                filter.append(field, condition);
            }
        }
        let mut find = single("find", self.source.collection);
        find.append(cstr!("filter"), filter);
        append_limit(&mut find, 1);
        find
    }

    /// The key's identity. `None` if a value cannot be a key.
    #[must_use]
    pub fn identity(&self, shape: &BucketShape) -> Option<Vec<u8>> {
        Some(
            Key::of_values(shape, |field| value_in(get(self.key, field)?))
                .ok()?
                .identity(),
        )
    }

    /// The `find` for the page with the least upper bound that may contain items of the query's range. `None`
    /// if the range has no lower end.
    #[must_use]
    pub fn oldest_in_range(&self, query: &BucketQuery) -> Option<RawDocumentBuf> {
        let condition = query.range.newest_condition()?;
        Some(self.first_by(BoundIndex::To, &condition, 1))
    }

    /// The `find` for the page with the greatest lower bound that may contain items of the query's range.
    /// `None` if the range has no upper end.
    #[must_use]
    pub fn newest_in_range(&self, query: &BucketQuery) -> Option<RawDocumentBuf> {
        let condition = query.range.oldest_condition()?;
        Some(self.first_by(BoundIndex::From, &condition, -1))
    }

    /// The `find` for the header of the newest page that ends before a range. `None` if the range has no
    /// lower end. Leaves out pages with open bounds.
    #[must_use]
    pub fn last_before(&self, shape: &BucketShape, range: TimeRange) -> Option<RawDocumentBuf> {
        let end = range.from?;
        let condition = single(if end.inclusive { "$lt" } else { "$lte" }, end.at);
        let mut find = self.first_by(BoundIndex::To, &condition, -1);
        find.append(cstr!("projection"), single(shape.items(), 0));
        Some(find)
    }

    /// The `find` for the header of the oldest page that begins after a range. `None` if the range has no
    /// upper end. Leaves out pages with open bounds.
    #[must_use]
    pub fn first_after(&self, shape: &BucketShape, range: TimeRange) -> Option<RawDocumentBuf> {
        let end = range.to?;
        let condition = single(if end.inclusive { "$gt" } else { "$gte" }, end.at);
        let mut find = self.first_by(BoundIndex::From, &condition, 1);
        find.append(cstr!("projection"), single(shape.items(), 0));
        Some(find)
    }

    /// The `find` for the first page of the key, in the order of a time bound, whose bound meets a condition.
    fn first_by(&self, bound: BoundIndex, condition: &RawDocument, direction: i32) -> RawDocumentBuf {
        let (hint, path) = match bound {
            BoundIndex::From => (index::FROM, path::FROM),
            BoundIndex::To => (index::TO, path::TO),
        };
        let mut filter = self.key.to_owned();
        put(&mut filter, path::VERSION, VERSION);
        put(&mut filter, path, condition);
        let mut find = single("find", self.source.collection);
        find.append(cstr!("filter"), filter);
        find.append(cstr!("hint"), hint);
        append_limit(&mut find, 1);
        find.append(cstr!("sort"), single(path, direction));
        find
    }

    /// The `find` for the first `pages` pages of the range in the direction of the scan. `None` if the range
    /// is open at that end. Leaves out pages with open bounds: such a key is not in the order of time.
    #[must_use]
    pub fn from_near_end(&self, query: &BucketQuery, direction: ScanDirection, pages: u64) -> Option<RawDocumentBuf> {
        // These bounds do not change after the scan has read them: a push raises only the upper bound of the
        // head page.
        let (end, path, hint, order, [open, closed]) = match direction {
            ScanDirection::Forward => (query.range.from, path::TO, index::TO, 1, ["$gt", "$gte"]),
            ScanDirection::Backward => (query.range.to, path::FROM, index::FROM, -1, ["$lt", "$lte"]),
        };
        let end = end?;
        let pages = i64::try_from(pages).unwrap_or(i64::MAX);
        // `min` is inclusive, `max` is exclusive.
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

    /// The `find` for `pages` pages of the range, ordered by the bound that is nearest in the order of the
    /// query.
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

    /// The `find` for up to `pages` pages whose bounds have changed after a later page was begun. It reads
    /// them by page number, which does not change.
    #[must_use]
    pub fn moved(&self, pages: usize) -> RawDocumentBuf {
        let mut filter = self.key.to_owned();
        put(&mut filter, path::EXCEPTION, true);
        put(&mut filter, path::KEPT, single("$exists", true));
        self.several(&filter, index::EXCEPTIONS, i64::try_from(pages).unwrap_or(i64::MAX))
    }

    /// The `find` for the time bounds and counts of the pages before page `before` that may contain items of
    /// the range.
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

    /// The `find` for the pages with these numbers, the highest first. mongod reads them in this order.
    #[must_use]
    pub fn pages_backward(&self, pages: &[u64]) -> RawDocumentBuf {
        let mut find = self.pages(pages);
        find.append(cstr!("sort"), single(path::PAGE, -1));
        find
    }

    /// The `find` for the pages with these numbers.
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

    /// A `find` for up to `limit` pages. Its cursor stays open if the pages exceed one reply.
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
    /// The `find` for a key's pages from number `from` to before `before`, ascending. `None`: up to the last.
    fn pages(&self, key: &RawDocument, from: u64, before: Option<u64>) -> RawDocumentBuf {
        let mut find = single("find", self.collection);
        find.append(cstr!("hint"), index::PAGE);
        // mongod refuses `min` and `max` with an empty range.
        let reach = match before {
            Some(before) if before <= from => Reach::Conditions,
            _ => self.reach,
        };
        // From page 0, the `find` also returns documents of the key without a page number. They are not
        // pages, and the reader must find that out.
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

/// The operand of an equality on a key field.
fn value_in(condition: RawBsonRef<'_>) -> Option<RawBsonRef<'_>> {
    condition.as_document().and_then(|condition| get(condition, "$eq"))
}

/// A bound in an index: the key's values, then `rest`.
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
