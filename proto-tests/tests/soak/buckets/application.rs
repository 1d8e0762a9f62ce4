//! One application with a random mix of operations.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::retrying::Client;
use proto_tests::threads::Answered;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::buckets::fixture::{COLLECTION, Fixture, KEYS};
use crate::buckets::ledger::Ledger;

/// One application.
#[derive(Debug)]
pub(crate) struct Application<'a> {
    pub(crate) fixture: &'a Fixture,
    pub(crate) client: Client<'a>,
    pub(crate) random: StdRng,
    pub(crate) ledger: Ledger,
    pub(crate) number: i64,
    next: i64,
}

impl<'a> Application<'a> {
    pub(crate) fn new(fixture: &'a Fixture, number: usize, seed: u64, addresses: &'a [SocketAddr]) -> Self {
        let stream = u64::try_from(number).unwrap_or(0);
        Self {
            fixture,
            client: Client::new(number, addresses, (&fixture.database, fixture.retries)),
            random: StdRng::seed_from_u64(seed.wrapping_mul(1000) + stream),
            ledger: Ledger::default(),
            number: i64::try_from(number).unwrap_or(0),
            next: 0,
        }
    }

    pub(crate) fn run(mut self, done: &AtomicBool, answered: &Answered) -> Result<Ledger> {
        self.begin_shared()?;
        while !done.load(Ordering::Relaxed) {
            let what = match self.random.random_range(0..10) {
                0..6 => self.change_own()?,
                6..9 => self.change_shared()?,
                _ => self.change_queue()?,
            };
            *self.ledger.done.entry(what).or_default() += 1;
            answered.count();
        }
        self.ledger.conflicts = self.client.conflicts;
        self.ledger.resent = self.client.resent;
        self.ledger.forgotten = self.client.forgotten;
        Ok(self.ledger)
    }

    /// A new item.
    pub(crate) fn item(&mut self, class: &str) -> Document {
        self.next += 1;
        let id = self.number * 1_000_000 + self.next;
        doc! {
            "_id": id,
            "k": if self.fixture.is_sharded { fixed_key(id) } else { self.key() },
            "at": self.time(),
            "class": class,
            "u": id,
            "owner": self.number,
            "group": self.random.random_range(0..6),
            "n": 0_i64,
        }
    }

    pub(crate) fn key(&mut self) -> i32 {
        self.random.random_range(0..KEYS)
    }

    pub(crate) fn time(&mut self) -> DateTime {
        // Most ascend, so that pages are late now and then.
        let late = if self.random.random_bool(0.1) {
            self.random.random_range(0..500)
        } else {
            0
        };
        DateTime::from_millis(1_698_335_223_434 + (self.next - late) * 1000)
    }

    /// `{_id: …}`, or the same item by a filter that mongod must look for.
    pub(crate) fn either_filter(&mut self, id: i64) -> Document {
        let name = if self.random.random_bool(0.5) { "_id" } else { "u" };
        self.filter(name, id)
    }

    /// An item by `_id`, or by another field with the same value.
    pub(crate) fn filter(&self, name: &str, id: i64) -> Document {
        let mut filter = doc! { name: id };
        if self.fixture.is_sharded {
            filter.insert("k", fixed_key(id));
        }
        filter
    }

    pub(crate) fn insert(items: &[Document], ordered: bool) -> Document {
        doc! { "insert": COLLECTION, "documents": items, "ordered": ordered }
    }

    pub(crate) fn update(filter: Document, change: impl Into<Bson>) -> Document {
        doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change.into() }] }
    }

    pub(crate) fn update_many(filter: Document, change: impl Into<Bson>) -> Document {
        doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change.into(), "multi": true }] }
    }

    pub(crate) fn delete(filter: Document, limit: i32) -> Document {
        doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": limit }] }
    }
}

/// The key of an item of a sharded collection.
fn fixed_key(id: i64) -> i32 {
    i32::try_from(id % i64::from(KEYS)).unwrap_or(0)
}

/// Fails unless the reply's fields are these numbers.
pub(crate) fn expect(command: &Document, reply: &Document, expected: &[(&str, i64)]) -> Result<()> {
    for (name, expected) in expected {
        if whole(reply.get(name)) != Some(*expected) {
            bail!("{command}\n  expected {name}: {expected}, got {reply}");
        }
    }
    Ok(())
}

/// A whole number of whichever type.
pub(crate) fn whole(value: Option<&Bson>) -> Option<i64> {
    match value? {
        Bson::Int32(number) => Some((*number).into()),
        Bson::Int64(number) => Some(*number),
        _ => None,
    }
}
