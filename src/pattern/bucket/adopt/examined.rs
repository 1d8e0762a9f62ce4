//! Examines one document: whether it is a bucket, and its items.

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::InvalidPage;
use crate::command::document::{as_whole_number, get, put, type_name};
use crate::command::value_text::value_text;
use crate::pattern::bucket::insert::IdSet;
use crate::pattern::bucket::key::{Key, canonical, same_bytes};
use crate::pattern::bucket::layout::{self, TimeBounds};
use crate::pattern::shapes::{BucketShape, ItemIds};

/// The largest document that mongod stores.
const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;
/// More bytes than `control` ever has.
const CONTROL_BYTES: usize = 1024;

/// A bucket with or without a `control`.
#[derive(Debug)]
pub(super) struct Examined<'a> {
    /// The `_id` of the bucket.
    pub(super) id: RawBsonRef<'a>,
    /// The `control` of layout version 1. `None`: the bucket was written by hand.
    pub(super) control: Option<&'a RawDocument>,
    /// The recorded number of items.
    pub(super) recorded: RawBsonRef<'a>,
    /// The actual number of items.
    pub(super) count: u32,
    /// The sum of the items' lengths in bytes, without the `lifted` fields.
    pub(super) bytes: i64,
    /// The time bounds of the items. `None` if there are no items, or if the shape has no time.
    pub(super) bounds: Option<TimeBounds>,
    /// Whether an item has no time, or is older than an item before it. `false` if the shape has no
    /// time.
    pub(super) is_late: bool,
    /// Paths of key fields that items have with the bucket's value in every bit. A page stores them
    /// only once.
    pub(super) lifted: Vec<String>,
}

impl<'a> Examined<'a> {
    pub(super) fn of(shape: &BucketShape, document: &'a RawDocument) -> Result<Self, InvalidPage> {
        let control = control(document)?;
        let items = items(shape, document)?;
        let recorded = recorded(shape, document, control.is_some(), items.len())?;
        check_fields(shape, document, control.is_some())?;
        let mut examined = Self {
            id: get(document, "_id").unwrap_or(RawBsonRef::Null),
            control,
            recorded,
            count: u32::try_from(items.len()).unwrap_or(u32::MAX),
            bytes: 0,
            bounds: None,
            is_late: false,
            lifted: Vec::new(),
        };
        examined.check_ids(shape, &items)?;
        let key = key(shape, document)?;
        for (position, item) in items.iter().enumerate() {
            examined.add(shape, &key, position, item)?;
        }
        examined.add_times(shape, &items);
        // The items of a page may have grown after they were inserted.
        if control.is_none() && examined.count > 1 && examined.bytes > i64::from(shape.max_bytes()) {
            let (bytes, max_bytes) = (examined.bytes, shape.max_bytes());
            let text = format!("its items have {bytes} bytes, but max_bytes is {max_bytes}");
            return Err(InvalidPage::Itself(text));
        }
        Ok(examined)
    }

    /// Whether the recorded number of items is right.
    pub(super) fn is_counted(&self) -> bool {
        is_count(self.recorded, self.count)
    }

    fn check_ids(&self, shape: &BucketShape, items: &[&RawDocument]) -> Result<(), InvalidPage> {
        let is_unique = shape.item_ids().are_indexed();
        let mut ids = IdSet::default();
        for (position, item) in items.iter().enumerate() {
            let text = match get(item, "_id") {
                None if is_unique => format!("has no _id, but item_ids is \"{}\"", shape.item_ids().name()),
                Some(id @ (RawBsonRef::Array(_) | RawBsonRef::RegularExpression(_) | RawBsonRef::Undefined))
                    if is_unique =>
                {
                    format!("has an _id of the invalid type {}", type_name(id))
                }
                Some(id) if is_unique && !ids.add(id) => {
                    format!("has the same _id {} as an earlier item", value_text(id))
                }
                Some(_) if shape.item_ids() == ItemIds::Dropped && self.control.is_none() => {
                    "has an _id, but item_ids is \"dropped\"; \"stored\" keeps it".to_owned()
                }
                _ => continue,
            };
            return Err(of_item(position, &text));
        }
        Ok(())
    }

    fn add(&mut self, shape: &BucketShape, key: &Key, position: usize, item: &RawDocument) -> Result<(), InvalidPage> {
        let mut lifted: Vec<&str> = Vec::new();
        for (field, value) in shape.key().iter().zip(key.lifted()) {
            let value = value.as_ref().map(|value| value.as_raw_bson_ref());
            match (get(item, field), value) {
                (None, _) | (Some(RawBsonRef::Null), None) => {}
                (Some(own), Some(value)) if same_bytes(own, value) => lifted.push(field),
                // An item keeps its own value if the bucket's value is equal but of another type.
                (Some(own), Some(value)) if same_bytes(canonical(own).as_raw_bson_ref(), value) => {}
                _ => return Err(of_item(position, &format!("has a different '{field}' than the bucket"))),
            }
        }
        let twice = |field: &&String| {
            item.iter()
                .flatten()
                .filter(|(name, _)| name.as_str() == *field)
                .count()
                > 1
        };
        if let Some(field) = shape.key().iter().find(twice) {
            return Err(of_item(position, &format!("contains the field '{field}' twice")));
        }
        if !lifted.is_empty() && self.control.is_some() {
            let text = format!("contains '{}', which belongs to the bucket", lifted.join("' and '"));
            return Err(of_item(position, &text));
        }
        if self.control.is_none() {
            check_names(shape, position, item)?;
        }
        self.bytes = self.bytes.saturating_add(length_without(item, &lifted));
        let path = |field: &&str| format!("{}.{position}.{field}", shape.items());
        self.lifted.extend(lifted.iter().map(path));
        Ok(())
    }

    fn add_times(&mut self, shape: &BucketShape, items: &[&RawDocument]) {
        let Some(field) = shape.time() else { return };
        let field = shape.rename().stored(field);
        let times = items
            .iter()
            .map(|item| get(item, field).and_then(RawBsonRef::as_datetime));
        self.bounds = TimeBounds::of(times.clone());
        let mut newest = None;
        for time in times {
            self.is_late |= time.is_none() || time < newest;
            newest = newest.max(time);
        }
    }
}

fn of_item(position: usize, text: &str) -> InvalidPage {
    InvalidPage::Itself(format!("its item {position} {text}"))
}

fn control(document: &RawDocument) -> Result<Option<&RawDocument>, InvalidPage> {
    let control = match get(document, BucketShape::CONTROL) {
        None => return Ok(None),
        Some(RawBsonRef::Document(control)) => control,
        Some(other) => {
            return Err(InvalidPage::Itself(format!(
                "its control is of type {}",
                type_name(other)
            )));
        }
    };
    match get(control, "v") {
        Some(version) if canonical(version) == RawBson::Int32(layout::VERSION) => Ok(Some(control)),
        Some(version) => Err(InvalidPage::Itself(format!(
            "its control has the version {}, but only 1 is supported",
            value_text(version)
        ))),
        None => Err(InvalidPage::Itself("its control has no version".to_owned())),
    }
}

fn items<'a>(shape: &BucketShape, document: &'a RawDocument) -> Result<Vec<&'a RawDocument>, InvalidPage> {
    let name = shape.items();
    let Some(RawBsonRef::Array(array)) = get(document, name) else {
        return Err(InvalidPage::Itself(format!("it does not have the array '{name}'")));
    };
    let mut items = Vec::new();
    for (position, element) in array.into_iter().enumerate() {
        let Ok(RawBsonRef::Document(item)) = element else {
            return Err(InvalidPage::Itself(format!(
                "element {position} of its '{name}' is not a document"
            )));
        };
        items.push(item);
    }
    let (length, most) = (items.len(), shape.max_items());
    if u32::try_from(length).is_ok_and(|length| length <= most) {
        Ok(items)
    } else {
        Err(InvalidPage::Itself(format!(
            "it has {length} items, but max_items is {most}"
        )))
    }
}

/// The recorded number of items. It may be wrong in a hand-written bucket.
fn recorded<'a>(
    shape: &BucketShape,
    document: &'a RawDocument,
    is_page: bool,
    length: usize,
) -> Result<RawBsonRef<'a>, InvalidPage> {
    let name = shape.count();
    let Some(recorded) = get(document, name) else {
        return Err(InvalidPage::Itself(format!("it does not have the field '{name}'")));
    };
    let is_right = u32::try_from(length).is_ok_and(|length| is_count(recorded, length));
    if as_whole_number(recorded).is_none() || (is_page && !is_right) {
        let recorded = value_text(recorded);
        return Err(InvalidPage::Itself(format!(
            "its '{name}' is {recorded}, but it has {length} items"
        )));
    }
    Ok(recorded)
}

fn is_count(recorded: RawBsonRef<'_>, count: u32) -> bool {
    match recorded {
        RawBsonRef::Int32(number) => i64::from(number) == i64::from(count),
        RawBsonRef::Int64(number) => number == i64::from(count),
        // With these types `$inc` would produce more of the same type.
        _ => false,
    }
}

/// Checks that a bucket has no field that its items would not have.
fn check_fields(shape: &BucketShape, document: &RawDocument, is_page: bool) -> Result<(), InvalidPage> {
    let mut seen: Vec<&str> = Vec::new();
    for (name, _) in document.iter().flatten() {
        let name = name.as_str();
        let own = ["_id", BucketShape::CONTROL, shape.items(), shape.count()];
        if !own.contains(&name) && !shape.key().iter().any(|field| field == name) {
            return Err(InvalidPage::Itself(format!(
                "it has the field '{name}', which is not part of this shape"
            )));
        }
        if seen.contains(&name) {
            return Err(InvalidPage::Itself(format!("it contains the field '{name}' twice")));
        }
        seen.push(name);
    }
    if !is_page && document.as_bytes().len().saturating_add(CONTROL_BYTES) > MAX_DOCUMENT_BYTES {
        return Err(InvalidPage::Itself("it is too large to add a control".to_owned()));
    }
    Ok(())
}

/// The key, if the bucket stores it as a page does: each value in its canonical type, no field for
/// null.
fn key(shape: &BucketShape, document: &RawDocument) -> Result<Key, InvalidPage> {
    let key = Key::of(shape, document).map_err(|error| InvalidPage::Itself(error.message))?;
    for (field, lifted) in shape.key().iter().zip(key.lifted()) {
        let text = match (get(document, field), lifted) {
            (None, _) => continue,
            (Some(value), Some(lifted)) => {
                let lifted = lifted.as_raw_bson_ref();
                if same_bytes(value, lifted) {
                    continue;
                }
                let (found, wanted) = (type_name(value), type_name(lifted));
                if found == wanted {
                    format!("its '{field}' contains numbers of types that differ from those of a page")
                } else {
                    format!("its '{field}' is of type {found}; a page stores this number as {wanted}")
                }
            }
            (Some(_), None) => format!("its '{field}' is null; a page omits this field"),
        };
        return Err(InvalidPage::Itself(text));
    }
    Ok(key)
}

/// A hand-written bucket does not use the application's name for a field that `rename` stores under
/// another name. So such a field was not renamed.
fn check_names(shape: &BucketShape, position: usize, item: &RawDocument) -> Result<(), InvalidPage> {
    let names = item.iter().flatten().map(|(name, _)| name.as_str());
    let forgotten = names.into_iter().find(|name| shape.rename().only_closes_a_chain(name));
    match forgotten {
        Some(name) => {
            let stored = shape.rename().stored(name);
            let text = format!("has the field '{name}', which rename stores as '{stored}'");
            Err(of_item(position, &text))
        }
        None => Ok(()),
    }
}

fn length_without(item: &RawDocument, fields: &[&str]) -> i64 {
    let length = if fields.is_empty() {
        item.as_bytes().len()
    } else {
        let mut rest = RawDocumentBuf::new();
        let kept = item
            .iter()
            .flatten()
            .filter(|(name, _)| !fields.contains(&name.as_str()));
        kept.for_each(|(name, value)| put(&mut rest, name.as_str(), value));
        rest.as_bytes().len()
    };
    i64::try_from(length).unwrap_or(i64::MAX)
}
