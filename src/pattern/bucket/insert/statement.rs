//! The statements of inserts. The parent documents how they succeed and fail.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::item_times::ItemTimes;
use super::preconditions::{assumed, assumed_header};
use crate::command::document::{array_of, get, put, single};
use crate::pattern::bucket::expression::{call, field, is_missing, literal, miss, of_field};
use crate::pattern::bucket::index;
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::layout::{PageHeader, VERSION, path, sum_of_bytes, whole_number};
use crate::pattern::shapes::BucketShape;

/// One statement of one batch.
#[derive(Clone, Debug)]
pub struct InsertStatement {
    /// The kind of the statement.
    pub kind: StatementKind,
    /// The number of the batch.
    pub group: usize,
    /// The `stmtId`: the id of the statement's first item. Not sent with statements that are safe
    /// to repeat.
    pub id: i32,
    /// The element of `updates`. For a page: the bucket to insert.
    pub document: RawDocumentBuf,
    /// The positions in the batch of the items that the statement stores.
    pub items: Vec<usize>,
    /// The number of these items that are late.
    pub late: u32,
    /// For a page: the number of items on the page before when it was closed.
    pub closed: Option<u32>,
    /// The key's head page after the statement is executed.
    pub after: PageHeader,
    /// The id of the reservation that the statement records.
    pub reserves: Option<i64>,
}

/// The kind of a statement; see the parent module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// Appends items to the open page.
    Push,
    /// Begins a page with items.
    Page,
    /// Reserves the page after one that takes no more items. Stores no item.
    Reserve,
    /// Closes a page that has no room, and reserves the next. Stores no item.
    Close,
    /// Marks page 0 before a later page becomes late. Stores no item.
    Mark,
}

impl StatementKind {
    /// Whether the statement may be executed twice. Such a statement is not part of a retry chain.
    #[must_use]
    pub fn is_repeatable(self) -> bool {
        matches!(self, Self::Reserve | Self::Close | Self::Mark)
    }
}

/// A push to a page with room.
#[derive(Clone, Copy)]
pub(super) struct Push<'a> {
    pub(super) items: &'a [&'a Item],
    pub(super) times: &'a ItemTimes,
    pub(super) page: &'a PageHeader,
    /// The id of the reservation of the next page.
    pub(super) reserves: Option<i64>,
    /// The expression for the [push records](super::push_record) after the push.
    pub(super) records: Option<&'a RawDocument>,
}

/// Appends items to the page, and reserves the next page if the push says so.
pub(super) fn push(shape: &BucketShape, push: Push<'_>) -> RawDocumentBuf {
    let Push { items, times, .. } = push;
    let elements: RawArrayBuf = items.iter().map(|item| item.stored()).collect();
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let mut choice = single("if", guard(shape, push));
    put(&mut choice, "then", field(shape.items()));
    put(&mut choice, "else", miss());
    let mut changes = RawDocumentBuf::new();
    // The condition comes first: mongod stops at a missing operand and would not evaluate the
    // condition after it.
    let pushed = call("$concatArrays", single("$cond", &choice), literal(&elements));
    put(&mut changes, shape.items(), &pushed);
    for (field, more) in [(shape.count(), count), (path::BYTES, sum_of_bytes(items))] {
        put(&mut changes, field, of_field("$add", field, whole_number(more)));
    }
    if shape.time().is_some() {
        append_times(times, &mut changes);
    }
    if let Some(records) = push.records {
        put(&mut changes, path::PUSHES, records);
    }
    if let Some(nonce) = push.reserves {
        // An open page has no reservation yet.
        put(
            &mut changes,
            path::NEXT,
            literal([nonce].into_iter().collect::<RawArrayBuf>()),
        );
    }
    let mut statement = RawDocumentBuf::new();
    statement.append(cstr!("q"), by_id(push.page));
    statement.append(cstr!("u"), array_of(&[single("$set", &changes)]));
    statement.append(cstr!("upsert"), true);
    statement
}

/// mongod has a fast path for a query of `_id` alone, if the value is written without an operator.
fn by_id(page: &PageHeader) -> RawDocumentBuf {
    match &page.id {
        id @ (RawBson::String(_) | RawBson::ObjectId(_)) => single("_id", id),
        id => single("_id", single("$eq", id)),
    }
}

/// Whether the page is the one that was read, and has room for the items. Another page may have
/// been begun under the same name after the page was removed.
fn guard(shape: &BucketShape, push: Push<'_>) -> RawDocumentBuf {
    let Push { items, times, page, .. } = push;
    let reserves = push.reserves.is_some();
    let bytes = sum_of_bytes(items);
    let max_bytes = i64::from(shape.max_bytes());
    let mut conditions = vec![
        of_field("$eq", path::VERSION, VERSION),
        of_field("$eq", path::PAGE, page.page),
    ];
    let lifted = items.first().map(|item| item.key().lifted()).unwrap_or_default();
    for (field, value) in shape.key().iter().zip(lifted) {
        conditions.push(match value {
            Some(value) => of_field("$eq", field, literal(value)),
            None => is_missing(field),
        });
    }
    conditions.push(is_missing(path::SHORT));
    if bytes <= max_bytes {
        let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let room = i64::from(shape.max_items()).saturating_sub(count);
        // A page with a reservation must be full after the push.
        let operator = if reserves { "$eq" } else { "$lte" };
        conditions.push(of_field(operator, shape.count(), room));
        let room = max_bytes.saturating_sub(bytes);
        conditions.push(of_field("$lte", path::BYTES, room));
    } else {
        // Only an empty page takes items of this size. It reserves a page only if one item fills
        // it.
        conditions.push(of_field("$eq", shape.count(), 0));
    }
    if shape.item_ids().are_indexed() {
        conditions.push(holds_none(shape, items));
    }
    if shape.time().is_some() {
        conditions.extend(assumed(items, times, page));
        if reserves {
            conditions.extend(assumed_header(times, page));
        }
    }
    single("$and", array_of(&conditions))
}

/// Whether the page holds none of the items' `_id`s. A unique index does not compare elements of
/// one document.
fn holds_none(shape: &BucketShape, items: &[&Item]) -> RawDocumentBuf {
    let ids: Vec<_> = items
        .iter()
        .filter_map(|item| Some(item.id()?.as_raw_bson_ref()))
        .collect();
    let held = index::item_id_path(shape);
    if let [id] = ids.as_slice() {
        // Takes half the time of the general expression.
        return single("$not", call("$in", literal(*id), field(&held).as_str()));
    }
    let ids: RawArrayBuf = ids.into_iter().collect();
    let common = of_field("$setIntersection", &held, literal(&ids));
    call("$eq", &common, RawArrayBuf::new())
}

/// Updates `from`, `to` and `late`.
fn append_times(times: &ItemTimes, changes: &mut RawDocumentBuf) {
    if let Some(bounds) = times.bounds {
        put(changes, path::FROM, of_field("$min", path::FROM, bounds.from()));
        put(changes, path::TO, of_field("$max", path::TO, bounds.to()));
    }
    if times.late > 0 {
        put(changes, path::EXCEPTION, true);
        put(changes, path::LATE, true);
    }
}

/// Marks the key's page 0 as unordered. Fails like a push if there is no page 0.
pub(super) fn mark(shape: &BucketShape, key: &Key) -> RawDocumentBuf {
    let mut query = RawDocumentBuf::new();
    key.append_filter(shape, &mut query);
    put(&mut query, path::PAGE, 0);
    // A document that the upsert would insert has the fields of the query, and no version.
    let mut choice = single("if", of_field("$ne", path::VERSION, VERSION));
    put(&mut choice, "then", miss());
    put(&mut choice, "else", true);
    let change = single(path::UNORDERED, single("$cond", &choice));
    let mut statement = single("q", &query);
    statement.append(cstr!("u"), array_of(&[single("$set", &change)]));
    statement.append(cstr!("upsert"), true);
    statement.append(cstr!("hint"), index::PAGE);
    statement
}

/// The filter of this page, by `_id`, key and number: another page may have been begun under the
/// same name after the page was removed.
pub(super) fn page_query(shape: &BucketShape, key: Option<&Key>, page: &PageHeader) -> RawDocumentBuf {
    let mut query = single("_id", single("$eq", &page.id));
    if let Some(key) = key {
        key.append_filter(shape, &mut query);
    }
    put(&mut query, path::VERSION, VERSION);
    put(&mut query, path::PAGE, page.page);
    query
}

pub(super) fn as_upsert_that_cannot_insert(query: &RawDocument, mut change: RawDocumentBuf) -> RawDocumentBuf {
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

/// A new page as an element of `updates`: an upsert that never matches. Its hint makes the
/// statement fail if the page index is missing. A plain insert needs `collectionUUID` for that,
/// which the stable API does not have.
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

/// The most statements in one [`record_query`].
pub const MAX_STATEMENTS: usize = 10_000;

/// An `update` that asks for mongod's retry records with these `stmtId`s. Its `updates` are as many
/// [statements that change nothing](no_statement).
#[must_use]
pub fn record_query(collection: &str, ids: &[i32]) -> RawDocumentBuf {
    let mut body = single("update", collection);
    body.append(cstr!("ordered"), false);
    let ids: RawArrayBuf = ids.iter().copied().collect();
    body.append(cstr!("stmtIds"), ids);
    body
}

/// An element of `updates` that changes nothing. If its `stmtId` belongs to an executed statement,
/// mongod replies with the result of that statement.
#[must_use]
pub fn no_statement() -> RawDocumentBuf {
    let mut statement = RawDocumentBuf::new();
    let nothing = RawArrayBuf::new();
    statement.append(cstr!("q"), single("_id", single("$in", &nothing)));
    statement.append(cstr!("u"), single("$set", single("_", 0)));
    statement
}
