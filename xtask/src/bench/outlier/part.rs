//! The measured operations of an application, the same on every variant.

use bson::{Document, doc};
use clap::ValueEnum;

use super::books::{BUYERS, Books, LENGTHS};
use super::variants::{Kind, Variant};

/// Books of one page of a listing.
const PAGE: i32 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    /// A typical book, by its `_id`
    Find,
    /// Another field of a typical book is set, by its `_id`
    Update,
    /// A buyer is pushed to a typical book
    Push,
    /// A page of 20 books, one of them with 10,000 buyers
    Listing,
    /// A buyer is pushed to a book that has 1,000, 10,000 and 100,000
    PushOutlier,
    /// A buyer is added by `$addToSet` to such a book, which has every second one already
    AddToSet,
    /// A book with 10,000 buyers, whole
    Whole,
    /// Books by a buyer of an outlier
    Buyer,
}

/// One group of figures.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) connections: usize,
    /// Operations.
    pub(super) count: usize,
    /// Buyers of the book that is pushed to, where it is one.
    pub(super) buyers: usize,
}

/// An operation on whichever collection.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    /// A `find`, without its collection, and how many documents it finds.
    Find(Document, usize),
    /// The element of an `update` of one document.
    Update(Document),
}

impl Part {
    /// In the order in which they are measured: what is pushed stays.
    pub(super) const ALL: [Self; 8] = [
        Self::Find,
        Self::Update,
        Self::Push,
        Self::Listing,
        Self::PushOutlier,
        Self::AddToSet,
        Self::Whole,
        Self::Buyer,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Find => "find a typical book by _id",
            Self::Update => "update a typical book by _id, $set of another field",
            Self::Push => "push a buyer to a typical book",
            Self::Listing => "a page of 20 books, one of them an outlier of 10,000",
            Self::PushOutlier => "push a buyer to an outlier, by how many it has, over 1 connection",
            Self::AddToSet => {
                "$addToSet of a buyer to an outlier that has every second one, by how many it has, over 1 connection"
            }
            Self::Whole => "a whole outlier of 10,000",
            Self::Buyer => "find books by a buyer of an outlier, without an index",
        }
    }

    /// What its groups differ in.
    pub(super) fn label(self) -> &'static str {
        if self.is_of_lengths() { "buyers" } else { "connections" }
    }

    /// Whether its groups differ in the length of the array.
    pub(super) fn is_of_lengths(self) -> bool {
        matches!(self, Self::PushOutlier | Self::AddToSet)
    }

    /// Whether an operation ends when the client has decoded the reply: where that is long.
    pub(super) fn decodes(self) -> bool {
        matches!(self, Self::Listing | Self::Whole | Self::Buyer)
    }

    /// Whether it is the same operation on this variant.
    pub(super) fn is_for(self, variant: &Variant) -> bool {
        variant.kind != Kind::Base || !matches!(self, Self::Whole | Self::Buyer)
    }

    /// Its groups.
    pub(super) fn turns(self, connections: &[usize], items: usize) -> Vec<Turn> {
        let turn = |connections: usize, count: usize, buyers| Turn {
            connections,
            count: count.max(connections * 3),
            buyers,
        };
        match self {
            Self::Find | Self::Update | Self::Push => connections.iter().map(|of| turn(*of, items, 0)).collect(),
            Self::Listing | Self::Whole => connections.iter().map(|of| turn(*of, items / 10, 0)).collect(),
            Self::PushOutlier | Self::AddToSet => LENGTHS.iter().map(|buyers| turn(1, items / 20, *buyers)).collect(),
            Self::Buyer => vec![turn(1, 3, 0)],
        }
    }

    /// The operations of one round.
    pub(super) fn commands(self, books: &mut Books, turn: Turn) -> Vec<Operation> {
        (0..turn.count).map(|_| self.operation(books, turn.buyers)).collect()
    }

    fn operation(self, books: &mut Books, buyers: usize) -> Operation {
        let one = |filter: Document| doc! { "filter": filter, "limit": 1, "singleBatch": true };
        match self {
            Self::Find => Operation::Find(one(doc! { "_id": books.next_typical() }), 1),
            Self::Whole => Operation::Find(one(doc! { "_id": books.next_outlier() }), 1),
            Self::Update => {
                let id = books.next_typical();
                Operation::Update(doc! { "q": { "_id": id }, "u": { "$set": { "stock": id % 100 + 1 } } })
            }
            Self::Push => push(books.next_typical(), books),
            Self::PushOutlier => push(long(buyers), books),
            Self::AddToSet => add_to_set(long(buyers), books),
            Self::Listing => {
                let first = books.next_outlier() - PAGE / 2;
                let page = doc! { "filter": { "_id": { "$gte": first } }, "sort": { "_id": 1 }, "limit": PAGE };
                Operation::Find(page, 20)
            }
            Self::Buyer => {
                let id = books.next_outlier();
                Operation::Find(doc! { "filter": { BUYERS: books.buyer(id, 9000) } }, 1)
            }
        }
    }
}

/// The `_id` of the book with this number of buyers.
fn long(buyers: usize) -> i32 {
    -i32::try_from(buyers).expect("a small number")
}

fn add_to_set(id: i32, books: &mut Books) -> Operation {
    let buyer = books.old_or_new_buyer(id);
    Operation::Update(doc! { "q": { "_id": id }, "u": { "$addToSet": { BUYERS: buyer } } })
}

fn push(id: i32, books: &mut Books) -> Operation {
    Operation::Update(doc! { "q": { "_id": id }, "u": { "$push": { BUYERS: books.next_buyer() } } })
}
