//! `explain` of writes: it fails where mongod's does, and changes nothing.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::shaped::{COLLECTION, Shaped};

/// The same documents where no shape is.
const PLAIN: &str = "plain";

fn writes(collection: &str) -> Vec<Document> {
    let update = |statement: Document| doc! { "update": collection, "updates": [statement] };
    let delete = |statement: Document| doc! { "delete": collection, "deletes": [statement] };
    let modify = |options: Document| {
        let mut command = doc! { "findAndModify": collection };
        command.extend(options);
        command
    };
    let set = doc! { "$set": { "n": 5 } };
    let with_let = doc! { "update": collection, "updates": [{ "q": { "$expr": { "$eq": ["$n", "$$x"] } }, "u": set.clone() }], "let": { "x": 1 } };
    vec![
        update(doc! { "q": { "k": 1 }, "u": set.clone(), "multi": true }),
        update(doc! { "q": { "_id": 1 }, "u": set.clone() }),
        update(doc! { "q": { "n": { "$gt": 1 } }, "u": { "n": 7, "k": 1 }, "upsert": true }),
        update(doc! { "q": { "n": 1 }, "u": [{ "$set": { "n": "$$c" } }], "c": { "c": 1 } }),
        update(doc! { "q": { "n": 1 }, "u": set.clone(), "hint": "_id_", "collation": { "locale": "de" } }),
        with_let,
        delete(doc! { "q": { "k": 1 }, "limit": 0 }),
        delete(doc! { "q": {}, "limit": 1 }),
        modify(doc! { "query": { "k": 1 }, "update": set.clone(), "sort": { "n": -1 }, "new": true }),
        modify(doc! { "query": { "n": 1 }, "remove": true }),
        modify(doc! { "remove": true }),
        // Mistakes.
        doc! { "update": collection, "updates": [{ "q": {}, "u": set.clone() }, { "q": {}, "u": set.clone() }] },
        doc! { "update": collection, "updates": [] },
        update(doc! { "q": { "n": 1 }, "u": { "$nope": { "n": 5 } } }),
        update(doc! { "q": { "n": { "$nope": 1 } }, "u": set.clone() }),
        update(doc! { "q": { "n": 1 }, "u": set.clone(), "hint": "nope" }),
        update(doc! { "q": { "n": 1 }, "u": set.clone(), "nope": 1 }),
        update(doc! { "q": { "n": 1 }, "u": 1 }),
        delete(doc! { "q": { "n": { "$nope": 1 } }, "limit": 1 }),
        delete(doc! { "q": {}, "limit": 1, "nope": 1 }),
        modify(doc! { "query": {}, "update": set, "remove": true }),
        modify(doc! { "query": {} }),
    ]
}

#[test]
fn explained_writes_fail_as_in_mongod_and_change_nothing() -> Result<()> {
    let shaped = Shaped::start("max_items = 5")?;
    let mut application = shaped.application()?;
    let documents: Vec<Document> = (0..12).map(|n| doc! { "_id": n, "k": n % 3, "n": n }).collect();
    application.command_ok(&shaped.insert(&documents))?;
    application.command_ok(&doc! { "insert": PLAIN, "documents": documents.clone(), "$db": &shaped.database })?;
    let before = shaped.stored()?;
    for verbosity in ["queryPlanner", "executionStats"] {
        for (write, plain) in writes(COLLECTION).into_iter().zip(writes(PLAIN)) {
            let mut explain = |write: Document| {
                application.command(&doc! { "explain": write, "verbosity": verbosity, "$db": &shaped.database })
            };
            let (reply, expected) = (explain(write.clone())?, explain(plain)?);
            let codes = [&reply, &expected].map(|reply| reply.get_i32("code").ok());
            ensure!(codes[0] == codes[1], "{write}\n  plain:  {expected}\n  shaped: {reply}");
            if codes[0].is_none() {
                let explained = reply.get_document("mongoshape").with_context(|| reply.to_string())?;
                ensure!(explained.get_str("strategy")? == "pipeline", "{explained}");
            }
        }
    }
    ensure!(shaped.stored()? == before);
    Ok(())
}
