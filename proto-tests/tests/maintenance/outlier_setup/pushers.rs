//! Clients that push while a command works.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use bson::doc;
use proto_tests::books::{BUYERS, COLLECTION};
use proto_tests::raw::Connection;

use crate::outlier_setup::fixture::{Fixture, buyers};

/// The clients. Each begins its buyers with its name.
const NAMES: [&str; 3] = ["a", "b", "c"];

impl Fixture {
    /// Works while clients push to the books with the `_id`s from 0 on. Then each book has its first buyers, of
    /// these numbers, and each pushed buyer once.
    pub(crate) fn while_clients_push(
        &mut self,
        counts: &[i32],
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let is_over = AtomicBool::new(false);
        let (database, address) = (self.books.database.clone(), self.proxy.address());
        let books = i32::try_from(counts.len())?;
        let pushed = thread::scope(|scope| {
            let running: Vec<_> = NAMES
                .iter()
                .map(|name| {
                    let (database, is_over) = (&database, &is_over);
                    scope.spawn(move || {
                        let pusher = Pusher { name, database, books };
                        pusher.push_until(Connection::open(address)?, is_over)
                    })
                })
                .collect();
            let worked = work(self);
            is_over.store(true, Ordering::Relaxed);
            let pushed: Result<Vec<i32>> = running
                .into_iter()
                .map(|one| one.join().map_err(|_| anyhow!("a thread panicked"))?)
                .collect();
            worked.and(pushed)
        })?;
        for (book, count) in self.read()?.iter().zip(counts) {
            let there: Vec<&str> = book
                .get_array(BUYERS)?
                .iter()
                .filter_map(|buyer| buyer.as_str())
                .collect();
            let (first, rest) = there.split_at(usize::try_from(*count)?);
            ensure!(*first == buyers(0..*count), "{book} has lost its first buyers");
            for (name, pushed) in NAMES.iter().zip(&pushed) {
                let own = rest.iter().filter(|buyer| buyer.starts_with(name));
                let expected = (0..*pushed).map(|number| format!("{name}{number}"));
                ensure!(own.copied().eq(expected), "{book}: not what {name} has pushed");
            }
        }
        Ok(())
    }
}

struct Pusher<'a> {
    name: &'a str,
    database: &'a str,
    books: i32,
}

impl Pusher<'_> {
    /// Pushes to all books in turn. Returns the number of turns.
    fn push_until(&self, mut shaped: Connection, is_over: &AtomicBool) -> Result<i32> {
        let Self { name, database, books } = self;
        for number in 0.. {
            for id in 0..*books {
                let statement = doc! { "q": { "_id": id }, "u": { "$push": { BUYERS: format!("{name}{number}") } } };
                let update = doc! { "update": COLLECTION, "updates": [statement], "$db": database };
                let reply = shaped.command_ok(&update)?;
                ensure!(reply.get_i32("nModified")? == 1, "{reply}");
                let book = shaped.find(database, COLLECTION, doc! { "_id": id })?;
                let last = format!("{name}{number}");
                let there = book.first().context("no book")?.get_array(BUYERS)?;
                let times = there.iter().filter(|buyer| buyer.as_str() == Some(&last)).count();
                ensure!(times == 1, "{last} is there {times} times");
            }
            if is_over.load(Ordering::Relaxed) {
                return Ok(number + 1);
            }
        }
        Ok(0)
    }
}
