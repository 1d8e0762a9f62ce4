//! Reserves the page after one that takes no more items: see `docs/decisions/0013-pages-are-reserved.md`.

use bson::raw::{RawArrayBuf, RawBson, RawDocumentBuf, cstr};

use super::key_batch::{KeyBatch, PageReservation, ReservationMode};
use super::statement::{InsertStatement, StatementKind, as_upsert_that_cannot_insert, page_query};
use crate::command::document::{put, single};
use crate::pattern::bucket::expression::{call, field, literal};
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::layout::{NO_REVISION, PageHeader, VERSION, path};
use crate::pattern::shapes::BucketShape;

/// Reserves the page after one that takes no more items. The filter demands all that the next page
/// relies on. The result stays true, because a page with a reservation is not removed, and nothing
/// but its items changes.
pub(super) fn reserve_page(shape: &BucketShape, key: Option<&Key>, page: &PageHeader, nonce: i64) -> RawDocumentBuf {
    let mut query = page_query(shape, key, page);
    if page.short {
        put(&mut query, path::SHORT, true);
        // The next page's times are compared with this page's, unless this page is empty.
        put(
            &mut query,
            shape.count(),
            single(if page.count == 0 { "$eq" } else { "$gt" }, 0),
        );
    } else {
        put(&mut query, shape.count(), i64::from(page.count));
    }
    append_as_known(shape, page, &mut query);
    as_upsert_that_cannot_insert(&query, single("$push", single(path::NEXT, nonce)))
}

/// Whether the statement can be part of [`reserve_together`]. That statement cannot check a short
/// page, nor a page without a greatest date if the shape has a time.
#[must_use]
pub fn is_reserved_together(shape: &BucketShape, groups: &[KeyBatch], statement: &InsertStatement) -> bool {
    let page = &statement.after;
    let group = groups.get(statement.group);
    statement.kind == StatementKind::Reserve
        && group.is_some_and(|group| group.reservation_mode == ReservationMode::Together)
        && !page.short
        && (shape.time().is_none() || page.to.is_some())
}

/// The reservations of several batches as one element of `updates`. All have the same id. mongod
/// needs a third of the work of single statements. The reply returns only how many of the pages
/// were in the known state.
#[must_use]
pub fn reserve_together(shape: &BucketShape, groups: &[KeyBatch], statements: &[&InsertStatement]) -> RawDocumentBuf {
    let mut ids = RawArrayBuf::new();
    let mut known = RawArrayBuf::new();
    for statement in statements {
        let item = groups.get(statement.group).and_then(|group| group.item(0));
        if let Some(item) = item {
            ids.push(statement.after.id.as_raw_bson_ref());
            known.push(as_known(shape, item.key(), &statement.after));
        }
    }
    let nonce = statements.iter().find_map(|statement| statement.reserves);
    let mut query = single("_id", single("$in", &ids));
    put(&mut query, "$expr", call("$in", known_of(shape), literal(&known)));
    let mut statement = RawDocumentBuf::new();
    statement.append(cstr!("q"), &query);
    statement.append(
        cstr!("u"),
        single("$push", single(path::NEXT, nonce.unwrap_or_default())),
    );
    statement.append(cstr!("multi"), true);
    statement
}

/// An expression that makes an array of the known header fields of a full page. A missing field
/// becomes null. No field is ever stored as null.
fn known_of(shape: &BucketShape) -> RawArrayBuf {
    let key = shape.key().iter().map(String::as_str);
    let page = [shape.count(), path::VERSION, path::PAGE, path::SHORT, path::NONCE];
    let time = [path::TO, path::LATE, path::UNORDERED];
    let time = time.into_iter().filter(|_| shape.time().is_some());
    std::iter::once("_id")
        .chain(key)
        .chain(page)
        .chain(time)
        .map(field)
        .collect()
}

/// The value of [`known_of`] for this page.
fn as_known(shape: &BucketShape, key: &Key, page: &PageHeader) -> RawArrayBuf {
    let mut known = RawArrayBuf::new();
    let mut push = |value: Option<RawBson>| known.push(value.unwrap_or(RawBson::Null));
    push(Some(page.id.clone()));
    key.lifted().iter().cloned().for_each(&mut push);
    push(Some(RawBson::Int64(page.count.into())));
    push(Some(RawBson::Int32(VERSION)));
    push(Some(RawBson::Int32(page.page)));
    push(None);
    push(page.nonce.map(RawBson::Int64));
    if shape.time().is_some() {
        push(page.to.map(RawBson::DateTime));
        push(page.late.then_some(RawBson::Boolean(true)));
        push(page.unordered.then_some(RawBson::Boolean(true)));
    }
    known
}

/// Adds the conditions that the next page relies on.
fn append_as_known(shape: &BucketShape, page: &PageHeader, query: &mut RawDocumentBuf) {
    if let Some(nonce) = page.nonce {
        put(query, path::NONCE, nonce);
    }
    if shape.time().is_none() {
        return;
    }
    put(query, path::LATE, single("$exists", page.late));
    put(query, path::UNORDERED, single("$exists", page.unordered));
    match page.to {
        Some(to) => put(query, path::TO, to),
        None => put(query, path::TO, single("$not", single("$type", "date"))),
    }
}

/// Closes a page that has no room for an item of `bytes` bytes, and reserves the next page. With
/// `None` the page is closed even if it has room.
pub(super) fn close(
    shape: &BucketShape,
    key: Option<&Key>,
    page: &PageHeader,
    nonce: i64,
    bytes: Option<i64>,
) -> RawDocumentBuf {
    let mut query = page_query(shape, key, page);
    // The page must be as known, so that the planned header stays true.
    put(&mut query, shape.count(), i64::from(page.count));
    if let Some(bytes) = bytes {
        let room = i64::from(shape.max_bytes()).saturating_sub(bytes);
        put(&mut query, path::BYTES, single("$gt", room));
    }
    let mut marks = single(path::EXCEPTION, true);
    put(&mut marks, path::SHORT, true);
    put(&mut marks, path::REVISION, NO_REVISION);
    append_as_known(shape, page, &mut query);
    let mut change = single("$set", &marks);
    put(&mut change, "$push", single(path::NEXT, nonce));
    as_upsert_that_cannot_insert(&query, change)
}

/// Withdraws the reservation of a page that was not begun.
#[must_use]
pub fn withdraw(reserved: &PageReservation) -> RawDocumentBuf {
    let mut statement = single("q", single("_id", single("$eq", &reserved.before)));
    statement.append(cstr!("u"), single("$pull", single(path::NEXT, reserved.nonce)));
    statement
}
