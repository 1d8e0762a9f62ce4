//! A sharded collection of the model and a plain one of the same name.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::cluster::{self, Cluster, Kind};
use proto_tests::raw::Connection;
use proto_tests::{database_name, mongod, replies};

/// The collections' name.
pub(crate) const COLLECTION: &str = "items";

/// The two collections, sharded by `k`.
pub(crate) struct Beside {
    pub(crate) cluster: &'static Cluster,
    pub(crate) database: String,
    pub(crate) router: Connection,
    pub(crate) plain: Connection,
}

impl Beside {
    /// Two empty collections.
    pub(crate) fn open() -> Result<Self> {
        let cluster = cluster::shared();
        let beside = Self {
            cluster,
            database: database_name(),
            router: Connection::open(cluster.router_addresses()[0])?,
            plain: Connection::open(mongod::shared_replica_set().address())?,
        };
        cluster.shard_collection(&beside.namespace(), &doc! { "k": 1 }, Kind::Ranged)?;
        Ok(beside)
    }

    /// Two collections with these many items.
    pub(crate) fn with_items(items: i32) -> Result<Self> {
        let mut beside = Self::open()?;
        let items: Vec<Document> = (0..items).map(item).collect();
        beside.alike(&doc! { "insert": COLLECTION, "documents": items })?;
        Ok(beside)
    }

    pub(crate) fn namespace(&self) -> String {
        format!("{}.{COLLECTION}", self.database)
    }

    /// The command, for the database of the test.
    pub(crate) fn here(&self, command: &Document) -> Document {
        let mut command = command.clone();
        command.insert("$db", &self.database);
        command
    }

    /// The router's reply.
    pub(crate) fn run(&mut self, command: &Document) -> Result<Document> {
        let command = self.here(command);
        self.router.command(&command)
    }

    /// A command with the same counts and errors on both sides, and the router's whole reply.
    pub(crate) fn alike(&mut self, command: &Document) -> Result<Document> {
        let command = self.here(command);
        let (routed, plain) = (self.router.command(&command)?, self.plain.command(&command)?);
        let compared =
            [&routed, &plain].map(|reply| replies::comparable(reply, &replies::WRITE_RESULTS, &self.database));
        ensure!(
            compared[0] == compared[1],
            "{command}\n  cluster: {routed}\n  plain:   {plain}"
        );
        Ok(routed)
    }

    /// All documents of a cursor. They are the same on both sides, in this order.
    pub(crate) fn alike_documents(&mut self, command: &Document) -> Result<Vec<Document>> {
        let command = self.here(command);
        let (routed, plain) = (self.router.all(&command)?, self.plain.all(&command)?);
        ensure!(
            routed == plain,
            "{command}\n  cluster: {routed:?}\n  plain:   {plain:?}"
        );
        Ok(routed)
    }

    /// Fails unless both collections have the same documents.
    pub(crate) fn check(&mut self) -> Result<Vec<Document>> {
        self.alike_documents(&doc! { "find": COLLECTION, "sort": { "_id": 1 } })
    }

    /// The documents that each shard stores.
    pub(crate) fn stored(&self) -> Result<Vec<Vec<Document>>> {
        self.stored_in(COLLECTION)
    }

    /// The documents of another collection of the database that each shard stores.
    pub(crate) fn stored_in(&self, collection: &str) -> Result<Vec<Vec<Document>>> {
        let shards = self.cluster.shards().iter();
        let find = |address| Connection::open(address)?.find(&self.database, collection, doc! {});
        shards.map(|shard| find(shard.address())).collect()
    }
}

/// An item. Its shard key depends on its `_id`, so equal `_id`s are on one shard.
pub(crate) fn item(id: i32) -> Document {
    doc! { "_id": id, "k": id % 17, "n": id * 7 % 30, "city": format!("city {}", id % 4) }
}
