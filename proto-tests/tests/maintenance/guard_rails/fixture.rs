//! A database whose collections are written without the proxy, and a proxy with any configuration.

use std::fmt::Write as _;
use std::process::Output;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::{Proxy, ProxyOptions, database_name, mongod};

pub(crate) struct Fixture {
    pub(crate) database: String,
    pub(crate) direct: Connection,
}

impl Fixture {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            database: database_name(),
            direct: Connection::open(mongod::shared().address())?,
        })
    }

    /// The table of a bucket shape.
    pub(crate) fn bucket(&self, collection: &str, options: &str) -> String {
        format!(
            "[[bucket]]\nnamespace = \"{}.{collection}\"\n{options}\n",
            self.database
        )
    }

    /// Writes documents without the proxy.
    pub(crate) fn write(&mut self, collection: &str, documents: &[Document]) -> Result<()> {
        let insert = doc! { "insert": collection, "documents": documents, "$db": &self.database };
        let reply = self.direct.command_ok(&insert)?;
        ensure!(!reply.contains_key("writeErrors"), "{reply}");
        Ok(())
    }

    /// Every collection with its options, its indexes and its documents, as text.
    pub(crate) fn state(&mut self) -> Result<String> {
        let mut listed = self.direct.all(&doc! { "listCollections": 1, "$db": &self.database })?;
        listed.sort_by_key(|listed| listed.get_str("name").unwrap_or_default().to_owned());
        let mut state = String::new();
        for listed in listed {
            let name = listed.get_str("name")?;
            let indexes = self.direct.all(&doc! { "listIndexes": name, "$db": &self.database })?;
            let documents = self.direct.find(&self.database, name, doc! {})?;
            writeln!(state, "{listed} {indexes:?} {documents:?}")?;
        }
        Ok(state)
    }
}

/// A proxy with these tables. It logs nothing but what fits: it is started before documents are written.
pub(crate) fn proxy(tables: &str) -> Result<Proxy> {
    Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(tables))
}

/// Both outputs of a command that ended with this code and printed all of these parts.
pub(crate) fn expect(output: &Output, code: i32, parts: &[&str]) -> Result<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(code), "{}: {text}", output.status);
    for part in parts {
        ensure!(text.contains(part), "no {part:?} in:\n{text}");
    }
    Ok(text)
}
