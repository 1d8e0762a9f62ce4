//! Pushes: statements that append items to the open page of a key. There are two kinds.
//!
//! A push *at a revision* has update operators and no conditions. It misses if the page has another
//! [revision](Revision). A push *with conditions* is a pipeline. It misses if the page does not meet its [`Demand`].
//! The former costs mongod about 60 % of the latter.

use bson::raw::{BindRawBsonRef, RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, cstr};

use super::item_times::ItemTimes;
use super::preconditions::{assumed, assumed_header};
use super::push_record::{add_record, records_with};
use crate::command::document::{array_of, put, single};
use crate::pattern::bucket::expression::{call, field, is_missing, literal, miss, of_field};
use crate::pattern::bucket::index;
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::layout::{PageHeader, PageIds, Revision, VERSION, path, sum_of_bytes, whole_number};
use crate::pattern::shapes::BucketShape;

/// A push to a page with room.
#[derive(Clone, Copy)]
pub(super) struct Push<'a> {
    pub(super) items: &'a [&'a Item],
    pub(super) times: &'a ItemTimes,
    pub(super) page: &'a PageHeader,
    /// The id of the reservation of the next page.
    pub(super) reserves: Option<i64>,
    /// The [push record](super::push_record).
    pub(super) record: Option<&'a RawDocument>,
}

/// The conditions of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// The page has this revision.
    Revision(Revision),
    /// The page has the known header, and no revision is known.
    Header,
    /// The page has room, also after pushes of other clients. The header after the push is not known.
    Room,
}

impl Demand {
    /// The `_id`s that the page can have after a push of items with `added` `_id`s. `None`: unknown.
    pub(super) fn ids_after(self, page: &PageHeader, added: Option<&PageIds>) -> Option<PageIds> {
        match self {
            Self::Revision(_) => page.ids.as_ref()?.with(added?),
            // Another client may have pushed to the page, also if the header is the known one.
            Self::Header | Self::Room => None,
        }
    }
}

impl Push<'_> {
    /// The push with conditions. Sets a new revision, and reserves the next page if the push has a reservation.
    pub(super) fn with_conditions(self, shape: &BucketShape, demand: Demand, new: Revision) -> RawDocumentBuf {
        let mut choice = single("if", conditions(shape, self, demand));
        put(&mut choice, "then", field(shape.items()));
        put(&mut choice, "else", miss());
        let mut changes = RawDocumentBuf::new();
        // The condition comes first: mongod stops at a missing operand and would not evaluate the
        // condition after it.
        let pushed = call("$concatArrays", single("$cond", &choice), literal(self.elements()));
        put(&mut changes, shape.items(), &pushed);
        for (field, more) in self.sums(shape) {
            put(&mut changes, field, of_field("$add", field, more));
        }
        put(&mut changes, path::REVISION, literal(new.stored()));
        if let Some(bounds) = self.times.bounds {
            put(&mut changes, path::FROM, of_field("$min", path::FROM, bounds.from()));
            put(&mut changes, path::TO, of_field("$max", path::TO, bounds.to()));
        }
        self.append_marks(&mut changes);
        if let Some(record) = self.record {
            put(&mut changes, path::PUSHES, records_with(record));
        }
        if let Some(nonce) = self.reserves {
            // An open page has no reservation yet.
            put(
                &mut changes,
                path::NEXT,
                literal([nonce].into_iter().collect::<RawArrayBuf>()),
            );
        }
        self.upsert(array_of(&[single("$set", &changes)]))
    }

    /// The push at this revision, after which the page has the next one. `$setOnInsert` fails if there is no page.
    pub(super) fn at_revision(self, shape: &BucketShape, revision: Revision, next: Revision) -> RawDocumentBuf {
        let mut pushed = single(shape.items(), single("$each", self.elements()));
        if let Some(record) = self.record {
            put(&mut pushed, path::PUSHES, add_record(record));
        }
        let mut increments = RawDocumentBuf::new();
        for (field, more) in self.sums(shape) {
            put(&mut increments, field, more);
        }
        revision.append_increments(&mut increments);
        let mut values = RawDocumentBuf::new();
        next.append_values(&mut values);
        self.append_marks(&mut values);
        let mut change = single("$push", &pushed);
        put(&mut change, "$inc", &increments);
        put(&mut change, "$set", &values);
        if let Some(bounds) = self.times.bounds {
            put(&mut change, "$min", single(path::FROM, bounds.from()));
            put(&mut change, "$max", single(path::TO, bounds.to()));
        }
        put(&mut change, "$setOnInsert", single("_id", false));
        self.upsert(change)
    }

    fn elements(self) -> RawArrayBuf {
        self.items.iter().map(|item| item.stored()).collect()
    }

    /// The fields that a push increases.
    fn sums(self, shape: &BucketShape) -> [(&str, RawBson); 2] {
        let count = i64::try_from(self.items.len()).unwrap_or(i64::MAX);
        [
            (shape.count(), whole_number(count)),
            (path::BYTES, whole_number(sum_of_bytes(self.items))),
        ]
    }

    fn append_marks(self, values: &mut RawDocumentBuf) {
        if self.times.late > 0 {
            put(values, path::EXCEPTION, true);
            put(values, path::LATE, true);
        }
    }

    fn upsert(self, change: impl BindRawBsonRef) -> RawDocumentBuf {
        let mut statement = RawDocumentBuf::new();
        statement.append(cstr!("q"), by_id(self.page));
        statement.append(cstr!("u"), change);
        statement.append(cstr!("upsert"), true);
        statement
    }
}

/// mongod has a fast path for a query of `_id` alone, if the value is written without an operator.
fn by_id(page: &PageHeader) -> RawDocumentBuf {
    match &page.id {
        id @ (RawBson::String(_) | RawBson::ObjectId(_)) => single("_id", id),
        id => single("_id", single("$eq", id)),
    }
}

fn conditions(shape: &BucketShape, push: Push<'_>, demand: Demand) -> RawDocumentBuf {
    let mut conditions = match demand {
        Demand::Revision(revision) => vec![of_field("$eq", path::REVISION, literal(revision.stored()))],
        Demand::Header => as_read(shape, push),
        Demand::Room => has_room(shape, push),
    };
    if push.reserves.is_some() {
        // The page must be full after the push, and items may have been deleted.
        conditions.push(of_field("$eq", shape.count(), i64::from(push.page.count)));
    }
    if shape.item_ids().are_indexed() {
        conditions.push(holds_none(shape, push.items));
    }
    single("$and", array_of(&conditions))
}

/// Whether the page has the header that was read: no item was pushed since, and no time changed.
fn as_read(shape: &BucketShape, push: Push<'_>) -> Vec<RawDocumentBuf> {
    let Push { items, times, page, .. } = push;
    let mut conditions = is_page(shape, push);
    conditions.push(of_field("$eq", shape.count(), i64::from(page.count)));
    conditions.push(of_field("$eq", path::BYTES, page.bytes));
    if shape.time().is_some() {
        conditions.extend(assumed(items, times, page));
        conditions.extend(assumed_header(times, page));
    }
    conditions
}

/// Whether the page has room for the items.
fn has_room(shape: &BucketShape, push: Push<'_>) -> Vec<RawDocumentBuf> {
    let Push { items, times, page, .. } = push;
    let mut conditions = is_page(shape, push);
    let bytes = sum_of_bytes(items);
    let max_bytes = i64::from(shape.max_bytes());
    if bytes <= max_bytes {
        let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let room = i64::from(shape.max_items()).saturating_sub(count);
        conditions.push(of_field("$lte", shape.count(), room));
        let room = max_bytes.saturating_sub(bytes);
        conditions.push(of_field("$lte", path::BYTES, room));
    } else {
        // Only an empty page takes items of this size. It reserves a page only if one item fills
        // it.
        conditions.push(of_field("$eq", shape.count(), 0));
    }
    if shape.time().is_some() {
        conditions.extend(assumed(items, times, page));
        if push.reserves.is_some() {
            conditions.extend(assumed_header(times, page));
        }
    }
    conditions
}

/// Whether the page is the one that was read, and is not closed. Another page may have been begun under the same name
/// after the page was removed.
fn is_page(shape: &BucketShape, push: Push<'_>) -> Vec<RawDocumentBuf> {
    let mut conditions = vec![
        of_field("$eq", path::VERSION, VERSION),
        of_field("$eq", path::PAGE, push.page.page),
    ];
    let lifted = push.items.first().map(|item| item.key().lifted()).unwrap_or_default();
    for (field, value) in shape.key().iter().zip(lifted) {
        conditions.push(match value {
            Some(value) => of_field("$eq", field, literal(value)),
            None => is_missing(field),
        });
    }
    conditions.push(is_missing(path::SHORT));
    conditions
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
