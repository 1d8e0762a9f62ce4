//! The indexes of a bucket collection.

use bson::{Document, doc};

use crate::pattern::shapes::{BucketShape, ItemIds};

/// The indexes that a shape needs, as in the `indexes` of the `createIndexes` command: I1 (a page is there once),
/// I2 (what breaks the arithmetic of positions), I3 (an item's `_id` is there once), I4 (a page's bounds in time).
#[must_use]
pub fn specs(shape: &BucketShape) -> Vec<Document> {
    let with_key = |rest: Document| {
        let fields = shape.key().iter().map(|field| (field.clone(), 1.into()));
        fields.chain(rest).collect::<Document>()
    };
    let count = shape.count();
    let mut specs = vec![
        doc! { "key": with_key(doc! { "control.page": 1 }), "name": "mongoshape_page", "unique": true },
        doc! {
            "key": with_key(doc! { "control.page": 1, count: 1, "control.late": 1 }),
            "name": "mongoshape_exceptions",
            "partialFilterExpression": { "control.exception": true },
        },
    ];
    if shape.item_ids() == ItemIds::Unique {
        let key = doc! { format!("{}._id", shape.items()): 1 };
        specs.push(doc! { "key": key, "name": "mongoshape_item_ids", "unique": true, "sparse": true });
    }
    if shape.time().is_some() {
        let key = with_key(doc! { "control.from": 1, "control.to": 1 });
        specs.push(doc! { "key": key, "name": "mongoshape_bounds" });
    }
    specs
}
