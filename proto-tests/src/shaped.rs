//! One database behind one proxy, with a shaped collection and plain ones.

use anyhow::Result;
use bson::{Document, doc};

use crate::{Proxy, ProxyOptions, client, mongod, raw};

/// The shaped collection's name.
pub const COLLECTION: &str = "items";

/// A proxy before the shared mongod, and a database of its own.
#[derive(Debug)]
pub struct Shaped {
    /// The proxy.
    pub proxy: Proxy,
    /// The database.
    pub database: String,
}

impl Shaped {
    /// Starts a proxy that stores `items` of a new database as these lines of a `[[bucket]]` table say; the
    /// key is `k`.
    pub fn start(options: &str) -> Result<Self> {
        Self::with(options, &ProxyOptions::new(&mongod::shared().uri()))
    }

    /// The same with further options of the proxy.
    pub fn with(options: &str, proxy: &ProxyOptions) -> Result<Self> {
        let database = client::database_name();
        let proxy = Proxy::start(&proxy.clone().config(&bucket(&database, options)))?;
        Ok(Self { proxy, database })
    }

    /// Another proxy with the same shape.
    pub fn another_proxy(&self, options: &str) -> Result<Proxy> {
        Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(&bucket(&self.database, options)))
    }

    /// Another proxy with the same shape, and these options of the proxy.
    pub fn another_proxy_with(&self, proxy: &ProxyOptions) -> Result<Proxy> {
        Proxy::start(&proxy.clone().config(&bucket(&self.database, "")))
    }

    /// Another proxy with a shape that the collection does not fit.
    pub fn misfitting_proxy(&self, options: &str) -> Result<Proxy> {
        let config = bucket(&self.database, options);
        Proxy::start_with_misfits(&ProxyOptions::new(&mongod::shared().uri()).config(&config))
    }

    /// A connection through the proxy.
    pub fn application(&self) -> Result<raw::Connection> {
        raw::Connection::open(self.proxy.address())
    }

    /// A connection to mongod itself.
    pub fn direct(&self) -> Result<raw::Connection> {
        raw::Connection::open(mongod::shared().address())
    }

    /// What mongod holds, sorted by `_id`.
    pub fn stored(&self) -> Result<Vec<Document>> {
        let sort = doc! { "_id": 1 };
        self.direct()?
            .all(&doc! { "find": COLLECTION, "sort": sort, "$db": &self.database })
    }

    /// The names of the collection's indexes, sorted.
    pub fn indexes(&self) -> Result<Vec<String>> {
        let specs = self
            .direct()?
            .all(&doc! { "listIndexes": COLLECTION, "$db": &self.database })?;
        let mut names: Vec<_> = specs
            .iter()
            .filter_map(|spec| spec.get_str("name").ok())
            .map(str::to_owned)
            .collect();
        names.sort();
        Ok(names)
    }

    /// An `insert` into the shaped collection.
    #[must_use]
    pub fn insert(&self, items: &[Document]) -> Document {
        doc! { "insert": COLLECTION, "documents": items, "$db": &self.database }
    }
}

/// The table of the shape.
#[must_use]
pub fn bucket(database: &str, options: &str) -> String {
    format!("[[bucket]]\nnamespace = \"{database}.{COLLECTION}\"\nkey = \"k\"\n{options}")
}
