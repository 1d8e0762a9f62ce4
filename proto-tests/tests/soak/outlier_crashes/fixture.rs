//! A collection of books behind two proxies. The test kills one of them.

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::attempts::{Attempts, Subject};
use proto_tests::books::{BUYERS, Books, COLLECTION, CONTROL};
use proto_tests::mongod;
use proto_tests::raw::Connection;
use proto_tests::rest::at_rest;

use crate::outlier_crashes::commands::books;

pub(crate) struct Fixture {
    pub(crate) books: Books,
    pub(crate) attempts: Attempts,
}

impl Fixture {
    /// `commands`: the client commands. Each run sends one of them.
    pub(crate) fn new(commands: fn(i64) -> Vec<Document>) -> Result<Self> {
        let subject = Subject {
            collection: COLLECTION,
            documents: books,
            commands,
            numbers: &["_id", "run"],
            order: "_id",
        };
        let books = Books::new(5, 4);
        let attempts = Attempts::new(subject, &books.database, |uri| books.proxy(uri))?;
        Ok(Self { books, attempts })
    }

    /// Pushes to every book of the last run. Returns their violations, if any, and the reply.
    pub(crate) fn push_to_all(&self) -> Result<(Option<String>, Document)> {
        let run = self.attempts.base();
        let mut other = self.attempts.other()?;
        let statement = doc! { "q": { "run": run, "title": { "$ne": "nobody" } }, "u": { "$push": { BUYERS: "last" } }, "multi": true };
        let reply =
            other.command_ok(&doc! { "update": COLLECTION, "updates": [statement], "$db": &self.books.database })?;
        let mut direct = Connection::open(mongod::shared_replica_set().address())?;
        let filter = doc! { "run": run, format!("{CONTROL}.tail.0"): { "$exists": true } };
        let find = || direct.find(&self.books.database, COLLECTION, filter.clone());
        let tails = at_rest(find, Vec::is_empty)?;
        let books = other.find(&self.books.database, COLLECTION, doc! { "run": run })?;
        for book in &books {
            let last = book.get_array(BUYERS).ok().and_then(|buyers| buyers.last());
            ensure!(
                last == Some(&Bson::String("last".to_owned())),
                "{book} has lost a buyer"
            );
        }
        Ok((tails.first().map(ToString::to_string), reply))
    }

    /// What is wrong with what is stored, but for what crashes may leave.
    pub(crate) fn wrong_layout(&self) -> Result<Vec<String>> {
        let mut direct = Connection::open(mongod::shared_replica_set().address())?;
        Ok(self.books.look(&mut direct)?.wrong)
    }
}
