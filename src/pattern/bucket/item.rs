//! An item on its way into a bucket: checked as mongod checks an inserted document, and in its stored form.

use bson::oid::ObjectId;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{DateTime, Timestamp};

use super::key::{Key, same_bytes};
use crate::command::document::{put, type_name};
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::shapes::{BucketShape, ItemIds};

/// The largest document that a client may insert: hello's `maxBsonObjectSize`.
const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;

/// The clock and the ids, which a pure planner is given.
pub trait Mint {
    /// The time of day.
    fn now(&self) -> DateTime;
    /// A new id.
    fn object_id(&mut self) -> ObjectId;
    /// The timestamp that takes the place of a `Timestamp(0, 0)`.
    fn timestamp(&mut self) -> Timestamp;
}

/// A clock that stands still and ids that repeat, for tests of what is made with them.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct FixedMint;

#[cfg(test)]
impl Mint for FixedMint {
    fn now(&self) -> DateTime {
        DateTime::from_millis(77_000)
    }

    fn object_id(&mut self) -> ObjectId {
        ObjectId::from_bytes([7; 12])
    }

    fn timestamp(&mut self) -> Timestamp {
        Timestamp { time: 1, increment: 2 }
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
        mint: &mut dyn Mint,
    ) -> Result<Self, WriteError> {
        let size = document.as_bytes().len();
        if size > MAX_DOCUMENT_BYTES {
            let message = format!("object to insert too large. size in bytes: {size}, max size: {MAX_DOCUMENT_BYTES}");
            return Err(WriteError::new(ErrorCode::BadValue, message));
        }
        let named = with_id_and_times(document, mint)?;
        let key = Key::of(shape, &named)?;
        let time = shape
            .time()
            .and_then(|field| named.get(field).ok().flatten())
            .and_then(RawBsonRef::as_datetime);
        let id = match shape.item_ids() {
            ItemIds::Unique | ItemIds::Stored => named.get("_id").ok().flatten().map(RawBson::from),
            ItemIds::Dropped => None,
        };
        let stored = stored(shape, &key, &named)?;
        Ok(Self {
            index,
            identity: key.identity(),
            key,
            id,
            stored,
            time,
        })
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

/// The document as a naive insert would store it: an `_id` first, `Timestamp(0, 0)` at the top filled in.
fn with_id_and_times(document: &RawDocument, mint: &mut dyn Mint) -> Result<RawDocumentBuf, WriteError> {
    let mut id = None;
    let mut rest = RawDocumentBuf::new();
    for field in document {
        let (name, value) = field.map_err(|error| malformed(&error))?;
        match (name.as_str(), value) {
            ("_id", _) if id.is_some() => {
                return Err(WriteError::new(
                    ErrorCode::BadValue,
                    "can't have multiple _id fields in one document",
                ));
            }
            ("_id", value) => id = Some(check_id(value)?),
            (_, RawBsonRef::Timestamp(Timestamp { time: 0, increment: 0 })) => rest.append(name, mint.timestamp()),
            (_, value) => rest.append(name, value),
        }
    }
    let mut named = RawDocumentBuf::new();
    match id {
        Some(id) => named.append(cstr!("_id"), id),
        None => named.append(cstr!("_id"), mint.object_id()),
    }
    for (name, value) in rest.iter().flatten() {
        named.append(name, value);
    }
    Ok(named)
}

fn check_id(id: RawBsonRef<'_>) -> Result<RawBsonRef<'_>, WriteError> {
    match id {
        RawBsonRef::Array(_) | RawBsonRef::RegularExpression(_) | RawBsonRef::Undefined => {
            let message = format!("The '_id' value cannot be of type {}", type_name(id));
            Err(WriteError::new(ErrorCode::InvalidIdField, message))
        }
        RawBsonRef::Document(document) => match document
            .iter()
            .flatten()
            .find(|(name, _)| name.as_str().starts_with('$'))
        {
            Some((name, _)) => {
                let message =
                    format!("_id fields may not contain '$'-prefixed fields: {name} is not valid for storage.");
                Err(WriteError::new(ErrorCode::DollarPrefixedFieldName, message))
            }
            None => Ok(id),
        },
        _ => Ok(id),
    }
}

/// The item without what the bucket holds for it: its `_id` where that is dropped, and each key field whose value is the
/// lifted one in every bit.
fn stored(shape: &BucketShape, key: &Key, named: &RawDocument) -> Result<RawDocumentBuf, WriteError> {
    let mut stored = RawDocumentBuf::new();
    let mut seen: Vec<&str> = Vec::new();
    for field in named {
        let (name, value) = field.map_err(|error| malformed(&error))?;
        let name = name.as_str();
        if name == "_id" && shape.item_ids() == ItemIds::Dropped {
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
