//! Mixed updates of the same books. Each writer owns elements, and has their expected state.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::books::{BUYERS, COLLECTION};
use proto_tests::retrying::Client;
use proto_tests::threads::{self, Answered};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::outliers::fixture::Fixture;
use crate::outliers::ledger::Ledger;

/// The writers of books.
const WRITERS: usize = 8;
/// Books that all change.
const SHARED: usize = 3;

/// A writer of books, and the expected state of its own elements.
struct Mixer<'a> {
    number: usize,
    client: Client<'a>,
    random: StdRng,
    next: usize,
    /// Of each shared book, in order.
    ledgers: [Vec<String>; SHARED],
    /// A book that no other writer changes.
    own: Vec<String>,
}

impl Mixer<'_> {
    fn name(&mut self) -> String {
        self.next += 1;
        Ledger::buyer(self.number, self.next)
    }

    fn update(&mut self, book: Bson, change: Document, filters: Option<Document>) -> Result<()> {
        let mut statement = doc! { "q": { "_id": book }, "u": change };
        if let Some(filters) = filters {
            statement.insert("arrayFilters", [filters]);
        }
        let command = doc! { "update": COLLECTION, "updates": [statement] };
        let reply = self.client.write_with_reply(&command)?;
        let is_done = reply.get_i32("n")? == 1 && reply.get_i32("nModified")? == 1;
        ensure!(is_done, "{command} was answered {reply}");
        Ok(())
    }

    fn modify(&mut self, book: Bson, change: Document) -> Result<()> {
        let command = doc! { "findAndModify": COLLECTION, "query": { "_id": book }, "update": change, "new": true };
        self.client.write(&command).map(|_| ())
    }

    fn step(&mut self) -> Result<()> {
        let shared = self.random.random_range(0..SHARED);
        let book = Ledger::id(shared);
        let count = self.ledgers[shared].len();
        match self.random.random_range(0..12) {
            0..5 => {
                let name = self.name();
                self.update(book, doc! { "$push": { BUYERS: &name } }, None)?;
                self.ledgers[shared].push(name);
            }
            5 => {
                let names = [self.name(), self.name(), self.name()];
                self.update(book, doc! { "$push": { BUYERS: { "$each": &names } } }, None)?;
                self.ledgers[shared].extend(names);
            }
            6 if count > 0 => {
                let name = self.ledgers[shared].remove(self.random.random_range(0..count));
                self.update(book, doc! { "$pull": { BUYERS: name } }, None)?;
            }
            7 if count > 0 => {
                let place = self.random.random_range(0..count);
                let (new, old) = (self.name(), &self.ledgers[shared][place]);
                let filters = doc! { "x": old };
                self.update(book, doc! { "$set": { format!("{BUYERS}.$[x]"): &new } }, Some(filters))?;
                self.ledgers[shared][place] = new;
            }
            8 => {
                let name = self.name();
                self.modify(book, doc! { "$push": { BUYERS: &name } })?;
                self.ledgers[shared].push(name);
            }
            9 => {
                let name = self.name();
                self.update(book, doc! { "$addToSet": { BUYERS: &name } }, None)?;
                self.ledgers[shared].push(name);
            }
            10 => self.replace_own()?,
            11 => self.insert_own_again()?,
            _ => self.read()?,
        }
        Ok(())
    }

    fn own_id(&self) -> String {
        format!("own {}", self.number)
    }

    fn names(&mut self) -> Vec<String> {
        let count = self.random.random_range(0..30);
        (0..count).map(|_| self.name()).collect()
    }

    fn replace_own(&mut self) -> Result<()> {
        let (id, names) = (self.own_id(), self.names());
        // Never the same.
        let version = i64::try_from(self.next)? + i64::from(self.random.random::<u32>());
        self.update(id.into(), doc! { BUYERS: &names, "version": version }, None)?;
        self.own = names;
        Ok(())
    }

    fn insert_own_again(&mut self) -> Result<()> {
        let (id, names) = (self.own_id(), self.names());
        let delete = doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": &id }, "limit": 1 }] };
        let reply = self.client.write_with_reply(&delete)?;
        ensure!(reply.get_i32("n")? == 1, "{delete} was answered {reply}");
        let insert = doc! { "insert": COLLECTION, "documents": [{ "_id": &id, BUYERS: &names }] };
        let reply = self.client.write_with_reply(&insert)?;
        ensure!(reply.get_i32("n")? == 1, "{insert} was answered {reply}");
        self.own = names;
        Ok(())
    }

    /// What is there of one's own is what one has written.
    fn read(&mut self) -> Result<()> {
        for (shared, ledger) in self.ledgers.iter().enumerate() {
            let found = self.client.find(COLLECTION, &doc! { "_id": Ledger::id(shared) })?;
            let buyers = found.first().context("a book is missing")?.get_array(BUYERS)?;
            let prefix = format!("{}-", self.number);
            let there = buyers
                .iter()
                .filter_map(Bson::as_str)
                .filter(|name| name.starts_with(&prefix));
            let there: Vec<&str> = there.collect();
            ensure!(there == *ledger, "book {shared}: {there:?} are there of {ledger:?}");
        }
        let found = self.client.find(COLLECTION, &doc! { "_id": self.own_id() })?;
        let buyers = found.first().context("the own book is missing")?.get_array(BUYERS)?;
        let there: Vec<&str> = buyers.iter().filter_map(Bson::as_str).collect();
        ensure!(there == self.own, "the own book: {there:?} are there of {:?}", self.own);
        Ok(())
    }
}

/// Changes books while `disturb` runs. Returns how many commands were sent, and how many of them resent.
pub(crate) fn run(
    fixture: &Fixture,
    seed: u64,
    addresses: &[SocketAddr],
    disturb: impl FnOnce(&dyn Fn() -> Result<()>) -> Result<()>,
) -> Result<(u64, u64)> {
    let mut client = fixture.client(0, addresses);
    let shared = (0..SHARED).map(|book| doc! { "_id": Ledger::id(book), BUYERS: [] });
    let own = (0..WRITERS).map(|number| doc! { "_id": format!("own {number}"), BUYERS: [] });
    let books: Vec<Document> = shared.chain(own).collect();
    client.write_with_reply(&doc! { "insert": COLLECTION, "documents": books })?;
    let (is_over, done) = (AtomicBool::new(false), Answered::default());
    let resent = thread::scope(|scope| {
        let mut running = Vec::new();
        for number in 0..WRITERS {
            let mut mixer = Mixer {
                number,
                client: fixture.client(number + 1, addresses),
                random: StdRng::seed_from_u64(seed.wrapping_add(u64::try_from(number)?)),
                next: 0,
                ledgers: Default::default(),
                own: Vec::new(),
            };
            let (is_over, done) = (&is_over, &done);
            running.push(scope.spawn(move || -> Result<u64> {
                let mut ran = Ok(());
                while ran.is_ok() && !is_over.load(Ordering::SeqCst) {
                    ran = mixer.step();
                    done.count();
                }
                is_over.store(true, Ordering::SeqCst);
                ran.and_then(|()| mixer.read())?;
                Ok(mixer.client.resent)
            }));
        }
        let wait = || done.wait_for(10, || !is_over.load(Ordering::SeqCst));
        let disturbed = disturb(&wait);
        is_over.store(true, Ordering::SeqCst);
        let resent = threads::join(running).with_context(|| fixture.books.database.clone())?;
        disturbed.map(|()| resent.iter().sum())
    })?;
    Ok((done.number(), resent))
}
