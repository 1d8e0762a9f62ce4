//! Projections that `find` supports and an aggregation does not.

use anyhow::Result;
use bson::{Bson, Document, doc};
use mongodb::Collection;
use proto_tests::{Pair, Proxy, ProxyOptions, mongod};

const SHAPE: &str = r#"
[[bucket]]
namespace = "*.trades"
key = "customerId"
"#;

/// `CommandNotSupported`.
const NOT_SUPPORTED: i32 = 115;

/// The fields of a document in their order, which the equality of a `Document` does not regard.
type Fields = Vec<(String, Bson)>;

async fn answer(collection: &Collection<Document>, projection: &Document) -> Result<Vec<Fields>, Option<i32>> {
    matching(collection, doc! {}, projection).await
}

async fn matching(
    collection: &Collection<Document>,
    filter: Document,
    projection: &Document,
) -> Result<Vec<Fields>, Option<i32>> {
    let code = |error: mongodb::error::Error| match *error.kind {
        mongodb::error::ErrorKind::Command(error) => Some(error.code),
        _ => None,
    };
    // `_id` orders the answers also where it is left out of them.
    let mut cursor = collection
        .find(filter)
        .sort(doc! { "_id": 1 })
        .projection(projection.clone())
        .await
        .map_err(code)?;
    let mut documents = Vec::new();
    while cursor.advance().await.map_err(code)? {
        let document: Document = cursor.deserialize_current().map_err(code)?;
        documents.push(document.into_iter().collect());
    }
    Ok(documents)
}

#[tokio::test]
async fn slice_and_elem_match_are_those_of_find() -> Result<()> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(SHAPE))?;
    let pair = Pair::new(mongod::shared(), &proxy).await?;
    let [plain, shaped, _] = pair.collections("trades");
    let documents = [
        doc! { "_id": 1, "customerId": 1, "e": [1, 5, 7, { "x": 3 }, [1, 2]] },
        doc! { "_id": 2, "customerId": 1 },
        doc! { "_id": 3, "customerId": 1, "e": 5 },
        doc! { "_id": 4, "customerId": 1, "e": [], "q": { "e": [1, 2] } },
        doc! { "_id": 5, "customerId": 2, "e": [{ "x": 1 }, { "x": 2, "y": [1] }], "z": 1 },
    ];
    plain.insert_many(&documents).await?;
    shaped.insert_many(&documents).await?;
    let elem_match = |condition: Document| doc! { "$elemMatch": condition };
    let projections = [
        doc! { "e": { "$slice": 2 } },
        doc! { "e": { "$slice": -2 } },
        doc! { "e": { "$slice": 0 } },
        doc! { "e": { "$slice": 2.7 } },
        doc! { "e": { "$slice": 1e20 } },
        doc! { "e": { "$slice": [1, 2] } },
        doc! { "e": { "$slice": [-3, 2] } },
        doc! { "e": { "$slice": [9, 2] } },
        doc! { "e": { "$slice": ["$e", 2] } },
        doc! { "e": { "$slice": 2 }, "z": 1 },
        doc! { "e": { "$slice": 2 }, "z": 0 },
        doc! { "e": { "$slice": 2 }, "z": 0, "q": 1 },
        doc! { "e": { "$slice": 2 }, "_id": 0 },
        doc! { "e": { "$slice": 2 }, "_id": 1 },
        doc! { "e": elem_match(doc! { "$gt": 2 }) },
        doc! { "e": elem_match(doc! { "$in": [5] }), "w": "$customerId" },
        doc! { "e": elem_match(doc! { "x": { "$gte": 2 } }) },
        doc! { "e": elem_match(doc! { "x": { "$gte": 2 } }), "z": 1, "_id": 0 },
        doc! { "e": elem_match(doc! { "x": 2 }), "customerId": 0 },
        doc! { "e": elem_match(doc! { "x": 2 }), "z": 0, "q": 1 },
        doc! { "e": elem_match(doc! {}) },
        doc! { "q": elem_match(doc! { "x": 2 }) },
        doc! { "e": elem_match(doc! { "x": 1 }), "_id": 0 },
        doc! { "e": elem_match(doc! { "x": 1 }), "_id": 1, "q": { "$slice": 1 } },
        doc! { "e": { "$slice": 1 }, "z": elem_match(doc! { "x": 1 }) },
        doc! { "z": elem_match(doc! { "x": 1 }), "e": { "$slice": 1 } },
        // Computed fields come behind the included ones.
        doc! { "e": elem_match(doc! { "x": 2 }), "z": 1 },
        doc! { "e": elem_match(doc! { "x": 2 }), "customerId": true, "z": 1, "_id": 0 },
        doc! { "z": 1, "w": "$customerId", "e": elem_match(doc! { "x": 2 }), "v": "$z" },
        doc! { "e": elem_match(doc! { "$gte": 5 }), "w": "$customerId", "q": 1, "z": 1 },
        doc! { "e": elem_match(doc! { "x": 2 }), "q": 0 },
        doc! { "e": { "$slice": 1 }, "w": "$z", "z": 1 },
        doc! { "w": "$z", "e": { "$slice": 1 }, "customerId": 1 },
    ];
    for projection in projections {
        assert_eq!(
            answer(&shaped, &projection).await,
            answer(&plain, &projection).await,
            "{projection}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn slice_goes_into_nested_documents_and_arrays() -> Result<()> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(SHAPE))?;
    let pair = Pair::new(mongod::shared(), &proxy).await?;
    let [plain, shaped, _] = pair.collections("trades");
    let documents = [
        doc! { "_id": 1, "customerId": 1, "e": { "d": 1, "b": [1, 2, 3], "c": { "b": [4, 5] } }, "z": 1 },
        doc! { "_id": 2, "customerId": 1, "e": [{ "b": [1, 2], "c": 1 }, { "b": 5 }, 7, [{ "b": [1, 2] }], { "c": 1 }] },
        doc! { "_id": 3, "customerId": 1 },
        doc! { "_id": 4, "customerId": 2, "e": 5, "z": [1, 2] },
        doc! { "_id": 5, "customerId": 2, "e": { "b": [[1, 2], [3]], "c": [{ "b": [6, 7] }, [8]] }, "z": null },
        doc! { "_id": 6, "customerId": 3, "e": [], "z": {} },
        doc! { "_id": 7, "customerId": 3, "e": null },
    ];
    plain.insert_many(&documents).await?;
    shaped.insert_many(&documents).await?;
    let slice = |count: i32| doc! { "$slice": count };
    let projections = [
        doc! { "e.b": slice(1) },
        doc! { "e.b": slice(-1), "z": 1 },
        doc! { "e.b": slice(0), "z": 0 },
        doc! { "e.b": slice(1), "e.c": 1 },
        doc! { "e.b": slice(1), "e.c": 0 },
        doc! { "e.b": slice(1), "_id": 1 },
        doc! { "e.b": slice(1), "copy": "$e.b" },
        doc! { "e.b": { "$slice": [1, 1] }, "e.c.b": { "$slice": [-2, 1] } },
        doc! { "e.c.b": slice(1) },
        doc! { "e": { "b": slice(1) } },
        doc! { "e": { "b": slice(1), "c": { "b": slice(-1) } } },
        doc! { "e": { "b": slice(1), "c": true }, "z": slice(1) },
        doc! { "e.0": slice(1), "e.c.0": slice(1) },
        // What is wrong in them is mongod's to say.
        doc! { "e.b": slice(1), "e": 1 },
        doc! { "e.b": { "$slice": [1, 0] } },
        doc! { "e.b": { "$slice": "x" } },
        doc! { "e": { "$slice": [1] } },
        doc! { "e": { "$slice": [1, 2, 3] } },
        doc! { "e": { "$slice": 1, "b": 1 } },
        doc! { "e.b": { "$elemMatch": { "$gt": 1 } } },
        doc! { "e": { "$elemMatch": 1 } },
        doc! { "e": { "$elemMatch": { "$nope": 1 } } },
        doc! { "e..b": slice(1) },
        // Other expressions see the whole field.
        doc! { "z": slice(1), "copy": "$z" },
        doc! { "z": { "$elemMatch": { "$gt": 1 } }, "copy": "$z" },
    ];
    for projection in projections {
        let expected = answer(&plain, &projection).await;
        assert_eq!(answer(&shaped, &projection).await, expected, "{projection}");
    }
    Ok(())
}

#[tokio::test]
async fn metadata_are_those_of_find_where_an_item_has_them() -> Result<()> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(SHAPE))?;
    let pair = Pair::new(mongod::shared(), &proxy).await?;
    let [plain, shaped, _] = pair.collections("trades");
    let documents = [
        doc! { "_id": 1, "customerId": 1, "e": [1, 2], "m": 1 },
        doc! { "_id": 2, "customerId": 1 },
    ];
    plain.insert_many(&documents).await?;
    shaped.insert_many(&documents).await?;
    for kind in [
        "textScore",
        "searchScore",
        "randVal",
        "geoNearDistance",
        "geoNearPoint",
        "nope",
    ] {
        let meta = doc! { "$meta": kind };
        for projection in [
            doc! { "m": &meta },
            doc! { "m": &meta, "e": 1 },
            doc! { "m": &meta, "e": 0 },
            doc! { "e.m": &meta, "_id": 0 },
            doc! { "m": &meta, "e": { "$slice": 1 } },
            doc! { "m": &meta, "e": { "$elemMatch": { "$gt": 1 } } },
        ] {
            let expected = answer(&plain, &projection).await;
            assert_eq!(answer(&shaped, &projection).await, expected, "{projection}");
        }
    }
    for kind in ["recordId", "indexKey", "sortKey"] {
        let meta = doc! { "$meta": kind };
        for projection in [doc! { "x": &meta }, doc! { "x": { "$ifNull": [&meta, 1] } }] {
            let refused = Err(Some(NOT_SUPPORTED));
            assert_eq!(answer(&shaped, &projection).await, refused, "{projection}");
        }
    }
    Ok(())
}

/// mongod would return those of pages, or none.
#[tokio::test]
async fn metadata_that_items_do_not_have_are_refused_in_a_pipeline() -> Result<()> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(SHAPE))?;
    let pair = Pair::new(mongod::shared(), &proxy).await?;
    let [plain, shaped, _] = pair.collections("trades");
    let documents = [
        doc! { "_id": 1, "customerId": 1, "q": 2 },
        doc! { "_id": 2, "customerId": 1, "q": 1 },
    ];
    plain.insert_many(&documents).await?;
    shaped.insert_many(&documents).await?;
    for kind in ["recordId", "indexKey", "sortKey"] {
        let meta = doc! { "$meta": kind };
        let sort = doc! { "$sort": { "q": 1 } };
        let set = doc! { "$addFields": { "x": &meta } };
        for stages in [
            vec![doc! { "$match": { "customerId": 1 } }, set.clone()],
            vec![sort.clone(), doc! { "$project": { "x": { "$ifNull": [&meta, 1] } } }],
            vec![doc! { "$group": { "_id": null, "x": { "$push": &meta } } }],
            vec![doc! { "$facet": { "x": [&set] } }],
            vec![doc! { "$lookup": { "from": "trades", "pipeline": [&sort, &set], "as": "x" } }],
        ] {
            let found = shaped.aggregate(stages.clone()).await;
            let code = found.err().and_then(|error| match *error.kind {
                mongodb::error::ErrorKind::Command(error) => Some(error.code),
                _ => None,
            });
            assert_eq!(code, Some(NOT_SUPPORTED), "{stages:?}");
        }
    }
    // Those of the other collection's documents.
    let other = [
        doc! { "$sort": { "q": 1 } },
        doc! { "$set": { "x": { "$meta": "sortKey" } } },
    ];
    let joined = doc! { "$lookup": { "from": "plain", "pipeline": other.as_slice(), "as": "x" } };
    shaped.aggregate([joined]).await?;
    Ok(())
}

/// Conditions on `a` or within it that determine the matched element.
fn telling() -> Vec<Document> {
    let regex = bson::Regex {
        pattern: bson::raw::cstr!("5").into(),
        options: bson::raw::cstr!("").into(),
    };
    vec![
        doc! { "a": 5 },
        doc! { "a": { "$gt": 4 } },
        doc! { "a": { "$lte": 1 } },
        doc! { "a": { "$in": [7, 5, null] } },
        doc! { "a": null },
        doc! { "a": regex },
        doc! { "a": { "$regex": "Y", "$options": "i" } },
        doc! { "a": { "$mod": [2, 1] } },
        doc! { "a": { "$type": "number" } },
        doc! { "a": { "$bitsAllSet": 4 } },
        doc! { "a": { "b": 5 } },
        doc! { "a": { "$elemMatch": { "$gt": 4 } } },
        doc! { "a": { "$elemMatch": { "b": 5 } } },
        doc! { "a": { "$elemMatch": { "b": { "$gt": 4 }, "c": { "$ne": 2 } } } },
        doc! { "a.b": 5 },
        doc! { "a.b": null },
        doc! { "a.b": [5, 7] },
        doc! { "a.b": { "$gt": 4 } },
        doc! { "a.b": { "$size": 2 } },
        doc! { "a.b": { "$exists": true } },
        doc! { "a.b": { "$elemMatch": { "$gt": 5 } } },
        doc! { "a.b.c": 5 },
    ]
}

#[tokio::test]
async fn the_positional_operator_means_the_element_that_matched() -> Result<()> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(SHAPE))?;
    let pair = Pair::new(mongod::shared(), &proxy).await?;
    let [plain, shaped, _] = pair.collections("trades");
    let documents = [
        doc! { "_id": 1, "customerId": 1, "a": [1, 5, 7, 9], "z": [1, 2] },
        doc! { "_id": 2, "customerId": 1, "a": [{ "b": 1 }, { "b": 5, "c": 2 }, { "b": [5, 7], "c": 3 }, { "b": 9 }] },
        doc! { "_id": 3, "customerId": 1, "a": 5 },
        doc! { "_id": 4, "customerId": 1, "a": [] },
        doc! { "_id": 5, "customerId": 1 },
        doc! { "_id": 6, "customerId": 1, "a": null },
        doc! { "_id": 7, "customerId": 2, "a": [null, 5] },
        doc! { "_id": 8, "customerId": 2, "a": [[1, 5], [5], 5], "z": 1 },
        doc! { "_id": 9, "customerId": 2, "a": { "b": [1, 5, 7], "c": 1 } },
        doc! { "_id": 10, "customerId": 2, "a": ["x", "y5"] },
        doc! { "_id": 11, "customerId": 3, "a": { "b": 5 } },
        doc! { "_id": 12, "customerId": 3, "a": [{ "c": 1 }, { "b": [{ "c": 1 }, { "c": 5 }] }, { "b": { "c": [1, 5] } }] },
        doc! { "_id": 13, "customerId": 3, "a": [[{ "b": 5 }], { "b": 5 }] },
    ];
    plain.insert_many(&documents).await?;
    shaped.insert_many(&documents).await?;
    let projections = [
        doc! { "a.$": 1 },
        doc! { "a.$": true, "z": 1, "_id": 0 },
        doc! { "a.$": 1, "copy": "$a" },
        doc! { "a.$": 1, "z": { "$slice": 1 } },
    ];
    for filter in telling() {
        let of_key = doc! { "$and": [&filter, { "customerId": { "$gte": 2 } }], "_id": { "$lt": 12 } };
        for filter in [filter, of_key] {
            for projection in &projections {
                let expected = matching(&plain, filter.clone(), projection).await;
                assert!(expected.is_ok(), "{filter} {projection}: {expected:?}");
                let found = matching(&shaped, filter.clone(), projection).await;
                assert_eq!(found, expected, "{filter} {projection}");
            }
        }
    }
    wrong_or_untold(&plain, &shaped).await;
    Ok(())
}

async fn wrong_or_untold(plain: &Collection<Document>, shaped: &Collection<Document>) {
    let wrong = [
        (doc! { "a": 5 }, doc! { "a.$": 0 }),
        (doc! { "a": 5 }, doc! { "a.$": 1, "z": 0 }),
        (doc! { "a": 5 }, doc! { "a.$": 1, "z.$": 1 }),
        (doc! { "a": 5 }, doc! { "a.$": 1, "z": { "$elemMatch": { "$gt": 1 } } }),
        (doc! { "a": 5 }, doc! { "a.$.b": 1 }),
        (
            doc! { "$expr": { "$eq": ["$customerId", 1] }, "a": 5 },
            doc! { "a.$": 1 },
        ),
        (doc! { "a": 5 }, doc! { "a.$": 1, "a": 1 }),
        (doc! { "a": 5 }, doc! { "a.$": { "$slice": 1 } }),
        (doc! { "a": 5 }, doc! { "$": 1 }),
    ];
    for (filter, projection) in wrong {
        let expected = matching(plain, filter.clone(), &projection).await;
        assert!(expected.is_err(), "{filter} {projection}: {expected:?}");
        let found = matching(shaped, filter.clone(), &projection).await;
        assert_eq!(found, expected, "{filter} {projection}");
    }
    // By the whole array, by none of its elements, or by which of two conditions.
    let untold = [
        doc! {},
        doc! { "a": [1, 5, 7, 9] },
        doc! { "a": { "$ne": 5 } },
        doc! { "a": { "$nin": [5] } },
        doc! { "a": { "$not": { "$gt": 5 } } },
        doc! { "a": { "$size": 2 } },
        doc! { "a": { "$exists": true } },
        doc! { "a": { "$type": "array" } },
        doc! { "a": { "$all": [5, 7] } },
        doc! { "a": { "$gt": 4, "$lt": 8 } },
        doc! { "a": 5, "z": 1 },
        doc! { "a.0": 1 },
        doc! { "$or": [{ "a": 5 }, { "a": 7 }] },
        doc! { "a": { "$elemMatch": { "": 5 } } },
    ];
    for filter in untold {
        let found = matching(shaped, filter.clone(), &doc! { "a.$": 1 }).await;
        assert_eq!(found, Err(Some(NOT_SUPPORTED)), "{filter}");
    }
    for (filter, projection) in [
        (doc! { "a.b": 5 }, doc! { "a.b.$": 1 }),
        // mongod takes the element of another array that has the number of the one that matched.
        (doc! { "a": 5 }, doc! { "z.$": 1 }),
    ] {
        let found = matching(shaped, filter, &projection).await;
        assert_eq!(found, Err(Some(NOT_SUPPORTED)), "{projection}");
    }
}

#[tokio::test]
async fn many_slices_of_long_paths_are_answered_or_refused() -> Result<()> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(SHAPE))?;
    let pair = Pair::new(mongod::shared(), &proxy).await?;
    let [plain, shaped, _] = pair.collections("trades");
    let steps = ["i", "h", "g", "f", "e", "d", "c", "b"];
    let end = doc! { "j0": [1, 2], "j1": 3, "j59": [[4, 5], [6]], "j60": [7, 8] };
    let nested = steps.into_iter().fold(end.clone(), |inner, name| doc! { name: inner });
    let in_arrays = steps.into_iter().fold(end, |inner, name| {
        let other = inner.clone();
        let beside = doc! { "j0": [1, 2] };
        if name == "e" || name == "h" {
            doc! { name: [inner, 5, [other], beside, null] }
        } else {
            doc! { name: inner, "beside": beside }
        }
    });
    let documents = [
        doc! { "_id": 1, "customerId": 1, "a": nested },
        doc! { "_id": 2, "customerId": 1, "a": &in_arrays },
        doc! { "_id": 3, "customerId": 1, "a": [in_arrays, {}, [1]] },
        doc! { "_id": 4, "customerId": 2, "a": { "b": { "c": { "d": 1 } } } },
        doc! { "_id": 5, "customerId": 2, "a": null },
        doc! { "_id": 6, "customerId": 2 },
    ];
    plain.insert_many(&documents).await?;
    shaped.insert_many(&documents).await?;
    let slices = |names: &str, number: usize| -> Document {
        let slice = || Bson::from(doc! { "$slice": 1 });
        (0..number).map(|name| (format!("{names}{name}"), slice())).collect()
    };
    let long = "a.b.c.d.e.f.g.h.i.j";
    for projection in [slices(long, 60), slices("a.b.c.d.e.f.g.h.i", 1), slices("j", 300)] {
        let expected = answer(&plain, &projection).await;
        assert!(expected.is_ok(), "{expected:?}");
        assert_eq!(answer(&shaped, &projection).await, expected);
    }
    let fields: Document = (0..20).map(|name| (format!("f{name}"), Bson::from(1))).collect();
    let mut long_paths = slices("z", 1);
    long_paths.insert("n".repeat(100_000), fields);
    for projection in [slices(long, 1000), slices("j", 901), long_paths] {
        assert_eq!(answer(&shaped, &projection).await, Err(Some(NOT_SUPPORTED)));
    }
    Ok(())
}
