//! How a `find` is answered by looking at buckets.
//!
//! [`question`] recognises what needs no pipeline. A [`walk`] along pages, by their numbers, takes the items of one key, of
//! several or of all out of them, from where position arithmetic ([`super::page`]) or a [`range`] of time says that they
//! begin. Where a key's pages overlap in time, [`merge`] brings their items in order.

pub mod bucket;
pub mod documents;
pub mod merge;
pub mod question;
pub mod range;
pub mod walk;

use bson::raw::{RawDocument, RawDocumentBuf, cstr};

use self::question::{Order, Question};
use super::index;
use super::layout::{VERSION, path};
use super::page::MAX_EXCEPTIONS;
use crate::command::document::{put, single};
use crate::pattern::shapes::BucketShape;

/// Queries about one key's pages, which tell where to read.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// The collection.
    pub collection: &'a str,
    /// The condition that names the key.
    pub key: &'a RawDocument,
}

impl Queries<'_> {
    /// For the pages that arithmetic must know of.
    #[must_use]
    pub fn exceptions(&self, shape: &BucketShape) -> RawDocumentBuf {
        let mut filter = self.key.to_owned();
        put(&mut filter, path::EXCEPTION, true);
        let mut projection = single("_id", 0);
        for path in [path::PAGE, path::SHORT, path::LATE, shape.count()] {
            put(&mut projection, path, 1);
        }
        let mut find = self.find(&filter, index::EXCEPTIONS, i64::from(MAX_EXCEPTIONS));
        find.append(cstr!("batchSize"), i64::from(MAX_EXCEPTIONS));
        find.append(cstr!("projection"), projection);
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
        let mut find = self.find(self.key, index::PAGE, 1);
        find.append(cstr!("sort"), single(path::PAGE, -1));
        find
    }

    /// For the first page, without its items: it tells whether the times of all pages ascend.
    #[must_use]
    pub fn first(&self, shape: &BucketShape) -> RawDocumentBuf {
        let mut filter = self.key.to_owned();
        put(&mut filter, path::PAGE, 0);
        let mut find = self.find(&filter, index::PAGE, 1);
        find.append(cstr!("projection"), single(shape.items(), 0));
        find
    }

    /// For the first page, in the order of time, that may hold something of the question's range.
    #[must_use]
    pub fn oldest_in_range(&self, question: &Question) -> Option<RawDocumentBuf> {
        let mut filter = self.key.to_owned();
        put(&mut filter, path::VERSION, VERSION);
        put(
            &mut filter,
            path::TO,
            &question.range.newest_condition()? as &RawDocument,
        );
        let mut find = self.find(&filter, index::TO, 1);
        find.append(cstr!("sort"), single(path::TO, 1));
        Some(find)
    }

    /// For the last.
    #[must_use]
    pub fn newest_in_range(&self, question: &Question) -> Option<RawDocumentBuf> {
        let mut filter = self.key.to_owned();
        put(&mut filter, path::VERSION, VERSION);
        put(
            &mut filter,
            path::FROM,
            &question.range.oldest_condition()? as &RawDocument,
        );
        let mut find = self.find(&filter, index::FROM, 1);
        find.append(cstr!("sort"), single(path::FROM, -1));
        Some(find)
    }

    /// For so many pages in the order of their bounds, the nearest first.
    #[must_use]
    pub fn by_bounds(&self, question: &Question, pages: u64) -> RawDocumentBuf {
        let mut filter = self.key.to_owned();
        put(&mut filter, path::VERSION, VERSION);
        question.range.append_to(&mut filter);
        let (path, direction, hint) = match question.order {
            Order::TimeDescending => (path::TO, -1, index::TO),
            _ => (path::FROM, 1, index::FROM),
        };
        let mut find = self.find(&filter, hint, i64::try_from(pages).unwrap_or(i64::MAX));
        find.append(cstr!("sort"), single(path, direction));
        find
    }

    /// For the bounds of all pages before that one.
    #[must_use]
    pub fn bounds(&self, (shape, question): (&BucketShape, &Question), before: u64) -> RawDocumentBuf {
        let mut filter = self.key.to_owned();
        question.range.append_to(&mut filter);
        put(&mut filter, path::PAGE, single("$lt", number(before)));
        let mut projection = single("_id", 0);
        for path in [BucketShape::CONTROL, shape.count()] {
            put(&mut projection, path, 1);
        }
        let mut find = single("find", self.collection);
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
        let mut find = single("find", self.collection);
        find.append(cstr!("filter"), filter);
        find.append(cstr!("hint"), index::PAGE);
        find
    }

    fn find(&self, filter: &RawDocument, hint: &str, limit: i64) -> RawDocumentBuf {
        let mut find = single("find", self.collection);
        find.append(cstr!("filter"), filter);
        find.append(cstr!("hint"), hint);
        find.append(cstr!("limit"), limit);
        find.append(cstr!("singleBatch"), true);
        find
    }
}

fn number(page: u64) -> i64 {
    i64::try_from(page).unwrap_or(i64::MAX)
}
