//! The collection, its proxies, and the readers and writers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use proto_tests::books::{BUYERS, Books, COLLECTION};
use proto_tests::crash::expect_cuts;
use proto_tests::raw::Connection;
use proto_tests::retrying::{Client, Retries};
use proto_tests::threads::{self, Answered};
use proto_tests::{Proxy, mongod};
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use crate::outliers::ledger::{BOOKS, Ledger, WRITERS};
use crate::outliers::measure::Measure;
use crate::outliers::reader::Reader;
use crate::outliers::writer::Writer;

const READERS: usize = 4;

pub(crate) struct Fixture {
    pub(crate) books: Books,
    pub(crate) ledger: Ledger,
    retries: Retries,
    uri: String,
}

/// How far the writers are.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    answered: Answered,
    writing: AtomicUsize,
    failed: AtomicBool,
}

impl Progress {
    /// Whether a writer is still running.
    pub(crate) fn goes_on(&self) -> bool {
        self.writing.load(Ordering::SeqCst) > 0 && !self.failed.load(Ordering::SeqCst)
    }

    /// Waits until some more commands were answered.
    pub(crate) fn wait_for_some(&self) -> Result<()> {
        self.answered.wait_for(50, || self.goes_on())
    }
}

impl Fixture {
    pub(crate) fn new((threshold, max_items): (usize, usize), (upstream, retries): (SocketAddr, Retries)) -> Self {
        Self {
            books: Books::new(threshold, max_items),
            ledger: Ledger::new(),
            retries,
            uri: format!("mongodb://{upstream}/?directConnection=true"),
        }
    }

    pub(crate) fn proxies(&self) -> Result<[Proxy; 2]> {
        let start = || -> Result<Proxy> {
            let proxy = self.books.proxy(&self.uri)?;
            if self.retries == Retries::Writes {
                expect_cuts(&proxy);
            }
            Ok(proxy)
        };
        Ok([start()?, start()?])
    }

    fn direct() -> Result<Connection> {
        Connection::open(mongod::shared_replica_set().address())
    }

    /// Writers push and readers read, while `disturb` runs. Returns a summary.
    pub(crate) fn run(
        &self,
        (seed, measure): (u64, Measure),
        addresses: &[SocketAddr],
        disturb: impl FnOnce(&Progress) -> Result<()>,
    ) -> Result<String> {
        let books: Vec<_> = (0..BOOKS)
            .map(|book| doc! { "_id": Ledger::id(book), "title": format!("The Wooden Amulet {book}"), BUYERS: [] })
            .collect();
        let mut client = self.client(0, addresses);
        client.write_with_reply(&doc! { "insert": COLLECTION, "documents": books })?;
        let progress = Progress::default();
        progress.writing.store(WRITERS, Ordering::SeqCst);
        let begun = Instant::now();
        let reads = thread::scope(|scope| {
            let progress = &progress;
            let guarded = move |ran: Result<u64>| {
                progress.failed.fetch_or(ran.is_err(), Ordering::SeqCst);
                ran
            };
            let mut running = Vec::new();
            for number in 0..WRITERS {
                let writer = Writer {
                    number,
                    client: self.client(number + 1, addresses),
                    random: StdRng::seed_from_u64(seed.wrapping_add(u64::try_from(number)?)),
                    ledger: &self.ledger,
                };
                running.push(scope.spawn(move || {
                    let buyers = measure.buyers / WRITERS;
                    let ran = writer.run(buyers, || {
                        progress.answered.count();
                    });
                    progress.writing.fetch_sub(1, Ordering::SeqCst);
                    guarded(ran.map(|()| 0))
                }));
            }
            for number in 0..READERS {
                let reader = Reader {
                    client: self.client(WRITERS + 1 + number, addresses),
                    random: StdRng::seed_from_u64(seed.wrapping_sub(1 + u64::try_from(number)?)),
                    ledger: &self.ledger,
                };
                running.push(scope.spawn(move || guarded(reader.run(|| progress.goes_on()))));
            }
            running.push(scope.spawn(move || guarded(self.watch(progress))));
            let disturbed = disturb(progress);
            progress.failed.fetch_or(disturbed.is_err(), Ordering::SeqCst);
            let reads: u64 = threads::join(running)
                .with_context(|| self.books.database.clone())?
                .iter()
                .sum();
            disturbed.map(|()| reads)
        })?;
        Ok(format!(
            "{} buyers and {reads} reads in {:?}; {} commands sent again",
            measure.buyers,
            begun.elapsed(),
            self.ledger.resent()
        ))
    }

    pub(crate) fn client<'a>(&'a self, number: usize, addresses: &'a [SocketAddr]) -> Client<'a> {
        Client::new(number, addresses, (&self.books.database, self.retries))
    }

    /// Watches all the time that no document has too many buyers.
    fn watch(&self, progress: &Progress) -> Result<u64> {
        let mut direct = Self::direct()?;
        while progress.goes_on() {
            let overfull = self.books.overfull(&mut direct)?;
            ensure!(overfull.is_empty(), "overfull: {overfull:?}");
            thread::sleep(Duration::from_millis(2));
        }
        Ok(0)
    }

    /// Every buyer is there once, and the layout is in order.
    pub(crate) fn judge(&self) -> Result<()> {
        let proxies = self.proxies()?;
        let addresses = proxies.each_ref().map(Proxy::address);
        let mut client = self.client(0, &addresses);
        for book in 0..BOOKS {
            let (acknowledged, sent) = (self.ledger.acknowledged(book), self.ledger.sent(book));
            ensure!(acknowledged == sent, "something was not acknowledged");
            let found = client.find(COLLECTION, &doc! { "_id": Ledger::id(book) })?;
            ensure!(found.len() == 1, "{} books of one _id", found.len());
            Ledger::check(found[0].get_array(BUYERS)?, (&sent, &sent))?;
        }
        self.judge_layout()
    }

    /// The layout is in order. Where nothing crashed, nothing is left over.
    pub(crate) fn judge_layout(&self) -> Result<()> {
        let found = self.books.look_at_rest(&mut Self::direct()?)?;
        ensure!(found.wrong.is_empty(), "{}: {:?}", self.books.database, found.wrong);
        let is_clean = found.uncounted.is_empty() && found.in_tails == 0;
        ensure!(
            is_clean || self.retries == Retries::Writes,
            "{}: left over without a crash: {found:?}",
            self.books.database
        );
        Ok(())
    }
}
