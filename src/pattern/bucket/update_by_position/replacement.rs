//! Plans a whole new item: a replacement, or the result of a pipeline.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::plan::{Elsewhere, InPlace, Planned, element};
use crate::command::document::{array_of, first_field, get, single};
use crate::command::error::{ErrorCode, WriteError};
use crate::command::update::UpdateForm;
use crate::command::value_text::value_text;
use crate::pattern::bucket::change_stream::change_record::{AppliedUpdate, ChangeRecord};
use crate::pattern::bucket::field_names::{check_changed, check_id};
use crate::pattern::bucket::item::{IdSource, Item, KeepsTimestamps, with_timestamp};
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::key::{Key, canonical, same_bytes};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

/// Plans a replacement.
///
/// # Errors
/// The part that is not supported, for an error message.
pub fn of_replacement(
    shape: &BucketShape,
    found: &LocatedItem,
    replacement: &RawDocument,
    mint: &mut dyn IdSource,
) -> Result<Planned, Unsupported> {
    if let Err(error) = check_changed(replacement, |_| true) {
        return Ok(Planned::Failed(error));
    }
    // mongod compares the replacement as the client sent it, and adds or moves the `_id`
    // afterwards.
    let counted = first_field(replacement).is_none_or(|(name, _)| name != "_id");
    let new = NewItem {
        item: replacement,
        counted,
        update: UpdateForm::Replacement.into(),
    };
    become_whole(shape, found, new, mint)
}

/// Plans the result of a pipeline.
///
/// # Errors
/// The part that is not supported, for an error message.
pub fn of_pipeline(
    shape: &BucketShape,
    found: &LocatedItem,
    made: &RawDocument,
    mint: &mut dyn IdSource,
) -> Result<Planned, Unsupported> {
    if made.as_bytes() == found.item.as_bytes() {
        return Ok(Planned::Unchanged { counted: false });
    }
    let new = NewItem {
        item: made,
        counted: true,
        update: UpdateForm::Pipeline.into(),
    };
    become_whole(shape, found, new, &mut KeepsTimestamps(mint))
}

/// Plans the item `made` that the proxy computed from operators.
///
/// # Errors
/// The part that is not supported, for an error message.
pub(super) fn of_computed(
    shape: &BucketShape,
    found: &LocatedItem,
    operators: &RawDocument,
    made: &RawDocument,
    mint: &mut dyn IdSource,
) -> Result<Planned, Unsupported> {
    if made.as_bytes() == found.item.as_bytes() {
        // The stored item may still have its fields in another order.
        return Ok(Planned::Unchanged { counted: false });
    }
    let new = NewItem {
        item: made,
        counted: false,
        update: AppliedUpdate::of_operators(operators),
    };
    become_whole(shape, found, new, &mut KeepsTimestamps(mint))
}

fn dollar_field(document: &RawDocument) -> Option<&str> {
    let mut names = document.iter().flatten().map(|(name, _)| name.as_str());
    names.find(|name| name.starts_with('$'))
}

/// The new version of an item.
struct NewItem<'a> {
    /// The item as the application knows it.
    item: &'a RawDocument,
    /// Whether mongod counts it as modified even if nothing changes.
    counted: bool,
    /// The application's update.
    update: AppliedUpdate,
}

fn become_whole(
    shape: &BucketShape,
    found: &LocatedItem,
    NewItem {
        item: new,
        counted,
        update,
    }: NewItem<'_>,
    mint: &mut dyn IdSource,
) -> Result<Planned, Unsupported> {
    let mut whole = RawDocumentBuf::new();
    match (get(new, "_id"), found.id()) {
        (Some(_), None) => {
            return Err("an update that adds an `_id` to an item of a shape with item_ids = \"dropped\"".into());
        }
        (Some(new), Some(old)) if !are_equal(new, old) => {
            if let Err(error) = check_id(new) {
                return Ok(Planned::Failed(error));
            }
            let message = format!(
                "After applying the update, the (immutable) field '_id' was found to have been altered to _id: {}",
                value_text(new)
            );
            return Ok(Planned::Failed(WriteError::new(ErrorCode::ImmutableField, message)));
        }
        (Some(id), _) | (None, Some(id)) => whole.append(cstr!("_id"), id),
        (None, None) => {}
    }
    for (name, value) in new.iter().flatten() {
        if name.as_str() != "_id" {
            whole.append(name, with_timestamp(name.as_str(), value, mint));
        }
    }
    let item = Item::prepare(shape, 0, &whole, &mut KeepsTimestamps(mint))
        .map_err(|error| format!("an update ({})", error.message))?;
    let key = Key::of(shape, &found.item).map_err(|error| error.message)?;
    if item.key().identity() != key.identity() {
        return Ok(Planned::Elsewhere(Elsewhere::Key(whole)));
    }
    if let Some(time) = shape.time()
        && !is_same(get(&whole, time), get(&found.item, time))
    {
        return Ok(Planned::Elsewhere(Elsewhere::Time(whole)));
    }
    if item.stored().as_bytes() == found.stored.as_bytes() {
        return Ok(Planned::Unchanged { counted });
    }
    // Without a record, a change stream shows a whole new item as a replacement.
    let is_recorded = shape.change_streams() && update.form != UpdateForm::Replacement;
    let record = ChangeRecord {
        is_own_transaction: false,
        update,
    };
    let change = if dollar_field(item.stored()).is_some() {
        // `$set` would interpret the field as an operator.
        let mut stages = vec![in_place(shape, found, item.stored())];
        stages.extend(shape.change_streams().then(|| record.stage()));
        InPlace::by_stages(array_of(&stages))
    } else {
        let update = single("$set", single(&element(shape, found), item.stored()));
        InPlace::new(if is_recorded { record.added_to(&update) } else { update })
    };
    Ok(Planned::InPlace(InPlace { counted, ..change }))
}

/// The stage that replaces the item at its position.
pub(super) fn in_place(shape: &BucketShape, found: &LocatedItem, stored: &RawDocument) -> RawDocumentBuf {
    let items = format!("${}", shape.items());
    let slice = |from: usize, length: usize| {
        let mut slice = RawArrayBuf::new();
        slice.push(items.as_str());
        slice.push(i64::try_from(from).unwrap_or(i64::MAX));
        slice.push(i64::try_from(length).unwrap_or(i64::MAX));
        single("$slice", &slice)
    };
    let most = usize::try_from(shape.max_items()).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    parts.extend((found.place > 0).then(|| slice(0, found.place)));
    parts.push(single("$literal", array_of(&[stored.to_owned()])));
    parts.push(slice(found.place.saturating_add(1), most));
    single("$set", single(shape.items(), single("$concatArrays", array_of(&parts))))
}

/// Whether MongoDB compares two values as equal.
fn are_equal(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> bool {
    same_bytes(canonical(one).as_raw_bson_ref(), canonical(other).as_raw_bson_ref())
}

/// Whether a field is missing in both, or has the same value in both, in type and in every bit.
pub(super) fn is_same(one: Option<RawBsonRef<'_>>, other: Option<RawBsonRef<'_>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => same_bytes(one, other),
        (None, None) => true,
        _ => false,
    }
}
