//! Values and fields of items are returned as stored by every access path.

use anyhow::Result;
use bson::{Bson, Document, bson, doc};
use proto_tests::Shape;
use proto_tests::sides::{COLLECTION, Sides};

use crate::queries::comparison::Comparison;

/// MongoDB takes a symbol and a string of the same text for equal: they are one key.
#[test]
fn symbols_within_a_key_come_back_as_symbols() -> Result<()> {
    let symbol = || Bson::Symbol("s".to_owned());
    let keys = [
        bson!({ "a": symbol() }),
        bson!({ "a": "s" }),
        bson!({ "a": [symbol(), 1] }),
        bson!({ "a": ["s", 1.0] }),
        bson!({ "a": { "b": symbol() } }),
        bson!({ "a": { "b": "s" } }),
    ];
    let item = |(id, key): (i32, &Bson)| doc! { "_id": id, "k": key.clone(), "x": id % 2 };
    for order in [keys.to_vec(), keys.iter().rev().cloned().collect()] {
        let sides = Sides::on_a_standalone(Shape {
            max_items: 4,
            ..Shape::new(&["k"])
        })?;
        let mut comparison = Comparison::open(sides, &[])?;
        for items in (0..)
            .zip(order.iter().cycle().take(18))
            .map(item)
            .collect::<Vec<_>>()
            .chunks(2)
        {
            comparison.insert(items)?;
        }
        for key in &keys {
            let filter = doc! { "k": key.clone() };
            comparison.alike(&doc! { "find": COLLECTION, "filter": &filter })?;
            comparison.alike(&doc! { "find": COLLECTION, "filter": &filter, "skip": 2, "limit": 3 })?;
            comparison.alike(&doc! { "find": COLLECTION, "filter": { "k": key.clone(), "x": 1 } })?;
            comparison.alike(&doc! { "count": COLLECTION, "query": &filter })?;
        }
        comparison.sides.check()?;
    }
    Ok(())
}

#[test]
fn renamed_fields_keep_their_order() -> Result<()> {
    let rename = [("quantity", "q"), ("price", "p"), ("q", "quantity"), ("ab", "x")];
    let owned = |(item, stored): (&str, &str)| (item.to_owned(), stored.to_owned());
    let sides = Sides::on_a_standalone(Shape {
        max_items: 3,
        rename: rename.into_iter().map(owned).collect(),
        ..Shape::new(&["k"])
    })?;
    let items = [
        doc! { "_id": 1, "k": 1, "n": 1, "quantity": 2, "m": 3, "price": 4 },
        doc! { "_id": 2, "k": 1, "price": 4, "n": 1, "q": 5, "quantity": 2 },
        doc! { "_id": 3, "k": 1.0, "ab": 1, "n": 1, "": 2, "p": 3, "quantity": { "q": 1, "quantity": 2 } },
        doc! { "_id": 4, "k": 1, "n": 1, "$y": 1, "a.b": 2, "price": Bson::Undefined, "z": Bson::Null },
        doc! { "_id": 5, "k": 1, "n": 1 },
        doc! { "_id": 6, "k": 2, "n": 1, "price": [{ "price": 1 }], "m": "s" },
        doc! { "_id": 7, "n": 1, "m": 1, "price": 0.5, "quantity": i64::MAX },
    ];
    let mut comparison = Comparison::open(sides, &items)?;
    let sort = doc! { "_id": 1 };
    for filter in [
        doc! {},
        doc! { "n": 1 },
        doc! { "quantity": 2 },
        doc! { "k": 1, "n": { "$gt": 0 } },
    ] {
        let find = doc! { "find": COLLECTION, "filter": &filter, "sort": &sort };
        comparison.alike(&find)?;
        for projection in [
            doc! { "price": 1, "m": 1, "quantity": 1 },
            doc! { "n": 0 },
            doc! { "quantity.q": 1, "n": 1 },
        ] {
            let mut find = find.clone();
            find.insert("projection", projection);
            comparison.alike(&find)?;
        }
        let mut pipelines = vec![
            vec![],
            vec![doc! { "$group": { "_id": "$n", "all": { "$push": "$$ROOT" } } }],
            vec![doc! { "$group": { "_id": "$n", "sum": { "$sum": "$quantity" } } }],
            vec![doc! { "$project": { "fields": { "$objectToArray": "$$ROOT" } } }],
            vec![doc! { "$set": { "copy": "$$CURRENT" } }],
            vec![doc! { "$facet": { "all": [] } }],
            vec![doc! { "$replaceRoot": { "newRoot": { "own": "$$ROOT" } } }],
            vec![doc! { "$match": { "$expr": { "$eq": ["$$ROOT", { "$literal": &items[0] }] } } }],
        ];
        let of_same = |more: Document| {
            let mut lookup = doc! { "from": COLLECTION, "as": "found" };
            lookup.extend(more);
            vec![
                doc! { "$lookup": lookup },
                doc! { "$set": { "found": { "$sortArray": { "input": "$found", "sortBy": { "_id": 1 } } } } },
            ]
        };
        pipelines.push(of_same(doc! { "localField": "n", "foreignField": "n" }));
        pipelines.push(of_same(doc! { "pipeline": [{ "$match": { "n": 1 } }] }));
        for stages in pipelines {
            let first = [doc! { "$match": &filter }, doc! { "$sort": &sort }];
            let stages: Vec<Document> = first.into_iter().chain(stages).collect();
            comparison.alike(&doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {} })?;
        }
    }
    comparison.sides.check()
}
