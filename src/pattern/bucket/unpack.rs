//! Items out of a bucket, copied field by field from raw BSON.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{get, put};
use crate::pattern::shapes::BucketShape;

/// The items of a bucket as the application knows them: `_id`, key fields, the rest.
pub fn items<'a>(shape: &'a BucketShape, bucket: &'a RawDocument) -> impl Iterator<Item = RawDocumentBuf> + 'a {
    let stored = get(bucket, shape.items()).and_then(RawBsonRef::as_array);
    let stored = stored
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(RawBsonRef::as_document);
    stored.map(|stored| item(shape, bucket, stored))
}

fn item(shape: &BucketShape, bucket: &RawDocument, stored: &RawDocument) -> RawDocumentBuf {
    let mut item = RawDocumentBuf::new();
    if let Some(id) = get(stored, "_id") {
        item.append(cstr!("_id"), id);
    }
    for field in shape.key() {
        // An item whose own value differs from the lifted one in type has kept its own.
        if let Some(value) = get(stored, field).or_else(|| get(bucket, field)) {
            put(&mut item, field, value);
        }
    }
    for (name, value) in stored.iter().flatten() {
        let name = name.as_str();
        if name != "_id" && !shape.key().iter().any(|field| field == name) {
            put(&mut item, shape.rename().item(name), value);
        }
    }
    item
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{Timestamp, rawdoc};

    use super::*;
    use crate::pattern::bucket::item::{FixedMint, Item};
    use crate::pattern::bucket::layout::{NewPage, build};
    use crate::pattern::shapes::{BucketOptions, ItemIds, NamespacePattern};

    /// An item put into a bucket and taken out again.
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
            },
            &[&prepared],
        );
        let unpacked: Vec<_> = items(&shape, &bucket).collect();
        assert_eq!(unpacked.iter().map(|item| &**item).collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn an_item_comes_back_as_it_was() {
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
