//! Two proxies with an automatic shape, and the cut-over of a conversion by direct commands.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::proxy::find_binary;
use proto_tests::raw::Connection;
use proto_tests::{Mongod, Proxy, ProxyOptions, Shape, database_name};

pub(super) const COLLECTION: &str = "items";
pub(super) const COPY: &str = "items.mongoshape_convert";
pub(super) const KEPT: &str = "items.mongoshape_kept";
pub(super) const RECORD: &str = "items.mongoshape_conversion";
/// Documents in one command.
const BATCH: usize = 500;

/// How a cut-over ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CutOver {
    /// The copy takes the name.
    Done,
    /// The original gets its name back.
    GivenUp,
}

pub(super) struct Fixture {
    pub(super) database: String,
    /// Two proxies with the automatic shape.
    pub(super) proxies: [Proxy; 2],
    /// A proxy that writes the pages of a copy.
    writer: Proxy,
    address: std::net::SocketAddr,
}

pub(super) fn shape() -> Shape {
    Shape {
        time: Some("at".to_owned()),
        ..Shape::new(&["k"])
    }
}

/// The table of an automatic shape.
pub(super) fn automatic(shape: &Shape, namespace: &str) -> String {
    let table = shape.toml(namespace);
    table.replacen("[[bucket]]\n", "[[bucket]]\nmode = \"auto\"\n", 1)
}

/// A document, which is an item of the shape.
pub(super) fn item(id: impl Into<Bson>, key: i32, second: i64) -> Document {
    let at = DateTime::from_millis(1_700_000_000_000 + second * 1000);
    doc! { "_id": id.into(), "k": key, "n": 0, "at": at }
}

impl Fixture {
    pub(super) fn start(mongod: &Mongod) -> Result<Self> {
        Self::behind(mongod, &mongod.uri())
    }

    /// The proxies use this connection string.
    pub(super) fn behind(mongod: &Mongod, uri: &str) -> Result<Self> {
        Self::with_tables(mongod, uri, &shape(), |_| String::new())
    }

    /// The proxies have further shapes. `others`: their tables, for a database.
    pub(super) fn with_others(mongod: &Mongod, uri: &str, others: fn(&str) -> String) -> Result<Self> {
        Self::with_tables(mongod, uri, &shape(), others)
    }

    /// The automatic shape is this one.
    pub(super) fn with_shape(mongod: &Mongod, uri: &str, shape: &Shape) -> Result<Self> {
        Self::with_tables(mongod, uri, shape, |_| String::new())
    }

    fn with_tables(mongod: &Mongod, uri: &str, shape: &Shape, others: fn(&str) -> String) -> Result<Self> {
        let database = database_name();
        let options = ProxyOptions::new(uri);
        let with_auto = || {
            let table = automatic(shape, &format!("{database}.{COLLECTION}"));
            Proxy::start(&options.clone().config(&(table + &others(&database))))
        };
        let proxies = [with_auto()?, with_auto()?];
        let of_copy = shape.toml(&format!("{database}.{COPY}"));
        Ok(Self {
            proxies,
            writer: Proxy::start(&options.clone().config(&of_copy))?,
            address: mongod.address(),
            database,
        })
    }

    /// A connection to mongod itself.
    pub(super) fn direct(&self) -> Result<Connection> {
        Connection::open(self.address)
    }

    /// A connection through one of the proxies.
    pub(super) fn application(&self, number: usize) -> Result<Connection> {
        Connection::open(self.proxies[number % 2].address())
    }

    /// Runs a command past the proxies.
    pub(super) fn past(&self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        let reply = self.direct()?.command_ok(&command)?;
        ensure!(reply.get_array("writeErrors").is_err(), "{reply}");
        Ok(reply)
    }

    /// Runs a command through a proxy.
    pub(super) fn run(&self, number: usize, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        self.application(number)?.command(&command)
    }

    /// Creates the collection for plain documents, with these in it.
    pub(super) fn store_plain(&self, documents: &[Document]) -> Result<()> {
        self.past(doc! { "create": COLLECTION })?;
        if !documents.is_empty() {
            self.past(doc! { "insert": COLLECTION, "documents": documents })?;
        }
        Ok(())
    }

    /// Whether the collection contains pages.
    pub(super) fn has_pages(&self) -> Result<bool> {
        let specs = self
            .direct()?
            .all(&doc! { "listIndexes": COLLECTION, "$db": &self.database })?;
        Ok(specs
            .iter()
            .any(|spec| spec.get_str("name").is_ok_and(|name| name == "mongoshape_page")))
    }

    /// Every document through a proxy.
    pub(super) fn items(&self) -> Result<Vec<Document>> {
        let find = doc! { "find": COLLECTION, "$db": &self.database };
        self.application(0)?.all(&find)
    }

    /// Freezes the collection.
    pub(super) fn freeze(&self, has_pages: bool) -> Result<()> {
        let marker = if has_pages {
            "mongoshape_compact"
        } else {
            "mongoshape_pack"
        };
        let validator = doc! { marker: { "$exists": true } };
        self.past(doc! { "collMod": COLLECTION, "validator": validator })
            .map(drop)
    }

    pub(super) fn thaw(&self) -> Result<()> {
        self.past(doc! { "collMod": COLLECTION, "validator": {} }).map(drop)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let full = |name: &str| format!("{}.{name}", self.database);
        let command = doc! { "renameCollection": full(from), "to": full(to), "$db": "admin" };
        self.direct()?.command_ok(&command).map(drop)
    }

    fn drop_beside(&self, name: &str) -> Result<()> {
        // An error: it does not exist.
        self.direct()?
            .command(&doc! { "drop": name, "$db": &self.database })
            .map(drop)
    }

    /// Exchanges the collection for one in the other layout. `gap`: the time without a collection of its
    /// name.
    pub(super) fn convert(&self, gap: Duration, end: CutOver) -> Result<()> {
        let has_pages = self.has_pages()?;
        self.drop_beside(COPY)?;
        let to = if has_pages { self.address } else { self.writer.address() };
        let mut to = Connection::open(to)?;
        to.command_ok(&doc! { "create": COPY, "$db": &self.database })?;
        self.freeze(has_pages)?;
        let find = doc! { "find": COLLECTION, "$db": &self.database };
        let documents = if has_pages {
            self.application(1)?.all(&find)?
        } else {
            self.direct()?.all(&find)?
        };
        for part in documents.chunks(BATCH) {
            to.command_ok(&doc! { "insert": COPY, "documents": part, "$db": &self.database })?;
        }
        self.drop_beside(KEPT)?;
        self.rename(COLLECTION, KEPT)?;
        thread::sleep(gap);
        if !has_pages {
            self.drop_deleted(&mut to, &documents)?;
        }
        match end {
            CutOver::Done => self.rename(COPY, COLLECTION),
            CutOver::GivenUp => {
                self.give_up()?;
                self.thaw()?;
                self.drop_beside(COPY)
            }
        }
    }

    /// Begins the gap of a swap: no collection has the name.
    pub(super) fn begin_gap(&self) -> Result<()> {
        self.past(doc! { "create": COPY })?;
        self.rename(COLLECTION, KEPT)
    }

    /// Begins the gap, unless another command holds the collection. Returns mongod's reply.
    pub(super) fn try_to_begin_gap(&self) -> Result<Document> {
        let full = |name: &str| format!("{}.{name}", self.database);
        let rename = doc! { "renameCollection": full(COLLECTION), "to": full(KEPT), "maxTimeMS": 500, "$db": "admin" };
        self.direct()?.command(&rename)
    }

    /// Gives the collection its name back. The record says so before.
    pub(super) fn give_up(&self) -> Result<()> {
        let update = doc! { "q": { "_id": 0 }, "u": { "$inc": { "given_up_swaps": 1 } }, "upsert": true };
        self.past(doc! { "update": RECORD, "updates": [update] })?;
        self.rename(KEPT, COLLECTION)
    }

    /// Drops what a swap that was given up leaves.
    pub(super) fn end_gap(&self) -> Result<()> {
        self.drop_beside(COPY)
    }

    /// Converts the collection by `mongoshape convert`, whose configuration has this shape. The proxies keep
    /// theirs.
    pub(super) fn convert_to(&self, shape: &Shape, options: &[&str]) -> Result<()> {
        let namespace = format!("{}.{COLLECTION}", self.database);
        let own = std::fs::read_to_string(self.proxies[0].config_file())?;
        let (others, _) = own.split_once("[[bucket]]").context("there is no shape")?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("mongoshape.toml");
        std::fs::write(&file, others.to_owned() + &automatic(shape, &namespace))?;
        let mut command = Command::new(find_binary()?);
        command.arg("convert").arg("--config").arg(&file);
        let output = command.args(["--namespace", &namespace]).args(options).output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{options:?}: {printed}");
        Ok(())
    }

    /// Does what `convert --back` does first: the kept collection gets the name of a copy.
    pub(super) fn begin_back(&self) -> Result<()> {
        let listed = doc! { "listCollections": 1, "filter": { "name": KEPT }, "$db": &self.database };
        let kept = self.direct()?.all(&listed)?.pop().context("nothing is kept")?;
        let record = doc! { "direction": "back", "copy": kept.get_document("info")?.get("uuid") };
        let update = doc! { "q": { "_id": 0 }, "u": { "$set": record }, "upsert": true };
        self.past(doc! { "update": RECORD, "updates": [update] })?;
        self.drop_beside(COPY)?;
        self.rename(KEPT, COPY)
    }

    /// A freeze does not stop deletes from a plain collection. Those since the copy are repeated in it.
    fn drop_deleted(&self, copy: &mut Connection, copied: &[Document]) -> Result<()> {
        let left = self.direct()?.find(&self.database, KEPT, doc! {})?;
        let left: std::collections::HashSet<String> = left.iter().filter_map(id_text).collect();
        for document in copied
            .iter()
            .filter(|one| id_text(one).is_some_and(|id| !left.contains(&id)))
        {
            let delete = doc! { "q": { "_id": document.get("_id").context("no _id")? }, "limit": 1 };
            copy.command_ok(&doc! { "delete": COPY, "deletes": [delete], "$db": &self.database })?;
        }
        Ok(())
    }
}

fn id_text(document: &Document) -> Option<String> {
    document.get("_id").map(ToString::to_string)
}
