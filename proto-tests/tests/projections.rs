//! The forms of a projection that `find` has and an aggregation has not.

use anyhow::Result;
use bson::{Bson, Document, doc};
use mongodb::Collection;
use proto_tests::{Pair, Proxy, ProxyOptions, mongod};

const SHAPE: &str = r#"
[[bucket]]
namespace = "*.trades"
key = "customerId"
"#;

async fn answer(collection: &Collection<Document>, projection: &Document) -> Result<Vec<Document>, Option<i32>> {
    let code = |error: mongodb::error::Error| match *error.kind {
        mongodb::error::ErrorKind::Command(error) => Some(error.code),
        _ => None,
    };
    // `_id` orders the answers also where it is left out of them.
    let mut cursor = collection
        .find(doc! {})
        .sort(doc! { "_id": 1 })
        .projection(projection.clone())
        .await
        .map_err(code)?;
    let mut documents = Vec::new();
    while cursor.advance().await.map_err(code)? {
        let document: Document = cursor.deserialize_current().map_err(code)?;
        // The order of fields is not significant.
        let mut fields: Vec<(String, Bson)> = document.into_iter().collect();
        fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        documents.push(fields.into_iter().collect());
    }
    Ok(documents)
}

#[tokio::test]
async fn slice_and_elem_match_are_those_of_find() -> Result<()> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(SHAPE))?;
    let pair = Pair::new(mongod::shared(), &proxy).await?;
    let [naive, shaped, _] = pair.collections("trades");
    let documents = [
        doc! { "_id": 1, "customerId": 1, "e": [1, 5, 7, { "x": 3 }, [1, 2]] },
        doc! { "_id": 2, "customerId": 1 },
        doc! { "_id": 3, "customerId": 1, "e": 5 },
        doc! { "_id": 4, "customerId": 1, "e": [], "q": { "e": [1, 2] } },
        doc! { "_id": 5, "customerId": 2, "e": [{ "x": 1 }, { "x": 2, "y": [1] }], "z": 1 },
    ];
    naive.insert_many(&documents).await?;
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
    ];
    for projection in projections {
        assert_eq!(
            answer(&shaped, &projection).await,
            answer(&naive, &projection).await,
            "{projection}"
        );
    }
    Ok(())
}
