//! `mode = "observe"`: every reply and every stored byte is as without the proxy, and the observed metrics
//! equal those of a proxy that rewrites.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::replies::succeeded;
use proto_tests::sessions::Transaction;
use proto_tests::{Proxy, ProxyOptions, database_name, mongod};

use crate::metrics::exposition::scrape;

/// Stands in documents, and nowhere in a log.
const MARKER: &str = "the-contents-of-a-document";

fn config(database: &str, mode: &str) -> String {
    format!(
        "[[bucket]]\nnamespace = \"{database}.items\"\nkey = \"k\"\ntime = \"at\"\nmode = \"{mode}\"\n\
         [[outlier]]\nnamespace = \"{database}.books\"\narray = \"buyers\"\nthreshold = 3\nextras = {{ ref = \"book_id\" }}\n\
         mode = \"{mode}\"\n"
    )
}

fn item(id: i32, key: i32) -> Document {
    doc! { "_id": id, "k": key, "at": DateTime::from_millis(i64::from(id) * 1000), "text": MARKER }
}

fn inserts() -> Vec<Document> {
    let batches = [
        (0..25).map(|id| item(id, id % 2)).collect::<Vec<_>>(),
        vec![item(100, 7)],
        vec![item(101, 7)],
        // Into the room of a page, and on.
        (200..215).map(|id| item(id, 7)).collect(),
        vec![doc! { "_id": 300, "k": 1, "at": DateTime::from_millis(1), "text": MARKER }],
        // No key can be an array: fails in buckets, and only there.
        vec![doc! { "_id": 301, "k": [1, 2], "text": MARKER }, item(302, 8)],
    ];
    let insert = |documents: Vec<Document>| doc! { "insert": "items", "documents": documents, "ordered": false };
    batches.into_iter().map(insert).collect()
}

fn reads() -> Vec<Document> {
    let aggregate = |on: &str, pipeline: Vec<Document>| doc! { "aggregate": on, "pipeline": pipeline, "cursor": {} };
    vec![
        doc! { "find": "items", "filter": { "k": 7 }, "sort": { "at": 1 }, "limit": 5 },
        doc! { "find": "items", "filter": { "k": 7 }, "sort": { "at": -1 }, "limit": 5 },
        doc! { "find": "items", "filter": { "k": 7 }, "sort": { "at": 1 } },
        doc! { "find": "items", "filter": { "text": MARKER }, "sort": { "_id": 1 } },
        doc! { "count": "items", "query": { "text": MARKER } },
        doc! { "distinct": "items", "key": "text" },
        aggregate("items", vec![doc! { "$group": { "_id": null, "n": { "$sum": 1 } } }]),
        aggregate("plain", vec![doc! { "$unionWith": "items" }, doc! { "$count": "n" }]),
    ]
}

/// What a shape refuses without asking.
fn refused() -> Vec<Document> {
    vec![
        doc! { "find": "items", "showRecordId": true, "sort": { "_id": 1 }, "limit": 1 },
        doc! { "find": "items", "returnKey": true, "sort": { "_id": 1 }, "limit": 1 },
        doc! { "validate": "items", "repair": true },
        doc! { "reIndex": "items" },
        doc! { "aggregate": "plain", "pipeline": [{ "$lookup": {
            "from": "items", "localField": "_id", "foreignField": "_id", "as": "x",
        } }, { "$out": "items" }], "cursor": {} },
        doc! { "aggregate": 1, "pipeline": [{ "$changeStream": {} }], "cursor": {} },
        doc! { "aggregate": "items", "pipeline": [{ "$changeStream": {} }], "cursor": {} },
        doc! { "aggregate": 1, "pipeline": [{ "$changeStream": { "allChangesForCluster": true } }], "cursor": {}, "$db": "admin" },
        doc! { "createIndexes": "items", "indexes": [{ "key": { "text": "hashed" }, "name": "hashed" }] },
        doc! { "createIndexes": "items", "indexes": [{ "key": { "at": "hashed" }, "name": "at_hashed" }] },
        doc! { "insert": "books", "documents": [{ "_id": 9, "has_extras": true }] },
        doc! { "renameCollection": "DATABASE.items", "to": "DATABASE.others" },
    ]
}

/// Writes that a shape may refuse only by the stored documents. It does not.
fn changes() -> Vec<Document> {
    let update = |q: Document, u: Document| doc! { "update": "items", "updates": [{ "q": q, "u": u, "multi": true }] };
    vec![
        update(doc! { "text": MARKER }, doc! { "$set": { "seen": MARKER } }),
        doc! { "delete": "items", "deletes": [{ "q": { "_id": 3 }, "limit": 1 }] },
        doc! { "findAndModify": "items", "query": { "_id": 4 }, "update": { "$set": { "n": 1 } } },
    ]
}

fn of_outliers() -> Vec<Document> {
    vec![
        doc! { "insert": "books", "documents": [{ "_id": 1, "buyers": ["a"] }] },
        doc! { "insert": "books", "documents": [{ "_id": 2, "buyers": ["a", "b", "c", "d", MARKER] }] },
        doc! { "count": "books", "query": { "buyers": "a" } },
    ]
}

fn workload() -> Vec<Document> {
    [inserts(), reads(), changes(), of_outliers(), refused()].concat()
}

/// Runs all of it, and gives the bytes of all answers, and of what is stored then.
fn run(application: &mut Connection, database: &str) -> Result<Vec<Vec<u8>>> {
    let mut answers = Vec::new();
    for mut command in workload() {
        let is_of_admin = command.contains_key("renameCollection") || command.contains_key("$db");
        for name in ["renameCollection", "to"] {
            if let Ok(named) = command.get_str(name) {
                let named = named.replace("DATABASE", database);
                command.insert(name, named);
            }
        }
        command.insert("$db", if is_of_admin { "admin" } else { database });
        answers.push(application.command_raw(&command)?.as_bytes().to_vec());
    }
    let mut direct = Connection::open(mongod::shared().address())?;
    for collection in ["items", "others", "books", "extra_books"] {
        let stored = doc! { "find": collection, "sort": { "_id": 1 }, "$db": database };
        answers.push(direct.command_raw(&stored)?.as_bytes().to_vec());
    }
    Ok(answers)
}

#[test]
fn observe_mode_returns_mongods_replies_and_counts_like_rewriting() -> Result<()> {
    let database = database_name();
    let mut direct = Connection::open(mongod::shared().address())?;
    let expected = run(&mut direct, &database)?;
    direct.command_ok(&doc! { "dropDatabase": 1, "$db": &database })?;

    let options = ProxyOptions::new(&mongod::shared().uri()).filter("info,mongoshape=debug");
    let observing = Proxy::start(&options.clone().config(&config(&database, "observe")))?;
    let is = run(&mut Connection::open(observing.address())?, &database)?;
    for ((is, expected), command) in is.iter().zip(&expected).zip(workload()) {
        ensure!(is == expected, "{command} is answered differently");
    }
    ensure!(is == expected, "something else is stored");

    let other = database_name();
    let rewriting = Proxy::start(&options.config(&config(&other, "rewrite")))?;
    run(&mut Connection::open(rewriting.address())?, &other)?;
    let counts = |series: &str, namespace: &str| {
        let observed = |prefix: &str, proxy: &Proxy, database: &str| {
            let labels = series.find('{').map_or("", |begin| &series[begin + 1..]);
            let name = series.split('{').next().unwrap_or_default();
            let labels = [format!("namespace=\"{database}.{namespace}\""), labels.to_owned()];
            let labels: Vec<&str> = labels
                .iter()
                .map(String::as_str)
                .filter(|label| !label.is_empty())
                .collect();
            proxy.metric(&format!("mongoshape_{prefix}{name}{{{}}}", labels.join(",")))
        };
        (
            observed("observed_", &observing, &database),
            observed("", &rewriting, &other),
        )
    };
    for namespace in ["items", "books"] {
        let observed = refusals(&observing, "observed_", &format!("{database}.{namespace}"))?;
        let mut rewritten = refusals(&rewriting, "", &format!("{other}.{namespace}"))?;
        // A refused stream names the first shape of several, observe mode all. Here these are `books`.
        let streams = ("aggregate".to_owned(), "change_stream".to_owned());
        let added = if namespace == "items" { 2.0 } else { 0.0 };
        rewritten.entry(streams).and_modify(|count| *count += added);
        ensure!(
            observed == rewritten,
            "{namespace}: {observed:?} observed, {rewritten:?} refused"
        );
        for strategy in ["page", "stream", "pipeline"] {
            let (observed, rewritten) = counts(&format!("reads_total{{strategy=\"{strategy}\""), namespace);
            ensure!(
                (observed - rewritten).abs() < 0.5,
                "{namespace}, {strategy}: {observed} observed, {rewritten} read"
            );
        }
    }
    let refused = refusals(&rewriting, "", &format!("{other}.items"))?;
    for (command, reason, count) in [
        ("find", "read", 2.0),
        ("createIndexes", "index", 2.0),
        ("aggregate", "change_stream", 1.0),
        ("other", "command", 1.0),
    ] {
        let counted = refused.get(&(command.to_owned(), reason.to_owned()));
        ensure!(counted == Some(&count), "{command}, {reason}: {counted:?} refusals");
    }

    saved(&observing, &rewriting, (&database, &other))?;
    logged(&observing)
}

/// The refusals of a namespace, by command and reason.
fn refusals(proxy: &Proxy, prefix: &str, namespace: &str) -> Result<BTreeMap<(String, String), f64>> {
    let series = format!("{prefix}rejected_total{{");
    let mut refused = BTreeMap::new();
    for (name, value) in scrape(proxy)?.into_iter().filter(|(_, value)| *value > 0.0) {
        let Some(labels) = name.strip_prefix(&series) else {
            continue;
        };
        let of = |label: &str| labels.split('"').skip_while(|part| !part.ends_with(label)).nth(1);
        if of("namespace=") == Some(namespace) {
            let [command, reason] = ["command=", "reason="].map(|label| of(label).unwrap_or_default().to_owned());
            refused.insert((command, reason), value);
        }
    }
    Ok(refused)
}

/// What inserts would have saved.
fn saved(observing: &Proxy, rewriting: &Proxy, (database, other): (&str, &str)) -> Result<()> {
    let namespace = format!("namespace=\"{database}.items\"");
    let of = |series: &str| observing.metric(&format!("mongoshape_observed_{series}"));
    let items = of(&format!("items_inserted_total{{{namespace}}}"));
    let series = format!("mongoshape_bucket_items_inserted_total{{namespace=\"{other}.items\"}}");
    let inserted = rewriting.metric(&series);
    ensure!(
        (items - inserted).abs() < 0.5,
        "{items} items observed, {inserted} inserted"
    );
    let buckets = of(&format!("buckets_opened_total{{{namespace}}}"));
    let opened = rewriting.metric("mongoshape_buckets_opened_total");
    ensure!(
        (buckets - opened).abs() < 0.5,
        "{buckets} buckets observed, {opened} opened"
    );
    let documents = of(&format!("saved_documents_total{{{namespace}}}"));
    ensure!(
        (documents - (items - buckets)).abs() < 0.5,
        "{documents} documents saved"
    );
    let plain = of(&format!("index_entries_total{{layout=\"plain\",{namespace}}}"));
    let shaped = of(&format!("index_entries_total{{layout=\"shaped\",{namespace}}}"));
    ensure!((plain - 2.0 * items).abs() < 0.5, "{plain} entries");
    ensure!((shaped - items - 3.0 * buckets).abs() < 0.5, "{shaped} entries");
    let commands = |name: &str| of(&format!("total{{command=\"{name}\",{namespace}}}"));
    for (name, count) in [
        ("insert", 6.0),
        ("find", 6.0),
        ("aggregate", 6.0),
        ("delete", 1.0),
        ("ping", 0.0),
    ] {
        let is = commands(name);
        ensure!((is - count).abs() < 0.5, "{is} {name}, not {count}");
    }
    let unplanned = of(&format!("unplanned_total{{{namespace}}}"));
    ensure!((unplanned - 3.0).abs() < 0.5, "{unplanned} unplanned");
    Ok(())
}

/// The reasons are in the log, and nothing of a document.
fn logged(proxy: &Proxy) -> Result<()> {
    let lines = proxy.log();
    ensure!(
        lines.iter().any(|line| line.text.contains("showRecordId")),
        "the log does not say why"
    );
    ensure!(
        lines.iter().all(|line| !line.text.contains(MARKER)),
        "the log has contents of documents"
    );
    Ok(())
}

#[test]
fn a_long_message_is_observed_whole() -> Result<()> {
    let database = database_name();
    let options = ProxyOptions::new(&mongod::shared().uri()).config(&config(&database, "observe"));
    let proxy = Proxy::start(&options)?;
    let mut application = Connection::open(proxy.address())?;
    let items: Vec<Document> = (0..2_000)
        .map(|id| {
            let mut item = item(id, 1);
            item.insert("filling", "x".repeat(500));
            item
        })
        .collect();
    application.command_ok(&doc! { "insert": "items", "documents": items, "$db": &database })?;
    // The connection is as it was.
    application.command_ok(&doc! { "ping": 1, "$db": "admin" })?;
    let series = format!("mongoshape_observed_buckets_opened_total{{namespace=\"{database}.items\"}}");
    let buckets = proxy.metric(&series);
    ensure!((buckets - 200.0).abs() < 0.5, "{buckets} buckets");
    Ok(())
}

#[test]
fn observe_mode_does_not_disturb_a_transaction() -> Result<()> {
    let database = database_name();
    let options = ProxyOptions::new(&mongod::shared_replica_set().uri()).config(&config(&database, "observe"));
    let proxy = Proxy::start(&options)?;
    let mut application = Connection::open(proxy.address())?;
    application.command_ok(&doc! { "insert": "items", "documents": [item(1, 1)], "$db": &database })?;
    let push = doc! { "q": { "_id": 1 }, "u": { "$set": { "seen": true } } };
    let mut transaction = Transaction::new(&database, &database);
    for command in [
        doc! { "insert": "items", "documents": [item(2, 1), item(3, 2)] },
        doc! { "update": "items", "updates": [push] },
        doc! { "find": "items", "filter": { "k": 1 } },
    ] {
        succeeded(transaction.run(&mut application, &command)?)?;
    }
    succeeded(transaction.end(&mut application, "commitTransaction")?)?;
    let seen = application.find(&database, "items", doc! { "seen": true })?;
    ensure!(seen.len() == 1, "{seen:?}");
    let series = format!("mongoshape_observed_items_inserted_total{{namespace=\"{database}.items\"}}");
    let items = proxy.metric(&series);
    ensure!((items - 3.0).abs() < 0.5, "{items} items");
    Ok(())
}

/// The application gets its change streams, and each is counted.
#[test]
fn change_streams_are_mongods_and_observed() -> Result<()> {
    let database = database_name();
    let options = ProxyOptions::new(&mongod::shared_replica_set().uri()).config(&config(&database, "observe"));
    let proxy = Proxy::start(&options)?;
    let mut application = Connection::open(proxy.address())?;
    application.command_ok(&doc! { "insert": "items", "documents": [item(1, 1)], "$db": &database })?;
    let watch = |on: Bson, options: Document, database: &str| {
        doc! { "aggregate": on, "pipeline": [{ "$changeStream": options }], "cursor": {}, "$db": database }
    };
    for stream in [
        watch("items".into(), doc! {}, &database),
        watch(1.into(), doc! {}, &database),
        watch(1.into(), doc! { "allChangesForCluster": true }, "admin"),
    ] {
        let opened = application.command_ok(&stream)?;
        ensure!(opened.get_document("cursor")?.get_i64("id")? != 0, "{opened}");
    }
    application.command_ok(&doc! { "ping": 1, "$db": "admin" })?;
    let observed = refusals(&proxy, "observed_", &format!("{database}.items"))?;
    let expected = BTreeMap::from([(("aggregate".to_owned(), "change_stream".to_owned()), 3.0)]);
    ensure!(observed == expected, "{observed:?}");
    let namespace = format!("{database}.items");
    let parts = [
        "would be refused",
        &namespace,
        "aggregate",
        "change_stream",
        "set `change_streams = true` in the shape",
    ];
    let log = proxy.log();
    let lines: Vec<_> = log
        .iter()
        .filter(|line| parts.iter().all(|part| line.text.contains(part)))
        .collect();
    ensure!(lines.len() == 1, "{lines:?}");
    Ok(())
}

/// The command on the shaped collection is rewritten, and observed for the other.
#[test]
fn a_reference_from_a_shaped_collection_is_observed() -> Result<()> {
    let database = database_name();
    let shape = format!("[[bucket]]\nnamespace = \"{database}.shaped\"\nkey = \"k\"\n");
    let options = ProxyOptions::new(&mongod::shared().uri());
    let proxy = Proxy::start(&options.config(&format!("{shape}{}", config(&database, "observe"))))?;
    let mut application = Connection::open(proxy.address())?;
    application.command_ok(&doc! { "insert": "shaped", "documents": [item(1, 1)], "$db": &database })?;
    let out = doc! { "aggregate": "shaped", "pipeline": [{ "$out": "items" }], "cursor": {}, "$db": &database };
    application.command_ok(&out)?;
    ensure!(application.find(&database, "items", doc! {})? == [item(1, 1)]);
    let observed = refusals(&proxy, "observed_", &format!("{database}.items"))?;
    let expected = BTreeMap::from([(("aggregate".to_owned(), "mention".to_owned()), 1.0)]);
    ensure!(observed == expected, "{observed:?}");
    ensure!(refusals(&proxy, "observed_", &format!("{database}.shaped"))?.is_empty());
    ensure!(refusals(&proxy, "", &format!("{database}.shaped"))?.is_empty());
    Ok(())
}
