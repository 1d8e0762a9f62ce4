//! The statements that adopt buckets, as elements of an ordered `updates`. Each is an upsert that
//! cannot insert. So a miss is error 66 and ends the command (see [decision
//! 1](../../../../docs/decisions/0001-a-miss-is-an-error.md)).

use bson::raw::{RawBson, RawDocument, RawDocumentBuf, cstr};

use super::examined::Examined;
use crate::command::document::{put, single};
use crate::pattern::bucket::layout::{Control, NO_REVISION, PageHeader, path, whole_number};
use crate::pattern::shapes::BucketShape;

/// Makes a bucket a page, if the bucket is as it was read.
pub(super) fn adopt(shape: &BucketShape, seen: &Examined<'_>, control: &Control) -> RawDocumentBuf {
    let mut query = single("_id", single("$eq", seen.id));
    put(&mut query, BucketShape::CONTROL, single("$exists", false));
    put(&mut query, shape.count(), single("$eq", seen.recorded));
    put(&mut query, shape.items(), single("$size", i64::from(seen.count)));
    let mut set = single(BucketShape::CONTROL, control.document());
    if !seen.is_counted() {
        put(&mut set, shape.count(), whole_number(i64::from(seen.count)));
    }
    let mut change = single("$set", &set);
    if !seen.lifted.is_empty() {
        let mut unset = RawDocumentBuf::new();
        for path in &seen.lifted {
            put(&mut unset, path, true);
        }
        change.append(cstr!("$unset"), &unset);
    }
    as_upsert_that_cannot_insert(&query, change)
}

/// The reservation id of every adopted page. The page exists already, so no writer begins it.
pub(super) const NONCE: i64 = 0;

/// Reserves an adopted page on the page before. Closes the page before if it is not full, because
/// only the head page may be open.
pub(super) fn reserve(shape: &BucketShape, page: &PageHeader) -> RawDocumentBuf {
    let mut query = single("_id", single("$eq", &page.id));
    put(&mut query, path::PAGE, page.page);
    put(&mut query, shape.count(), i64::from(page.count));
    put(&mut query, path::SHORT, single("$exists", page.short));
    let mut change = single("$addToSet", single(path::NEXT, NONCE));
    if !page.is_closed(shape) {
        let mut marks = single(path::EXCEPTION, true);
        put(&mut marks, path::SHORT, true);
        put(&mut marks, path::REVISION, NO_REVISION);
        put(&mut change, "$set", &marks);
    }
    as_upsert_that_cannot_insert(&query, change)
}

/// Marks a key's page 0 as unordered, before another page becomes late.
pub(super) fn mark(first: &RawBson) -> RawDocumentBuf {
    let mut query = single("_id", single("$eq", first));
    put(&mut query, path::PAGE, 0);
    as_upsert_that_cannot_insert(&query, single("$set", single(path::UNORDERED, true)))
}

fn as_upsert_that_cannot_insert(query: &RawDocument, mut change: RawDocumentBuf) -> RawDocumentBuf {
    change.append(cstr!("$setOnInsert"), single("_id", false));
    let mut statement = single("q", query);
    statement.append(cstr!("u"), &change);
    statement.append(cstr!("upsert"), true);
    statement
}
