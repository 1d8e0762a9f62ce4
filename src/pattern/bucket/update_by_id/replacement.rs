//! Replacements of an item with the same key and time.

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::Demands;
use super::operators::demand_time;
use crate::command::document::{get, single};
use crate::pattern::bucket::item::{IdSource, Item};
use crate::pattern::bucket::key::same_bytes;
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

/// The stored form of the new item.
pub(super) fn stored(
    shape: &BucketShape,
    replacement: &RawDocument,
    id: &RawBson,
    mint: &mut dyn IdSource,
    demands: &mut Demands,
) -> Result<RawDocumentBuf, Unsupported> {
    demands
        .of_item
        .push(single("_id", single("$type", type_of(id.as_raw_bson_ref())?)));
    let mut whole = RawDocumentBuf::new();
    whole.append(cstr!("_id"), id);
    for (name, value) in replacement.iter().flatten() {
        match name.as_str() {
            "_id" if same_bytes(value, id.as_raw_bson_ref()) => {}
            "_id" => return Err("an update of '_id'".into()),
            operator if operator.starts_with('$') => return Err("a field whose name begins with $".into()),
            _ => whole.append(name, value),
        }
    }
    let item = Item::prepare(shape, 0, &whole, mint).map_err(|error| format!("a replacement ({})", error.message))?;
    let mut key = RawDocumentBuf::new();
    item.key().append_filter(shape, &mut key);
    demands.of_bucket.push(key);
    if let Some(time) = shape.time() {
        demand_time(shape, get(&whole, time).unwrap_or(RawBsonRef::Null), demands)?;
    }
    Ok(item.stored().to_owned())
}

/// The type number of an `_id`, for types where equal values of the same type have the same bytes.
/// The item keeps its `_id`, and the filter shows only an equal value.
pub(super) fn type_of(id: RawBsonRef<'_>) -> Result<i32, Unsupported> {
    let is_one = match id {
        RawBsonRef::String(_)
        | RawBsonRef::ObjectId(_)
        | RawBsonRef::Int32(_)
        | RawBsonRef::Int64(_)
        | RawBsonRef::Binary(_)
        | RawBsonRef::DateTime(_)
        | RawBsonRef::Boolean(_) => true,
        RawBsonRef::Double(number) => number.is_normal(),
        _ => false,
    };
    if is_one {
        Ok(i32::from(id.element_type() as u8))
    } else {
        Err("a replacement by an `_id` of such a type".into())
    }
}
