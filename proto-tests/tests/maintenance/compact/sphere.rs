//! Items that a `2dsphere` index does not accept on one page.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, bson, doc};
use proto_tests::{Shape, mongod};

use super::packed::{COLLECTION, Packing};

const PLAIN: &str = "plain";

/// Runs of items with locations of one kind, interrupted by single ones of another kind.
fn location(n: i32) -> Option<Bson> {
    match n % 24 {
        0..6 | 12 => Some(bson!({ "type": "Point", "coordinates": [f64::from(n) / 10.0, 5.0] })),
        6..10 => Some(Bson::Null),
        10 | 13 => Some(bson!([])),
        11 => Some(bson!({})),
        _ => None,
    }
}

fn items(in_array: bool) -> Vec<Document> {
    let item = |n: i32| {
        let at = DateTime::from_millis(1_698_349_623_000 + i64::from(n) * 1000);
        let mut item = doc! { "_id": n, "k": n % 2, "n": n, "at": at };
        let location = location(n / 2);
        if in_array {
            let place = location.map_or_else(|| doc! {}, |location| doc! { "place": location });
            item.insert("stops", vec![doc! { "other": 1 }, place]);
        } else if let Some(location) = location {
            item.insert("place", location);
        }
        item
    };
    (0..240).map(item).collect()
}

fn queries(path: &str) -> Vec<Document> {
    let near = doc! { "$near": { "$geometry": { "type": "Point", "coordinates": [3.0, 4.0] } } };
    let square = bson!({ "type": "Polygon", "coordinates": [[[0, 0], [4, 0], [4, 9], [0, 9], [0, 0]]] });
    let filters = [
        doc! { path: near },
        doc! { path: { "$geoWithin": { "$geometry": square } } },
        doc! { path: Bson::Null },
        doc! { path: bson!([]) },
        doc! { path: bson!({}) },
        doc! {},
    ];
    let query = |(number, filter): (usize, Document)| {
        let mut find = doc! { "find": COLLECTION, "filter": filter, "projection": { "n": 1 } };
        if number > 0 {
            find.insert("sort", doc! { "n": 1 });
        }
        find
    };
    filters.into_iter().enumerate().map(query).collect()
}

/// Fails unless all queries return the same from the plain collection.
fn compare(packing: &mut Packing, path: &str) -> Result<()> {
    for mut query in queries(path) {
        query.insert("$db", &packing.database);
        let shaped = packing.application.all(&query)?;
        query.insert("find", PLAIN);
        let plain = packing.direct.all(&query)?;
        ensure!(shaped == plain, "{query}: {shaped:?} instead of {plain:?}");
    }
    Ok(())
}

#[test]
fn locations_that_an_index_refuses_together_stay_apart() -> Result<()> {
    for path in ["place", "stops.place"] {
        let shape = Shape {
            time: Some("at".to_owned()),
            rename: vec![("place".to_owned(), "p".to_owned())],
            ..Shape::new(&["k"])
        };
        let mut packing = Packing::open(mongod::shared_replica_set(), shape)?;
        let items = items(path != "place");
        let create = doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { path: "2dsphere" }, "name": "geo" }] };
        packing.run(create.clone())?;
        packing.insert(&items)?;
        let mut plain = |mut command: Document| {
            let (verb, _) = command
                .iter()
                .next()
                .unwrap_or_else(|| unreachable!("a command has a name"));
            command.insert(verb.clone(), PLAIN);
            command.insert("$db", &packing.database);
            packing.direct.command_ok(&command)
        };
        plain(create)?;
        plain(doc! { "insert": PLAIN, "documents": &items })?;
        let gone = doc! { "n": { "$not": { "$mod": [3, 0] } } };
        plain(doc! { "delete": PLAIN, "deletes": [{ "q": gone, "limit": 0 }] })?;
        packing.thin(3)?;
        let before = packing.pages()?.len();
        let after = packing.pack()?;
        ensure!(after < before, "{after} of {before}");
        compare(&mut packing, path)?;
        // Each kind can still be inserted behind the last page.
        let more = items.iter().take(60).map(|item| {
            let mut item = item.clone();
            item.insert("_id", 1000 + item.get_i32("n").unwrap_or_default());
            item
        });
        let more: Vec<Document> = more.collect();
        packing.insert(&more)?;
        let insert = doc! { "insert": PLAIN, "documents": &more, "$db": &packing.database };
        packing.direct.command_ok(&insert)?;
        ensure!(packing.pages()?.len() > after, "nothing was inserted");
        let count = doc! { "count": COLLECTION, "query": { path: Bson::Null }, "$db": &packing.database };
        let mut plain_count = count.clone();
        plain_count.insert("count", PLAIN);
        let [shaped, plain] = [
            packing.application.command_ok(&count)?,
            packing.direct.command_ok(&plain_count)?,
        ];
        ensure!(shaped.get_i32("n")? == plain.get_i32("n")?, "{shaped}");
    }
    Ok(())
}
