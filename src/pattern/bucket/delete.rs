//! Statements that remove items from pages, and empty pages.
//!
//! A statement demands the items as they were found, by position and value, or names one item by
//! its `_id`. Otherwise it fails (error 241, like a push). A page that was full becomes `short`: it
//! takes no more items.
//!
//! A page is removed only if it has reserved no next page, or if the reserved pages are gone.
//! Otherwise a writer that takes it for the head page would begin a page after a gap. A page is
//! emptied first and removed afterwards. So removing a bucket never removes an item, and a
//! validator that refuses every update keeps all items (see [`super::compact`]). If a crash leaves
//! an empty page, it is a valid page.
//!
//! The command that empties a page without a reservation removes it. A statement that empties a page
//! which its command did not read as such misses (see [`may_empty`]), and the command reads the page
//! again. If the page has a reservation, the withdrawal of the reservation removes the page.

use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::expression::{call, field, is_missing, literal, miss, of_field};
use super::index;
use super::layout::{PageHeader, VERSION, path};
use crate::command::document::{array_of, put, single};
use crate::pattern::shapes::BucketShape;

/// The element of `updates` that removes the item with this `_id` from its page. `condition`
/// matches the page. If the page must be removed together with its last item, the statement fails
/// as a miss: see [`remove`].
#[must_use]
pub fn take_out_by_id(shape: &BucketShape, condition: &RawDocument, id: &RawBson) -> RawDocumentBuf {
    let mut kept = single("input", field(shape.items()));
    put(&mut kept, "as", "item");
    put(&mut kept, "cond", call("$ne", "$$item._id", literal(id)));
    let is_known = call("$and", of_field("$eq", path::VERSION, VERSION), stays(shape, 1));
    let changes = changes(shape, &is_known, single("$filter", &kept).into(), 1);
    let mut statement = single("q", condition);
    statement.append(cstr!("u"), array_of(&[changes]));
    statement.append(cstr!("hint"), index::ITEM_ID);
    statement
}

/// Like [`take_out_by_id`], for an item on a page that has reserved the next one. Such a page takes no
/// more items, and it need not be removed with its last item. So update operators suffice, which cost
/// mongod less than a pipeline. The statement matches nothing if the item is on another page.
#[must_use]
pub fn take_out_of_reserving_page(shape: &BucketShape, condition: &RawDocument, id: &RawBson) -> RawDocumentBuf {
    let mut query = condition.to_owned();
    put(&mut query, path::VERSION, VERSION);
    put(&mut query, &format!("{}.0", path::NEXT), single("$exists", true));
    let item = single(shape.items(), single("_id", single("$eq", id)));
    let mut marks = single(path::SHORT, true);
    put(&mut marks, path::EXCEPTION, true);
    let mut change = single("$pull", &item);
    put(&mut change, "$inc", single(shape.count(), -1));
    put(&mut change, "$set", &marks);
    let mut statement = single("q", &query);
    statement.append(cstr!("u"), &change);
    statement.append(cstr!("hint"), index::ITEM_ID);
    statement
}

/// Turns a statement of `update` into the arguments of a `findAndModify`.
#[must_use]
pub fn as_find_and_modify(statement: &RawDocument) -> RawDocumentBuf {
    let mut arguments = RawDocumentBuf::new();
    for (name, value) in statement.iter().flatten() {
        let name = match name.as_str() {
            "q" => "query",
            "u" => "update",
            name => name,
        };
        put(&mut arguments, name, value);
    }
    arguments
}

/// The element of `updates` that removes items from a page. `items` has each item's position,
/// ascending, and its stored document. Misses if it would empty the page unexpectedly (see [`may_empty`]).
#[must_use]
pub fn take_out(shape: &BucketShape, page: &PageHeader, items: &[(usize, &RawDocument)]) -> RawDocumentBuf {
    let as_found = items.iter().map(|(place, stored)| {
        let element = call("$arrayElemAt", field(shape.items()).as_str(), whole(*place));
        call("$eq", element, literal(*stored))
    });
    let places: Vec<usize> = items.iter().map(|(place, _)| *place).collect();
    take_out_if(shape, page, &places, as_found.collect())
}

/// An item that a query selects first on its page.
#[derive(Clone, Copy, Debug)]
pub struct FirstMatch<'a> {
    /// Its position.
    pub place: usize,
    /// All items of the page, as they were found.
    pub all_items: &'a RawArray,
    /// Whether the query has a sort. Without one, the match at the lowest position is the first.
    pub is_sorted: bool,
}

/// The element of `updates` that removes an item from a page if the query still selects it first: no
/// item that could precede it was added or has changed. So the query selects it in the page's image,
/// too.
#[must_use]
pub fn take_out_first(shape: &BucketShape, page: &PageHeader, first: FirstMatch<'_>) -> RawDocumentBuf {
    let items = field(shape.items());
    let as_found = if first.is_sorted {
        call("$eq", items.as_str(), literal(first.all_items))
    } else {
        let count = first.place.saturating_add(1);
        let beginning: RawArrayBuf = first.all_items.into_iter().flatten().take(count).collect();
        call("$eq", call("$slice", items.as_str(), whole(count)), literal(&beginning))
    };
    take_out_if(shape, page, &[first.place], vec![as_found])
}

/// Whether a statement that removes `lost` items from the page may empty it, so that the page must be
/// removed afterwards. `page` is the page as it was read.
#[must_use]
pub fn may_empty(page: &PageHeader, lost: usize) -> bool {
    page.next.is_empty() && usize::try_from(page.count).is_ok_and(|count| count <= lost)
}

fn take_out_if(
    shape: &BucketShape,
    page: &PageHeader,
    places: &[usize],
    as_found: Vec<RawDocumentBuf>,
) -> RawDocumentBuf {
    let mut conditions = identity(page);
    conditions.extend(as_found);
    if !may_empty(page, places.len()) {
        conditions.push(stays(shape, places.len()));
    }
    let is_as_found = single("$and", array_of(&conditions));
    let kept = without(shape, places);
    statement(page, changes(shape, &is_as_found, kept, places.len()))
}

/// The element of `updates` that removes all items from a page, if their number is as known.
#[must_use]
pub fn empty(shape: &BucketShape, page: &PageHeader) -> RawDocumentBuf {
    let mut conditions = identity(page);
    conditions.push(of_field("$eq", shape.count(), i64::from(page.count)));
    let is_as_known = single("$and", array_of(&conditions));
    let count = usize::try_from(page.count).unwrap_or(usize::MAX);
    statement(page, changes(shape, &is_as_known, RawArrayBuf::new().into(), count))
}

/// The element of `deletes` that removes an empty page. Fails as a miss if the page has items, or
/// other reservations than known, or is an anchor and was not known to be one. Does nothing if the
/// page does not exist.
#[must_use]
pub fn remove(shape: &BucketShape, page: &PageHeader) -> RawDocumentBuf {
    let mut conditions = identity(page);
    conditions.push(of_field("$eq", shape.items(), literal(RawArrayBuf::new())));
    let next: RawArrayBuf = page.next.iter().copied().collect();
    conditions.push(call("$eq", reservations(), literal(&next)));
    if page.page > 0 && !page.anchor {
        // The page before must take over the mark of an anchor first.
        conditions.push(is_missing(path::ANCHOR));
    }
    let mut choice = single("if", single("$and", array_of(&conditions)));
    put(&mut choice, "then", true);
    put(&mut choice, "else", miss());
    let mut query = single("_id", single("$eq", &page.id));
    query.append(cstr!("$expr"), single("$cond", &choice));
    let mut statement = single("q", &query);
    statement.append(cstr!("limit"), 1);
    statement
}

/// The `query` and the `update` of a `findAndModify` that deletes the reservation of the removed
/// page on the page before. `None` if `removed` was page 0.
#[must_use]
pub fn forget_next(key: &RawDocument, removed: &PageHeader) -> Option<(RawDocumentBuf, RawDocumentBuf)> {
    let mut query = key.to_owned();
    put(&mut query, path::PAGE, removed.page.checked_sub(1)?);
    let nonce = removed.nonce?;
    put(&mut query, path::NEXT, nonce);
    Some((query, single("$pull", single(path::NEXT, nonce))))
}

/// The number of a key's pages that can be removed. `pages` begins with the highest page. A page can be
/// removed if it is empty and its only reservation is for the page after it, which is removed first.
#[must_use]
pub fn removable(pages: &[PageHeader]) -> usize {
    let mut above: Option<&PageHeader> = None;
    let mut count = 0_usize;
    for page in pages {
        if page.count > 0 || !has_only_next_reservation(page, above) {
            break;
        }
        above = Some(page);
        count = count.saturating_add(1);
    }
    count
}

/// Whether a page has no reservation except the one of the page after it.
#[must_use]
pub fn has_only_next_reservation(page: &PageHeader, above: Option<&PageHeader>) -> bool {
    let above = above.filter(|above| above.page == page.page.saturating_add(1));
    let nonce = above.and_then(|above| above.nonce);
    page.next.iter().all(|next| Some(*next) == nonce)
}

/// The update of a page that loses `lost` items and keeps `kept`.
fn changes(shape: &BucketShape, condition: &RawDocument, kept: RawBson, lost: usize) -> RawDocumentBuf {
    let mut choice = single("if", condition);
    put(&mut choice, "then", kept);
    put(&mut choice, "else", miss());
    let mut changes = single(shape.items(), single("$cond", &choice));
    put(
        &mut changes,
        shape.count(),
        of_field("$subtract", shape.count(), whole(lost)),
    );
    append_closing(shape, &mut changes);
    single("$set", &changes)
}

/// Closes the page if it was full.
fn append_closing(shape: &BucketShape, changes: &mut RawDocumentBuf) {
    let was_full = of_field("$gte", shape.count(), i64::from(shape.max_items()));
    for mark in [path::SHORT, path::EXCEPTION] {
        let mut choice = single("if", &was_full);
        put(&mut choice, "then", true);
        // If the field is missing, `$set` leaves it missing.
        put(&mut choice, "else", field(mark));
        put(changes, mark, single("$cond", &choice));
    }
}

/// The expression for the items except those at some positions, which ascend.
fn without(shape: &BucketShape, places: &[usize]) -> RawBson {
    let items = field(shape.items());
    let mut parts = RawArrayBuf::new();
    let mut from = 0_usize;
    let end = usize::try_from(shape.max_items()).unwrap_or(usize::MAX);
    for place in places.iter().copied().chain([end]) {
        if let Some(length) = place.checked_sub(from).filter(|length| *length > 0) {
            let mut slice = RawArrayBuf::new();
            slice.push(items.as_str());
            slice.push(whole(from));
            slice.push(whole(length));
            parts.push(single("$slice", &slice));
        }
        from = place.saturating_add(1);
    }
    if parts.is_empty() {
        RawArrayBuf::new().into()
    } else {
        single("$concatArrays", &parts).into()
    }
}

/// The conditions that identify the page: another page may have been begun under the same name
/// after the page was removed.
fn identity(page: &PageHeader) -> Vec<RawDocumentBuf> {
    vec![
        of_field("$eq", path::VERSION, VERSION),
        of_field("$eq", path::PAGE, page.page),
        match page.nonce {
            Some(nonce) => of_field("$eq", path::NONCE, nonce),
            None => is_missing(path::NONCE),
        },
    ]
}

/// The expression for the reservations of a page.
fn reservations() -> RawDocumentBuf {
    call("$ifNull", field(path::NEXT).as_str(), RawArrayBuf::new())
}

/// The expression for whether a page need not be removed after `lost` of its items.
fn stays(shape: &BucketShape, lost: usize) -> RawDocumentBuf {
    let has_reservation = call("$ne", reservations(), RawArrayBuf::new());
    call("$or", of_field("$gt", shape.count(), whole(lost)), &has_reservation)
}

/// An upsert, so that a missing page is a miss as well.
fn statement(page: &PageHeader, changes: RawDocumentBuf) -> RawDocumentBuf {
    let mut statement = single("q", single("_id", single("$eq", &page.id)));
    statement.append(cstr!("u"), array_of(&[changes]));
    statement.append(cstr!("upsert"), true);
    statement
}

fn whole(number: usize) -> RawBsonRef<'static> {
    RawBsonRef::Int32(i32::try_from(number).unwrap_or(i32::MAX))
}
