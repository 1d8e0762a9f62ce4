//! Hints of `{$natural: -1}`: a plain collection is read from its end.

use anyhow::Result;
use bson::{bson, doc};
use proto_tests::Shape;
use proto_tests::sides::{COLLECTION, Sides};

#[test]
fn backward_hint_is_refused_where_the_order_has_an_effect() -> Result<()> {
    let mut sides = Sides::open(Shape {
        max_items: 2,
        items_change: true,
        ..Shape::new(&["k"])
    })?;
    let items: Vec<_> = (0..5).map(|id| doc! { "_id": id, "k": 1, "q": 1 }).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    let hint = doc! { "$natural": -1 };
    let find = doc! { "find": COLLECTION, "filter": { "k": 1 }, "limit": 1, "hint": &hint };
    let stages = bson!([{ "$match": { "k": 1 } }, { "$group": { "_id": "$k", "q": { "$push": "$_id" } } }]);
    let change = doc! { "$set": { "n": 1 } };
    for refused in [
        find.clone(),
        doc! { "explain": &find },
        doc! { "aggregate": COLLECTION, "pipeline": &stages, "cursor": {}, "hint": &hint },
        doc! { "explain": { "aggregate": COLLECTION, "pipeline": &stages, "cursor": {}, "hint": &hint } },
        doc! { "update": COLLECTION, "updates": [{ "q": { "k": 1 }, "u": &change, "hint": &hint }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "k": 1 }, "limit": 1, "hint": &hint }] },
        doc! { "findAndModify": COLLECTION, "query": { "k": 1 }, "update": &change, "hint": &hint },
        doc! { "findAndModify": COLLECTION, "query": { "k": 1 }, "remove": true, "hint": &hint },
        doc! { "explain": { "delete": COLLECTION, "deletes": [{ "q": { "k": 1 }, "limit": 1, "hint": &hint }] } },
    ] {
        sides.refused(&refused)?;
    }
    let newest = doc! { "_id": -1 };
    sides.pages_read(&doc! { "find": COLLECTION, "filter": { "k": 1 }, "sort": &newest, "hint": &hint })?;
    let sorted = bson!([{ "$match": { "k": 1 } }, { "$sort": &newest }, { "$limit": 2 }]);
    sides.pages_read(&doc! { "aggregate": COLLECTION, "pipeline": sorted, "cursor": {}, "hint": &hint })?;
    for accepted in [
        doc! { "count": COLLECTION, "query": { "k": 1 }, "hint": &hint },
        doc! { "update": COLLECTION, "updates": [{ "q": { "k": 1 }, "u": &change, "multi": true, "hint": &hint }] },
        doc! { "findAndModify": COLLECTION, "query": { "k": 1 }, "remove": true, "sort": &newest, "hint": &hint },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "q": 1 }, "limit": 0, "hint": &hint }] },
    ] {
        sides.alike(&accepted)?;
    }
    sides.check()
}
