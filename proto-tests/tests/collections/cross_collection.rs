//! Pipelines and views that read a shaped collection, case by case. Random ones are in `differential.rs`.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{ProxyOptions, mongod};

/// The shaped collection's documents again, where no shape is.
const PLAIN: &str = "plain";
const ORDERS: &str = "orders";
const VIEW: &str = "items.mongoshape_items";

fn documents() -> Vec<Document> {
    (0..40)
        .map(|number| {
            let key = if number % 3 == 0 { bson!(1.0) } else { bson!(number % 3) };
            doc! { "_id": number, "k": key, "n": number % 7, "parent": number / 2, "tags": [number % 5, Bson::Null] }
        })
        .chain([
            doc! { "_id": 100 },
            doc! { "_id": 101, "k": Bson::Null, "n": { "x": 1 } },
        ])
        .collect()
}

/// The same documents in a shaped collection and in a plain one, and orders that name them.
fn start_with(options: &ProxyOptions) -> Result<Shaped> {
    let shaped = Shaped::with("max_items = 4", options)?;
    let mut application = shaped.application()?;
    application.command_ok(&shaped.insert(&documents()))?;
    let orders: Vec<_> = (0..10)
        .map(|number| doc! { "_id": number, "item": number * 3, "k": [number, Bson::Null], "n": number })
        .collect();
    for (collection, documents) in [(PLAIN, documents()), (ORDERS, orders)] {
        let insert = doc! { "insert": collection, "documents": documents, "$db": &shaped.database };
        application.command_ok(&insert)?;
    }
    Ok(shaped)
}

fn start() -> Result<Shaped> {
    start_with(&ProxyOptions::new(&mongod::shared().uri()))
}

/// The same of the plain collection.
fn on_plain(value: &Bson) -> Bson {
    match value {
        Bson::String(text) if text == COLLECTION => PLAIN.into(),
        Bson::Document(document) => {
            let fields = document.iter();
            Bson::Document(fields.map(|(name, value)| (name.clone(), on_plain(value))).collect())
        }
        Bson::Array(values) => values.iter().map(on_plain).collect::<Vec<_>>().into(),
        other => other.clone(),
    }
}

fn aggregate(connection: &mut Connection, database: &str, on: &str, stages: &Bson) -> Result<Vec<Document>> {
    connection.all(&doc! { "aggregate": on, "pipeline": stages.clone(), "cursor": { "batchSize": 3 }, "$db": database })
}

fn check(shaped: &Shaped, stages: &Bson) -> Result<()> {
    let mut application = shaped.application()?;
    for source in [ORDERS, COLLECTION] {
        let found = aggregate(&mut application, &shaped.database, source, stages)?;
        let on = on_plain(&source.into());
        let on = on.as_str().context("a name")?;
        let expected = aggregate(&mut application, &shaped.database, on, &on_plain(stages))?;
        ensure!(!expected.is_empty(), "{stages} on {source} finds nothing");
        ensure!(
            texts(&found) == texts(&expected),
            "{stages} on {source}\n{found:?}\ninstead of\n{expected:?}"
        );
    }
    Ok(())
}

/// The documents in no order, their fields and arrays in none either.
fn texts(documents: &[Document]) -> Vec<String> {
    let mut texts: Vec<String> = documents
        .iter()
        .map(|document| text(&document.clone().into()))
        .collect();
    texts.sort();
    texts
}

fn text(value: &Bson) -> String {
    let list = |mut parts: Vec<String>| {
        parts.sort();
        parts.join(", ")
    };
    match value {
        Bson::Document(document) => {
            let fields = document.iter().map(|(name, value)| format!("{name}: {}", text(value)));
            format!("{{{}}}", list(fields.collect()))
        }
        Bson::Array(values) => format!("[{}]", list(values.iter().map(text).collect())),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_lookup_finds_items() -> Result<()> {
    let shaped = start()?;
    for (local, foreign) in [
        ("item", "_id"),
        ("k", "k"),
        ("n", "n"),
        ("k", "tags"),
        ("absent", "k"),
        ("n", "n.x"),
        ("n", "tags.1"),
    ] {
        let stage = doc! { "from": COLLECTION, "localField": local, "foreignField": foreign, "as": "found" };
        check(&shaped, &bson!([{ "$lookup": stage.clone() }]))?;
        let mut with_pipeline = stage;
        with_pipeline.insert("let", doc! { "mongoshape_local": "$n" });
        with_pipeline.insert(
            "pipeline",
            bson!([{ "$match": { "$expr": { "$gte": ["$n", "$$mongoshape_local"] } } }, { "$project": { "n": 1 } }]),
        );
        check(&shaped, &bson!([{ "$lookup": with_pipeline }]))?;
    }
    let correlated = bson!([{ "$match": { "$expr": { "$eq": ["$parent", "$$item"] }, "k": { "$in": [1, 2] } } }]);
    check(
        &shaped,
        &bson!([{ "$lookup": { "from": COLLECTION, "let": { "item": "$n" }, "pipeline": correlated, "as": "found" } }]),
    )
}

#[test]
fn other_stages_find_items() -> Result<()> {
    let shaped = start()?;
    let joined = bson!({ "$lookup": { "from": COLLECTION, "localField": "n", "foreignField": "n", "as": "found" } });
    let graph = bson!({ "$graphLookup": {
        "from": COLLECTION, "startWith": "$_id", "connectFromField": "_id", "connectToField": "parent", "as": "found",
        "maxDepth": 2, "depthField": "depth", "restrictSearchWithMatch": { "n": { "$lt": 5 } },
    } });
    for stages in [
        bson!([{ "$unionWith": COLLECTION }]),
        bson!([{ "$unionWith": { "coll": COLLECTION, "pipeline": [{ "$match": { "k": 2 } }, joined.clone()] } }]),
        bson!([graph.clone()]),
        bson!([{ "$facet": { "one": [joined.clone()], "two": [graph], "three": [{ "$unionWith": COLLECTION }] } }]),
        bson!([{ "$lookup": { "from": ORDERS, "pipeline": [joined], "as": "orders" } }]),
        bson!([{ "$lookup": { "from": COLLECTION, "pipeline": [{ "$documents": [{ "x": 1 }] }, { "$unionWith": COLLECTION }], "as": "x" } }]),
    ] {
        check(&shaped, &stages)?;
    }
    Ok(())
}

#[test]
fn items_view_is_created_on_demand() -> Result<()> {
    let shaped = start()?;
    let names = |shaped: &Shaped| -> Result<Vec<String>> {
        let found = shaped
            .direct()?
            .all(&doc! { "listCollections": 1, "$db": &shaped.database })?;
        Ok(found
            .iter()
            .filter_map(|found| found.get_str("name").ok().map(str::to_owned))
            .collect())
    };
    let lookup = bson!([{ "$lookup": { "from": COLLECTION, "localField": "n", "foreignField": "n", "as": "found" } }]);
    check(&shaped, &lookup)?;
    assert!(!names(&shaped)?.iter().any(|name| name == VIEW));
    let graph = bson!([{ "$graphLookup": {
        "from": COLLECTION, "startWith": "$n", "connectFromField": "n", "connectToField": "n", "as": "found",
    } }]);
    check(&shaped, &graph)?;
    assert!(names(&shaped)?.iter().any(|name| name == VIEW));
    // Somebody's own collection of that name is left alone.
    let mut direct = shaped.direct()?;
    direct.command_ok(&doc! { "drop": VIEW, "$db": &shaped.database })?;
    direct.command_ok(&doc! { "insert": VIEW, "documents": [{ "_id": 1 }], "$db": &shaped.database })?;
    let command = doc! { "aggregate": ORDERS, "pipeline": graph, "cursor": {}, "$db": &shaped.database };
    let reply = shaped.application()?.command(&command)?;
    assert_eq!(reply.get_i32("code")?, 72, "{reply}");
    Ok(())
}

#[test]
fn items_are_written_to_plain_collections() -> Result<()> {
    let shaped = start()?;
    let mut application = shaped.application()?;
    for stage in [doc! { "$out": "copy" }, doc! { "$merge": { "into": "merged" } }] {
        let command = doc! {
            "aggregate": COLLECTION, "pipeline": [{ "$match": { "k": 1 } }, stage], "cursor": {},
            "writeConcern": { "w": 1, "j": true }, "$db": &shaped.database,
        };
        application.command_ok(&command)?;
    }
    let expected = texts(&application.find(&shaped.database, PLAIN, doc! { "k": 1 })?);
    for copy in ["copy", "merged"] {
        assert_eq!(
            texts(&application.find(&shaped.database, copy, doc! {})?),
            expected,
            "{copy}"
        );
    }
    Ok(())
}

#[test]
fn view_shows_items_to_every_reader() -> Result<()> {
    let shaped = start()?;
    let mut application = shaped.application()?;
    let mut run = |mut command: Document| {
        command.insert("$db", shaped.database.as_str());
        application.command(&command)
    };
    let mut direct = shaped.direct()?;
    let stages = bson!([{ "$match": { "k": 1 } }, { "$lookup": { "from": COLLECTION, "localField": "n", "foreignField": "n", "as": "x" } }]);
    for (view, on, stages) in [
        ("shaped_view", COLLECTION, stages.clone()),
        ("plain_view", PLAIN, on_plain(&stages)),
    ] {
        let reply = run(doc! { "create": view, "viewOn": on, "pipeline": stages })?;
        ensure!(reply.get_f64("ok")? > 0.5, "{reply}");
    }
    let read = |direct: &mut Connection, view: &str| direct.find(&shaped.database, view, doc! {});
    assert_eq!(
        texts(&read(&mut direct, "shaped_view")?),
        texts(&read(&mut direct, "plain_view")?)
    );
    // mongod lets a command name half of the definition.
    let reply = run(doc! { "collMod": "shaped_view", "pipeline": [{ "$match": { "k": 2 } }] })?;
    ensure!(reply.get_f64("ok")? > 0.5, "{reply}");
    let expected = direct.find(&shaped.database, PLAIN, doc! { "k": 2 })?;
    assert_eq!(texts(&read(&mut direct, "shaped_view")?), texts(&expected));
    let reply = run(doc! { "collMod": "shaped_view", "viewOn": ORDERS })?;
    assert_eq!(reply.get_i32("code")?, 115, "{reply}");
    let reply = run(doc! { "collMod": "plain_view", "viewOn": COLLECTION })?;
    assert_eq!(reply.get_i32("code")?, 115, "{reply}");
    let reply = run(doc! { "collMod": "shaped_view", "viewOn": ORDERS, "pipeline": [] })?;
    ensure!(reply.get_f64("ok")? > 0.5, "{reply}");
    let orders = direct.find(&shaped.database, ORDERS, doc! {})?;
    assert_eq!(texts(&read(&mut direct, "shaped_view")?), texts(&orders));
    Ok(())
}

#[test]
fn view_in_a_facet_has_no_lookup_by_an_item_field() -> Result<()> {
    let shaped = start()?;
    let mut application = shaped.application()?;
    let by_fields =
        bson!([{ "$lookup": { "from": COLLECTION, "localField": "n", "foreignField": "n", "as": "found" } }]);
    let same_number = bson!([{ "$match": { "$expr": { "$eq": ["$n", "$$number"] } } }]);
    let by_pipeline = bson!([{ "$lookup": {
        "from": COLLECTION, "let": { "number": "$n" }, "pipeline": same_number, "as": "found",
    } }]);
    for (name, stages, works_in_facet) in [("fields", by_fields, false), ("pipeline", by_pipeline, true)] {
        let (view, plain) = (format!("view_{name}"), format!("plain_{name}"));
        for (view, stages) in [(&view, &stages), (&plain, &on_plain(&stages))] {
            let create = doc! { "create": view, "viewOn": ORDERS, "pipeline": stages, "$db": &shaped.database };
            application.command_ok(&create)?;
        }
        let outside = |view: &str| bson!([{ "$unionWith": view }]);
        let inside = |view: &str| bson!([{ "$facet": { "one": [{ "$unionWith": view }] } }]);
        let mut read = |stages: Bson| aggregate(&mut application, &shaped.database, ORDERS, &stages);
        assert_eq!(texts(&read(outside(&view))?), texts(&read(outside(&plain))?), "{name}");
        if works_in_facet {
            assert_eq!(texts(&read(inside(&view))?), texts(&read(inside(&plain))?), "{name}");
        } else {
            // As documented: the view has `$documents`, which mongod does not run there.
            let read = doc! { "aggregate": ORDERS, "pipeline": inside(&view), "cursor": {}, "$db": &shaped.database };
            let reply = application.command(&read)?;
            assert_eq!(reply.get_i32("code")?, 40600, "{reply}");
        }
    }
    Ok(())
}

#[test]
fn transaction_reads_its_own_writes_in_a_lookup() -> Result<()> {
    let shaped = start_with(&ProxyOptions::new(&mongod::shared_replica_set().uri()))?;
    let mut application = shaped.application()?;
    let session = lsid(&shaped.database);
    let mut number = 0_i64;
    let mut run = |commands: &[Document]| -> Result<Vec<Document>> {
        number += 1;
        let mut replies = Vec::new();
        for (position, command) in commands.iter().enumerate() {
            let mut command = command.clone();
            command.extend(
                doc! { "$db": &shaped.database, "lsid": session.clone(), "txnNumber": number, "autocommit": false },
            );
            if position == 0 {
                command.insert("startTransaction", true);
            }
            replies.push(application.command(&command)?);
        }
        let abort = doc! { "abortTransaction": 1, "$db": "admin", "lsid": session.clone(), "txnNumber": number, "autocommit": false };
        application.command(&abort)?;
        Ok(replies)
    };
    let insert = doc! { "insert": COLLECTION, "documents": [{ "_id": 500, "k": 9, "n": 1000 }] };
    let reach = |stage: Document| doc! { "aggregate": ORDERS, "pipeline": [{ "$limit": 1 }, stage, { "$unwind": "$found" }], "cursor": {} };
    let lookup =
        reach(doc! { "$lookup": { "from": COLLECTION, "pipeline": [{ "$match": { "n": 1000 } }], "as": "found" } });
    let distinct = doc! { "distinct": COLLECTION, "key": "n", "query": { "k": 9 } };
    let replies = run(&[insert, lookup, distinct])?;
    let found = replies[1].get_document("cursor")?.get_array("firstBatch")?;
    assert_eq!(found.len(), 1, "{replies:?}");
    assert_eq!(replies[2].get_array("values")?, &[Bson::Int32(1000)]);
    let graph = reach(doc! { "$graphLookup": {
        "from": COLLECTION, "startWith": "$n", "connectFromField": "n", "connectToField": "n", "as": "found",
    } });
    let replies = run(std::slice::from_ref(&graph))?;
    assert_eq!(replies[0].get_i32("code")?, 115, "{replies:?}");
    let mut outside = graph.clone();
    outside.insert("$db", shaped.database.as_str());
    shaped.application()?.command_ok(&outside)?;
    let replies = run(&[graph])?;
    ensure!(replies[0].get_f64("ok")? > 0.5, "{replies:?}");
    Ok(())
}

#[test]
fn distinct_returns_only_keys_of_existing_items() -> Result<()> {
    let shaped = Shaped::start("max_items = 2")?;
    let mut application = shaped.application()?;
    let items: Vec<_> = (0..5).map(|number| doc! { "_id": number, "k": 5.0 }).collect();
    application.command_ok(&shaped.insert(&items))?;
    application.command_ok(&shaped.insert(&[doc! { "_id": 7 }]))?;
    let distinct = doc! { "distinct": COLLECTION, "key": "k", "$db": &shaped.database };
    let reply = application.command_ok(&distinct)?;
    assert_eq!(reply.get_array("values")?, &[Bson::Double(5.0)]);
    application.command_ok(&shaped.insert(&[doc! { "_id": 8, "k": Bson::Null }]))?;
    let reply = application.command_ok(&distinct)?;
    assert_eq!(reply.get_array("values")?, &[Bson::Null, Bson::Double(5.0)]);
    let group = bson!([{ "$group": { "_id": "$k", "n": { "$sum": 1 } } }, { "$sort": { "_id": 1 } }]);
    let counted = aggregate(&mut application, &shaped.database, COLLECTION, &group)?;
    assert_eq!(
        counted,
        [doc! { "_id": Bson::Null, "n": 2 }, doc! { "_id": 5.0, "n": 5 }]
    );
    Ok(())
}

#[test]
fn more_values_than_a_reply_holds_are_an_error() -> Result<()> {
    let shaped = Shaped::start("")?;
    let mut application = shaped.application()?;
    let distinct = doc! { "distinct": COLLECTION, "key": "text", "$db": &shaped.database };
    let fill = |number: i32| doc! { "k": number, "text": format!("{number}{}", "x".repeat(1 << 20)) };
    for number in 0..15 {
        application.command_ok(&shaped.insert(&[fill(number)]))?;
    }
    assert_eq!(application.command_ok(&distinct)?.get_array("values")?.len(), 15);
    application.command_ok(&shaped.insert(&[fill(15), fill(16)]))?;
    let reply = application.command(&distinct)?;
    assert_eq!(reply.get_i32("code")?, 17217, "{}", reply.get_str("errmsg")?);
    Ok(())
}

/// Errors about indexes are translated for queries by distance only.
#[test]
fn missing_text_index_of_another_collection_has_mongods_error() -> Result<()> {
    let shaped = start()?;
    let mut application = shaped.application()?;
    let searched = bson!([{ "$match": { "$text": { "$search": "a" } } }]);
    let stages = bson!([{ "$match": { "k": 1 } }, { "$unionWith": { "coll": ORDERS, "pipeline": searched } }]);
    let mut refused = |on: &str| {
        let aggregate = doc! { "aggregate": on, "pipeline": &stages, "cursor": {}, "$db": &shaped.database };
        application.command(&aggregate)
    };
    let (found, expected) = (refused(COLLECTION)?, refused(PLAIN)?);
    assert_eq!(expected.get_i32("code")?, 27, "{expected}");
    assert_eq!(
        (found.get_i32("code")?, found.get_str("errmsg")?),
        (expected.get_i32("code")?, expected.get_str("errmsg")?)
    );
    Ok(())
}
