//! How a `find` is answered: by looking at the pages that hold the answer, or by a pipeline.

use bson::raw::{RawDocument, RawDocumentBuf, cstr};

use super::filter::Narrowing;
use super::index;
use super::layout::{PageFacts, path};
use super::page::{Exceptions, Location, MAX_EXCEPTIONS};
use super::pipeline;
use super::projection::Projection;
use super::unpack;
use crate::command::document::{put, single};
use crate::command::find::Find;
use crate::pattern::shapes::BucketShape;

/// Documents in a first batch when the client names no size (`query.h`, `kDefaultBatchSize`).
const DEFAULT_BATCH_SIZE: u64 = 101;
/// The most that one reply's batch may weigh (`maxBsonObjectSize`), beyond which a cursor is needed.
const MAX_BATCH_BYTES: usize = 16 * 1024 * 1024;
/// Buckets asked for at once.
const MAX_BUCKETS: u64 = 1000;

/// In which order a page's reader counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As inserted.
    Insertion,
    /// By time, oldest first; that is as inserted where no page is late.
    TimeAscending,
    /// By time, newest first.
    TimeDescending,
}

/// A `find` that asks for a stretch of one key's items.
#[derive(Clone, Debug)]
pub struct PageRead {
    key: RawDocumentBuf,
    /// In which order positions count.
    pub order: Order,
    skip: u64,
    limit: u64,
    projection: Projection,
}

impl PageRead {
    /// Recognises a `find` on one key, sorted by nothing or by time, whose whole answer fits in a first batch.
    #[must_use]
    pub fn of(shape: &BucketShape, find: &Find<'_>) -> Option<Self> {
        let fits = find.limit > 0 && find.limit <= find.batch_size.unwrap_or(DEFAULT_BATCH_SIZE);
        if !fits || find.collation.is_some() {
            return None;
        }
        let key = Narrowing::of(shape, find.filter).only_one_key()?;
        let projection = Projection::parse(find.projection)?;
        let order = match find.sort.map(pipeline::single_sort) {
            None => Order::Insertion,
            Some(Some((field, ascending))) if Some(field) == shape.time() => {
                if ascending {
                    Order::TimeAscending
                } else {
                    Order::TimeDescending
                }
            }
            Some(_) => return None,
        };
        Some(Self {
            key,
            order,
            skip: find.skip,
            limit: find.limit,
            projection,
        })
    }

    /// The `find` for the pages of this key that arithmetic must know of.
    #[must_use]
    pub fn exceptions_query(&self, collection: &str) -> RawDocumentBuf {
        let mut filter = self.key.clone();
        put(&mut filter, path::EXCEPTION, true);
        let mut projection = single("_id", 0);
        for path in [path::PAGE, path::SHORT, path::LATE] {
            put(&mut projection, path, 1);
        }
        let mut find = Self::query(collection, &filter, index::EXCEPTIONS);
        find.append(cstr!("limit"), i64::from(MAX_EXCEPTIONS));
        find.append(cstr!("batchSize"), i64::from(MAX_EXCEPTIONS));
        find
    }

    /// The `find` for this key's highest page, without its items.
    #[must_use]
    pub fn highest_query(&self, shape: &BucketShape, collection: &str) -> RawDocumentBuf {
        let mut find = Self::query(collection, &self.key, index::PAGE);
        find.append(cstr!("sort"), single(path::PAGE, -1));
        find.append(cstr!("projection"), single(shape.items(), 0));
        find.append(cstr!("limit"), 1);
        find
    }

    /// The `find` for the buckets of a window.
    #[must_use]
    pub fn buckets_query(&self, shape: &BucketShape, collection: &str, window: &Window) -> RawDocumentBuf {
        let mut filter = self.key.clone();
        put(
            &mut filter,
            path::PAGE,
            single("$gte", i64::try_from(window.start.page).unwrap_or(i64::MAX)),
        );
        let mut find = Self::query(collection, &filter, index::PAGE);
        find.append(cstr!("sort"), single(path::PAGE, 1));
        find.append(cstr!("limit"), i64::try_from(window.buckets(shape)).unwrap_or(i64::MAX));
        find
    }

    fn query(collection: &str, filter: &RawDocument, hint: &str) -> RawDocumentBuf {
        let mut find = single("find", collection);
        find.append(cstr!("filter"), filter);
        find.append(cstr!("hint"), hint);
        find.append(cstr!("singleBatch"), true);
        find
    }

    /// The stretch of the key's items to read, in the order of their insertion. `None` where it is empty.
    #[must_use]
    pub fn window(&self, shape: &BucketShape, exceptions: &Exceptions, highest: Option<&PageFacts>) -> Option<Window> {
        let (first, wanted) = match self.order {
            Order::Insertion | Order::TimeAscending => (self.skip, self.limit),
            Order::TimeDescending => {
                let end = exceptions.total(shape, highest).saturating_sub(self.skip);
                let first = end.saturating_sub(self.limit);
                (first, end.saturating_sub(first))
            }
        };
        (wanted > 0).then(|| Window {
            start: exceptions.locate(shape, first),
            wanted,
        })
    }

    /// The items as the client asked for them.
    #[must_use]
    pub fn finish(&self, items: Vec<RawDocumentBuf>) -> Vec<RawDocumentBuf> {
        let mut items: Vec<_> = items.into_iter().map(|item| self.projection.apply(item)).collect();
        if self.order == Order::TimeDescending {
            items.reverse();
        }
        items
    }
}

/// Where reading begins, and how many items are still wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    start: Location,
    wanted: u64,
}

/// Whether a window has been read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All that was wanted, or all there is, was read.
    Done,
    /// The rest lies behind.
    More(Window),
    /// More bytes than one reply can hold.
    TooLarge,
}

impl Window {
    fn buckets(&self, shape: &BucketShape) -> u64 {
        let items = self.start.offset.saturating_add(self.wanted);
        items
            .div_ceil(u64::from(shape.max_items()).max(1))
            .clamp(1, MAX_BUCKETS)
    }

    /// Takes the wanted items out of the buckets that were read, in order of their pages.
    pub fn take<'a>(
        mut self,
        shape: &BucketShape,
        buckets: impl Iterator<Item = &'a RawDocument>,
        items: &mut Vec<RawDocumentBuf>,
    ) -> Progress {
        let mut bytes: usize = items.iter().map(|item| item.as_bytes().len()).sum();
        let mut last: Option<PageFacts> = None;
        for bucket in buckets {
            let Some(facts) = PageFacts::parse(shape, bucket) else {
                continue;
            };
            let page = u64::try_from(facts.page).unwrap_or_default();
            let offset = if page == self.start.page { self.start.offset } else { 0 };
            for item in unpack::items(shape, bucket).skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
                if self.wanted == 0 {
                    return Progress::Done;
                }
                bytes = bytes.saturating_add(item.as_bytes().len()).saturating_add(16);
                if bytes > MAX_BATCH_BYTES {
                    return Progress::TooLarge;
                }
                items.push(item);
                self.wanted = self.wanted.saturating_sub(1);
            }
            self.start = Location {
                page: page.saturating_add(1),
                offset: 0,
            };
            last = Some(facts);
        }
        match last {
            // An open page is the highest: nothing lies behind it.
            Some(facts) if self.wanted > 0 && facts.is_closed(shape) => Progress::More(self),
            _ => Progress::Done,
        }
    }
}

#[cfg(test)]
mod tests;
