//! The catalogue: the same books in every collection.

use bson::{Bson, DateTime, Document, doc};

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

/// What a buyer is in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Buyers {
    /// A name of 11 or 12 letters
    Names,
    /// A document of a name, a date and a price
    Documents,
}

impl Buyers {
    fn buyer(self, name: String) -> Bson {
        match self {
            Self::Names => name.into(),
            Self::Documents => {
                doc! { "user": name, "date": DateTime::from_millis(1_700_000_000_000), "price": 9.75 }.into()
            }
        }
    }
}

/// The books, and which of them were picked so far.
#[derive(Debug)]
pub(super) struct Books {
    form: Buyers,
    typical: usize,
    picked: usize,
    pushed: usize,
}

impl Books {
    pub(super) fn new(typical: usize, form: Buyers) -> Self {
        Self {
            form,
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
            .map(|ids| ids.iter().map(|id| self.book(number(*id), buyers(*id))).collect());
        let large = LENGTHS.map(|length| vec![self.book(-number(length), length)]);
        chunks.collect::<Vec<_>>().into_iter().chain(large)
    }

    /// The next typical book: each comes once before one comes again.
    pub(super) fn next_typical(&mut self) -> i32 {
        loop {
            // Far from the one before, as no page is to be read twice in a row: the step has no factor with
            // the number of books.
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

    /// A new buyer.
    pub(super) fn next_buyer(&mut self) -> Bson {
        self.pushed += 1;
        self.form.buyer(format!("new{:08}", self.pushed))
    }

    /// In turn a new buyer, and one of this long book.
    pub(super) fn old_or_new_buyer(&mut self, id: i32) -> Bson {
        let new = self.next_buyer();
        let length = usize::try_from(id.unsigned_abs()).unwrap_or_default();
        if self.pushed.is_multiple_of(2) {
            new
        } else {
            self.buyer(id, self.pushed * 7919 % length)
        }
    }

    /// A book's buyer.
    pub(super) fn buyer(&self, id: i32, place: usize) -> Bson {
        let number = usize::try_from(id.unsigned_abs()).unwrap_or_default() * 31 + place;
        self.form.buyer(format!("user{number:08}"))
    }

    fn book(&self, id: i32, buyers: usize) -> Document {
        let all: Vec<Bson> = (0..buyers).map(|place| self.buyer(id, place)).collect();
        doc! {
            "_id": id, "title": format!("The Wooden Amulet, part {id}"), "year": 1972, "author": "Lesley Moreno", "stock": 0,
            BUYERS: all,
        }
    }
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
