//! A collection that was written without the proxy.

use std::process::Output;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::books::{BUYERS, Books, COLLECTION};
use proto_tests::raw::Connection;
use proto_tests::{Proxy, mongod};

pub(crate) struct Fixture {
    pub(crate) books: Books,
    pub(crate) proxy: Proxy,
    pub(crate) direct: Connection,
    pub(crate) shaped: Connection,
}

impl Fixture {
    /// Five buyers in a base document, and seven in a page.
    pub(crate) fn new() -> Result<Self> {
        let books = Books::new(5, 7);
        let set = mongod::shared_replica_set();
        let proxy = books.proxy(&set.uri())?;
        let mut fixture = Self {
            direct: Connection::open(set.address())?,
            shaped: Connection::open(proxy.address())?,
            books,
            proxy,
        };
        // An idle connection is closed.
        fixture.read()?;
        Ok(fixture)
    }

    /// Writes documents without the proxy.
    pub(crate) fn write(&mut self, collection: &str, documents: &[Document]) -> Result<()> {
        let insert = doc! { "insert": collection, "documents": documents, "$db": &self.books.database };
        let reply = self.direct.command_ok(&insert)?;
        ensure!(!reply.contains_key("writeErrors"), "{reply}");
        Ok(())
    }

    /// What the application has of all books, by `_id`.
    pub(crate) fn read(&mut self) -> Result<Vec<Document>> {
        let find = doc! { "find": COLLECTION, "sort": { "_id": 1 }, "$db": &self.books.database };
        self.shaped.all(&find)
    }

    /// Pushes a buyer through the proxy.
    pub(crate) fn push(&mut self, id: i32, buyer: &str) -> Result<()> {
        let statement = doc! { "q": { "_id": id }, "u": { "$push": { BUYERS: buyer } } };
        let update = doc! { "update": COLLECTION, "updates": [statement], "$db": &self.books.database };
        let reply = self.shaped.command_ok(&update)?;
        ensure!(reply.get_i32("nModified")? == 1, "{reply}");
        Ok(())
    }

    /// Everything is in order, and `check` has nothing to say.
    pub(crate) fn is_clean(&mut self) -> Result<()> {
        // The first look may read pages before a tail is moved to them, and base documents after.
        self.books.look_at_rest(&mut self.direct)?;
        let found = self.books.look_at_rest(&mut self.direct)?;
        let is_clean = found.wrong.is_empty() && found.uncounted.is_empty() && found.in_tails == 0;
        ensure!(is_clean, "{}: {found:?}", self.books.database);
        let checked = self.proxy.run("check")?;
        expect_output(&checked, 0, &["no orphans"]).map(|_| ())
    }
}

/// A book with so many buyers.
pub(crate) fn book(id: i32, count: i32) -> Document {
    doc! { "_id": id, "title": format!("The Wooden Amulet {id}"), BUYERS: buyers(0..count) }
}

/// Buyers of these numbers.
pub(crate) fn buyers(numbers: std::ops::Range<i32>) -> Vec<String> {
    numbers.map(|number| format!("user{number:02}")).collect()
}

/// Fails unless a verb ended with this code, and its output has all of these parts.
pub(crate) fn expect_output(output: &Output, code: i32, parts: &[&str]) -> Result<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(code),
        "{}: {text}{complaint}",
        output.status
    );
    for part in parts {
        ensure!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    Ok(text)
}
