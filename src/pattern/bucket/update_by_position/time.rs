//! Changes an item's time in place if all pages stay in order.

use bson::DateTime;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};

use super::compare_and_set;
use super::plan::{Demand, element};
use crate::command::document::{array_of, put, single};
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::layout::{NO_REVISION, path};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

/// The element of `updates` that replaces the item by `stored`, if the new time fits at its
/// position. It fits between the times of the adjacent items and within the page's bounds. After
/// the last item it may also exceed the upper bound, if the page has no reservation. On a late page
/// the adjacent items do not matter.
///
/// # Errors
/// The part of the item that cannot be compared, for an error message.
pub fn with_time(
    shape: &BucketShape,
    found: &LocatedItem,
    stored: RawBsonRef<'_>,
    time: DateTime,
) -> Result<RawDocumentBuf, Unsupported> {
    let field = shape.rename().stored(shape.time().unwrap_or_default());
    let beside = |place: usize, operator: &str| {
        let path = format!("{}.{place}.{field}", shape.items());
        single(&path, single(operator, time))
    };
    let behind = found.place.saturating_add(1);
    let none_behind = single(&format!("{}.{behind}", shape.items()), single("$exists", false));
    let before = found.place.checked_sub(1).map(|place| beside(place, "$lte"));
    let next = [beside(behind, "$gte"), none_behind.clone()];
    let in_order = before.iter().cloned().chain([single("$or", array_of(&next))]);
    let at_the_end = before.iter().cloned().chain([none_behind]);
    let within = all(&[
        single(path::FROM, single("$lte", time)),
        single(path::TO, single("$gte", time)),
        late_or(in_order),
    ]);
    let mut none: RawArrayBuf = RawArrayBuf::new();
    none.push(RawBsonRef::Null);
    none.push(RawArrayBuf::new());
    let grown = all(&[
        single(path::NEXT, single("$in", &none)),
        single(path::FROM, single("$lte", time)),
        single(path::TO, single("$lt", time)),
        late_or(at_the_end),
    ]);
    let place = single("$or", array_of(&[within, grown]));
    let filter = compare_and_set::filter(shape, found, Demand::Item, false)?;
    let mut statement = single("q", all(&[filter, place]));
    let mut values = single(&element(shape, found), stored);
    put(&mut values, path::REVISION, NO_REVISION);
    let mut change = single("$set", &values);
    put(&mut change, "$max", single(path::TO, time));
    put(&mut statement, "u", &change);
    put(&mut statement, "collation", single("locale", "simple"));
    Ok(statement)
}

fn late_or(conditions: impl Iterator<Item = RawDocumentBuf>) -> RawDocumentBuf {
    let conditions: Vec<RawDocumentBuf> = conditions.collect();
    let branches = [single(path::LATE, true), single("$and", array_of(&conditions))];
    single("$or", array_of(&branches))
}

fn all(conditions: &[RawDocumentBuf]) -> RawDocumentBuf {
    single("$and", array_of(conditions))
}
