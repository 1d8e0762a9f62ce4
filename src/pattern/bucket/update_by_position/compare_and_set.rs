//! The condition that an item is unchanged, in [type and in every bit](crate::pattern::exact_match).

use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};

use super::plan::Demand;
use crate::command::document::{array_of, get, put, single};
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::exact_match::{call, same};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

/// The filter for the bucket with the unchanged item. With `by_bytes` strings are compared by
/// bytes, because a collation may treat different strings as equal.
pub(super) fn filter(
    shape: &BucketShape,
    found: &LocatedItem,
    demand: Demand<'_>,
    by_bytes: bool,
) -> Result<RawDocumentBuf, Unsupported> {
    let items = format!("${}", shape.items());
    let (value, is) = match demand {
        Demand::Item => {
            let place = i64::try_from(found.place).unwrap_or(i64::MAX);
            let item = call("$arrayElemAt", [items.into(), place.into()]);
            (RawBsonRef::Document(&found.stored), RawBson::Document(item))
        }
        Demand::Items(items_then) => (RawBsonRef::Array(items_then), items.into()),
    };
    let mut conditions = vec![same(is, value, by_bytes)?];
    let mut filter = single("_id", single("$eq", &found.bucket));
    for field in shape.key() {
        match get(&found.key, field) {
            Some(value) => put(&mut filter, field, single("$eq", value)),
            None => put(&mut filter, field, RawBson::Null),
        }
    }
    if by_bytes {
        conditions.push(same("$_id".into(), found.bucket.as_raw_bson_ref(), by_bytes)?);
    }
    put(&mut filter, "$expr", single("$and", array_of(&conditions)));
    Ok(filter)
}
