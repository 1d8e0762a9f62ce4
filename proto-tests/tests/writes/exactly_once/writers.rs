//! Applications that write, and resend a command until it is acknowledged.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::retrying::{Client, Retries};
use proto_tests::threads::{self, Answered};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

/// Applications at a time.
const WRITERS: u64 = 8;
/// Keys that they share.
const KEYS: i32 = 20;

/// Checks that acknowledged writes are stored. Returns how many commands were resent.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// (collection, number of the item).
    pub(crate) items: Vec<(String, i64)>,
    /// Commands sent more than once.
    pub(crate) resent: u64,
}

/// The target of the writers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writers<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) database: &'a str,
    pub(crate) collections: &'a [&'a str],
    pub(crate) seed: u64,
}

impl Writers<'_> {
    /// Writes while `disturb` runs. It gets the number of answered commands.
    pub(crate) fn write_while(self, disturb: impl FnOnce(&Answered) -> Result<()>) -> Result<Written> {
        let (done, answered) = (AtomicBool::new(false), Answered::default());
        thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|number| {
                    let (done, answered) = (&done, &answered);
                    scope.spawn(move || self.write(number, done, answered))
                })
                .collect();
            let disturbed = disturb(&answered);
            done.store(true, Ordering::Relaxed);
            let mut written = Written::default();
            for of_writer in threads::join(writers)? {
                written.items.extend(of_writer.items);
                written.resent += of_writer.resent;
            }
            disturbed.map(|()| written)
        })
    }

    fn write(self, number: u64, done: &AtomicBool, answered: &Answered) -> Result<Written> {
        let mut random = StdRng::seed_from_u64(self.seed.wrapping_mul(1000) + number);
        let addresses = [self.address];
        let mut client = Client::new(usize::try_from(number)?, &addresses, (self.database, Retries::Writes));
        let mut written = Written::default();
        let mut next = i64::try_from(number)? * 1_000_000_000;
        while !done.load(Ordering::Relaxed) {
            let collection = *self.collections.choose(&mut random).context("no collection")?;
            let count = if random.random_ratio(2, 5) {
                1
            } else {
                random.random_range(2..30)
            };
            let items: Vec<Document> = (next..next + count).map(|item| document(item, &mut random)).collect();
            let command = doc! {
                "insert": collection,
                "documents": &items,
                "ordered": random.random_bool(0.5),
            };
            let reply = client.write_with_reply(&command)?;
            ensure!(
                reply.get_i32("n").is_ok_and(|n| i64::from(n) == count) && client.conflicts == 0,
                "{command} was answered {reply}, with {} conflicts before",
                client.conflicts
            );
            written
                .items
                .extend((next..next + count).map(|item| (collection.to_owned(), item)));
            next += count;
            answered.count();
        }
        written.resent = client.resent;
        Ok(written)
    }
}

fn document(number: i64, random: &mut StdRng) -> Document {
    let date = DateTime::from_millis(random.random_range(0..100_000_i64) * 1000);
    doc! { "_id": number, "k": random.random_range(0..KEYS), "n": number, "date": date }
}
