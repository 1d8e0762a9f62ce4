//! The catalogue: the same books in every collection.

use bson::{Document, doc};

/// The array that may grow.
pub(super) const BUYERS: &str = "customers_purchased";
/// Elements that a base document holds.
pub(super) const THRESHOLD: usize = 50;
/// Of so many books, one is an outlier.
const ONE_OF: usize = 1000;
/// Which of them.
const WHICH: usize = 500;
/// Buyers of an outlier.
const MANY: usize = 10_000;
/// Buyers of a typical book: fewer than this, so that there is room for what is pushed.
const FEW: usize = 20;
/// Buyers of the books that are pushed to again and again, whose `_id`s are these numbers, negative.
pub(super) const LENGTHS: [usize; 3] = [1000, 10_000, 100_000];

/// The books, and which of them were picked so far.
#[derive(Debug)]
pub(super) struct Books {
    typical: usize,
    picked: usize,
    pushed: usize,
}

impl Books {
    pub(super) fn new(typical: usize) -> Self {
        Self {
            typical,
            picked: 0,
            pushed: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.typical + LENGTHS.len()
    }

    /// All of them, in commands of so many.
    pub(super) fn batches(&self, size: usize) -> impl Iterator<Item = Vec<Document>> {
        let ids: Vec<usize> = (0..self.typical).collect();
        let chunks = ids
            .chunks(size)
            .map(|ids| ids.iter().map(|id| book(number(*id), buyers(*id))).collect());
        let large = LENGTHS.map(|length| vec![book(-number(length), length)]);
        chunks.collect::<Vec<_>>().into_iter().chain(large)
    }

    /// The next typical book: each comes once before one comes again.
    pub(super) fn next_typical(&mut self) -> i32 {
        loop {
            // Far from the one before, as no page is to be read twice in a row: the step has no factor with the number of books.
            self.picked = (self.picked + 7919) % self.typical;
            if !is_outlier(self.picked) {
                return number(self.picked);
            }
        }
    }

    /// The next outlier.
    pub(super) fn next_outlier(&mut self) -> i32 {
        let outliers = (self.typical + ONE_OF - WHICH - 1) / ONE_OF;
        self.picked += 1;
        number(self.picked % outliers * ONE_OF + WHICH)
    }

    /// A buyer that nobody has been.
    pub(super) fn next_buyer(&mut self) -> String {
        self.pushed += 1;
        format!("new{:08}", self.pushed)
    }
}

/// The name of a book's buyer.
pub(super) fn buyer(id: i32, place: usize) -> String {
    format!(
        "user{:08}",
        usize::try_from(id.unsigned_abs()).unwrap_or_default() * 31 + place
    )
}

fn buyers(id: usize) -> usize {
    if is_outlier(id) { MANY } else { id % FEW }
}

fn is_outlier(id: usize) -> bool {
    id % ONE_OF == WHICH
}

fn number(id: usize) -> i32 {
    i32::try_from(id).expect("fewer books than that")
}

fn book(id: i32, buyers: usize) -> Document {
    let all: Vec<String> = (0..buyers).map(|place| buyer(id, place)).collect();
    doc! {
        "_id": id, "title": format!("The Wooden Amulet, part {id}"), "year": 1972, "author": "Lesley Moreno", "stock": 0, BUYERS: all,
    }
}
