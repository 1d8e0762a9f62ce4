//! A collection of plain documents, and a proxy with a bucket shape for it.

use anyhow::{Result, ensure};
use bson::{Binary, Bson, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::{Mongod, Proxy, ProxyOptions, Shape, database_name};

/// The collection's name.
pub(crate) const COLLECTION: &str = "items";

/// The collection. Each subject adds the commands that it tests.
pub(crate) struct PlainCollection {
    pub(crate) database: String,
    pub(crate) shape: Shape,
    pub(crate) proxy: Proxy,
    /// A connection past the proxy.
    pub(crate) direct: Connection,
}

/// A shape by time, with a field that is stored under another name.
pub(crate) fn with_time() -> Shape {
    Shape {
        time: Some("at".to_owned()),
        rename: vec![("quantity".to_owned(), "qty".to_owned())],
        ..Shape::new(&["k"])
    }
}

impl PlainCollection {
    /// A collection without documents.
    pub(crate) fn open(mongod: &Mongod, shape: Shape) -> Result<Self> {
        Self::configured(mongod, shape, "")
    }

    /// The same with more options of the shape.
    pub(crate) fn configured(mongod: &Mongod, shape: Shape, options: &str) -> Result<Self> {
        let database = database_name();
        let toml = shape.toml(&format!("{database}.{COLLECTION}")) + options;
        let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&toml))?;
        Ok(Self {
            direct: Connection::open(mongod.address())?,
            shape,
            database,
            proxy,
        })
    }

    /// The same with these documents, written past the proxy.
    pub(crate) fn with(mongod: &Mongod, shape: Shape, documents: &[Document]) -> Result<Self> {
        let mut collection = Self::open(mongod, shape)?;
        for part in documents.chunks(10_000) {
            collection.past(doc! { "insert": COLLECTION, "documents": part })?;
        }
        Ok(collection)
    }

    /// Runs a command past the proxy.
    pub(crate) fn past(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        let reply = self.direct.command_ok(&command)?;
        ensure!(reply.get_array("writeErrors").is_err(), "{reply}");
        Ok(reply)
    }

    /// A new connection through the proxy: one that is idle during a long command of a test would be closed.
    pub(crate) fn application(&self) -> Result<Connection> {
        Connection::open(self.proxy.address())
    }

    /// Runs a command through the proxy.
    pub(crate) fn run(&self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        let reply = self.application()?.command_ok(&command)?;
        ensure!(reply.get_array("writeErrors").is_err(), "{reply}");
        Ok(reply)
    }

    /// The documents of a collection of the server itself, by `_id`.
    pub(crate) fn stored(&mut self, collection: &str) -> Result<Vec<Document>> {
        let find = doc! { "find": collection, "sort": { "_id": 1 }, "$db": &self.database };
        self.direct.all(&find)
    }

    /// The documents that the application reads, by `_id`, with fields in the order of their names.
    pub(crate) fn items(&self) -> Result<Vec<Document>> {
        let find = doc! { "find": COLLECTION, "sort": { "_id": 1 }, "$db": &self.database };
        Ok(self.application()?.all(&find)?.into_iter().map(sorted).collect())
    }

    /// The UUID of a collection of the server itself.
    pub(crate) fn uuid(&mut self, collection: &str) -> Result<Option<Binary>> {
        let list = doc! { "listCollections": 1, "filter": { "name": collection }, "$db": &self.database };
        let listed = self.direct.all(&list)?;
        let Some(listed) = listed.first() else { return Ok(None) };
        match listed.get_document("info")?.get("uuid") {
            Some(Bson::Binary(uuid)) => Ok(Some(uuid.clone())),
            _ => Ok(None),
        }
    }
}

/// A document with its fields in the order of their names: an item's key fields come first.
pub(crate) fn sorted(document: Document) -> Document {
    let mut fields: Vec<_> = document.into_iter().collect();
    fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    fields.into_iter().collect()
}
