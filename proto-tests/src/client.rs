//! The Rust driver, and a unique database name for each test.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use mongodb::{Client, Collection, Database};

use bson::Document;

use crate::{Mongod, Proxy};

/// A driver's client for a connection string, such as [`Mongod::uri`] and [`Proxy::uri`] give.
pub async fn client(uri: &str) -> Result<Client> {
    Ok(Client::with_uri_str(uri).await?)
}

/// A database name that is unique among all test processes on the server.
#[must_use]
pub fn database_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The same application on both systems: a plain database on mongod itself, and a shaped one through the
/// proxy.
///
/// The names have equal lengths, and collections should have the same name in both, so that errors differ
/// only in the database's name (see [`Pair::neutral`]).
#[derive(Debug, Clone)]
pub struct Pair {
    /// A plain collection on mongod: the reference for every reply.
    pub plain: Database,
    /// Through the proxy.
    pub shaped: Database,
    /// The database of `shaped` on mongod itself: what is stored.
    pub stored: Database,
}

impl Pair {
    /// Two fresh databases. The proxy's shapes have to cover any database (`namespace = "*.trades"`).
    pub async fn new(mongod: &Mongod, proxy: &Proxy) -> Result<Self> {
        let name = database_name();
        let (plain, shaped) = (format!("{name}_n"), format!("{name}_s"));
        let (direct, proxied) = (client(&mongod.uri()).await?, client(&proxy.uri()).await?);
        Ok(Self {
            plain: direct.database(&plain),
            shaped: proxied.database(&shaped),
            stored: direct.database(&shaped),
        })
    }

    /// The collection of this name: plain, shaped, and as stored.
    #[must_use]
    pub fn collections(&self, name: &str) -> [Collection<Document>; 3] {
        [
            self.plain.collection(name),
            self.shaped.collection(name),
            self.stored.collection(name),
        ]
    }

    /// A text of either side, such as an error message, with the database's name taken out.
    #[must_use]
    pub fn neutral(&self, text: &str) -> String {
        text.replace(self.plain.name(), "<db>")
            .replace(self.shaped.name(), "<db>")
    }
}
