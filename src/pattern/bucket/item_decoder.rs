//! Decodes items of a bucket, element by element from raw BSON.

use bson::raw::RawDocument;

use super::projection::Projection;
use crate::command::document::{Element, elements};
use crate::pattern::shapes::BucketShape;

/// Decodes the items of one bucket as the application knows them: `_id`, key fields, then the other
/// fields.
pub struct ItemDecoder<'a> {
    shape: &'a BucketShape,
    projection: &'a Projection,
    /// The elements of the lifted key fields in the bucket. Empty if the field is missing.
    lifted: Vec<&'a [u8]>,
    /// Whether the application knows all stored fields by their stored names.
    keeps_fields: bool,
    /// The elements of the current item. Reused to avoid allocations.
    rest: Vec<Element<'a>>,
}

impl<'a> ItemDecoder<'a> {
    /// A decoder for the items of one bucket.
    #[must_use]
    pub fn new(shape: &'a BucketShape, projection: &'a Projection, bucket: &'a RawDocument) -> Self {
        let mut lifted = vec![<&[u8]>::default(); shape.key().len()];
        for Element { name, whole } in elements(bucket) {
            let position = shape.key().iter().position(|field| field.as_bytes() == name);
            if let Some(place) = position.and_then(|position| lifted.get_mut(position)) {
                *place = whole;
            }
        }
        Self {
            shape,
            projection,
            lifted,
            keeps_fields: shape.rename().pairs().next().is_none() && matches!(projection, Projection::All),
            rest: Vec::new(),
        }
    }

    /// Appends the item as a whole document.
    pub fn append(&mut self, stored: &'a RawDocument, to: &mut Vec<u8>) {
        let start = to.len();
        let lifted = self.lifted.iter().map(|element| element.len());
        to.reserve(lifted.fold(stored.as_bytes().len(), usize::saturating_add));
        to.extend_from_slice(&[0; 4]);
        let id_length = self.keeps_fields.then(|| self.id_length(stored)).flatten();
        if let Some((id, rest)) = id_length.and_then(|length| fields(stored).split_at_checked(length)) {
            to.extend_from_slice(id);
            for lifted in &self.lifted {
                to.extend_from_slice(lifted);
            }
            to.extend_from_slice(rest);
        } else {
            self.append_fields(stored, to);
        }
        to.push(0);
        let length = u32::try_from(to.len().saturating_sub(start)).unwrap_or_default();
        if let Some(place) = to.get_mut(start..start.saturating_add(4)) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// The length of the `_id` at the begin of an item whose other fields are copied as they are. `None` if
    /// the item has an `_id` elsewhere, or a key value of its own.
    fn id_length(&self, stored: &RawDocument) -> Option<usize> {
        let mut length = 0;
        for (position, Element { name, whole }) in elements(stored).enumerate() {
            if name == b"_id" {
                length = (position == 0).then_some(whole.len())?;
            } else if self.shape.key().iter().any(|field| field.as_bytes() == name) {
                return None;
            }
        }
        Some(length)
    }

    /// Appends the fields one by one.
    fn append_fields(&mut self, stored: &'a RawDocument, to: &mut Vec<u8>) {
        let mut rest = std::mem::take(&mut self.rest);
        rest.clear();
        for element in elements(stored) {
            if element.name == b"_id" {
                self.put(element.name, element.whole, to);
            } else {
                rest.push(element);
            }
        }
        for (field, lifted) in self.shape.key().iter().zip(&self.lifted) {
            // An item stores its own key value if that differs from the lifted value in type.
            let own = rest.iter().find(|element| element.name == field.as_bytes());
            let whole = own.map_or(*lifted, |own| own.whole);
            if !whole.is_empty() {
                self.put(field.as_bytes(), whole, to);
            }
        }
        for &Element { name, whole } in &rest {
            if self.shape.key().iter().any(|field| field.as_bytes() == name) {
                continue;
            }
            match self.renamed(name) {
                None => self.put(name, whole, to),
                Some(other) if self.projection.keeps(other.as_bytes()) => {
                    // The type, the application's name, and the value.
                    to.extend_from_slice(whole.get(..1).unwrap_or_default());
                    to.extend_from_slice(other.as_bytes());
                    to.extend_from_slice(whole.get(name.len().saturating_add(1)..).unwrap_or_default());
                }
                Some(_) => {}
            }
        }
        self.rest = rest;
    }

    /// The application's name of a stored field, if the field is renamed.
    fn renamed(&self, stored: &[u8]) -> Option<&'a str> {
        let mut pairs = self.shape.rename().pairs();
        pairs.find(|(_, own)| own.as_bytes() == stored).map(|(item, _)| item)
    }

    fn put(&self, name: &[u8], whole: &[u8], to: &mut Vec<u8>) {
        if self.projection.keeps(name) {
            to.extend_from_slice(whole);
        }
    }
}

/// The elements of a document, without its length and its end.
fn fields(document: &RawDocument) -> &[u8] {
    let bytes = document.as_bytes();
    bytes.get(4..bytes.len().saturating_sub(1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{Timestamp, rawdoc};

    use super::*;
    use crate::pattern::bucket::item::{FixedMint, Item};
    use crate::pattern::bucket::layout::{NewPage, build};
    use crate::pattern::shapes::{BucketOptions, ItemIds, NamespacePattern};

    /// Stores an item in a bucket and decodes it.
    fn check(item_ids: ItemIds, item: &RawDocument, expected: &RawDocument) {
        let options = BucketOptions {
            rename: [("quantity".to_owned(), "qty".to_owned())].into(),
            item_ids,
            ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["a".into(), "b".into()])
        };
        let shape = BucketShape::new(options).unwrap();
        let prepared = Item::prepare(&shape, 0, item, &mut FixedMint).unwrap();
        let bucket = build(
            &shape,
            NewPage {
                id: "x",
                page: 0,
                late: false,
                short: false,
                unordered: false,
                nonce: None,
                next: None,
                revision: None,
            },
            &[&prepared],
        );
        let stored = bucket.get_array("history").unwrap().get_document(0).unwrap();
        let mut unpacked = Vec::new();
        ItemDecoder::new(&shape, &Projection::All, &bucket).append(stored, &mut unpacked);
        assert_eq!(RawDocument::from_bytes(&unpacked).unwrap(), expected);
    }

    #[test]
    fn decoded_item_equals_the_original() {
        let id = ObjectId::from_bytes([7; 12]);
        let unique = |item: &RawDocument, expected: &RawDocument| check(ItemIds::Unique, item, expected);
        unique(&rawdoc! { "a": 1, "b": 2 }, &rawdoc! { "_id": id, "a": 1, "b": 2 });
        unique(
            &rawdoc! { "x": 1, "b": 2.0, "_id": 5 },
            &rawdoc! { "_id": 5, "b": 2.0, "x": 1 },
        );
        unique(
            &rawdoc! { "_id": 5, "a": null, "quantity": 3 },
            &rawdoc! { "_id": 5, "a": null, "quantity": 3 },
        );
        unique(
            &rawdoc! { "_id": 5, "qty": 3, "": 1, "$y": 2 },
            &rawdoc! { "_id": 5, "qty": 3, "": 1, "$y": 2 },
        );
        unique(
            &rawdoc! { "_id": 5, "a": -0.0, "t": Timestamp { time: 0, increment: 0 } },
            &rawdoc! { "_id": 5, "a": -0.0, "t": Timestamp { time: 1, increment: 2 } },
        );
        check(
            ItemIds::Dropped,
            &rawdoc! { "_id": 5, "a": 1, "x": 2 },
            &rawdoc! { "a": 1, "x": 2 },
        );
    }
}
