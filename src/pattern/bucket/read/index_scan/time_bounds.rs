//! Pages that follow one another in time: those of one key, or those of several keys by a time bound.
//!
//! All orders of the pages of a key are the same if no page of it is late. Page 0 and the highest page show
//! by their marks whether one is. A scan that begins elsewhere needs a query for
//! [late pages](BoundsScan::late_pages).
//!
//! A push moves the entry of a key's head page in the index on `to`. mongod merges the entries of several keys
//! before it fetches their pages. It drops a page whose entry has moved meanwhile, and a backward scan does not
//! reach the new entry. So the [head pages](BoundsScan::head_pages) are queried before such a scan.

use std::cmp::Ordering;

use bson::DateTime;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{get, put, single};
use crate::pattern::bucket::index;
use crate::pattern::bucket::insert::{HeaderFields, head_pages};
use crate::pattern::bucket::layout::path;
use crate::pattern::bucket::read::bucket::Bucket;
use crate::pattern::shapes::BucketShape;

/// A part of an index of the shape.
#[derive(Clone, Debug)]
pub(super) struct BoundsScan {
    /// The condition that selects the keys.
    keys: RawDocumentBuf,
    is_of_one_key: bool,
    is_ascending: bool,
    /// The condition on the bound. Empty: all pages of the keys.
    range: RawDocumentBuf,
    /// The order in which the pages are read.
    order: PageOrder,
}

/// The order of pages in one of the shape's indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageOrder {
    Number,
    From,
    To,
}

impl PageOrder {
    fn index(self) -> &'static str {
        match self {
            Self::Number => index::PAGE,
            Self::From => index::FROM,
            Self::To => index::TO,
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Number => path::PAGE,
            Self::From => path::FROM,
            Self::To => path::TO,
        }
    }
}

impl BoundsScan {
    /// The scan of the pages of several keys, which mongod merges.
    pub(super) fn of_keys(keys: RawDocumentBuf, is_ascending: bool) -> Self {
        Self {
            keys,
            is_of_one_key: false,
            is_ascending,
            range: RawDocumentBuf::new(),
            order: if is_ascending { PageOrder::From } else { PageOrder::To },
        }
    }

    /// The scan of the pages of one key. `None` if it begins at a value that is not a date.
    pub(super) fn of_key(key: RawDocumentBuf, is_ascending: bool, begin: Option<RawBsonRef<'_>>) -> Option<Self> {
        let mut scan = Self {
            keys: key,
            is_of_one_key: true,
            is_ascending,
            range: RawDocumentBuf::new(),
            order: PageOrder::Number,
        };
        if let Some(begin) = begin {
            let begin = RawBsonRef::DateTime(begin.as_datetime()?);
            let operator;
            // A push does not move an entry in the index on `from`.
            (scan.order, operator) = if is_ascending {
                (PageOrder::To, "$gte")
            } else {
                (PageOrder::From, "$lte")
            };
            scan.range = single(scan.order.path(), single(operator, begin));
        }
        Some(scan)
    }

    pub(super) fn is_of_one_key(&self) -> bool {
        self.is_of_one_key
    }

    /// Appends the arguments of a `find` that select the pages and their order.
    pub(super) fn append_to(&self, shape: &BucketShape, find: &mut RawDocumentBuf) {
        find.append(cstr!("hint"), self.order.index());
        find.append(cstr!("filter"), self.filter(shape));
        find.append(
            cstr!("sort"),
            single(self.order.path(), if self.is_ascending { 1 } else { -1 }),
        );
    }

    fn filter(&self, shape: &BucketShape) -> RawDocumentBuf {
        let mut filter = self.keys.clone();
        if self.order == PageOrder::Number {
            // An emptied page shows the order of time, too.
            return filter;
        }
        // The indexes on time bounds are partial.
        let conditions = [index::every_page(), self.range.clone(), index::has_items(shape)];
        for (name, value) in conditions.iter().flat_map(|condition| condition.iter()).flatten() {
            filter.append(name, value);
        }
        filter
    }

    /// The `find` that returns a page of these keys if one is late. `None` if the pages of the scan show
    /// whether one is.
    pub(super) fn late_pages(&self, collection: &str) -> Option<RawDocumentBuf> {
        if self.order == PageOrder::Number {
            return None;
        }
        let mut filter = self.keys.clone();
        put(&mut filter, path::EXCEPTION, true);
        put(&mut filter, path::LATE, true);
        let mut find = single("find", collection);
        find.append(cstr!("hint"), index::EXCEPTIONS);
        find.append(cstr!("filter"), &filter);
        find.append(cstr!("projection"), single("_id", 1));
        find.append(cstr!("limit"), 1);
        find.append(cstr!("singleBatch"), true);
        Some(find)
    }

    /// The `aggregate` that returns the head pages of several keys, which the scan must read. `None` if no push
    /// moves an entry past the scan.
    pub(super) fn head_pages(&self, shape: &BucketShape, collection: &str) -> Option<RawDocumentBuf> {
        if self.is_of_one_key || self.order != PageOrder::To {
            return None;
        }
        let [field] = shape.key() else { return None };
        let keys = get(&self.keys, field)?.as_document()?;
        let keys = get(keys, "$in")?.as_array()?.to_owned();
        let mut aggregate = single("aggregate", collection);
        let pipeline = head_pages(shape, field, &keys, HeaderFields::Stored);
        put(&mut aggregate, "pipeline", &pipeline);
        aggregate.append(cstr!("hint"), index::PAGE);
        // All head pages, which are no more than the keys.
        aggregate.append(cstr!("cursor"), single("batchSize", i32::MAX));
        Some(aggregate)
    }

    /// The time that no item of a later page exceeds. `None` if the page has no dates as bounds.
    pub(super) fn place(&self, bucket: &Bucket<'_>) -> Option<DateTime> {
        if self.order == PageOrder::To && !self.is_of_one_key {
            bucket.to
        } else {
            bucket.from
        }
    }
}

/// The pages that a scan has read.
#[derive(Debug, Default)]
pub(super) struct PageSequence {
    /// The number of the last page, if the scan reads one key.
    last: Option<u64>,
}

impl PageSequence {
    /// Adds a page. `None` if the pages may not follow one another in time.
    pub(super) fn add(&mut self, scan: &BoundsScan, page: &Bucket<'_>) -> Option<()> {
        let follows = !scan.is_of_one_key || self.follows(scan, page);
        (follows && !page.is_late).then_some(())
    }

    /// Whether a page of one key follows the last one by its number. The first page of a scan by number must
    /// show the order of all pages.
    fn follows(&mut self, scan: &BoundsScan, page: &Bucket<'_>) -> bool {
        let order = self.last.replace(page.page).map(|last| page.page.cmp(&last));
        match order {
            Some(order) if scan.is_ascending => order == Ordering::Greater,
            Some(order) => order == Ordering::Less,
            None if scan.order == PageOrder::Number => page.says_ascending() && (!scan.is_ascending || page.page == 0),
            None => true,
        }
    }
}

/// Whether a backward scan of several keys has read those [head pages](BoundsScan::head_pages) that come before
/// the last page it read, or all of them if it came to its end (`is_all`). A head page that was emptied meanwhile
/// counts as not read.
#[must_use]
pub fn has_read_heads<'b>(
    shape: &BucketShape,
    pages: &[&'b RawDocument],
    is_all: bool,
    heads: impl Iterator<Item = &'b RawDocument>,
) -> bool {
    let last = pages.last().and_then(|page| Bucket::open(shape, page)?.to);
    let heads = heads.filter_map(|head| Bucket::open(shape, get(head, "page")?.as_document()?));
    let must_be_read = |head: &Bucket<'_>| {
        let is_behind_the_last = !is_all && head.to.is_some_and(|to| last.is_some_and(|last| to <= last));
        head.count > 0 && !is_behind_the_last
    };
    let is_read = |head: &Bucket<'_>| {
        let id = get(head.document, "_id");
        pages.iter().any(|page| get(page, "_id") == id)
    };
    heads.filter(must_be_read).all(|head| is_read(&head))
}
