//! A refused unique index is on the operator's page of every proxy, and `check` warns of it, until a client
//! drops it or creates it.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::{Level, Proxy, ProxyOptions, database_name, mongod};

const LIMIT: Duration = Duration::from_secs(20);
const INDEX_NOT_FOUND: i32 = 27;
const NAMESPACE_NOT_FOUND: i32 = 26;
const NOT_SUPPORTED: i32 = 115;

fn config(database: &str) -> String {
    format!(
        "[[bucket]]\nnamespace = \"{database}.items\"\nkey = \"k\"\n\
         [[outlier]]\nnamespace = \"{database}.books\"\narray = \"buyers\"\nthreshold = 3\nextras = {{ ref = \"book_id\" }}\n"
    )
}

/// Two proxies that read the records of both every 100 ms.
struct Fixture {
    database: String,
    proxies: [Proxy; 2],
    applications: [Connection; 2],
}

impl Fixture {
    fn start() -> Result<Self> {
        let database = database_name();
        let options = ProxyOptions::new(&mongod::shared().uri())
            .config(&config(&database))
            .expire_every(100);
        let proxies = [Proxy::start(&options)?, Proxy::start(&options)?];
        let applications = [
            Connection::open(proxies[0].address())?,
            Connection::open(proxies[1].address())?,
        ];
        Ok(Self {
            database,
            proxies,
            applications,
        })
    }

    /// Runs a command through one of them. Returns the code of the error, 0 without one.
    fn run(&mut self, proxy: usize, mut command: Document) -> Result<i32> {
        command.insert("$db", &self.database);
        let reply = self.applications[proxy].command(&command)?;
        Ok(reply.get_i32("code").unwrap_or(0))
    }

    fn create(&mut self, collection: &str, indexes: &[Document]) -> Result<i32> {
        self.run(0, doc! { "createIndexes": collection, "indexes": indexes })
    }

    /// Waits until both pages and `check` name exactly these indexes. Their names occur nowhere else.
    fn wait_for(&self, names: &[&str]) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while let Err(error) = self.shows(names) {
            ensure!(Instant::now() < deadline, "{error:#}");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn shows(&self, names: &[&str]) -> Result<()> {
        for proxy in &self.proxies {
            let page = proxy.admin_get("/")?.body;
            // A page without rows has no table.
            let table = page
                .split_once("<h2>Refused unique indexes</h2>")
                .map_or("", |(_, table)| table);
            let (table, _) = table.split_once("</table>").unwrap_or((table, ""));
            for name in ["sparse_email", "plain_email", "buyer", "numbered"] {
                let is_shown = table.contains(&format!(">{name}<"));
                ensure!(is_shown == names.contains(&name), "{name} shown: {is_shown}: {table}");
            }
            let count = proxy.metric("mongoshape_refused_unique_indexes");
            ensure!(
                (count - f64::from(u32::try_from(names.len())?)).abs() < 0.5,
                "{count} counted"
            );
        }
        let output = self.proxies[1].run("check")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{text}");
        ensure!(text.matches("warning: ").count() == names.len(), "{text}");
        for name in names {
            ensure!(
                text.contains(&format!("unique index {name} on ")),
                "no {name} in {text}"
            );
        }
        Ok(())
    }

    /// The names of the collections and of their indexes.
    fn stored(&mut self) -> Result<Vec<Document>> {
        let mut direct = Connection::open(mongod::shared().address())?;
        let mut stored = direct.all(&doc! { "listCollections": 1, "$db": &self.database })?;
        let names: Vec<_> = stored
            .iter()
            .filter_map(|of| of.get_str("name").ok().map(ToOwned::to_owned))
            .collect();
        for name in names {
            stored.extend(direct.all(&doc! { "listIndexes": name, "$db": &self.database })?);
        }
        Ok(stored)
    }
}

fn sparse() -> Document {
    doc! { "key": { "email": 1 }, "name": "sparse_email", "unique": true, "sparse": true }
}

#[test]
fn refused_unique_indexes_are_shown_until_they_are_dropped() -> Result<()> {
    let mut fixture = Fixture::start()?;
    fixture.shows(&[])?;
    // Refused on a collection that does not exist, with another unique index in the same command.
    let plain = doc! { "key": { "email": 1, "k": 1 }, "name": "plain_email", "unique": true };
    ensure!(fixture.create("items", &[sparse(), plain])? == NOT_SUPPORTED);
    let buyer = doc! { "key": { "buyers": 1 }, "name": "buyer", "unique": true };
    ensure!(fixture.create("books", &[buyer])? == NOT_SUPPORTED);
    // No uniqueness is lost.
    let text = doc! { "key": { "words": "text" }, "name": "words" };
    ensure!(fixture.create("items", &[text])? == NOT_SUPPORTED);
    ensure!(fixture.stored()?.is_empty(), "{:?}", fixture.stored()?);
    fixture.wait_for(&["sparse_email", "plain_email", "buyer"])?;
    let page = fixture.proxies[1].admin_get("/")?.body;
    let items = format!("{}.items", fixture.database);
    for part in [
        "{ email: 1, k: 1 }",
        items.as_str(),
        "a sparse unique index",
        "a unique index on buyers",
    ] {
        ensure!(page.contains(part), "no {part} in {page}");
    }
    // As on a plain collection, there is nothing to drop. This ends the warning.
    let drop = |on: &str, index: &str| doc! { "dropIndexes": on, "index": index };
    ensure!(fixture.run(1, drop("books", "buyer"))? == NAMESPACE_NOT_FOUND);
    fixture.wait_for(&["sparse_email", "plain_email"])?;
    ensure!(fixture.run(0, doc! { "create": "items" })? == 0);
    ensure!(fixture.run(1, drop("items", "sparse_email"))? == INDEX_NOT_FOUND);
    fixture.wait_for(&["plain_email"])
}

#[test]
fn a_created_index_and_a_dropped_collection_end_the_entries() -> Result<()> {
    let mut fixture = Fixture::start()?;
    ensure!(fixture.create("items", &[sparse()])? == NOT_SUPPORTED);
    let numbered = doc! { "key": { "tags.0": 1 }, "name": "numbered", "unique": true };
    ensure!(fixture.create("items", &[numbered])? == NOT_SUPPORTED);
    fixture.wait_for(&["sparse_email", "numbered"])?;
    let unique = doc! { "key": { "email": 1 }, "name": "sparse_email", "unique": true };
    ensure!(fixture.run(1, doc! { "createIndexes": "items", "indexes": [unique.clone()] })? == 0);
    fixture.wait_for(&["numbered"])?;
    // The index exists, so its uniqueness is not lost, although the command is refused.
    let text = doc! { "key": { "words": "text" }, "name": "words" };
    ensure!(fixture.create("items", &[unique, text])? == NOT_SUPPORTED);
    fixture.wait_for(&["numbered"])?;
    ensure!(fixture.run(0, doc! { "drop": "items" })? == 0);
    fixture.wait_for(&[])
}

/// Without the right to write to the database `mongoshape`, the page of the proxy has the entry.
#[test]
fn a_missing_right_is_reported() -> Result<()> {
    let mongod = Options::default().auth().standalone()?;
    let database = database_name();
    let uri = mongod.uri();
    let roles = vec![doc! { "role": "readWrite", "db": &database }];
    tokio::runtime::Runtime::new()?.block_on(async {
        let admin = proto_tests::client(&uri).await?.database("admin");
        let user = doc! { "createUser": "user", "pwd": "word", "roles": roles };
        admin.run_command(user).await?;
        anyhow::Ok(())
    })?;
    let uri = mongod.uri_as("user", "word");
    let proxy = Proxy::start(&ProxyOptions::new(&uri).config(&config(&database)))?;
    proxy.expect_log(Level::Warn, "cannot be recorded in mongoshape.refused_unique_indexes");
    let through = uri.replace(&mongod.address().to_string(), &proxy.address().to_string());
    let create = doc! { "createIndexes": "items", "indexes": [sparse()] };
    let failed = tokio::runtime::Runtime::new()?.block_on(async {
        let application = proto_tests::client(&through).await?.database(&database);
        anyhow::Ok(application.run_command(create).await.is_err())
    })?;
    ensure!(failed, "the index was created");
    let line = proxy.wait_for_log("cannot be recorded in mongoshape.refused_unique_indexes")?;
    ensure!(
        line.text.contains("grant the user of `upstream.uri` the right"),
        "{}",
        line.text
    );
    ensure!(proxy.admin_get("/")?.body.contains(">sparse_email<"));
    let output = proxy.run("check")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let note = "note: upstream: the records of refused unique indexes cannot be read: not authorized";
    ensure!(output.status.success() && text.contains(note), "{text}");
    Ok(())
}
