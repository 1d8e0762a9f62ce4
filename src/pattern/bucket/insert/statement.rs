//! The statements of inserts. The parent documents how they succeed and fail.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{array_of, get, put, single};
use crate::pattern::bucket::expression::{miss, of_field};
use crate::pattern::bucket::index;
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::layout::{PageHeader, VERSION, path};
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
