//! The ids of cursors.

use anyhow::{Result, ensure};
use bson::doc;
use proto_tests::Outlier;
use proto_tests::sides::{COLLECTION, Sides};

use crate::batches::batches;

/// The same documents on both sides. Every third one is an outlier.
fn sides() -> Result<Sides<Outlier>> {
    let mut sides = Sides::open(Outlier::new("tags", (5, 7)))?;
    let document = |id: i32| doc! { "_id": id, "tags": (0..3 + 10 * i32::from(id % 3 == 0)).collect::<Vec<_>>() };
    sides.alike(&doc! { "insert": COLLECTION, "documents": (0..10).map(document).collect::<Vec<_>>() })?;
    Ok(sides)
}

#[test]
fn a_cursor_is_closed_with_the_last_document_of_a_limit() -> Result<()> {
    let mut sides = sides()?;
    let queries = [
        doc! { "filter": { "tags": { "$gte": 0 } } },
        doc! { "filter": { "_id": { "$gte": 0 } }, "projection": { "tags": { "$slice": 2 } } },
        doc! { "filter": { "tags": 1 }, "sort": { "_id": -1 } },
        doc! { "projection": { "_id": 0 } },
        doc! {},
    ];
    for query in queries {
        for more in [
            doc! { "limit": 4, "batchSize": 2 },
            doc! { "limit": 4, "batchSize": 4 },
            doc! { "limit": 4, "batchSize": 0 },
            doc! { "limit": 4, "skip": 3, "batchSize": 0 },
            doc! { "limit": 4 },
            doc! { "limit": 4, "batchSize": 0, "singleBatch": true },
            doc! { "batchSize": 2, "singleBatch": true },
            doc! { "limit": 4, "batchSize": 3, "singleBatch": true },
        ] {
            let mut find = doc! { "find": COLLECTION };
            find.extend(query.clone());
            find.extend(more);
            for sizes in [[2, 2, 2], [1, 3, 3], [4, 1, 1], [1, 1, 9]] {
                find.insert("$db", sides.plain_database());
                let plain = batches(&mut sides.plain, &find, sizes)?;
                find.insert("$db", sides.shaped_database());
                let shaped = batches(&mut sides.shaped, &find, sizes)?;
                ensure!(
                    plain == shaped,
                    "{find} {sizes:?}\n  plain:  {plain:?}\n  shaped: {shaped:?}"
                );
            }
        }
    }
    Ok(())
}
