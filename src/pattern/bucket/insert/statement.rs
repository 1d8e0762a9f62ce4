//! The statements of inserts. The parent documents how they succeed and fail.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::item_times::ItemTimes;
use super::preconditions::{assumed, assumed_marks};
use crate::command::document::{array_of, get, put, single};
use crate::pattern::bucket::expression::{call, field, is_missing, literal, miss, of_field};
use crate::pattern::bucket::index;
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::layout::{PageHeader, VERSION, path, sum_of_bytes, whole_number};
use crate::pattern::shapes::{BucketShape, ItemIds};

/// One statement of one group.
#[derive(Clone, Debug)]
pub struct InsertStatement {
    /// What it does.
    pub kind: StatementKind,
    /// The number of the group that it is for.
    pub group: usize,
    /// Its `stmtId`: that of its first item. What may be done twice is sent without.
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
    pub after: PageHeader,
    /// What that page announces by it.
    pub announces: Option<i64>,
}

/// What a statement does; see the parent's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// Puts items on the open page.
    Push,
    /// Begins a page with items.
    Page,
    /// Announces the page behind one that takes no more. Stores no item.
    Announce,
    /// Closes a page that has no room, and announces the next. Stores no item.
    Close,
    /// Marks page 0, before a page behind it becomes late. Stores no item.
    Mark,
}

impl StatementKind {
    /// Whether it may be executed twice, and so is no link in a chain that does things once.
    #[must_use]
    pub fn is_repeatable(self) -> bool {
        matches!(self, Self::Announce | Self::Close | Self::Mark)
    }
}

/// Puts items, with these times, on a page with room for them, and announces the next page.
pub(super) fn push(
    shape: &BucketShape,
    items: &[&Item],
    page: &PageHeader,
    announces: Option<i64>,
    times: &ItemTimes,
) -> RawDocumentBuf {
    let elements: RawArrayBuf = items.iter().map(|item| item.stored()).collect();
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let mut choice = single("if", guard(shape, items, times, page, announces.is_some()));
    put(&mut choice, "then", field(shape.items()));
    put(&mut choice, "else", miss());
    let mut changes = RawDocumentBuf::new();
    // The condition first: behind what is missing mongod evaluates nothing.
    let pushed = call("$concatArrays", single("$cond", &choice), literal(&elements));
    put(&mut changes, shape.items(), &pushed);
    for (field, more) in [(shape.count(), count), (path::BYTES, sum_of_bytes(items))] {
        put(&mut changes, field, of_field("$add", field, whole_number(more)));
    }
    if shape.time().is_some() {
        append_times(times, &mut changes);
    }
    if let Some(nonce) = announces {
        // An open page has announced none.
        put(
            &mut changes,
            path::NEXT,
            literal([nonce].into_iter().collect::<RawArrayBuf>()),
        );
    }
    let mut statement = RawDocumentBuf::new();
    statement.append(cstr!("q"), by_id(page));
    statement.append(cstr!("u"), array_of(&[single("$set", &changes)]));
    statement.append(cstr!("upsert"), true);
    statement
}

/// mongod plans a query of nothing but an `_id` in no time, if that is given as it is.
fn by_id(page: &PageHeader) -> RawDocumentBuf {
    match &page.id {
        id @ (RawBson::String(_) | RawBson::ObjectId(_)) => single("_id", id),
        id => single("_id", single("$eq", id)),
    }
}

/// Whether the page is the one that is meant, with room for the items. A page removed and another begun under
/// its name is not meant.
fn guard(
    shape: &BucketShape,
    items: &[&Item],
    times: &ItemTimes,
    page: &PageHeader,
    announces: bool,
) -> RawDocumentBuf {
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
        // A page that announces another is full by then.
        let operator = if announces { "$eq" } else { "$lte" };
        conditions.push(of_field(operator, shape.count(), room));
        let room = max_bytes.saturating_sub(bytes);
        conditions.push(of_field("$lte", path::BYTES, room));
    } else {
        // Only an empty page takes it. It announces none, but where it is full with one.
        conditions.push(of_field("$eq", shape.count(), 0));
    }
    if shape.item_ids() == ItemIds::Unique {
        conditions.push(holds_none(shape, items));
    }
    if shape.time().is_some() {
        conditions.extend(assumed(items, times, page));
        if announces {
            conditions.extend(assumed_marks(page));
        }
    }
    single("$and", array_of(&conditions))
}

/// Whether the page holds none of the items' `_id`s: the unique index does not compare the elements of one
/// document.
fn holds_none(shape: &BucketShape, items: &[&Item]) -> RawDocumentBuf {
    let ids: Vec<_> = items
        .iter()
        .filter_map(|item| Some(item.id()?.as_raw_bson_ref()))
        .collect();
    let held = index::item_id_path(shape);
    if let [id] = ids.as_slice() {
        // In half the time.
        return single("$not", call("$in", literal(*id), field(&held).as_str()));
    }
    let ids: RawArrayBuf = ids.into_iter().collect();
    let common = of_field("$setIntersection", &held, literal(&ids));
    call("$eq", &common, RawArrayBuf::new())
}

/// Keeps `from`, `to` and `late` true.
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

/// Marks the key's page 0 as unordered. An upsert that would insert fails as a push does.
pub(super) fn mark(shape: &BucketShape, key: &Key) -> RawDocumentBuf {
    let mut query = RawDocumentBuf::new();
    key.append_filter(shape, &mut query);
    put(&mut query, path::PAGE, 0);
    // What would be inserted has what the query says, and no version.
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

/// The page itself, by its `_id` and by what it is: a page removed and another begun under its name is not
/// meant.
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

/// A page as an element of `updates`: an upsert that cannot match. Its hint makes it fail where the page
/// index is missing, which for a plain insert takes a `collectionUUID`, and the stable API has none.
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

/// An element of `updates` that does nothing. Under the `stmtId` of a statement that was executed it is
/// answered with what that one did.
#[must_use]
pub fn no_statement() -> RawDocumentBuf {
    let mut statement = RawDocumentBuf::new();
    let nothing = RawArrayBuf::new();
    statement.append(cstr!("q"), single("_id", single("$in", &nothing)));
    statement.append(cstr!("u"), single("$set", single("_", 0)));
    statement
}
