//! The Rust driver, and databases that no two tests share.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use mongodb::{Client, Collection, Database};

use bson::Document;

use crate::{Mongod, Proxy};

/// A driver's client for a connection string, such as [`Mongod::uri`] and [`Proxy::uri`] give.
pub async fn client(uri: &str) -> Result<Client> {
    Ok(Client::with_uri_str(uri).await?)
}

/// A database name that nobody else uses, also not another test process on the same server.
#[must_use]
pub fn database_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The same application on both systems: a naive database on mongod itself, and a shaped one through the
/// proxy.
///
/// The names have equal lengths, and collections should have the same name in both, so that errors differ
/// only in the database's name (see [`Pair::neutral`]).
#[derive(Debug, Clone)]
pub struct Pair {
    /// On mongod, where no shape is: what every answer must be like.
    pub naive: Database,
    /// Through the proxy.
    pub shaped: Database,
    /// The database of `shaped` on mongod itself: what is stored.
    pub stored: Database,
}

impl Pair {
    /// Two fresh databases. The proxy's shapes have to cover any database (`namespace = "*.trades"`).
    pub async fn new(mongod: &Mongod, proxy: &Proxy) -> Result<Self> {
        let name = database_name();
        let (naive, shaped) = (format!("{name}_n"), format!("{name}_s"));
        let (direct, proxied) = (client(&mongod.uri()).await?, client(&proxy.uri()).await?);
        Ok(Self {
            naive: direct.database(&naive),
            shaped: proxied.database(&shaped),
            stored: direct.database(&shaped),
        })
    }

    /// The collection of this name: naive, shaped, and as stored.
    #[must_use]
    pub fn collections(&self, name: &str) -> [Collection<Document>; 3] {
        [
            self.naive.collection(name),
            self.shaped.collection(name),
            self.stored.collection(name),
        ]
    }

    /// A text of either side, such as an error message, with the database's name taken out.
    #[must_use]
    pub fn neutral(&self, text: &str) -> String {
        text.replace(self.naive.name(), "<db>")
            .replace(self.shaped.name(), "<db>")
    }
}
