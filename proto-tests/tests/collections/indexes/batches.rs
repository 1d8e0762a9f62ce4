//! Cursors of `listIndexes`.

use anyhow::{Result, ensure};
use bson::{Document, bson, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::shaped::COLLECTION;

use super::{Compared, Comparison, comparable, spec, with};

#[test]
fn batches_of_indexes_have_the_requested_size() -> Result<()> {
    let mut sides = Comparison::filled()?;
    let specs: Vec<_> = ["a", "b", "quantity", "d"]
        .into_iter()
        .map(|field| spec(doc! { field: 1 }, field))
        .collect();
    sides.create(&specs, Compared::Whole)?;
    for cursor in [
        bson!({}),
        bson!({ "batchSize": 0 }),
        bson!({ "batchSize": 1 }),
        bson!({ "batchSize": 1.5 }),
        bson!({ "batchSize": 4_i64 }),
        bson!({ "batchSize": 5 }),
        bson!({ "batchSize": 6 }),
        bson!({ "batchSize": null }),
        bson!(null),
        bson!(1),
        bson!({ "batchSize": -1 }),
        bson!({ "batchSize": "x" }),
        bson!({ "zip": 1 }),
        bson!({ "batchSize": 1, "zip": 1 }),
    ] {
        for size in [None, Some(0), Some(1), Some(2), Some(100)] {
            batches(&mut sides, &doc! { "listIndexes": COLLECTION, "cursor": &cursor }, size)?;
        }
    }
    for extra in [
        doc! { "zip": 1 },
        doc! { "includeBuildUUIDs": true },
        doc! { "includeBuildUUIDs": "x" },
        doc! { "includeIndexBuildInfo": true },
        doc! { "writeConcern": { "w": 1 } },
        doc! { "readConcern": { "level": "majority" } },
        doc! { "comment": "x", "maxTimeMS": 10_000 },
        doc! { "apiVersion": "1", "apiStrict": true },
        doc! { "apiVersion": "1", "apiStrict": true, "includeBuildUUIDs": true },
    ] {
        sides.same(&with(doc! { "listIndexes": COLLECTION }, extra), Compared::Whole)?;
    }
    // A cursor that is abandoned, used in another session, and killed.
    let list = doc! { "listIndexes": COLLECTION, "cursor": { "batchSize": 1 } };
    for misuse in [
        doc! { "lsid": lsid("other") },
        doc! { "maxTimeMS": 1000 },
        doc! { "batchSize": -1 },
        doc! { "collection": "else" },
    ] {
        let [plain, shaped] = sides.run(&list)?;
        let answer = |connection: &mut Connection, opened: &Document, database: &str| -> Result<[Document; 3]> {
            let id = opened.get_document("cursor")?.get_i64("id")?;
            let more = |extra: &Document| {
                let mut more = doc! { "getMore": id, "collection": COLLECTION, "$db": database };
                more.extend(extra.clone());
                more
            };
            let wrong = connection.command(&more(&misuse))?;
            let rest = connection.command(&more(&doc! { "batchSize": 1 }))?;
            let killed = connection.command(&doc! { "killCursors": COLLECTION, "cursors": [id], "$db": database })?;
            Ok([wrong, rest, killed])
        };
        let database = sides.shaped.database.clone();
        let plain = answer(&mut sides.direct, &plain, &format!("{database}_plain"))?;
        let shaped = answer(&mut sides.application, &shaped, &database)?;
        // A getMore on another collection does not read the proxy's cursors: it is relayed, and mongod has no
        // such cursor.
        let first = usize::from(misuse.contains_key("collection"));
        for (plain, shaped) in plain.iter().zip(&shaped).skip(first) {
            assert_eq!(plain.get("code"), shaped.get("code"), "{misuse}: {plain} {shaped}");
        }
        let count = |reply: &Document| reply.get_array("cursorsKilled").map_or(0, Vec::len);
        assert_eq!(count(&plain[2]), count(&shaped[2]), "{misuse}");
    }
    Ok(())
}

/// Reads to the end on both sides, and compares each batch.
fn batches(sides: &mut Comparison, list: &Document, size: Option<i32>) -> Result<()> {
    let mut replies = sides.run(list)?;
    loop {
        let mut ids = [0, 0];
        for (id, reply) in ids.iter_mut().zip(&mut replies) {
            if let Ok(cursor) = reply.get_document_mut("cursor") {
                *id = cursor.get_i64("id")?;
                cursor.insert("id", i64::from(*id != 0));
            }
        }
        ensure!(
            replies[0] == replies[1],
            "{list} {size:?}\n{}\n{}",
            replies[0],
            replies[1]
        );
        if ids[0] == 0 {
            return Ok(());
        }
        let database = sides.shaped.database.clone();
        let more = |id: i64, database: &str| {
            let mut more = doc! { "getMore": id, "collection": COLLECTION, "$db": database };
            more.extend(size.map(|size| ("batchSize".to_owned(), size.into())));
            more
        };
        let plain = format!("{database}_plain");
        replies = [
            sides.direct.command(&more(ids[0], &plain))?,
            sides.application.command(&more(ids[1], &database))?,
        ];
        for reply in &mut replies {
            reply.remove("$clusterTime");
            reply.remove("operationTime");
            *reply = comparable(reply, &plain, &database);
        }
    }
}
