//! Unsupported commands on a shaped collection are refused with a clear error and change nothing.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::frame::{self, MORE_TO_COME};
use proto_tests::raw::Connection;
use proto_tests::replies::first_code;
use proto_tests::shaped::{COLLECTION, Shaped};

const NOT_SUPPORTED: i32 = 115;
/// mongod's code for a change stream where there are none.
const NO_REPLICA_SET: i32 = 40573;

/// A shaped collection with items, and a plain one beside it.
fn filled() -> Result<Shaped> {
    let shaped = Shaped::start("time = \"at\"")?;
    let items: Vec<_> = (0..25).map(|number| doc! { "_id": number, "k": number % 2 }).collect();
    shaped.application()?.command_ok(&shaped.insert(&items))?;
    shaped
        .direct()?
        .command_ok(&doc! { "insert": "plain", "documents": [{ "_id": 1, "k": 1 }], "$db": &shaped.database })?;
    Ok(shaped)
}

/// Everything that a command could have changed.
fn state(shaped: &Shaped) -> Result<Vec<Document>> {
    let mut direct = shaped.direct()?;
    let mut state = shaped.stored()?;
    let mut collections = direct.all(&doc! { "listCollections": 1, "$db": &shaped.database })?;
    collections.sort_by_key(|collection| collection.get_str("name").unwrap_or_default().to_owned());
    state.extend(collections);
    state.extend(shaped.indexes()?.into_iter().map(|name| doc! { "index": name }));
    state.extend(direct.find(&shaped.database, "plain", doc! {})?);
    state.push(direct.command_ok(&doc! { "profile": -1, "$db": &shaped.database })?);
    Ok(state)
}

/// Sends each command through the proxy, expects the code, and nothing changed.
fn check(shaped: &Shaped, code: i32, commands: &[Document]) -> Result<()> {
    let before = state(shaped)?;
    let mut application = shaped.application()?;
    for command in commands {
        let mut command = command.clone();
        if !command.contains_key("$db") {
            command.insert("$db", shaped.database.as_str());
        }
        let reply = application.command(&command)?;
        ensure!(
            reply.get_i32("code").ok() == Some(code),
            "{command}\nis answered {reply}"
        );
        ensure!(
            reply.get_f64("ok")?.abs() < f64::EPSILON && reply.contains_key("codeName"),
            "{reply}"
        );
        if code == NOT_SUPPORTED {
            let message = reply.get_str("errmsg")?;
            let namespace = format!("{}.{COLLECTION}", shaped.database);
            ensure!(
                message.contains(&namespace) && message.contains("bucket pattern"),
                "{message}"
            );
        }
        ensure!(state(shaped)? == before, "{command}\nchanged something");
    }
    Ok(())
}

#[test]
fn other_commands_on_the_collection_are_not_supported() -> Result<()> {
    let shaped = filled()?;
    let namespace = format!("{}.{COLLECTION}", shaped.database);
    let index = doc! { "key": { "x": 1 }, "name": "x", "unique": true, "sparse": true };
    let (map, reduce) = ("function() {}", "function(a, b) {}");
    let commands = [
        doc! { "update": COLLECTION, "updates": [{ "q": { "$text": { "$search": "x" } }, "u": { "$set": { "x": 1 } } }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "$text": { "$search": "x" } }, "limit": 0 }] },
        doc! { "findAndModify": COLLECTION, "query": { "$text": { "$search": "x" } }, "remove": true },
        doc! { "findandmodify": COLLECTION, "query": { "$text": { "$search": "x" } }, "remove": true },
        // A projection that the proxy does not evaluate is validated behind the filter.
        doc! {
            "findAndModify": COLLECTION, "query": { "place": { "$nearSphere": [1, 2] } }, "remove": true, "fields": { "a.b": 1 },
        },
        doc! { "createIndexes": COLLECTION, "indexes": [index] },
        doc! { "collMod": COLLECTION, "validator": { "$expr": true } },
        doc! { "collMod": COLLECTION, "validator": { "k": 77 } },
        doc! { "validate": COLLECTION, "repair": true },
        doc! { "dataSize": &namespace, "$db": "admin" },
        doc! { "mapReduce": COLLECTION, "map": map, "reduce": reduce, "out": { "inline": 1 } },
        doc! { "mapReduce": "plain", "map": map, "reduce": reduce, "out": COLLECTION },
        doc! { "convertToCapped": COLLECTION, "size": 4096 },
        doc! { "cloneCollectionAsCapped": COLLECTION, "toCollection": "copy", "size": 4096 },
        doc! { "cloneCollectionAsCapped": "plain", "toCollection": COLLECTION, "size": 4096 },
        doc! { "reIndex": COLLECTION },
        doc! { "planCacheClear": COLLECTION, "query": { "k": 1 } },
        doc! { "renameCollection": &namespace, "to": format!("{}.other", shaped.database), "$db": "admin" },
        doc! { "renameCollection": format!("{}.plain", shaped.database), "to": &namespace, "dropTarget": true, "$db": "admin" },
        doc! { "explain": { "mapReduce": COLLECTION, "map": "function() {}", "reduce": "function() {}", "out": { "inline": 1 } } },
        doc! { "create": "view", "viewOn": COLLECTION, "pipeline": [{ "$collStats": {} }] },
        doc! { "create": "view", "viewOn": "plain", "pipeline": [{ "$unionWith": { "coll": COLLECTION, "pipeline": [{ "$indexStats": {} }] } }] },
        doc! { "applyOps": [{ "op": "i", "ns": &namespace, "o": { "_id": 7 } }], "$db": "admin" },
        doc! { "applyOps": [{ "op": "c", "ns": format!("{}.$cmd", shaped.database), "o": { "drop": COLLECTION } }], "$db": "admin" },
    ];
    check(&shaped, NOT_SUPPORTED, &commands)
}

/// A collection may be named in any command among the operations.
#[test]
fn applied_operations_on_the_collection_and_on_views_are_refused() -> Result<()> {
    let shaped = filled()?;
    let named = |collection: &str| format!("{}.{collection}", shaped.database);
    let command = |command: Document| doc! { "op": "c", "ns": named("$cmd"), "o": command };
    let view = doc! { "_id": named("view"), "viewOn": COLLECTION, "pipeline": [] };
    let pipeline = [doc! { "$unionWith": COLLECTION }];
    let operations = [
        command(doc! { "renameCollection": named(COLLECTION), "to": named("other") }),
        command(doc! { "renameCollection": named("plain"), "to": named(COLLECTION), "dropTarget": true }),
        command(doc! { "create": "view", "viewOn": COLLECTION, "pipeline": [] }),
        command(doc! { "create": "view", "viewOn": "plain", "pipeline": &pipeline }),
        command(doc! { "applyOps": [command(doc! { "drop": COLLECTION })] }),
        doc! { "op": "i", "ns": named("system.views"), "o": view },
    ];
    let commands = operations.map(|operation| doc! { "applyOps": [operation], "$db": "admin" });
    check(&shaped, NOT_SUPPORTED, &commands)
}

/// mongod itself refuses direct writes to the definitions of views.
#[test]
fn definitions_of_views_are_not_written() -> Result<()> {
    const VIEWS: &str = "system.views";
    const INVALID_NAMESPACE: i32 = 73;
    let shaped = filled()?;
    let view = doc! { "_id": format!("{}.view", shaped.database), "viewOn": COLLECTION, "pipeline": [] };
    let update = doc! { "q": { "_id": view.get("_id") }, "u": view.clone(), "upsert": true };
    let (mut direct, mut application) = (shaped.direct()?, shaped.application()?);
    for mut command in [
        doc! { "insert": VIEWS, "documents": [view] },
        doc! { "update": VIEWS, "updates": [update] },
        doc! { "delete": VIEWS, "deletes": [{ "q": {}, "limit": 0 }] },
    ] {
        command.insert("$db", &shaped.database);
        for connection in [&mut direct, &mut application] {
            let reply = connection.command(&command)?;
            ensure!(first_code(&reply) == INVALID_NAMESPACE, "{command}: {reply}");
        }
    }
    Ok(())
}

#[test]
fn unsupported_pipeline_stages_are_refused() -> Result<()> {
    let shaped = filled()?;
    let lookup = doc! { "$lookup": { "from": COLLECTION, "localField": "k", "foreignField": "k", "as": "found" } };
    let other = doc! { "db": &shaped.database, "coll": COLLECTION };
    let first = |stage: &str| doc! { "$unionWith": { "coll": COLLECTION, "pipeline": [{ stage: {} }] } };
    let stages = [
        doc! { "$out": COLLECTION },
        doc! { "$out": other.clone() },
        doc! { "$lookup": { "from": other, "pipeline": [], "as": "found" } },
        doc! { "$lookup": { "from": COLLECTION, "pipeline": [{ "$match": { "$text": { "$search": "x" } } }], "as": "found" } },
        first("$collStats"),
        first("$indexStats"),
        first("$planCacheStats"),
        doc! { "$facet": { "one": [{ "$match": {} }], "two": [first("$collStats")] } },
        doc! { "$lookup": { "from": "plain", "pipeline": [first("$collStats")], "as": "found" } },
    ];
    let mut commands = Vec::new();
    for source in ["plain", COLLECTION] {
        let pipelines = stages.iter().map(|stage| [stage.clone()]);
        commands.extend(pipelines.map(|pipeline| doc! { "aggregate": source, "pipeline": &pipeline, "cursor": {} }));
    }
    commands.extend([
        doc! { "explain": { "aggregate": "plain", "pipeline": [lookup.clone()], "cursor": {} } },
        doc! { "aggregate": "plain", "pipeline": [lookup], "explain": true },
    ]);
    check(&shaped, NOT_SUPPORTED, &commands)
}

#[test]
fn bad_arguments_have_mongods_own_codes() -> Result<()> {
    let shaped = filled()?;
    let insert = |extra: Document| {
        let mut command = shaped.insert(&[doc! { "k": 1 }]);
        command.extend(extra);
        command
    };
    let transaction = doc! { "lsid": { "id": bson::Uuid::new() }, "txnNumber": 1_i64 };
    check(
        &shaped,
        72,
        &[doc! { "create": COLLECTION, "capped": true, "size": 4096 }],
    )?;
    check(&shaped, 20, &[insert(transaction)])?;
    check(
        &shaped,
        40415,
        &[
            insert(doc! { "nonsense": 1 }),
            doc! { "find": COLLECTION, "nonsense": 1 },
        ],
    )?;
    check(&shaped, 16, &[doc! { "insert": COLLECTION, "documents": [] }])?;
    check(&shaped, 40414, &[doc! { "insert": COLLECTION }])?;
    check(
        &shaped,
        14,
        &[
            doc! { "insert": COLLECTION, "documents": 1 },
            doc! { "find": COLLECTION, "filter": 1 },
        ],
    )?;
    check(
        &shaped,
        2,
        &[
            doc! { "find": COLLECTION, "tailable": true },
            doc! { "find": COLLECTION, "hint": { "x": 1 } },
        ],
    )?;
    check(
        &shaped,
        2,
        &[doc! { "aggregate": COLLECTION, "pipeline": [], "cursor": {}, "hint": "x_1" }],
    )?;
    check(
        &shaped,
        NOT_SUPPORTED,
        &[
            doc! { "find": COLLECTION, "filter": { "$text": { "$search": "x" } } },
            doc! { "find": COLLECTION, "returnKey": true },
        ],
    )
}

/// The id of a cursor on raw buckets, opened on mongod itself.
fn raw_cursor(direct: &mut Connection, shaped: &Shaped) -> Result<i64> {
    let opened = direct.command_ok(&doc! { "find": COLLECTION, "batchSize": 1, "$db": &shaped.database })?;
    let id = opened.get_document("cursor")?.get_i64("id")?;
    ensure!(id != 0, "{opened}");
    Ok(id)
}

#[test]
fn cursor_on_raw_buckets_is_not_found_and_is_killed_by_mongod() -> Result<()> {
    let shaped = filled()?;
    let mut direct = shaped.direct()?;
    let id = raw_cursor(&mut direct, &shaped)?;
    check(&shaped, 43, &[doc! { "getMore": id, "collection": COLLECTION }])?;
    let killed = doc! { "killCursors": COLLECTION, "cursors": [id], "$db": &shaped.database };
    let reply = shaped.application()?.command_ok(&killed)?;
    // mongod checks the cursor id and the user's privileges, not the collection's name.
    assert_eq!(reply.get_array("cursorsKilled")?, &[Bson::Int64(id)]);
    let more = doc! { "getMore": id, "collection": COLLECTION, "$db": &shaped.database };
    assert_eq!(direct.command(&more)?.get_i32("code")?, 43);
    Ok(())
}

#[test]
fn refusals_of_commands_that_want_no_reply_get_none() -> Result<()> {
    let shaped = filled()?;
    let before = state(&shaped)?;
    let unacknowledged = doc! { "w": 0 };
    let commands = [
        doc! { "update": COLLECTION, "updates": [{ "q": { "$text": { "$search": "x" } }, "u": { "$set": { "x": 1 } } }], "writeConcern": unacknowledged.clone() },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "$text": { "$search": "x" } }, "limit": 0 }], "writeConcern": unacknowledged.clone() },
        doc! { "insert": COLLECTION, "documents": [{ "k": [1] }], "writeConcern": unacknowledged.clone() },
        doc! { "insert": COLLECTION, "documents": [], "writeConcern": unacknowledged },
    ];
    let mut application = shaped.application()?;
    for (request_id, mut command) in (100..).zip(commands) {
        command.insert("$db", shaped.database.as_str());
        application.send(&frame::command(request_id, MORE_TO_COME, &command)?)?;
    }
    application.send(&frame::command(7, 0, &doc! { "ping": 1, "$db": "admin" })?)?;
    assert_eq!(frame::header_field(&application.receive()?, 2), 7);
    assert_eq!(state(&shaped)?, before);
    Ok(())
}

#[test]
fn collection_that_does_not_fit_the_shape_is_neither_read_nor_written() -> Result<()> {
    let german = doc! { "collation": { "locale": "de" } };
    for (what, options) in [
        ("not buckets", doc! {}),
        ("capped", doc! { "capped": true, "size": 4096 }),
        ("collation", german),
    ] {
        let shaped = Shaped::start("")?;
        let mut create = doc! { "create": COLLECTION, "$db": &shaped.database };
        create.extend(options);
        let mut direct = shaped.direct()?;
        direct.command_ok(&create)?;
        direct
            .command_ok(&doc! { "insert": COLLECTION, "documents": [{ "_id": 1, "k": 1 }], "$db": &shaped.database })?;
        direct.command_ok(&doc! { "insert": "plain", "documents": [{ "_id": 1 }], "$db": &shaped.database })?;
        let commands = [
            shaped.insert(&[doc! { "k": 1 }]),
            doc! { "find": COLLECTION },
            doc! { "find": COLLECTION, "filter": { "k": 1 }, "limit": 10 },
            doc! { "count": COLLECTION },
            doc! { "aggregate": COLLECTION, "pipeline": [], "cursor": {} },
            doc! { "distinct": COLLECTION, "key": "k" },
            doc! { "aggregate": "plain", "pipeline": [{ "$unionWith": COLLECTION }], "cursor": {} },
            doc! { "create": "view", "viewOn": COLLECTION, "pipeline": [] },
        ];
        check(&shaped, 72, &commands).context(what)?;
        let mut find = doc! { "find": COLLECTION };
        find.insert("$db", shaped.database.as_str());
        let message = shaped.application()?.command(&find)?.get_str("errmsg")?.to_owned();
        assert!(
            message.contains(&format!("{}.{COLLECTION}", shaped.database)) && message.contains(what),
            "{message}"
        );
    }
    Ok(())
}

/// A change stream on a database or the cluster would return buckets.
#[test]
fn change_streams_that_include_the_collection_are_refused() -> Result<()> {
    let shaped = filled()?;
    let stream = |target: Bson, options: Document, database: &str| {
        doc! {
            "aggregate": target, "pipeline": [{ "$changeStream": options }], "cursor": {}, "$db": database,
        }
    };
    let one = || Bson::Int32(1);
    check(
        &shaped,
        NOT_SUPPORTED,
        &[
            stream(COLLECTION.into(), doc! {}, &shaped.database),
            stream(one(), doc! {}, &shaped.database),
            stream(one(), doc! { "allChangesForCluster": true }, "admin"),
        ],
    )?;
    // Of others they are mongod's to answer; this one is no replica set.
    check(
        &shaped,
        NO_REPLICA_SET,
        &[
            stream("plain".into(), doc! {}, &shaped.database),
            stream(one(), doc! {}, "other"),
        ],
    )
}

#[test]
fn refusals_are_logged_with_their_reason_and_listed_on_the_operators_page() -> Result<()> {
    let shaped = filled()?;
    let mut application = shaped.application()?;
    let watch = doc! {
        "aggregate": COLLECTION, "pipeline": [{ "$changeStream": {} }], "cursor": {}, "$db": &shaped.database,
    };
    for _ in 0..3 {
        application.command(&watch)?;
    }
    let sparse = doc! {
        "createIndexes": COLLECTION, "indexes": [{ "key": { "n": 1 }, "name": "n", "unique": true, "sparse": true }], "$db": &shaped.database,
    };
    application.command(&sparse)?;
    let namespace = format!("{}.{COLLECTION}", shaped.database);
    for (command, reason, count) in [
        ("aggregate", "change_stream", 3.0),
        ("createIndexes", "index", 1.0),
        ("aggregate", "read", 0.0),
    ] {
        let labels = format!("command=\"{command}\",namespace=\"{namespace}\",reason=\"{reason}\"");
        let counted = shaped.proxy.metric(&format!("mongoshape_rejected_total{{{labels}}}"));
        ensure!((counted - count).abs() < 0.5, "{command}, {reason}: {counted}");
    }
    let page = shaped.proxy.admin_get("/")?.body;
    for words in [
        "What was refused",
        "createIndexes",
        "change_stream",
        "sparse",
        "docs/refused-indexes.md",
        namespace.as_str(),
    ] {
        ensure!(page.contains(words), "no {words} in {page}");
    }
    let log = shaped.proxy.log();
    for (command, reason, instead) in [
        ("aggregate", "change_stream", "set `change_streams = true` in the shape"),
        ("createIndexes", "index", "as docs/refused-indexes.md describes"),
    ] {
        let parts = ["refused a command", namespace.as_str(), command, reason, instead];
        let lines = log
            .iter()
            .filter(|line| parts.iter().all(|part| line.text.contains(part)));
        let count = lines.count();
        ensure!(count == 1, "{count} lines of the log at level info have {parts:?}");
    }
    Ok(())
}

#[test]
fn a_user_or_role_may_have_the_name_of_the_collection() -> Result<()> {
    let shaped = filled()?;
    let mut application = shaped.application()?;
    let database = &shaped.database;
    let namespace = format!("{database}.{COLLECTION}");
    for command in [
        doc! { "createRole": COLLECTION, "privileges": [], "roles": [], "$db": database },
        doc! { "createUser": COLLECTION, "pwd": "word", "roles": [COLLECTION], "$db": database },
        doc! { "usersInfo": COLLECTION, "$db": database },
        doc! { "dropUser": COLLECTION, "$db": database },
        doc! { "dropRole": COLLECTION, "$db": database },
        doc! { "createUser": &namespace, "pwd": "word", "roles": [], "$db": "admin" },
        doc! { "dropUser": &namespace, "$db": "admin" },
    ] {
        application.command_ok(&command)?;
    }
    Ok(())
}
