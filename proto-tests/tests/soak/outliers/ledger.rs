//! The books, and the acknowledged pushes of every writer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, doc};

/// Books.
pub(crate) const BOOKS: usize = 5;
/// The writers that push.
pub(crate) const WRITERS: usize = 32;

/// What was sent and what was acknowledged: each writer's buyers of a book are numbered, and pushed in that
/// order.
#[derive(Debug)]
pub(crate) struct Ledger {
    sent: Vec<[AtomicUsize; BOOKS]>,
    acknowledged: Vec<[AtomicUsize; BOOKS]>,
    resent: AtomicU64,
}

/// The buyers of a book of each writer, by number.
pub(crate) type Counts = Vec<usize>;

impl Ledger {
    pub(crate) fn new() -> Self {
        let none = || (0..WRITERS).map(|_| Default::default()).collect();
        Self {
            sent: none(),
            acknowledged: none(),
            resent: AtomicU64::default(),
        }
    }

    /// The `_id` of a book: of every type.
    pub(crate) fn id(book: usize) -> Bson {
        match book {
            0 => Bson::Int32(2),
            1 => Bson::String("two".to_owned()),
            2 => Bson::Double(2.5),
            3 => Bson::Document(doc! { "shelf": 2, "place": "b" }),
            _ => Bson::Int64(1 << 40),
        }
    }

    /// The name of a buyer.
    pub(crate) fn buyer(writer: usize, number: usize) -> String {
        format!("{writer}-{number}")
    }

    /// The numbers of so many buyers that a writer is about to push.
    pub(crate) fn send(&self, (writer, book): (usize, usize), count: usize) -> std::ops::Range<usize> {
        let first = self.sent[writer][book].fetch_add(count, Ordering::SeqCst);
        first..first + count
    }

    pub(crate) fn acknowledge(&self, (writer, book): (usize, usize), count: usize) {
        self.acknowledged[writer][book].fetch_add(count, Ordering::SeqCst);
    }

    pub(crate) fn acknowledged(&self, book: usize) -> Counts {
        Self::counts(&self.acknowledged, book)
    }

    pub(crate) fn sent(&self, book: usize) -> Counts {
        Self::counts(&self.sent, book)
    }

    fn counts(of: &[[AtomicUsize; BOOKS]], book: usize) -> Counts {
        of.iter().map(|books| books[book].load(Ordering::SeqCst)).collect()
    }

    pub(crate) fn add_resent(&self, resent: u64) {
        self.resent.fetch_add(resent, Ordering::SeqCst);
    }

    pub(crate) fn resent(&self) -> u64 {
        self.resent.load(Ordering::SeqCst)
    }

    /// Whether these buyers are what may be seen: each once, every writer's in its order, all that were
    /// acknowledged before, and none that was not sent yet.
    pub(crate) fn check(buyers: &[Bson], (before, after): (&Counts, &Counts)) -> Result<()> {
        let mut next: HashMap<usize, usize> = HashMap::new();
        for buyer in buyers {
            let name = buyer.as_str().context("a buyer without a name")?;
            let (writer, number) = name.split_once('-').context("a buyer of nobody")?;
            let (writer, number): (usize, usize) = (writer.parse()?, number.parse()?);
            let next = next.entry(writer).or_default();
            ensure!(number == *next, "behind {} buyers of {writer} comes {name}", *next);
            *next += 1;
        }
        for writer in 0..WRITERS {
            let (there, least, most) = (next.get(&writer).copied().unwrap_or(0), before[writer], after[writer]);
            ensure!(
                (least..=most).contains(&there),
                "{there} buyers of {writer}, of which {least} were acknowledged and {most} sent"
            );
        }
        Ok(())
    }
}
