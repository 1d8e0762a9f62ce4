//! The command line and the admin address.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::proxy::find_binary;
use proto_tests::raw::Connection;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{Level, Mongod, Proxy, ProxyOptions, buckets, database_name, frame, mongod};

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[track_caller]
fn assert_output(output: &Output, code: i32, parts: &[&str]) {
    let text = text(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

fn run(arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(find_binary()?).args(arguments).output()?)
}

#[test]
fn version_and_help() -> Result<()> {
    assert_output(&run(&["--version"])?, 0, &["mongoshape 0."]);
    assert_output(&run(&["--help"])?, 0, &["serve", "check", "setup", "Usage"]);
    assert_output(&run(&["serve", "--nonsense"])?, 2, &["--nonsense"]);
    assert_output(&run(&["check"])?, 1, &["--config"]);
    Ok(())
}

#[test]
fn check_notes_that_no_document_has_the_key() -> Result<()> {
    let shaped = Shaped::start("time = \"at\"")?;
    let mut application = shaped.application()?;
    application.command_ok(&shaped.insert(&[doc! { "misspelt": 1 }, doc! { "misspelt": 2 }]))?;
    let note = "no document has the key field \"k\"";
    assert_output(&shaped.proxy.run("check")?, 0, &["note: ", note]);
    application.command_ok(&shaped.insert(&[doc! { "k": 1 }]))?;
    let checked = shaped.proxy.run("check")?;
    assert!(!text(&checked).contains(note), "{}", text(&checked));
    Ok(())
}

#[test]
fn setup_creates_objects_reported_by_check_and_is_idempotent() -> Result<()> {
    let shaped = Shaped::start("time = \"at\"")?;
    let namespace = format!("{}.{COLLECTION}", shaped.database);
    assert_output(
        &shaped.proxy.run("check")?,
        0,
        &["ok: configuration", &format!("note: {namespace}: does not exist yet")],
    );
    shaped
        .direct()?
        .command_ok(&doc! { "create": COLLECTION, "$db": &shaped.database })?;
    assert_output(
        &shaped.proxy.run("check")?,
        0,
        &["note: ", "index mongoshape_page is missing; run `mongoshape setup`"],
    );
    assert_output(
        &shaped.proxy.run("setup")?,
        0,
        &[&format!("ok: {namespace}: 6 of 6 indexes created")],
    );
    assert_eq!(shaped.indexes()?, buckets::INDEXES);
    let again = shaped.proxy.run("setup")?;
    assert_output(&again, 0, &["all 6 indexes exist"]);
    let checked = shaped.proxy.run("check")?;
    assert_output(
        &checked,
        0,
        &[&format!("ok: {namespace}: contains buckets, and has their indexes")],
    );
    assert!(!text(&checked).contains("note: "), "{}", text(&checked));
    // What the proxy itself stores is what they expect.
    shaped.application()?.command_ok(&shaped.insert(&[doc! { "k": 1 }]))?;
    assert_output(&shaped.proxy.run("check")?, 0, &["contains buckets"]);
    Ok(())
}

#[test]
fn plain_documents_are_reported_and_unchanged() -> Result<()> {
    let shaped = Shaped::start("")?;
    let plain =
        doc! { "insert": COLLECTION, "documents": [{ "_id": 41, "k": 1 }, { "_id": 42 }], "$db": &shaped.database };
    shaped.direct()?.command_ok(&plain)?;
    let reported = [
        "error: ",
        "contains 2 plain documents: `mongoshape setup --pack` moves them to pages",
    ];
    assert_output(&shaped.proxy.run("check")?, 1, &reported);
    assert_output(&shaped.proxy.run("setup")?, 1, &reported);
    assert_eq!(shaped.indexes()?, ["_id_"]);
    Ok(())
}

#[test]
fn setup_does_not_create_a_collection_that_is_likely_misspelt() -> Result<()> {
    let shaped = Shaped::start("")?;
    let create = |name: &str| doc! { "create": name, "$db": &shaped.database };
    shaped.direct()?.command_ok(&create("itmes"))?;
    assert_output(
        &shaped.proxy.run("setup")?,
        1,
        &["does not exist, but 'itmes' does: correct `namespace`"],
    );
    assert!(shaped.indexes().is_err(), "it was created");
    shaped.direct()?.command_ok(&create(COLLECTION))?;
    assert_output(&shaped.proxy.run("setup")?, 0, &["indexes created"]);
    Ok(())
}

#[test]
fn all_configuration_mistakes_are_reported_at_once() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bad.toml");
    std::fs::write(
        &file,
        "[listen]\naddress = \"nowhere\"\nmax_conections = 3\n[upstream]\nuri = \"mongodb://127.0.0.1:1\"\n\
         [[bucket]]\nnamespace = \"shop.trades\"\nmax_items = 0\n",
    )?;
    let path = file.display().to_string();
    for verb in ["check", "serve", "setup"] {
        let output = run(&[verb, "--config", &path])?;
        let mistakes = [
            "bad.toml:2",
            "bad.toml:3",
            "max_connections",
            "bucket.key",
            "bucket.max_items",
        ];
        assert_output(&output, 1, &mistakes);
    }
    assert_output(
        &run(&["check", "--config", "/does/not/exist.toml"])?,
        1,
        &["exist.toml"],
    );
    Ok(())
}

fn metric(proxy: &Proxy, series: &str, expected: f64) {
    let value = proxy.metric(&format!("mongoshape_{series}"));
    assert!((value - expected).abs() < 0.5, "{series} is {value}, not {expected}");
}

#[test]
fn check_lists_the_indexes_that_an_observed_shape_would_refuse() -> Result<()> {
    let other = database_name();
    let outlier = |database: &str| {
        format!(
            "mode = \"observe\"\n[[outlier]]\nnamespace = \"{database}.books\"\narray = \"buyers\"\nthreshold = 3\n\
             extras = {{ ref = \"book_id\" }}\nmode = \"observe\"\n"
        )
    };
    let shaped = Shaped::start(&outlier(&other))?;
    let namespace = format!("{}.{COLLECTION}", shaped.database);
    assert_output(
        &shaped.proxy.run("check")?,
        0,
        &[&format!("note: {namespace}: is observed, and does not exist yet")],
    );
    let mut direct = shaped.direct()?;
    let mut create = |database: &str, collection: &str, indexes: &[Document]| {
        direct.command_ok(&doc! { "createIndexes": collection, "indexes": indexes, "$db": database })
    };
    create(
        &shaped.database,
        COLLECTION,
        &[
            doc! { "key": { "n": 1 }, "name": "n" },
            doc! { "key": { "n": 1, "m": 1 }, "name": "nm", "unique": true },
            doc! { "key": { "at": 1 }, "name": "at", "expireAfterSeconds": 9 },
        ],
    )?;
    create(&other, "books", &[doc! { "key": { "_id": 1, "n": 1 }, "name": "n" }])?;
    let ok = format!("ok: {namespace}: is observed: none of its 4 indexes would be refused");
    let books = format!("ok: {other}.books: is observed: none of its 2 indexes would be refused");
    assert_output(&shaped.proxy.run("check")?, 0, &[&ok, &books]);
    create(
        &shaped.database,
        COLLECTION,
        &[
            doc! { "key": { "email": 1 }, "name": "email", "unique": true, "sparse": true },
            doc! { "key": { "words": "text" }, "name": "words" },
            doc! { "key": { "day": 1 }, "name": "mongoshape_day" },
        ],
    )?;
    create(
        &other,
        "books",
        &[doc! { "key": { "buyers": 1 }, "name": "b", "unique": true }],
    )?;
    let warnings = [
        "index email would be refused and its uniqueness lost: a sparse unique index (it would omit whole pages, not items);",
        "index words would be refused: a text index; docs/refused-indexes.md lists alternatives",
        "index mongoshape_day would be refused: its name is reserved for the shape's own indexes;",
    ];
    let mut warnings: Vec<_> = warnings
        .iter()
        .map(|text| format!("warning: {namespace}: is observed: {text}"))
        .collect();
    warnings.push(
        format!("warning: {other}.books: is observed: index b would be refused and its uniqueness lost: a unique index on buyers;"),
    );
    let output = shaped.proxy.run("check")?;
    let parts: Vec<&str> = warnings.iter().map(String::as_str).collect();
    assert_output(&output, 0, &parts);
    assert_eq!(text(&output).matches("warning: ").count(), 4);
    Ok(())
}

#[test]
fn observe_mode_relays_and_counts() -> Result<()> {
    let shaped = Shaped::start("mode = \"observe\"")?;
    let mut application = shaped.application()?;
    let items = [doc! { "_id": 1, "k": 1 }, doc! { "_id": 2, "k": 1 }];
    application.command_ok(&shaped.insert(&items))?;
    let find = doc! { "find": COLLECTION, "$db": &shaped.database };
    assert_eq!(application.all(&find)?, items);
    assert_eq!(shaped.stored()?, items);
    let delete = doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 1 }, "limit": 1 }], "$db": &shaped.database };
    application.command_ok(&delete)?;
    assert_eq!(shaped.stored()?, items[1..]);
    let namespace = format!("namespace=\"{}.{COLLECTION}\"", shaped.database);
    for command in ["insert", "find", "delete"] {
        let series = format!("observed_total{{command=\"{command}\",{namespace}}}");
        metric(&shaped.proxy, &series, 1.0);
    }
    metric(
        &shaped.proxy,
        "commands_total{command=\"insert\",outcome=\"relayed\"}",
        1.0,
    );
    Ok(())
}

#[test]
fn readiness_follows_the_upstream() -> Result<()> {
    let mut mongod = Mongod::standalone()?;
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()))?;
    assert_eq!(proxy.admin_get("/readyz")?.status, 200);
    mongod.kill(0)?;
    let deadline = Instant::now() + Duration::from_secs(15);
    while proxy.admin_get("/readyz")?.status != 503 {
        ensure!(Instant::now() < deadline, "still ready");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_output(&proxy.run("health")?, 1, &["error: ", "the upstream cannot be reached"]);
    assert_eq!(proxy.admin_get("/livez")?.status, 200);
    assert_eq!(proxy.admin_get("/metrics")?.status, 200);
    proxy.expect_log(Level::Warn, "the upstream is not available");
    let mut late = Connection::open(proxy.address())?;
    late.send(&frame::command(1, 0, &doc! { "ping": 1, "$db": "admin" })?)?;
    assert!(late.is_closed()?);
    assert_output(&proxy.run("check")?, 1, &["error: upstream"]);
    // The others' server is not concerned.
    Connection::open(mongod::shared().address())?.command_ok(&doc! { "ping": 1, "$db": "admin" })?;
    Ok(())
}

#[test]
fn an_upstream_that_was_never_reached_is_logged_and_a_wrong_set_name_is_named() -> Result<()> {
    let proxy = Proxy::start_unready(&ProxyOptions::new("mongodb://127.0.0.1:1/"))?;
    proxy.expect_log(Level::Warn, "the upstream is not available yet");
    let line = proxy.wait_for_log("the upstream is not available yet")?;
    ensure!(line.text.contains("127.0.0.1:1: "), "{}", line.text);
    let uri = format!("mongodb://{}/?replicaSet=other", mongod::shared_replica_set().address());
    let proxy = Proxy::start_unready(&ProxyOptions::new(&uri))?;
    proxy.expect_log(Level::Warn, "the upstream is not available yet");
    proxy.wait_for_log("the upstream is not available yet")?;
    assert_output(
        &proxy.run("check")?,
        1,
        &["error: upstream", "`replicaSet` of `upstream.uri`"],
    );
    Ok(())
}

#[test]
fn health_takes_a_configuration_or_an_address() -> Result<()> {
    let mut proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()))?;
    let address = proxy.admin_address().to_string();
    let ready = format!("ok: {address}: ready");
    assert_output(&proxy.run("health")?, 0, &[&ready]);
    assert_output(&run(&["health", "--address", &address])?, 0, &[&ready]);
    let of_clients = proxy.address().to_string();
    assert_output(&run(&["health", "--address", &of_clients])?, 1, &["error: "]);
    proxy.stop()?;
    assert_output(&proxy.run("health")?, 1, &["error: ", "cannot be reached"]);
    Ok(())
}

#[test]
fn completions_and_manual_name_every_verb() -> Result<()> {
    let verbs = ["serve", "check", "setup", "compact", "health"];
    for shell in ["bash", "zsh", "fish"] {
        assert_output(&run(&["completions", shell])?, 0, &verbs);
    }
    let folder = tempfile::tempdir()?;
    let pages = folder.path().join("man1");
    assert_output(&run(&["man", &pages.display().to_string()])?, 0, &[]);
    let page = |name: &str| std::fs::read_to_string(pages.join(name));
    for verb in verbs {
        assert!(page("mongoshape.1")?.contains(verb), "{verb}");
        assert!(
            page(&format!("mongoshape-{verb}.1"))?.contains("\\-\\-config"),
            "{verb}"
        );
    }
    Ok(())
}
