//! Packs plain documents into pages, in a copy that takes the collection's name.
//!
//! The copy contains the pages that inserts through the proxy would have stored, if they came in the order
//! that packs documents best: key by key, each key by time ([`order`]). Documents become [`item`]s by the
//! code of inserts.
//!
//! While the copy is filled and compared, the collection is *frozen* as for
//! [`compact`](super::compact): a validator that no document satisfies refuses every insert and
//! every update. Deletes still take effect; the comparison detects them.

use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{DateTime, Timestamp};

use super::freeze::is_frozen_by;
use super::item::{IdSource, Item};
use super::layout::path;
use crate::command::document::{array_of, get, put, single};
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::shapes::BucketShape;

/// The suffix of the copy's name.
const COPY: &str = ".mongoshape_pack";
/// The suffix of the name under which the plain documents are kept.
const PLAIN: &str = ".mongoshape_plain";
/// The field that a document would need to satisfy the validator of a frozen collection.
const MARKER: &str = "mongoshape_pack";
/// The field that a document would need to satisfy the validator of a placeholder.
const PLACEHOLDER: &str = "mongoshape_placeholder";

/// The name of the copy that is filled with pages, in the same database.
#[must_use]
pub fn copy_name(collection: &str) -> String {
    format!("{collection}{COPY}")
}

/// The name of the collection of plain documents after the swap.
#[must_use]
pub fn plain_name(collection: &str) -> String {
    format!("{collection}{PLAIN}")
}

/// Whether a collection belongs to another collection: a copy, kept plain documents, or a view of
/// items.
#[must_use]
pub fn is_beside(collection: &str) -> bool {
    collection.contains(".mongoshape_")
}

/// The validator of a frozen collection, or its first clause if the validator
/// [records](super::validation) the one before.
#[must_use]
pub fn freeze() -> RawDocumentBuf {
    single(MARKER, single("$exists", true))
}

/// Whether a collection is frozen. `options` are those that `listCollections` returns.
#[must_use]
pub fn is_frozen(options: &RawDocument) -> bool {
    is_frozen_by(options, &freeze())
}

/// The validator of the empty placeholder collection. It reserves the name under which the plain
/// documents will be kept.
#[must_use]
pub fn placeholder() -> RawDocumentBuf {
    single(PLACEHOLDER, single("$exists", true))
}

/// Whether a collection with these options is a placeholder.
#[must_use]
pub fn is_placeholder(options: &RawDocument) -> bool {
    get(options, "validator").and_then(RawBsonRef::as_document) == Some(&placeholder())
}

/// The filter for documents that are, or may be meant as, buckets. They have a version in
/// `control`, or the array and the number of items. If no document matches, all documents are
/// plain.
#[must_use]
pub fn buckets(shape: &BucketShape) -> RawDocumentBuf {
    let mut by_hand = single(shape.items(), single("$type", "array"));
    put(&mut by_hand, shape.count(), single("$type", "number"));
    let page = single(path::VERSION, single("$type", "number"));
    single("$or", array_of(&[page, by_hand]))
}

/// The sort in which documents are read.
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
/// The reasons for which an insert through the proxy would refuse the document.
pub fn item(shape: &BucketShape, document: &RawDocument) -> Result<Item, WriteError> {
    if get(document, "_id").is_none() {
        return Err(WriteError::new(ErrorCode::BadValue, "it has no _id".to_owned()));
    }
    Item::prepare(shape, 0, document, &mut AsStored)
}

/// Generates nothing, because a packed document keeps its values: an insert would replace
/// `Timestamp(0, 0)`. Ids and the current time are not needed.
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
    fn document_that_is_no_item_is_refused() {
        assert!(item(&shape(), &rawdoc! { "k": 1 }).is_err());
        assert!(item(&shape(), &rawdoc! { "_id": 1, "k": [1] }).is_err());
    }

    #[test]
    fn a_validator_marks_a_frozen_collection() {
        assert!(is_frozen(&single("validator", freeze())));
        assert!(!is_frozen(&single("validator", super::super::compact::freeze())));
        assert!(!is_frozen(&RawDocumentBuf::new()));
        assert!(!is_frozen(&single("validator", placeholder())));
        assert!(is_placeholder(&single("validator", placeholder())));
        assert!(!is_placeholder(&single("validator", freeze())));
    }
}
