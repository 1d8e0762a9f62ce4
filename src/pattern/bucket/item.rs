//! An item of an insert: validated as mongod validates a document, in stored form.

use std::collections::HashSet;

use bson::oid::ObjectId;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{DateTime, Timestamp};

use super::field_names::check_id;
use super::key::{Key, same_bytes};
use super::read::bucket::time_of;
use crate::command::document::{get, put};
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::shapes::{BucketShape, ItemIds};

/// The largest document that a client may insert: hello's `maxBsonObjectSize`.
const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;
/// What mongod takes for a timestamp that is still to be given.
const NO_TIMESTAMP: RawBsonRef<'_> = RawBsonRef::Timestamp(Timestamp { time: 0, increment: 0 });
/// What a bucket of one item weighs beside the item and its key, at most; field names of any reasonable
/// length included.
const BUCKET_BYTES: usize = 1024;
/// The deepest nesting that mongod stores (`BSONDepth::getMaxDepthForUserStorage`).
const MAX_DEPTH: u32 = 180;
/// How much deeper an item lies in its bucket: in the array, in the document.
const BUCKET_DEPTH: u32 = 2;

/// The clock and the ids, which a pure planner is given.
pub trait IdSource {
    /// The time of day.
    fn now(&self) -> DateTime;
    /// A new id.
    fn object_id(&mut self) -> ObjectId;
    /// The timestamp that takes the place of a `Timestamp(0, 0)`.
    fn timestamp(&mut self) -> Timestamp;
    /// A number that was never given before, nor by anybody else.
    fn nonce(&self) -> i64;
}

/// Leaves a `Timestamp(0, 0)` as it is: mongod fills one in where a client inserts or replaces a document,
/// and nowhere else.
pub struct KeepsTimestamps<'a>(pub &'a mut dyn IdSource);

impl IdSource for KeepsTimestamps<'_> {
    fn now(&self) -> DateTime {
        self.0.now()
    }

    fn object_id(&mut self) -> ObjectId {
        self.0.object_id()
    }

    fn timestamp(&mut self) -> Timestamp {
        Timestamp { time: 0, increment: 0 }
    }

    fn nonce(&self) -> i64 {
        self.0.nonce()
    }
}

/// A value at the top of a document that is inserted or replaced, with the time in place of a `Timestamp(0,
/// 0)`.
pub(super) fn with_timestamp<'a>(name: &str, value: RawBsonRef<'a>, mint: &mut dyn IdSource) -> RawBsonRef<'a> {
    if value == NO_TIMESTAMP && name != "_id" {
        return RawBsonRef::Timestamp(mint.timestamp());
    }
    value
}

/// A clock that stands still and ids that repeat, for tests of what is made with them.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct FixedMint;

#[cfg(test)]
impl IdSource for FixedMint {
    fn now(&self) -> DateTime {
        DateTime::from_millis(77_000)
    }

    fn object_id(&mut self) -> ObjectId {
        ObjectId::from_bytes([7; 12])
    }

    fn timestamp(&mut self) -> Timestamp {
        Timestamp { time: 1, increment: 2 }
    }

    fn nonce(&self) -> i64 {
        7
    }
}

/// One item, prepared.
#[derive(Clone, Debug)]
pub struct Item {
    index: usize,
    key: Key,
    identity: Vec<u8>,
    id: Option<RawBson>,
    stored: RawDocumentBuf,
    time: Option<DateTime>,
}

impl Item {
    /// Prepares the client's document number `index`.
    ///
    /// # Errors
    /// What mongod refuses in an inserted document, in its words, and what cannot be a key.
    pub fn prepare(
        shape: &BucketShape,
        index: usize,
        document: &RawDocument,
        mint: &mut dyn IdSource,
    ) -> Result<Self, WriteError> {
        let size = document.as_bytes().len();
        if size > MAX_DOCUMENT_BYTES {
            let message = format!("object to insert too large. size in bytes: {size}, max size: {MAX_DOCUMENT_BYTES}");
            return Err(WriteError::new(ErrorCode::BadValue, message));
        }
        let mut fields = fields(document)?;
        let id = id_of(&fields)?;
        check_repeated(&fields)?;
        check_depth(&fields)?;
        for (name, value) in &mut fields {
            *value = with_timestamp(name, *value, mint);
        }
        let value = |name: &str| fields.iter().find(|(field, _)| *field == name).map(|(_, value)| *value);
        let key = Key::of_values(shape, value)?;
        let time = shape.time().and_then(value).and_then(RawBsonRef::as_datetime);
        // As mongod does it: where there is none, the document gets one.
        let id = id.map_or_else(|| RawBson::ObjectId(mint.object_id()), RawBson::from);
        let stored = stored(shape, &key, &id, &fields)?;
        let identity = key.identity();
        let bytes = stored
            .as_bytes()
            .len()
            .saturating_add(identity.len())
            .saturating_add(BUCKET_BYTES);
        if bytes > MAX_DOCUMENT_BYTES {
            let message = format!(
                "mongoshape keeps this collection's items in buckets, and no bucket has room for one of {size} bytes"
            );
            return Err(WriteError::new(ErrorCode::BsonObjectTooLarge, message));
        }
        Ok(Self {
            index,
            identity,
            key,
            id: (shape.item_ids() != ItemIds::Dropped).then_some(id),
            stored,
            time,
        })
    }

    /// An item that lies in a bucket of this key already, as it does there.
    pub(super) fn of_stored(shape: &BucketShape, key: &Key, identity: &[u8], stored: &RawDocument) -> Self {
        let id = get(stored, "_id").filter(|_| shape.item_ids() != ItemIds::Dropped);
        Self {
            index: 0,
            key: key.clone(),
            identity: identity.to_vec(),
            id: id.map(RawBson::from),
            stored: stored.to_owned(),
            time: time_of(shape, stored),
        }
    }

    /// Its place in the client's command.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// What groups it.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The key's [`Key::identity`].
    #[must_use]
    pub fn identity(&self) -> &[u8] {
        &self.identity
    }

    /// Its `_id`; `None` where the shape drops it.
    #[must_use]
    pub fn id(&self) -> Option<&RawBson> {
        self.id.as_ref()
    }

    /// As it will lie in the bucket.
    #[must_use]
    pub fn stored(&self) -> &RawDocument {
        &self.stored
    }

    /// Its length in the bucket.
    #[must_use]
    pub fn bytes(&self) -> i64 {
        i64::try_from(self.stored.as_bytes().len()).unwrap_or(i64::MAX)
    }

    /// Its time, if its time field holds a date.
    #[must_use]
    pub fn time(&self) -> Option<DateTime> {
        self.time
    }
}

/// A document's fields, read once: an item is looked at from many sides.
type Fields<'a> = Vec<(&'a str, RawBsonRef<'a>)>;

fn fields(document: &RawDocument) -> Result<Fields<'_>, WriteError> {
    let fields = document
        .iter()
        .map(|field| field.map(|(name, value)| (name.as_str(), value)));
    fields.collect::<Result<_, _>>().map_err(|error| malformed(&error))
}

/// The document's `_id`, if it has one.
fn id_of<'a>(fields: &Fields<'a>) -> Result<Option<RawBsonRef<'a>>, WriteError> {
    let mut ids = fields.iter().filter(|(name, _)| *name == "_id");
    let first = ids.next().map(|(_, id)| check_id(*id)).transpose()?;
    if ids.next().is_some() {
        let message = "can't have multiple _id fields in one document";
        return Err(WriteError::new(ErrorCode::BadValue, message));
    }
    Ok(first)
}

/// Refuses a field that is there twice: a pipeline that puts the key back into an item keeps one of them.
fn check_repeated(fields: &Fields<'_>) -> Result<(), WriteError> {
    let mut seen = HashSet::with_capacity(fields.len());
    match fields.iter().find(|(name, _)| !seen.insert(*name)) {
        Some((name, _)) => {
            let message = format!(
                "mongoshape keeps this collection's items in buckets: the field '{name}' may not be in a document twice"
            );
            Err(WriteError::new(ErrorCode::CommandNotSupported, message))
        }
        None => Ok(()),
    }
}

/// Refuses a document that mongod would not store, or not two levels deeper, where its item lies in the
/// bucket.
fn check_depth(fields: &Fields<'_>) -> Result<(), WriteError> {
    let deeper = |levels: u32| {
        !fields
            .iter()
            .all(|(_, value)| has_room(*value, levels.saturating_sub(1)))
    };
    if !deeper(MAX_DEPTH.saturating_sub(BUCKET_DEPTH)) {
        return Ok(());
    }
    let message = if deeper(MAX_DEPTH) {
        format!("cannot insert document because it exceeds {MAX_DEPTH} levels of nesting")
    } else {
        format!(
            "mongoshape keeps this collection's items in buckets: cannot insert document because it exceeds {} levels of \
             nesting",
            MAX_DEPTH.saturating_sub(BUCKET_DEPTH)
        )
    };
    Err(WriteError::new(ErrorCode::Overflow, message))
}

/// Whether nothing in a value is nested deeper than so many levels.
fn has_room(value: RawBsonRef<'_>, levels: u32) -> bool {
    let inner = |document: &RawDocument| {
        let Some(levels) = levels.checked_sub(1) else {
            return false;
        };
        document.iter().flatten().all(|(_, value)| has_room(value, levels))
    };
    match value {
        RawBsonRef::Document(document) => inner(document),
        // Read as the document that it is in all but its type.
        RawBsonRef::Array(array) => RawDocument::from_bytes(array.as_bytes()).is_ok_and(inner),
        RawBsonRef::JavaScriptCodeWithScope(code) => inner(code.scope),
        _ => true,
    }
}

/// The item as it will lie in the bucket: as a naive insert would store it, with its `_id` first, without
/// what the bucket holds for it: its `_id` where that is dropped, and each key field whose value is the
/// lifted one in every bit.
fn stored(shape: &BucketShape, key: &Key, id: &RawBson, fields: &Fields<'_>) -> Result<RawDocumentBuf, WriteError> {
    let mut stored = RawDocumentBuf::new();
    if shape.item_ids() != ItemIds::Dropped {
        stored.append(cstr!("_id"), id.as_raw_bson_ref());
    }
    let mut seen: Vec<&str> = Vec::new();
    for (name, value) in fields.iter().copied() {
        if name == "_id" {
            continue;
        }
        if let Some(position) = shape.key().iter().position(|key| key == name) {
            if seen.contains(&name) {
                let message = format!("the key field '{name}' is there twice in one document");
                return Err(WriteError::new(ErrorCode::BadValue, message));
            }
            seen.push(name);
            let lifted = key.lifted().get(position).and_then(Option::as_ref);
            if lifted.is_some_and(|lifted| same_bytes(lifted.as_raw_bson_ref(), value)) {
                continue;
            }
        }
        put(&mut stored, shape.rename().stored(name), value);
    }
    Ok(stored)
}

fn malformed(error: &bson::error::Error) -> WriteError {
    WriteError::new(ErrorCode::InvalidBson, format!("malformed BSON in a document: {error}"))
}
