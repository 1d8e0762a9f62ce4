//! The rights of the operator are checked before the first write.
//!
//! The driver needs a thread of its own, because the proxy's commands block that of the test.

use std::fmt::Write as _;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};
use bson::{DateTime, Document, doc};
use mongodb::Database;
use proto_tests::mongod::Options;
use proto_tests::{Mongod, Proxy, ProxyOptions, client, database_name};

use super::fixture::expect;

/// A server with authentication that the tests here share.
fn server() -> &'static Mongod {
    static SERVER: OnceLock<Mongod> = OnceLock::new();
    SERVER.get_or_init(|| Options::default().auth().standalone().expect("a mongod"))
}

/// A database, and an operator with one role.
struct Fixture {
    database: Database,
    /// The operator, and its role of rights on single resources.
    name: String,
}

impl Fixture {
    async fn new() -> Result<Self> {
        let database = client(&server().uri()).await?.database(&database_name());
        let name = format!("operator_{}", database.name());
        Ok(Self { database, name })
    }

    fn admin(&self) -> Database {
        self.database.client().database("admin")
    }

    /// Gives the operator these roles, and no others.
    async fn roles(&self, roles: &[Document]) -> Result<()> {
        let name = self.name.as_str();
        let _ = self.admin().run_command(doc! { "dropUser": name }).await;
        let create = doc! { "createUser": name, "pwd": "word", "roles": roles };
        self.admin().run_command(create).await?;
        Ok(())
    }

    /// Gives the operator these actions on collections of the database, where "" stands for all of them.
    async fn rights(&self, granted: &[(&str, &[&str])]) -> Result<()> {
        let name = self.name.as_str();
        let privilege = |(collection, actions): &(&str, &[&str])| {
            doc! { "resource": { "db": self.database.name(), "collection": *collection }, "actions": actions.to_vec() }
        };
        let privileges: Vec<Document> = granted.iter().map(privilege).collect();
        let _ = self.admin().run_command(doc! { "dropRole": name }).await;
        let create = doc! { "createRole": name, "privileges": privileges, "roles": [] };
        self.admin().run_command(create).await?;
        self.roles(&[doc! { "role": name, "db": "admin" }]).await
    }

    fn proxy(&self, table: &str) -> Result<Proxy> {
        let uri = server().uri_as(&self.name, "word");
        let table = table.replace("DATABASE", self.database.name());
        Proxy::start(&ProxyOptions::new(&uri).config(&table))
    }

    async fn write(&self, documents: Vec<Document>) -> Result<()> {
        self.database.collection("items").insert_many(documents).await?;
        Ok(())
    }

    /// The collections, their options and indexes, as text.
    async fn state(&self) -> Result<String> {
        let mut names = self.database.list_collection_names().await?;
        names.sort();
        let mut state = String::new();
        for name in names {
            let list = doc! { "listCollections": 1, "filter": { "name": &name } };
            let indexes = self.database.run_command(doc! { "listIndexes": &name }).await?;
            let count = self
                .database
                .collection::<Document>(&name)
                .count_documents(doc! {})
                .await?;
            let listed = self.database.run_command(list).await?;
            let firsts = [&listed, &indexes].map(|reply| {
                reply
                    .get_document("cursor")
                    .map(|cursor| cursor.get("firstBatch").cloned())
            });
            writeln!(state, "{name} {count} {firsts:?}")?;
        }
        Ok(state)
    }

    /// `setup` ends with these errors, and nothing is changed.
    async fn check(&self, proxy: &Proxy, options: &[&str], words: &[&str]) -> Result<()> {
        self.check_verb(proxy, "setup", options, words).await
    }

    /// A verb ends with these errors, and nothing is changed.
    async fn check_verb(&self, proxy: &Proxy, verb: &str, options: &[&str], words: &[&str]) -> Result<()> {
        let before = self.state().await?;
        let printed = expect(&proxy.run_with(verb, options)?, 1, words)?;
        ensure!(printed.contains("nothing was changed"), "{printed}");
        ensure!(self.state().await? == before, "something was changed: {printed}");
        Ok(())
    }
}

const BUCKET: &str = "[[bucket]]\nnamespace = \"DATABASE.items\"\nkey = \"k\"\ntime = \"at\"\n";
const READ: &[&str] = &["find", "listIndexes"];

fn plain() -> Vec<Document> {
    let document = |n: i32| doc! { "_id": n, "k": n % 2, "at": DateTime::from_millis(i64::from(n)) };
    (0..20).map(document).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn indexes_need_a_right() -> Result<()> {
    let fixture = Fixture::new().await?;
    fixture.rights(&[("", &["listCollections"]), ("items", READ)]).await?;
    let proxy = fixture.proxy(BUCKET)?;
    let namespace = format!("{}.items", fixture.database.name());
    let words =
        format!("error: {namespace}: the user of `upstream.uri` lacks rights on this collection: createIndex; grant");
    fixture.check(&proxy, &[], &[&words]).await?;
    fixture
        .rights(&[
            ("", &["listCollections"]),
            ("items", &["find", "listIndexes", "createIndex"]),
        ])
        .await?;
    expect(&proxy.run("setup")?, 0, &["6 of 6 indexes created"])?;
    // There is nothing to create any more.
    fixture.rights(&[("", &["listCollections"]), ("items", READ)]).await?;
    expect(&proxy.run("setup")?, 0, &["all 6 indexes exist"])?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn adoption_needs_the_right_to_update() -> Result<()> {
    let fixture = Fixture::new().await?;
    let rights = |actions: &'static [&'static str]| [("", &["listCollections"] as &[&str]), ("items", actions)];
    fixture.rights(&rights(&["find", "listIndexes", "createIndex"])).await?;
    let proxy = fixture.proxy(BUCKET)?;
    let item = doc! { "_id": 1, "at": DateTime::from_millis(1) };
    fixture
        .write(vec![doc! { "_id": "1_1", "k": 1, "count": 1, "history": [item] }])
        .await?;
    fixture
        .check(&proxy, &[], &["lacks rights on this collection: update, insert; grant"])
        .await?;
    // Nothing is adopted if the indexes could not be created afterwards.
    fixture
        .rights(&rights(&["find", "listIndexes", "update", "insert"]))
        .await?;
    fixture
        .check(&proxy, &[], &["lacks rights on this collection: createIndex; grant"])
        .await?;
    fixture
        .rights(&rights(&["find", "listIndexes", "update", "insert", "createIndex"]))
        .await?;
    expect(
        &proxy.run("setup")?,
        0,
        &["buckets adopted: 1", "6 of 6 indexes created"],
    )?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn packing_names_each_right_that_is_missing() -> Result<()> {
    let fixture = Fixture::new().await?;
    let read_write = doc! { "role": "readWrite", "db": fixture.database.name() };
    fixture.roles(std::slice::from_ref(&read_write)).await?;
    let proxy = fixture.proxy(BUCKET)?;
    fixture.write(plain()).await?;
    let database = fixture.database.name();
    let words = [
        format!("error: {database}.items: the user of `upstream.uri` lacks rights on this collection: collMod; grant"),
        format!(
            "error: {database}.items.mongoshape_pack: the user of `upstream.uri` lacks rights on this collection: collMod; grant"
        ),
    ];
    fixture
        .check(&proxy, &["--pack"], &words.each_ref().map(String::as_str))
        .await?;
    fixture
        .rights(&[
            ("", &["listCollections"]),
            ("items", &["find", "listIndexes", "collMod", "createIndex", "dropIndex"]),
        ])
        .await?;
    let words = [
        format!("error: {database}.items.mongoshape_pack: "),
        "lacks rights on this collection: find, listIndexes, collMod, createIndex, createCollection, insert, dropCollection".to_owned(),
        format!("error: {database}.items.mongoshape_plain: "),
        format!("error: {database}: the user of `upstream.uri` lacks rights on this database: renameCollectionSameDB"),
    ];
    fixture
        .check(&proxy, &["--pack"], &words.each_ref().map(String::as_str))
        .await?;
    fixture
        .roles(&[read_write, doc! { "role": "dbAdmin", "db": database }])
        .await?;
    expect(&proxy.run_with("setup", &["--pack"])?, 0, &["packed: 20 documents"])?;
    Ok(())
}

/// The rights that are checked are enough, and no others are needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn packing_works_with_exactly_the_rights_that_are_checked() -> Result<()> {
    let fixture = Fixture::new().await?;
    let (copy, kept) = ("items.mongoshape_pack", "items.mongoshape_plain");
    let of_copy = [
        "find",
        "listIndexes",
        "collMod",
        "createIndex",
        "insert",
        "dropCollection",
    ];
    fixture
        .rights(&[
            ("", &["listCollections", "renameCollectionSameDB"]),
            ("items", &["find", "listIndexes", "collMod", "createIndex", "dropIndex"]),
            (copy, &of_copy),
            (
                kept,
                &["find", "listIndexes", "dropIndex", "createCollection", "dropCollection"],
            ),
        ])
        .await?;
    let proxy = fixture.proxy(BUCKET)?;
    fixture.write(plain()).await?;
    let index = doc! { "key": { "n": 1 }, "name": "n", "unique": true };
    for number in 0..20 {
        let update =
            doc! { "update": "items", "updates": [{ "q": { "_id": number }, "u": { "$set": { "n": number } } }] };
        fixture.database.run_command(update).await?;
    }
    fixture
        .database
        .run_command(doc! { "createIndexes": "items", "indexes": [index] })
        .await?;
    expect(&proxy.run_with("setup", &["--pack"])?, 0, &["packed: 20 documents"])?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn outlier_set_up_needs_rights_on_extras() -> Result<()> {
    let fixture = Fixture::new().await?;
    let table =
        "[[outlier]]\nnamespace = \"DATABASE.items\"\narray = \"buyers\"\nthreshold = 3\nextras = { ref = \"item\" }\n";
    let base: &[&str] = &["find", "listIndexes", "update"];
    fixture
        .rights(&[("", &["listCollections"]), ("items", base), ("extra_items", READ)])
        .await?;
    let proxy = fixture.proxy(table)?;
    fixture
        .write(vec![doc! { "_id": 1, "buyers": [1, 2, 3, 4, 5, 6] }])
        .await?;
    let words = format!(
        "error: {}.extra_items: the user of `upstream.uri` lacks rights on this collection: createIndex, insert, update, remove; grant",
        fixture.database.name()
    );
    for options in [&[][..], &["--split"]] {
        fixture.check(&proxy, options, &[&words]).await?;
    }
    let extras: &[&str] = &["find", "listIndexes", "createIndex", "insert", "update", "remove"];
    fixture
        .rights(&[("", &["listCollections"]), ("items", base), ("extra_items", extras)])
        .await?;
    expect(&proxy.run_with("setup", &["--split"])?, 0, &["1 documents split"])?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn roles_for_any_resource_are_enough() -> Result<()> {
    for roles in [
        &[
            doc! { "role": "readWriteAnyDatabase", "db": "admin" },
            doc! { "role": "dbAdminAnyDatabase", "db": "admin" },
        ][..],
        &[doc! { "role": "root", "db": "admin" }],
        &[doc! { "role": "__system", "db": "admin" }],
    ] {
        let fixture = Fixture::new().await?;
        fixture.roles(roles).await?;
        let proxy = fixture.proxy(BUCKET)?;
        fixture.write(plain()).await?;
        expect(&proxy.run_with("setup", &["--pack"])?, 0, &["packed: 20 documents"])
            .with_context(|| format!("{roles:?}"))?;
    }
    Ok(())
}

const OUTLIERS: &str = "[[outlier]]\nnamespace = \"DATABASE.items\"\narray = \"tags\"\nthreshold = 2\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn conversion_needs_rights_on_each_of_its_collections() -> Result<()> {
    let fixture = Fixture::new().await?;
    let database = fixture.database.name();
    fixture.write(plain()).await?;
    let read_write = doc! { "role": "readWrite", "db": database };
    fixture.roles(std::slice::from_ref(&read_write)).await?;
    let proxy = fixture.proxy(&BUCKET.replacen("[[bucket]]\n", "[[bucket]]\nmode = \"auto\"\n", 1))?;
    let namespace = format!("{database}.items");
    let arguments = ["--namespace", &namespace, "--offline"];
    let lacking = |collection: &str, rights: &str| {
        format!(
            "error: {database}.{collection}: the user of `upstream.uri` lacks rights on this collection: {rights}; grant"
        )
    };
    let (on_it, on_copy) = (
        lacking("items", "collMod"),
        lacking("items.mongoshape_convert", "collMod"),
    );
    fixture
        .check_verb(&proxy, "convert", &arguments, &[&on_it, &on_copy])
        .await?;
    fixture
        .roles(&[read_write, doc! { "role": "dbAdmin", "db": database }])
        .await?;
    for to in [&[] as &[&str], &["--to", "plain"]] {
        let arguments = [&arguments, to].concat();
        expect(&proxy.run_with("convert", &arguments)?, 0, &["converted"])?;
    }
    expect(
        &proxy.run_with("convert", &["--namespace", &namespace, "--finish"])?,
        0,
        &["was dropped"],
    )?;
    Ok(())
}

/// The rights that are checked are enough, and no others are needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn conversion_works_with_exactly_the_rights_that_are_checked() -> Result<()> {
    let fixture = Fixture::new().await?;
    let database = fixture.database.name();
    fixture.write(plain()).await?;
    let index = doc! { "key": { "at": 1 }, "name": "at_1", "unique": true };
    fixture
        .database
        .run_command(doc! { "createIndexes": "items", "indexes": [index] })
        .await?;
    let of_items: &[&str] = &[
        "find",
        "listIndexes",
        "collStats",
        "collMod",
        "createIndex",
        "dropIndex",
    ];
    let of_copy: &[&str] = &[
        "find",
        "listIndexes",
        "collMod",
        "createIndex",
        "dropIndex",
        "insert",
        "update",
        "remove",
        "dropCollection",
    ];
    let of_kept: &[&str] = &[
        "find",
        "listIndexes",
        "collMod",
        "dropIndex",
        "createCollection",
        "dropCollection",
        "createIndex",
    ];
    let of_record: &[&str] = &["find", "insert", "update", "dropCollection"];
    let of_database: &[&str] = &["listCollections", "renameCollectionSameDB"];
    let rights = |of_kept| {
        [
            ("", of_database),
            ("items", of_items),
            ("items.mongoshape_convert", of_copy),
            ("items.mongoshape_kept", of_kept),
            ("items.mongoshape_conversion", of_record),
        ]
    };
    fixture.rights(&rights(&of_kept[..of_kept.len() - 1])).await?;
    let automatic = BUCKET.replacen("[[bucket]]", "[[bucket]]\nmode = \"auto\"", 1);
    let proxy = fixture.proxy(&automatic)?;
    let namespace = format!("{database}.items");
    let arguments = ["--namespace", &namespace, "--offline"];
    let lacking = format!(
        "error: {database}.items.mongoshape_kept: the user of `upstream.uri` lacks rights on this collection: createIndex; grant"
    );
    fixture.check_verb(&proxy, "convert", &arguments, &[&lacking]).await?;
    fixture.rights(&rights(of_kept)).await?;
    expect(&proxy.run_with("convert", &arguments)?, 0, &["converted"])?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn conversion_of_outliers_needs_the_right_to_modify_the_collection() -> Result<()> {
    let fixture = Fixture::new().await?;
    let database = fixture.database.name();
    fixture.write(vec![doc! { "_id": 1, "tags": [1, 2, 3] }]).await?;
    let read_write = doc! { "role": "readWrite", "db": database };
    fixture.roles(std::slice::from_ref(&read_write)).await?;
    let proxy = fixture.proxy(OUTLIERS)?;
    let namespace = format!("{database}.items");
    let (to_outliers, to_plain) = (
        ["--namespace", &namespace],
        ["--namespace", &namespace, "--to", "plain"],
    );
    expect(&proxy.run_with("convert", &to_outliers)?, 0, &["1 documents split"])?;
    fixture
        .check_verb(
            &proxy,
            "convert",
            &to_plain,
            &["lacks rights on this collection: collMod; grant"],
        )
        .await?;
    fixture
        .roles(&[read_write, doc! { "role": "dbAdmin", "db": database }])
        .await?;
    expect(&proxy.run_with("convert", &to_plain)?, 0, &["1 outliers were joined"])?;
    Ok(())
}
