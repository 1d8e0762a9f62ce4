//! Plain documents put on pages, in a copy that takes the collection's place.
//!
//! What the copy holds is what inserting the documents through the proxy would have stored, in the order in
//! which they lie closest: key by key, each by time ([`order`]). Each becomes an [`item`] by the code that an
//! insert's document does.
//!
//! While that is done the collection is *frozen* as it is for [`compact`](super::compact): a validator that
//! nothing meets refuses every insert and every update. Deletes go on where somebody sends them; who packs
//! finds out.

use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{DateTime, Timestamp};

use super::item::{IdSource, Item};
use super::layout::path;
use crate::command::document::{array_of, get, put, single};
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::shapes::BucketShape;

/// What the copy's name ends with.
const COPY: &str = ".mongoshape_pack";
/// What the name ends with under which the plain documents are kept.
const PLAIN: &str = ".mongoshape_plain";
/// The field that a frozen collection's documents would need.
const MARKER: &str = "mongoshape_pack";
/// The same of a placeholder's.
const PLACEHOLDER: &str = "mongoshape_placeholder";

/// The name of the copy that is filled with pages, in the same database.
#[must_use]
pub fn copy_name(collection: &str) -> String {
    format!("{collection}{COPY}")
}

/// The name that the collection of plain documents has afterwards.
#[must_use]
pub fn plain_name(collection: &str) -> String {
    format!("{collection}{PLAIN}")
}

/// Whether a collection only stands beside another: a copy, plain documents that are kept, a view of items.
#[must_use]
pub fn is_beside(collection: &str) -> bool {
    collection.contains(".mongoshape_")
}

/// The validator of a frozen collection.
#[must_use]
pub fn freeze() -> RawDocumentBuf {
    single(MARKER, single("$exists", true))
}

/// Whether a collection with these options, as `listCollections` tells them, is frozen.
#[must_use]
pub fn is_frozen(options: &RawDocument) -> bool {
    get(options, "validator").and_then(RawBsonRef::as_document) == Some(&freeze())
}

/// The validator of the empty collection that keeps the name free under which the plain documents are to be
/// kept.
#[must_use]
pub fn placeholder() -> RawDocumentBuf {
    single(PLACEHOLDER, single("$exists", true))
}

/// Whether a collection with these options is such a one.
#[must_use]
pub fn is_placeholder(options: &RawDocument) -> bool {
    get(options, "validator").and_then(RawBsonRef::as_document) == Some(&placeholder())
}

/// The filter for what is, or may be meant as, a bucket: it says so in `control`, or has the array of items
/// and their number. Where nothing meets it all documents are plain.
#[must_use]
pub fn buckets(shape: &BucketShape) -> RawDocumentBuf {
    let mut by_hand = single(shape.items(), single("$type", "array"));
    put(&mut by_hand, shape.count(), single("$type", "number"));
    let page = single(path::VERSION, single("$type", "number"));
    single("$or", array_of(&[page, by_hand]))
}

/// The sort by which documents are read.
#[must_use]
pub fn order(shape: &BucketShape) -> RawDocumentBuf {
    let mut order = RawDocumentBuf::new();
    for field in shape.key().iter().map(String::as_str).chain(shape.time()) {
        put(&mut order, field, 1);
    }
    order
}

/// A plain document as an item.
///
/// # Errors
/// What an insert through the proxy would refuse it for.
pub fn item(shape: &BucketShape, document: &RawDocument) -> Result<Item, WriteError> {
    if get(document, "_id").is_none() {
        return Err(WriteError::new(ErrorCode::BadValue, "it has no _id".to_owned()));
    }
    Item::prepare(shape, 0, document, &mut AsStored)
}

/// Gives nothing that a stored document has not: an insert would fill in the time where it is `Timestamp(0,
/// 0)`. An id is not asked for, nor is the time of day.
#[derive(Debug)]
struct AsStored;

impl IdSource for AsStored {
    fn now(&self) -> DateTime {
        DateTime::from_millis(0)
    }

    fn object_id(&mut self) -> ObjectId {
        ObjectId::from_bytes([0; 12])
    }

    fn timestamp(&mut self) -> Timestamp {
        Timestamp { time: 0, increment: 0 }
    }

    fn nonce(&self) -> i64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    fn shape() -> BucketShape {
        let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
        let time = Some("at".to_owned());
        BucketShape::new(BucketOptions { time, ..options }).unwrap()
    }

    #[test]
    fn an_item_keeps_what_the_document_has() {
        let nothing = Timestamp { time: 0, increment: 0 };
        let document = rawdoc! { "_id": 1, "k": 1_i64, "at": nothing, "n": -0.0 };
        let item = item(&shape(), &document).unwrap();
        let stored = rawdoc! { "_id": 1, "k": 1_i64, "at": nothing, "n": -0.0 };
        assert_eq!(item.stored().as_bytes(), stored.as_bytes());
    }

    #[test]
    fn what_is_no_item_is_refused() {
        assert!(item(&shape(), &rawdoc! { "k": 1 }).is_err());
        assert!(item(&shape(), &rawdoc! { "_id": 1, "k": [1] }).is_err());
    }

    #[test]
    fn a_frozen_collection_is_told_by_its_validator() {
        assert!(is_frozen(&single("validator", freeze())));
        assert!(!is_frozen(&single("validator", super::super::compact::freeze())));
        assert!(!is_frozen(&RawDocumentBuf::new()));
        assert!(!is_frozen(&single("validator", placeholder())));
        assert!(is_placeholder(&single("validator", placeholder())));
        assert!(!is_placeholder(&single("validator", freeze())));
    }
}
