//! The statements themselves; see the parent's documentation for how they succeed and fail.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::times::Times;
use crate::command::document::{get, put, single};
use crate::pattern::bucket::index;
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::layout::{PageFacts, path, sum_of_bytes, whole_number};
use crate::pattern::shapes::{BucketShape, ItemIds};

/// One statement of one group.
#[derive(Clone, Debug)]
pub struct Statement {
    /// What it does.
    pub kind: StatementKind,
    /// The number of the group that it is for.
    pub group: usize,
    /// Its `stmtId`: that of its first item. A close, which may be done twice, is sent without.
    pub id: i32,
    /// The element of `updates`; of a page the bucket to insert.
    pub document: RawDocumentBuf,
    /// The positions in the group of the items that it stores.
    pub items: Vec<usize>,
    /// How many of them are late.
    pub late: u32,
    /// Of a page: how many items the page before it was closed with.
    pub closed: Option<u32>,
    /// The key's highest page once it is executed.
    pub after: PageFacts,
}

/// What a statement does; see the parent's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// Puts items on the open page.
    Push,
    /// Begins a page with items.
    Page,
    /// Closes a page that has no room. Stores no item.
    Close,
}

/// Puts items on a page with room for them.
pub(super) fn push(shape: &BucketShape, items: &[&Item], page: &PageFacts) -> RawDocumentBuf {
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let bytes = sum_of_bytes(items);
    let mut query = page_query(shape, items.first().map(|item| item.key()), page);
    let max_bytes = i64::from(shape.max_bytes());
    if bytes <= max_bytes {
        let room = i64::from(shape.max_items()).saturating_sub(count);
        put(&mut query, shape.count(), single("$lte", room));
        put(&mut query, path::BYTES, single("$lte", max_bytes.saturating_sub(bytes)));
    } else {
        // Only an empty page takes it.
        put(&mut query, shape.count(), 0);
    }
    put(&mut query, path::SHORT, single("$exists", false));
    if shape.item_ids() == ItemIds::Unique {
        // The unique index does not compare the elements of one document.
        let ids: RawArrayBuf = items
            .iter()
            .filter_map(|item| Some(item.id()?.as_raw_bson_ref()))
            .collect();
        put(&mut query, &index::item_id_path(shape), single("$nin", &ids));
    }
    let mut change = RawDocumentBuf::new();
    let elements: RawArrayBuf = items.iter().map(|item| item.stored()).collect();
    // `$each`, so that no item is taken for the modifiers of a `$push`.
    change.append(cstr!("$push"), single(shape.items(), single("$each", &elements)));
    let mut increments = single(shape.count(), whole_number(count));
    put(&mut increments, path::BYTES, whole_number(bytes));
    change.append(cstr!("$inc"), &increments);
    if shape.time().is_some() {
        append_times(items, page, &mut query, &mut change);
    }
    as_upsert_that_cannot_insert(&query, change)
}

/// Keeps `from`, `to` and `late` true. Where it depends on the page's `to` whether an item is late, the statement demands
/// what was assumed.
fn append_times(items: &[&Item], page: &PageFacts, query: &mut RawDocumentBuf, change: &mut RawDocumentBuf) {
    let times = Times::of(items.iter().copied(), page.to);
    let late_in_itself = Times::of(items.iter().copied(), None).late > 0;
    if !late_in_itself && let Some(first) = times.first {
        let assumed = match page.to {
            None => single("$exists", false),
            Some(to) if first < to => single("$gt", first),
            Some(_) => single("$lte", first),
        };
        put(query, path::TO, assumed);
    }
    if let (Some(from), Some(to)) = (times.from, times.to) {
        change.append(cstr!("$min"), single(path::FROM, from));
        change.append(cstr!("$max"), single(path::TO, to));
    }
    if times.late > 0 {
        let mut marks = single(path::EXCEPTION, true);
        put(&mut marks, path::LATE, true);
        change.append(cstr!("$set"), &marks);
    }
}

/// Closes a page that has no room for an item of `bytes`; `None`: whatever room it has.
pub(super) fn close(shape: &BucketShape, key: Option<&Key>, page: &PageFacts, bytes: Option<i64>) -> RawDocumentBuf {
    let mut query = page_query(shape, key, page);
    // As it is known, so that what is known of it stays true.
    put(&mut query, shape.count(), i64::from(page.count));
    if let Some(bytes) = bytes {
        let room = i64::from(shape.max_bytes()).saturating_sub(bytes);
        put(&mut query, path::BYTES, single("$gt", room));
    }
    let mut marks = single(path::EXCEPTION, true);
    put(&mut marks, path::SHORT, true);
    as_upsert_that_cannot_insert(&query, single("$set", &marks))
}

/// The page itself, by its `_id` and by what it is: a page removed and another begun under its name is not meant.
fn page_query(shape: &BucketShape, key: Option<&Key>, page: &PageFacts) -> RawDocumentBuf {
    let mut query = single("_id", single("$eq", &page.id));
    if let Some(key) = key {
        key.append_filter(shape, &mut query);
    }
    put(&mut query, path::PAGE, page.page);
    query
}

fn as_upsert_that_cannot_insert(query: &RawDocument, mut change: RawDocumentBuf) -> RawDocumentBuf {
    change.append(cstr!("$setOnInsert"), single("_id", false));
    upsert(query, &change)
}

/// An element of `updates` that upserts.
fn upsert(query: &RawDocument, change: &RawDocument) -> RawDocumentBuf {
    let mut statement = RawDocumentBuf::new();
    statement.append(cstr!("q"), query);
    statement.append(cstr!("u"), change);
    statement.append(cstr!("upsert"), true);
    statement
}

/// A page as an element of `updates`: an upsert that cannot match. Its hint makes it fail where the page index is missing,
/// which for a plain insert takes a `collectionUUID`, and the stable API has none.
#[must_use]
pub fn page_as_upsert(shape: &BucketShape, bucket: &RawDocument) -> RawDocumentBuf {
    let mut query = RawDocumentBuf::new();
    let key = shape.key().iter().map(String::as_str);
    for field in std::iter::once("_id").chain(key) {
        match get(bucket, field) {
            Some(value) => put(&mut query, field, single("$eq", value)),
            None => put(&mut query, field, RawBsonRef::Null),
        }
    }
    put(&mut query, shape.count(), -1);
    let mut statement = upsert(&query, bucket);
    statement.append(cstr!("hint"), index::PAGE);
    statement
}

/// An element of `updates` that does nothing. Under the `stmtId` of a statement that was executed it is answered with what
/// that one did.
#[must_use]
pub fn no_statement() -> RawDocumentBuf {
    let mut statement = RawDocumentBuf::new();
    let nothing = RawArrayBuf::new();
    statement.append(cstr!("q"), single("_id", single("$in", &nothing)));
    statement.append(cstr!("u"), single("$set", single("_", 0)));
    statement
}
