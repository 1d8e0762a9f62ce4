//! A plain collection and a shaped one on one server. Commands run on both, and the replies are compared.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};

use crate::raw::Connection;
use crate::sessions::{Transaction, lsid};
use crate::{ItemIds, Outlier, Proxy, ProxyOptions, Shape, database_name, invariants, mongod, replies};

/// The collections' name.
pub const COLLECTION: &str = "items";
/// All values of the `_id` option.
pub const ALL_IDS: [ItemIds; 3] = [ItemIds::Unique, ItemIds::Stored, ItemIds::Dropped];
/// The counts and errors of a reply.
const COMPARED: [&str; 12] = [
    "n",
    "nModified",
    "value",
    "lastErrorObject",
    "writeErrors",
    "ok",
    "errmsg",
    "code",
    "codeName",
    "upserted",
    "retriedStmtIds",
    "retriedStmtId",
];

/// A shape of either pattern, as far as two sides go by it.
pub trait Pattern {
    /// The table for the proxy's configuration file.
    fn table(&self, namespace: &str) -> String;
    /// Whether documents keep their `_id`.
    fn has_ids(&self) -> bool;
    /// Fails where a collection breaks the layout.
    fn check(&self, mongod: &mut Connection, database: &str, collection: &str) -> Result<()>;
}

impl Pattern for Shape {
    fn table(&self, namespace: &str) -> String {
        self.toml(namespace)
    }

    fn has_ids(&self) -> bool {
        self.item_ids != ItemIds::Dropped
    }

    fn check(&self, mongod: &mut Connection, database: &str, collection: &str) -> Result<()> {
        invariants::check(mongod, database, collection, self)
    }
}

impl Pattern for Outlier {
    fn table(&self, namespace: &str) -> String {
        self.toml(namespace)
    }

    fn has_ids(&self) -> bool {
        true
    }

    fn check(&self, mongod: &mut Connection, database: &str, collection: &str) -> Result<()> {
        invariants::outlier::check(mongod, database, collection, self)
    }
}

/// The two sides.
#[derive(Debug)]
pub struct Sides<P = Shape> {
    /// Of the shaped one.
    pub shape: P,
    /// What both databases' names begin with.
    pub database: String,
    /// A connection to mongod.
    pub plain: Connection,
    /// One to the proxy.
    pub shaped: Connection,
    /// The proxy.
    pub proxy: Proxy,
    /// Where the server is.
    uri: String,
}

impl<P: Pattern> Sides<P> {
    /// Two empty collections on a replica set.
    pub fn open(shape: P) -> Result<Self> {
        let set = mongod::shared_replica_set();
        Self::at(shape, (set.uri(), set.address()))
    }

    /// Two empty collections on a standalone.
    pub fn on_a_standalone(shape: P) -> Result<Self> {
        let mongod = mongod::shared();
        Self::at(shape, (mongod.uri(), mongod.address()))
    }

    /// Two empty collections on a server.
    pub fn at(shape: P, (uri, address): (String, SocketAddr)) -> Result<Self> {
        let database = database_name();
        let toml = shape.table(&format!("{database}_s.{COLLECTION}"));
        let proxy = Proxy::start(&ProxyOptions::new(&uri).config(&toml))?;
        Ok(Self {
            shape,
            plain: Connection::open(address)?,
            shaped: Connection::open(proxy.address())?,
            database,
            proxy,
            uri,
        })
    }

    /// Fails unless both sides return the same documents. Returns how many documents of the shaped collection
    /// mongod has fetched.
    pub fn pages_read(&mut self, command: &Document) -> Result<i64> {
        let before = self.page_fetches()?;
        let (plain, shaped) = (self.plain_database(), self.shaped_database());
        let mut command = command.clone();
        command.insert("$db", plain);
        let expected = self.plain.all(&command)?;
        command.insert("$db", shaped);
        let found = self.shaped.all(&command)?;
        ensure!(
            found == expected,
            "{command}\n  plain:  {expected:?}\n  shaped: {found:?}"
        );
        Ok(self.page_fetches()? - before)
    }

    /// How many documents of the shaped collection mongod has fetched. It counts those of a `$lookup` in a
    /// `$lookup`, which its own `docsExamined` leaves out before an `$unwind`.
    pub fn page_fetches(&mut self) -> Result<i64> {
        self.cursor_calls("search calls")
    }

    /// How many documents of the shaped collection mongod has read by scans of the collection, which fetch
    /// none.
    pub fn pages_scanned(&mut self) -> Result<i64> {
        self.cursor_calls("next calls")
    }

    /// How often mongod has called the storage engine's cursors on the shaped collection in this way.
    fn cursor_calls(&mut self, kind: &str) -> Result<i64> {
        let command = doc! { "collStats": COLLECTION, "$db": self.shaped_database() };
        let statistics = self.plain.command_ok(&command)?;
        let cursors = statistics.get_document("wiredTiger")?.get_document("cursor")?;
        Ok(match cursors.get(kind) {
            Some(Bson::Int64(calls)) => *calls,
            Some(Bson::Int32(calls)) => i64::from(*calls),
            _ => 0,
        })
    }

    /// Another proxy before the shaped collection.
    pub fn another_proxy(&self) -> Result<Proxy> {
        self.another_proxy_to(&self.uri)
    }

    /// Another proxy before the shaped collection. `uri`: of the server, if the first proxy uses a relay.
    pub fn another_proxy_to(&self, uri: &str) -> Result<Proxy> {
        let toml = self.shape.table(&format!("{}.{COLLECTION}", self.shaped_database()));
        Proxy::start(&ProxyOptions::new(uri).config(&toml))
    }

    /// The shaped collection's database.
    #[must_use]
    pub fn shaped_database(&self) -> String {
        format!("{}_s", self.database)
    }

    /// The plain collection's database.
    #[must_use]
    pub fn plain_database(&self) -> String {
        format!("{}_n", self.database)
    }

    /// Runs a command on both, and returns the counts and errors of each reply.
    pub fn run(&mut self, command: &Document) -> Result<[Document; 2]> {
        let (plain, shaped) = (self.plain_database(), self.shaped_database());
        let run = |connection: &mut Connection, database: String| -> Result<Document> {
            let mut command = command.clone();
            if command.contains_key("lsid") {
                // One server has the retry records of both.
                command.insert("lsid", lsid(&database));
            }
            command.insert("$db", &database);
            let reply = connection.command(&command)?;
            Ok(replies::comparable(&reply, &COMPARED, &database))
        };
        let mut replies = [run(&mut self.plain, plain)?, run(&mut self.shaped, shaped)?];
        if !self.shape.has_ids() {
            replies.iter_mut().for_each(without_ids);
        }
        Ok(replies)
    }

    /// A command with the same reply on both sides, error texts included. Texts with the `_id`s of items that have
    /// none are not compared.
    pub fn alike(&mut self, command: &Document) -> Result<Document> {
        let [plain, shaped] = self.run(command)?;
        ensure!(plain == shaped, "{command}\n  plain:  {plain}\n  shaped: {shaped}");
        Ok(plain)
    }

    /// Runs a command on each side in a transaction of its own, the first one of a session, and commits it.
    /// Returns the replies to the command.
    pub fn in_transaction(&mut self, session: &str, command: &Document) -> Result<[Document; 2]> {
        let (plain, shaped) = (self.plain_database(), self.shaped_database());
        let run = |connection: &mut Connection, database: String| -> Result<Document> {
            let mut transaction = Transaction::new(&format!("{database}{session}"), &database);
            let reply = transaction.run(connection, command)?;
            let end = transaction.end(connection, "commitTransaction")?;
            ensure!(end.get_f64("ok")? > 0.0, "{end} after {reply}");
            Ok(reply)
        };
        Ok([run(&mut self.plain, plain)?, run(&mut self.shaped, shaped)?])
    }

    /// A command that is refused and changes nothing. The reply of the plain collection is ignored.
    pub fn refused(&mut self, command: &Document) -> Result<()> {
        let before = self.items(true)?;
        let mut command = command.clone();
        command.insert("$db", self.shaped_database());
        let reply = self.shaped.command(&command)?;
        ensure!(
            reply.get_i32("code").ok() == Some(115),
            "{command} is not refused: {reply}"
        );
        ensure!(self.items(true)? == before, "{command} has changed something");
        Ok(())
    }

    /// The items of a side, in the order of their `_id`s.
    pub fn items(&mut self, is_shaped: bool) -> Result<Vec<Document>> {
        let find = |database: String| doc! { "find": COLLECTION, "sort": { "_id": 1 }, "$db": database };
        if is_shaped {
            let find = find(self.shaped_database());
            self.shaped.all(&find)
        } else {
            let find = find(self.plain_database());
            self.plain.all(&find)
        }
    }

    /// The stored buckets, as mongod has them.
    pub fn buckets(&mut self) -> Result<Vec<Document>> {
        let find = doc! { "find": COLLECTION, "$db": self.shaped_database() };
        self.plain.all(&find)
    }

    /// Fails where the two sides differ, or the layout is broken.
    pub fn check(&mut self) -> Result<()> {
        let (mut plain, mut shaped) = (self.items(false)?, self.items(true)?);
        if !self.shape.has_ids() {
            for item in &mut plain {
                item.remove("_id");
            }
            for items in [&mut plain, &mut shaped] {
                // In an order that does not depend on that of fields.
                items.sort_by_cached_key(|item| {
                    let mut fields: Vec<String> = item.iter().map(|field| format!("{field:?}")).collect();
                    fields.sort();
                    fields
                });
            }
        }
        for (plain, shaped) in plain.iter().zip(&shaped) {
            ensure!(plain == shaped, "\n  plain:  {plain:?}\n  shaped: {shaped:?}");
        }
        let lengths = (plain.len(), shaped.len());
        ensure!(lengths.0 == lengths.1, "{lengths:?} items");
        self.check_layout()
    }

    /// Fails where the layout is broken.
    pub fn check_layout(&mut self) -> Result<()> {
        let database = self.shaped_database();
        self.shape.check(&mut self.plain, &database, COLLECTION)
    }
}

/// A reply without `_id`s if items have none.
fn without_ids(reply: &mut Document) {
    reply.remove("errmsg");
    if let Ok(value) = reply.get_document_mut("value") {
        value.remove("_id");
    }
    for error in reply.get_array_mut("writeErrors").into_iter().flatten() {
        if let Some(error) = error.as_document_mut() {
            error.remove("errmsg");
        }
    }
}
