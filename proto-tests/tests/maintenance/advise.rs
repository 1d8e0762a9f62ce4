//! `mongoshape advise`: its proposals for typical collections. A proposal is a valid configuration. `advise`
//! writes nothing and shows no value of a document.

use std::process::{Command, Output};

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod::Options;
use proto_tests::proxy::find_binary;
use proto_tests::raw::Connection;
use proto_tests::{Mongod, Proxy, ProxyOptions, database_name};

mod collections;

use collections::{BOOKS, SECRET, TRADES};

fn run(arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(find_binary()?).args(arguments).output()?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What `advise` prints, and it must succeed.
fn advise(uri: &str, options: &[&str]) -> Result<String> {
    let mut arguments = vec!["advise", "--uri", uri];
    arguments.extend_from_slice(options);
    let output = run(&arguments)?;
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status.success(), "{out}{err}");
    for printed in [&out, &err] {
        ensure!(!printed.contains(SECRET), "it shows a value:\n{printed}");
    }
    Ok(out)
}

/// The section of one collection: all between its name and the next one's.
fn of<'a>(printed: &'a str, namespace: &str) -> &'a str {
    let start = printed
        .find(&format!("{namespace}:"))
        .unwrap_or_else(|| panic!("no {namespace} in:\n{printed}"));
    let rest = &printed[start..];
    let end = rest
        .match_indices('\n')
        .map(|(at, _)| at)
        .find(|at| !rest[at + 1..].starts_with("  "));
    &rest[..end.unwrap_or(rest.len())]
}

#[track_caller]
fn assert_output(printed: &str, parts: &[&str]) {
    for part in parts {
        assert!(printed.contains(part), "no {part:?} in:\n{printed}");
    }
}

/// A mongod with collections of every kind. Their hashes show whether anything was written.
struct Fixture {
    mongod: Mongod,
    database: String,
}

impl Fixture {
    fn start() -> Result<Self> {
        let fixture = Self {
            mongod: Mongod::standalone()?,
            database: database_name(),
        };
        collections::fill(&mut fixture.direct()?, &fixture.database)?;
        Ok(fixture)
    }

    fn direct(&self) -> Result<Connection> {
        Connection::open(self.mongod.address())
    }

    fn namespace(&self, collection: &str) -> String {
        format!("{}.{collection}", self.database)
    }

    /// Everything that is stored, as hashes and counts.
    fn stored(&self) -> Result<Document> {
        let mut direct = self.direct()?;
        let mut stored = direct.command_ok(&doc! { "dbHash": 1, "$db": &self.database })?;
        for changing in ["timeMillis", "host"] {
            stored.remove(changing);
        }
        let databases = direct.command_ok(&doc! { "listDatabases": 1, "nameOnly": true, "$db": "admin" })?;
        stored.insert("databases", databases.get_array("databases")?);
        let indexes: Vec<Document> = direct.all(&doc! { "listIndexes": TRADES, "$db": &self.database })?;
        stored.insert("indexes", indexes);
        Ok(stored)
    }
}

#[test]
fn advise_distinguishes_collections_and_writes_nothing() -> Result<()> {
    let fixture = Fixture::start()?;
    let before = fixture.stored()?;
    let printed = advise(&fixture.mongod.uri(), &[])?;
    assert_eq!(fixture.stored()?, before);
    let trades = of(&printed, &fixture.namespace(TRADES));
    assert_output(
        trades,
        &[
            "a bucket collection",
            "customerId: an index begins with it, followed by the time ($indexStats: used 0 times)",
            "time          date",
            "max_items     10: the default",
            "about 200 documents; there are about 30 keys (all documents were inspected)",
            "documents              6,000           600",
            "index entries         12,000         9,000",
            "quantity as q",
            "no outlier shape: no top-level field is an array",
        ],
    );
    let books = of(&printed, &fixture.namespace(BOOKS));
    assert_output(
        books,
        &[
            "an outlier collection",
            "array         buyers",
            "threshold     50: the default",
            "outliers      about 5 (5 in the sample)\n",
            "501-1,000         5 #",
            "no bucket shape: a collection has one shape",
        ],
    );
    let unfit = |collection, reason| {
        assert_output(
            of(&printed, &fixture.namespace(collection)),
            &["no shape is proposed", reason],
        );
    };
    unfit("users", "no bucket shape: has the index email_1, which is sparse");
    unfit("capped", "no shape: is capped");
    unfit("view", "no shape: is a view");
    unfit("weather", "no shape: is a time-series collection");
    unfit("validated", "no shape: has a validator");
    unfit("few", "no bucket shape: has only 3 documents");
    unfit(
        "sessions",
        "a key of userId has 1.0 documents on average, which do not fill a page",
    );
    unfit("blobs", "its documents are large");
    unfit("pages", "its documents already look like pages");
    unfit("countries", "an index begins with country, but there is no evidence");
    assert_output(&printed, &["system.profile does not exist", "12 collections inspected"]);
    Ok(())
}

#[test]
fn proposed_configuration_can_be_served() -> Result<()> {
    let fixture = Fixture::start()?;
    let uri = fixture.mongod.uri();
    let toml = advise(&uri, &["--toml"])?;
    let printed = advise(&uri, &[])?;
    assert!(printed.ends_with(&toml), "{printed}");
    assert_eq!(toml.matches("[[").count(), 2, "{toml}");
    let folder = tempfile::tempdir()?;
    let check = |toml: &str| -> Result<Output> {
        let file = folder.path().join("m.toml");
        std::fs::write(&file, toml)?;
        run(&["check", "--config", &file.display().to_string()])
    };
    let checked = check(&toml)?;
    assert!(checked.status.success(), "{}{toml}", text(&checked.stdout));
    assert_output(&text(&checked.stdout), &["ok: configuration: no errors"]);
    // What it leaves to be chosen is configuration, too.
    let chosen = toml
        .replace("\n#rename", "\nrename")
        .replace("\n#item_ids", "\nitem_ids");
    assert!(check(&chosen)?.status.success(), "{chosen}");
    // A proxy with these shapes serves the application as before.
    let shapes = toml.find("[[").map_or("", |start| &toml[start..]);
    let proxy = Proxy::start(&ProxyOptions::new(&uri).config(shapes))?;
    let count = doc! { "count": TRADES, "$db": &fixture.database };
    assert_eq!(
        Connection::open(proxy.address())?.command_ok(&count)?.get_i32("n")?,
        collections::TRADES_THERE
    );
    Ok(())
}

#[test]
fn page_sizes_equal_the_projection() -> Result<()> {
    let fixture = Fixture::start()?;
    let toml = advise(
        &fixture.mongod.uri(),
        &["--toml", "--namespace", &fixture.namespace(TRADES)],
    )?;
    // The same trades again, stored by the shape that was proposed.
    let other = database_name();
    let shape = toml.find("[[").map_or("", |start| &toml[start..]);
    let shape = shape
        .replace(&fixture.database, &other)
        .replace("\"observe\"", "\"rewrite\"");
    let proxy = Proxy::start(&ProxyOptions::new(&fixture.mongod.uri()).config(&shape))?;
    collections::add_trades(&mut Connection::open(proxy.address())?, &other)?;
    let stored = fixture
        .direct()?
        .command_ok(&doc! { "collStats": TRADES, "$db": &other })?;
    let printed = advise(&fixture.mongod.uri(), &["--namespace", &fixture.namespace(TRADES)])?;
    assert_eq!(stored.get_i32("count")?, 600);
    let line = printed
        .lines()
        .find(|line| line.starts_with("    data "))
        .unwrap_or_default();
    let projected: f64 = line.split_whitespace().rev().nth(1).unwrap_or_default().parse()?;
    let really = f64::from(stored.get_i32("size")?) / 1000.0;
    assert!(
        (projected - really).abs() < really * 0.03,
        "{projected} kB projected, {really} kB stored:\n{printed}"
    );
    let shaped = advise(&fixture.mongod.uri(), &["--namespace", &format!("{other}.{TRADES}")])?;
    assert_output(&shaped, &["no shape: already belongs to a shape"]);
    Ok(())
}

#[test]
fn traffic_has_precedence_over_indexes() -> Result<()> {
    let fixture = Fixture::start()?;
    let mut direct = fixture.direct()?;
    let database = &fixture.database;
    direct.command_ok(&doc! { "profile": 2, "$db": database })?;
    for country in 0..20 {
        let find = doc! {
            "find": "countries", "filter": { "country": country, "name": { "$ne": SECRET } }, "sort": { "born": -1 }, "limit": 30,
            "$db": database,
        };
        direct.command_ok(&find)?;
    }
    let slice =
        doc! { "find": BOOKS, "filter": { "_id": 1 }, "projection": { "buyers": { "$slice": 100 } }, "$db": database };
    direct.command_ok(&slice)?;
    let index = doc! { "key": { "note": "text" }, "name": "note" };
    direct.command_ok(&doc! { "createIndexes": "sessions", "indexes": [index], "$db": database })?;
    let text = doc! { "find": "sessions", "filter": { "$text": { "$search": "x" } }, "$db": database };
    direct.command_ok(&text)?;
    direct.command_ok(&doc! { "profile": 0, "$db": database })?;
    let printed = advise(&fixture.mongod.uri(), &[])?;
    assert_output(
        of(&printed, &fixture.namespace("countries")),
        &[
            "20 of 20 observed queries (100 %) have an equality on it",
            "max_items     50: observed reads of a key",
            "time          born",
        ],
    );
    assert_output(
        of(&printed, &fixture.namespace(BOOKS)),
        &["threshold     100: observed reads return the first 100 elements"],
    );
    assert_output(
        of(&printed, &fixture.namespace("sessions")),
        &["the application uses $text, which is refused on bucket collections"],
    );
    assert!(!printed.contains("system.profile does not exist"), "{printed}");
    Ok(())
}

#[test]
fn keys_of_large_collections_are_counted_by_their_index() -> Result<()> {
    let fixture = Fixture::start()?;
    let namespace = fixture.namespace(TRADES);
    let printed = advise(&fixture.mongod.uri(), &["--namespace", &namespace, "--sample", "500"])?;
    let counted =
        "about 200 documents; there are about 30 keys (from 400 keys, each counted with an index up to 10,000)";
    assert_output(
        &printed,
        &[
            "500 of them inspected",
            counted,
            "documents              6,000           600",
        ],
    );
    Ok(())
}

#[test]
fn large_collections_are_not_read_as_a_whole() -> Result<()> {
    let mongod = Mongod::standalone()?;
    let database = database_name();
    let mut direct = Connection::open(mongod.address())?;
    collections::add_large(&mut direct, &database)?;
    let mut scanned = || -> Result<i64> {
        let status = direct.command_ok(&doc! { "serverStatus": 1, "$db": "admin" })?;
        let executor = status.get_document("metrics")?.get_document("queryExecutor")?;
        Ok(executor.get_i64("scannedObjects")?)
    };
    let before = scanned()?;
    let printed = advise(&mongod.uri(), &[])?;
    let documents = scanned()? - before;
    assert!(documents < 5000, "{documents} documents were read:\n{printed}");
    assert_output(
        of(&printed, &format!("{database}.events")),
        &[
            "a bucket collection",
            "1,600 of them inspected",
            "about 400 documents; there are about 100 keys (from 400",
        ],
    );
    assert_output(
        of(&printed, &format!("{database}.files")),
        &["10 of them inspected", "no bucket shape: has only 40 documents"],
    );
    assert_output(
        &printed,
        &["its few documents are large: only the first ones were inspected"],
    );
    Ok(())
}

#[test]
fn a_change_stream_is_seen() -> Result<()> {
    let mongod = proto_tests::mongod::shared_replica_set();
    let database = database_name();
    let mut direct = Connection::open(mongod.address())?;
    collections::add_trades(&mut direct, &database)?;
    let namespace = format!("{database}.{TRADES}");
    let options = ["--namespace", &namespace];
    assert_output(&advise(&mongod.uri(), &options)?, &["a bucket collection"]);
    let stages = [doc! { "$changeStream": {} }];
    direct.command_ok(&doc! { "aggregate": TRADES, "pipeline": stages.to_vec(), "cursor": {}, "$db": &database })?;
    let printed = advise(&mongod.uri(), &options)?;
    assert_output(
        &printed,
        &[
            "change_streams = true",
            "no outlier shape: the application has a change stream on it",
        ],
    );
    Ok(())
}

#[test]
fn missing_privileges_are_reported() -> Result<()> {
    let mongod = Options::default().auth().standalone()?;
    let database = database_name();
    let uri = mongod.uri();
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let admin = proto_tests::client(&uri).await?;
        let trades = admin.database(&database).collection::<Document>(TRADES);
        trades.insert_many(collections::trades()).await?;
        trades.create_index(collections::trades_index()).await?;
        let roles = [doc! { "role": "read", "db": &database }];
        let reader = doc! { "createUser": "reader", "pwd": "hidden", "roles": roles.to_vec() };
        admin.database("admin").run_command(reader).await?;
        anyhow::Ok(())
    })?;
    let namespace = format!("{database}.{TRADES}");
    let printed = advise(&mongod.uri_as("reader", "hidden"), &["--namespace", &namespace])?;
    assert_output(
        &printed,
        &[
            "customerId: an index begins with it, followed by the time",
            "$indexStats is not available: this user lacks the privilege",
            "$currentOp is not available",
        ],
    );
    assert!(!printed.contains("hidden"), "{printed}");
    Ok(())
}

#[test]
fn advise_that_cannot_read_its_target_is_an_error() -> Result<()> {
    let fixture = Fixture::start()?;
    let uri = fixture.mongod.uri();
    let fails = |arguments: &[&str], part: &str| -> Result<()> {
        let output = run(arguments)?;
        let printed = text(&output.stderr);
        ensure!(
            output.status.code() == Some(1) && printed.contains(part),
            "no {part:?} in:\n{printed}"
        );
        Ok(())
    };
    fails(&["advise"], "give --uri URI")?;
    fails(
        &["advise", "--uri", "mongodb://me:secret@:x"],
        "the connection string cannot be used",
    )?;
    fails(
        &["advise", "--uri", &uri, "--namespace", "nothing"],
        "write database.collection",
    )?;
    fails(
        &["advise", "--uri", &uri, "--namespace", "a.b"],
        "collection a.b does not exist",
    )
}
