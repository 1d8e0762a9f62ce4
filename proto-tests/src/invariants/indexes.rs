//! Whether the shape's indexes exist.

use bson::{Bson, Document, doc};

use crate::shape::{ItemIds, Shape};

/// An index without its name.
struct Expected {
    what: &'static str,
    key: Document,
    options: Document,
}

pub(super) fn violations(indexes: &[&Document], shape: &Shape) -> Vec<String> {
    let missing = expected(shape).into_iter().filter(|expected| {
        !indexes.iter().any(|index| {
            let key = index.get_document("key").ok();
            let has_options = expected
                .options
                .iter()
                .all(|(name, value)| index.get(name) == Some(value));
            key.is_some_and(|key| same_pattern(key, &expected.key)) && has_options
        })
    });
    missing
        .map(|expected| format!("no {} index {} {}", expected.what, expected.key, expected.options))
        .collect()
}

/// The order of fields counts, the type of a direction does not.
fn same_pattern(one: &Document, other: &Document) -> bool {
    let direction = |value: &Bson| match value {
        Bson::Int32(number) => Some(f64::from(*number)),
        Bson::Double(number) => Some(*number),
        _ => None,
    };
    let fields = |pattern: &Document| -> Vec<_> {
        pattern
            .iter()
            .map(|(name, value)| (name.clone(), direction(value)))
            .collect()
    };
    fields(one) == fields(other)
}

fn expected(shape: &Shape) -> Vec<Expected> {
    let key_and = |paths: &[&str]| -> Document {
        let fields = shape.key.iter().map(String::as_str).chain(paths.iter().copied());
        fields.map(|field| (field.to_owned(), Bson::Int32(1))).collect()
    };
    let mut expected = vec![
        Expected {
            what: "unique page",
            key: key_and(&["control.page"]),
            options: doc! { "unique": true },
        },
        Expected {
            what: "partial exceptions",
            key: key_and(&["control.page", &shape.count, "control.late"]),
            options: doc! { "partialFilterExpression": { "control.exception": true } },
        },
    ];
    let item_id = format!("{}._id", shape.items);
    let has_items = doc! { &shape.count: { "$gt": 0 } };
    let unique = doc! { "unique": true, "partialFilterExpression": &has_items };
    match shape.item_ids {
        ItemIds::Unique => expected.push(Expected {
            what: "unique item id",
            key: doc! { "control.v": 1, &item_id: 1 },
            options: unique,
        }),
        ItemIds::UniqueInKey => {
            expected.push(Expected {
                what: "item id",
                key: doc! { "control.v": 1, &item_id: 1 },
                options: doc! { "partialFilterExpression": &has_items },
            });
            expected.push(Expected {
                what: "unique key and item id",
                key: key_and(&[&item_id]),
                options: unique,
            });
        }
        ItemIds::Stored | ItemIds::Dropped => {}
    }
    if shape.time.is_some() {
        for (what, path) in [("from", "control.from"), ("to", "control.to")] {
            expected.push(Expected {
                what,
                key: key_and(&[path]),
                options: doc! { "partialFilterExpression": { "control.v": 1 } },
            });
        }
    }
    expected
}
