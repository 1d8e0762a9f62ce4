//! An item of an insert: validated as mongod validates a document, and its stored form.

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

/// The largest document that a client may insert: `maxBsonObjectSize` of `hello`.
const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;
/// mongod replaces this value by the current timestamp.
const NO_TIMESTAMP: RawBsonRef<'_> = RawBsonRef::Timestamp(Timestamp { time: 0, increment: 0 });
/// The most bytes that a bucket of one item has in addition to the item and its key, with field
/// names of reasonable length.
const BUCKET_BYTES: usize = 1024;
/// The deepest nesting that mongod stores (`BSONDepth::getMaxDepthForUserStorage`).
const MAX_DEPTH: u32 = 180;
/// The additional nesting of an item in its bucket: the array and the document.
const BUCKET_DEPTH: u32 = 2;

/// Clock and id generator, passed to the planners to keep them pure.
pub trait IdSource {
    /// The current time.
    fn now(&self) -> DateTime;
    /// A new id.
    fn object_id(&mut self) -> ObjectId;
    /// The timestamp that replaces `Timestamp(0, 0)`.
    fn timestamp(&mut self) -> Timestamp;
    /// A number that no proxy has used before.
    fn nonce(&self) -> i64;
}

/// Keeps `Timestamp(0, 0)` as it is. mongod replaces the value only where a client inserts or
/// replaces a document.
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

/// A top-level value of an inserted or replaced document, with `Timestamp(0, 0)` replaced.
pub(super) fn with_timestamp<'a>(name: &str, value: RawBsonRef<'a>, mint: &mut dyn IdSource) -> RawBsonRef<'a> {
    if value == NO_TIMESTAMP && name != "_id" {
        return RawBsonRef::Timestamp(mint.timestamp());
    }
    value
}

/// A fixed clock and repeating ids, for tests.
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

/// An item in its stored form, with its key.
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
    /// Prepares the document number `index` of the client's command.
    ///
    /// # Errors
    /// Errors of an insert into a plain collection, in mongod's words, and values that cannot be a
    /// key.
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
        // Like mongod, adds an `_id` if there is none.
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
                "mongoshape keeps this collection's items in buckets: a document of {size} bytes is too large for a bucket"
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

    /// An item that is already stored in a bucket of this key.
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

    /// The position in the client's command.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The key of the item.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The key's [`Key::identity`].
    #[must_use]
    pub fn identity(&self) -> &[u8] {
        &self.identity
    }

    /// The `_id`. `None` if the shape drops it.
    #[must_use]
    pub fn id(&self) -> Option<&RawBson> {
        self.id.as_ref()
    }

    /// The item as it is stored in the bucket.
    #[must_use]
    pub fn stored(&self) -> &RawDocument {
        &self.stored
    }

    /// The length in the bucket, in bytes.
    #[must_use]
    pub fn bytes(&self) -> i64 {
        i64::try_from(self.stored.as_bytes().len()).unwrap_or(i64::MAX)
    }

    /// The time, if the time field has a date.
    #[must_use]
    pub fn time(&self) -> Option<DateTime> {
        self.time
    }
}

/// The fields of a document, parsed once.
type Fields<'a> = Vec<(&'a str, RawBsonRef<'a>)>;

fn fields(document: &RawDocument) -> Result<Fields<'_>, WriteError> {
    let fields = document
        .iter()
        .map(|field| field.map(|(name, value)| (name.as_str(), value)));
    fields.collect::<Result<_, _>>().map_err(|error| malformed(&error))
}

/// The `_id` of the document, if it has one.
fn id_of<'a>(fields: &Fields<'a>) -> Result<Option<RawBsonRef<'a>>, WriteError> {
    let mut ids = fields.iter().filter(|(name, _)| *name == "_id");
    let first = ids.next().map(|(_, id)| check_id(*id)).transpose()?;
    if ids.next().is_some() {
        let message = "can't have multiple _id fields in one document";
        return Err(WriteError::new(ErrorCode::BadValue, message));
    }
    Ok(first)
}

/// Refuses a repeated field: a pipeline that puts the key back into an item keeps only one of them.
fn check_repeated(fields: &Fields<'_>) -> Result<(), WriteError> {
    let mut seen = HashSet::with_capacity(fields.len());
    match fields.iter().find(|(name, _)| !seen.insert(*name)) {
        Some((name, _)) => {
            let message = format!(
                "mongoshape keeps this collection's items in buckets: a document may not contain the field '{name}' twice"
            );
            Err(WriteError::new(ErrorCode::CommandNotSupported, message))
        }
        None => Ok(()),
    }
}

/// Refuses a document that mongod would not store at its level, or not at the item's level in the
/// bucket, which is deeper by two.
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

/// Whether a value is nested at most `levels` deep.
fn has_room(value: RawBsonRef<'_>, levels: u32) -> bool {
    let inner = |document: &RawDocument| {
        let Some(levels) = levels.checked_sub(1) else {
            return false;
        };
        document.iter().flatten().all(|(_, value)| has_room(value, levels))
    };
    match value {
        RawBsonRef::Document(document) => inner(document),
        // An array has the bytes of a document.
        RawBsonRef::Array(array) => RawDocument::from_bytes(array.as_bytes()).is_ok_and(inner),
        RawBsonRef::JavaScriptCodeWithScope(code) => inner(code.scope),
        _ => true,
    }
}

/// The stored form of an item: as a plain insert would store the document, with `_id` first. Leaves
/// out the `_id` if the shape drops it, and each key field whose value equals the lifted value in
/// every bit.
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
                let message = format!("the document contains the key field '{name}' twice");
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
