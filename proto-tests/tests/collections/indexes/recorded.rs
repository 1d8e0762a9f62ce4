//! Sparse, partial and wildcard indexes, and indexes with a collation.

use anyhow::{Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::measure::rows;
use proto_tests::shaped::COLLECTION;

use super::{Compared, Comparison, NOT_SUPPORTED, spec, with};

/// One index of each kind, and several with the same key.
fn specs() -> Vec<Document> {
    let partial =
        doc! { "partialFilterExpression": { "a": { "$gt": 0 }, "$or": [{ "tags": "x" }, { "b": { "$in": [1, 2] } }] } };
    vec![
        with(spec(doc! { "quantity": 1 }, "sparse"), doc! { "sparse": true }),
        with(
            spec(doc! { "k": 1, "at": -1 }, "key"),
            doc! { "hidden": true, "sparse": true },
        ),
        with(spec(doc! { "quantity": 1, "a": 1 }, "partial"), partial),
        with(
            spec(doc! { "quantity": 1 }, "all"),
            doc! { "partialFilterExpression": {} },
        ),
        with(spec(doc! { "tags": 1 }, "de"), doc! { "collation": { "locale": "de" } }),
        with(
            spec(doc! { "tags": 1 }, "fr"),
            doc! { "collation": { "locale": "fr_CA", "strength": 2 } },
        ),
        with(
            spec(doc! { "tags": 1 }, "both"),
            doc! { "sparse": true, "collation": { "locale": "de" } },
        ),
        spec(doc! { "tags": 1 }, "simple"),
        spec(doc! { "$**": 1 }, "wild"),
        with(
            spec(doc! { "$**": 1 }, "some"),
            doc! { "wildcardProjection": { "a": 1, "_id": 0 } },
        ),
        spec(doc! { "quantity.$**": 1 }, "under"),
    ]
}

#[test]
fn they_are_listed_hidden_and_dropped_as_on_a_plain_collection() -> Result<()> {
    for filled in [true, false] {
        let mut sides = if filled {
            Comparison::filled()?
        } else {
            Comparison::start()?
        };
        for spec in specs() {
            sides.create(std::slice::from_ref(&spec), Compared::Whole)?;
            sides.list()?;
            sides.create(&[spec], Compared::Whole)?;
        }
        sides.create(&specs(), Compared::Whole)?;
        for name in ["sparse", "key", "partial", "de", "wild"] {
            for hidden in [true, false] {
                let index = doc! { "name": name, "hidden": hidden };
                sides.same(&doc! { "collMod": COLLECTION, "index": index }, Compared::Whole)?;
                sides.list()?;
            }
        }
        let by_key = doc! { "keyPattern": { "tags": 1 }, "hidden": true };
        // mongod's text names two of the indexes.
        sides.same(&doc! { "collMod": COLLECTION, "index": by_key }, Compared::Code)?;
        for ambiguous in [doc! { "tags": 1 }, doc! { "$**": 1 }] {
            sides.same(&doc! { "dropIndexes": COLLECTION, "index": ambiguous }, Compared::Code)?;
        }
        for dropped in [
            bson!("some"),
            bson!({ "$**": 1 }),
            bson!(["sparse", "de"]),
            bson!({ "quantity": 1 }),
            bson!({ "k": 1, "at": -1 }),
        ] {
            sides.same(&doc! { "dropIndexes": COLLECTION, "index": dropped }, Compared::Whole)?;
            sides.list()?;
        }
        sides.same(&doc! { "dropIndexes": COLLECTION, "index": "*" }, Compared::Whole)?;
        sides.list()?;
        ensure!(!sides.stored()?.to_string().contains("recorded"), "a record is left");
    }
    Ok(())
}

#[test]
fn conflicts_and_mistakes_are_those_of_mongod() -> Result<()> {
    let mut sides = Comparison::filled()?;
    sides.create(&specs(), Compared::Whole)?;
    for other in [
        spec(doc! { "quantity": 1 }, "sparse"),
        with(spec(doc! { "quantity": 1.0 }, "sparse"), doc! { "sparse": true }),
        with(spec(doc! { "quantity": 1 }, "new"), doc! { "sparse": true }),
        with(
            spec(doc! { "quantity": 1 }, "all"),
            doc! { "partialFilterExpression": { "a": 1 } },
        ),
        with(
            spec(doc! { "quantity": 1 }, "new"),
            doc! { "partialFilterExpression": {} },
        ),
        with(
            spec(doc! { "tags": 1 }, "de"),
            doc! { "collation": { "locale": "de", "strength": 1 } },
        ),
        with(
            spec(doc! { "tags": 1 }, "new"),
            doc! { "collation": { "locale": "de", "strength": 3 } },
        ),
        with(
            spec(doc! { "$**": 1 }, "new"),
            doc! { "wildcardProjection": { "a": true } },
        ),
        with(
            spec(doc! { "$**": 1 }, "wild"),
            doc! { "wildcardProjection": { "b": 1 } },
        ),
        with(
            spec(doc! { "z": 1 }, "z"),
            doc! { "sparse": true, "partialFilterExpression": {} },
        ),
        with(
            spec(doc! { "z": 1 }, "z"),
            doc! { "partialFilterExpression": { "a": { "$not": { "$gt": 1 } } } },
        ),
        with(
            spec(doc! { "z": 1 }, "z"),
            doc! { "partialFilterExpression": { "a": { "$elemMatch": { "b": 1 } } } },
        ),
        with(spec(doc! { "z": 1 }, "z"), doc! { "partialFilterExpression": 3 }),
        with(spec(doc! { "z": 1 }, "z"), doc! { "collation": { "locale": "xx" } }),
        with(
            spec(doc! { "z": 1 }, "z"),
            doc! { "collation": { "locale": "de", "foo": 1 } },
        ),
        with(spec(doc! { "z": 1 }, "z"), doc! { "wildcardProjection": { "b": 1 } }),
        with(spec(doc! { "$**": 1 }, "z"), doc! { "sparse": true }),
        with(spec(doc! { "$**": 1 }, "z"), doc! { "unique": true }),
        with(spec(doc! { "$**": 1 }, "z"), doc! { "expireAfterSeconds": 5 }),
        spec(doc! { "$**": -1 }, "z"),
        spec(doc! { "$**": 1, "z": 1 }, "z"),
        with(spec(doc! { "_id": 1 }, "z"), doc! { "sparse": true }),
        with(spec(doc! { "_id": 1 }, "z"), doc! { "collation": { "locale": "de" } }),
    ] {
        sides.create(&[other], Compared::Whole)?;
        sides.list()?;
    }
    Ok(())
}

#[test]
fn other_options_of_an_existing_geospatial_index_are_a_conflict() -> Result<()> {
    let mut sides = Comparison::filled()?;
    let place = |name: &str, options: Document| with(spec(doc! { "place": "2d" }, name), options);
    sides.create(&[place("place", doc! {})], Compared::Whole)?;
    for options in [
        doc! {},
        doc! { "bits": 20 },
        doc! { "min": -90, "max": 90 },
        doc! { "max": 180.0 },
    ] {
        for name in ["place", "other"] {
            sides.create(&[place(name, options.clone())], Compared::Code)?;
            sides.list()?;
        }
    }
    Ok(())
}

/// mongod's code for a hint that several indexes satisfy.
const INDEX_NOT_FOUND: i32 = 27;

#[test]
fn what_may_leave_items_out_is_refused() -> Result<()> {
    let mut sides = Comparison::filled()?;
    sides.create(&specs(), Compared::Whole)?;
    let hinted = |hint: Bson| {
        [
            doc! { "find": COLLECTION, "hint": &hint, "sort": { "quantity": 1 } },
            doc! { "count": COLLECTION, "hint": &hint },
            doc! { "aggregate": COLLECTION, "pipeline": [], "cursor": {}, "hint": &hint },
            doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0, "hint": &hint }] },
        ]
    };
    for hint in ["sparse", "partial", "all", "both", "wild"] {
        for command in hinted(hint.into()) {
            sides.refused(&command, NOT_SUPPORTED, "a hint of a")?;
        }
    }
    // Several indexes have this key pattern.
    for command in hinted(bson!({ "tags": 1 })) {
        let codes = sides.run(&command)?.map(|reply| {
            let errors = reply.get_array("writeErrors").map(Vec::as_slice).unwrap_or_default();
            let error = errors.first().and_then(Bson::as_document).unwrap_or(&reply);
            error.get_i32("code").ok()
        });
        ensure!(codes == [Some(INDEX_NOT_FOUND); 2], "{command}: {codes:?}");
    }
    let hidden = doc! { "find": COLLECTION, "hint": "key" };
    sides.same(&hidden, Compared::Code)?;
    let sorted = doc! { "find": COLLECTION, "hint": "de", "sort": { "_id": 1 } };
    sides.same(&sorted, Compared::Code)?;
    let expiry = doc! { "collMod": COLLECTION, "index": { "name": "all", "expireAfterSeconds": 5 } };
    sides.refused(&expiry, NOT_SUPPORTED, "a partial index with expireAfterSeconds")?;
    let expiring = with(
        spec(doc! { "at": 1 }, "at"),
        doc! { "partialFilterExpression": { "a": 1 }, "expireAfterSeconds": 5 },
    );
    let create = doc! { "createIndexes": COLLECTION, "indexes": [expiring] };
    sides.refused(&create, NOT_SUPPORTED, "a partial index with expireAfterSeconds")?;
    for option in [
        doc! { "sparse": true },
        doc! { "partialFilterExpression": { "a": 1 } },
        doc! { "collation": { "locale": "de" } },
    ] {
        let unique = with(with(spec(doc! { "u": 1 }, "u"), doc! { "unique": true }), option);
        let create = doc! { "createIndexes": COLLECTION, "indexes": [unique] };
        sides.refused(&create, NOT_SUPPORTED, "unique index")?;
    }
    Ok(())
}

/// Each query with each index alone, and with all of them. An ordinary run takes every third query of each.
#[test]
fn they_change_no_answer() -> Result<()> {
    let mut sides = Comparison::filled()?;
    let more: Vec<Document> = (10..60)
        .map(|number| {
            let mut item = doc! { "_id": number, "k": number % 3, "at": bson::DateTime::from_millis(number) };
            match number % 5 {
                0 => {}
                1 => drop(item.insert("quantity", bson::Bson::Null)),
                2 => drop(item.insert("quantity", format!("q{}", number % 4))),
                3 => drop(item.insert("quantity", vec![number, 70])),
                _ => drop(item.insert("quantity", number)),
            }
            if number % 2 == 0 {
                item.insert(
                    "tags",
                    ["Äpfel", "apfel", "Zebra", "x"][usize::try_from(number).unwrap_or(0) / 2 % 4],
                );
            }
            item
        })
        .collect();
    sides.same(&doc! { "insert": COLLECTION, "documents": more }, Compared::Whole)?;
    let filters = [
        doc! { "quantity": 21 },
        doc! { "quantity": { "$gt": 3, "$lt": 40 } },
        doc! { "quantity": null },
        doc! { "quantity": { "$exists": false } },
        doc! { "quantity": { "$exists": true } },
        doc! { "a": { "$gt": 0 }, "tags": "x", "quantity": 4 },
        doc! { "tags": "apfel" },
        doc! { "tags": { "$gte": "apfel" }, "k": 1 },
    ];
    let mut queries = Vec::new();
    for filter in &filters {
        queries.push(doc! { "find": COLLECTION, "filter": filter, "sort": { "_id": 1 }, "batchSize": 100 });
        queries.push(doc! { "find": COLLECTION, "filter": filter, "sort": { "quantity": 1, "_id": 1 }, "limit": 5 });
        queries.push(
            doc! { "find": COLLECTION, "filter": filter, "sort": { "tags": -1, "_id": 1 }, "limit": 7,
            "collation": { "locale": "de" } },
        );
        queries.push(doc! { "count": COLLECTION, "query": filter });
        queries.push(doc! { "count": COLLECTION, "query": filter, "collation": { "locale": "de", "strength": 1 } });
    }
    // Items that tie have the same value. Without a filter, an index in this order is scanned.
    for limit in [1, 8] {
        queries.push(doc! { "find": COLLECTION, "sort": { "quantity": -1 }, "limit": limit, "projection": { "quantity": 1, "_id": 0 } });
    }
    let mut sets: Vec<Vec<Document>> = specs().into_iter().map(|spec| vec![spec]).collect();
    sets.push(specs());
    for (number, set) in sets.into_iter().enumerate() {
        sides.create(&set, Compared::Whole)?;
        for query in rows(&queries, 3, number) {
            sides.same(query, Compared::Whole)?;
        }
        sides.same(&doc! { "dropIndexes": COLLECTION, "index": "*" }, Compared::Whole)?;
    }
    Ok(())
}

#[test]
fn queries_use_their_entries() -> Result<()> {
    let mut sides = Comparison::filled()?;
    for (index, find) in [
        (
            specs().swap_remove(0),
            doc! { "find": COLLECTION, "filter": { "quantity": 22 } },
        ),
        (
            specs().swap_remove(2),
            doc! { "find": COLLECTION, "filter": { "quantity": 22 } },
        ),
        (
            specs().swap_remove(4),
            doc! { "find": COLLECTION, "filter": { "tags": "zebra" }, "collation": { "locale": "de" } },
        ),
    ] {
        sides.create(std::slice::from_ref(&index), Compared::Whole)?;
        let explained = doc! { "explain": find, "verbosity": "queryPlanner" };
        let [_, explained] = sides.run(&explained)?;
        let name = format!("\"indexName\": \"{}\"", index.get_str("name")?);
        ensure!(
            explained.to_string().contains(&name),
            "{index} is not used: {explained}"
        );
        sides.same(&doc! { "dropIndexes": COLLECTION, "index": "*" }, Compared::Whole)?;
    }
    Ok(())
}
