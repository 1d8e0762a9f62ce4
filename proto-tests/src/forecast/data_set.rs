//! Collections as applications have them. The same set has the same documents in every run.

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::ItemIds;

/// The words of texts.
const WORDS: [&str; 16] = [
    "delivery", "invoice", "please", "tomorrow", "the", "a", "customer", "is", "not", "order", "again", "with", "and",
    "thanks", "meeting", "price",
];
const STATES: [&str; 3] = ["open", "paid", "closed"];
/// The time between two documents of any key, in milliseconds.
const STEP_MS: i64 = 700;
const BEGIN_MS: i64 = 1_700_000_000_000;
/// Distinct values of the field `user`.
const USERS: u32 = 5000;

/// The documents of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Short messages of 100 to 200 bytes.
    Messages,
    /// 20 measured numbers with a fraction.
    Readings,
    /// 1 to 2 kB of repeated text.
    Orders,
    /// Random strings of 300 bytes, which do not compress.
    Random,
}

/// A collection to be packed.
#[derive(Clone, Debug)]
pub struct DataSet {
    /// The documents.
    pub content: Content,
    /// Their number.
    pub items: u32,
    /// Mean number of documents of a key. Keys are drawn at random, so documents of all keys are
    /// interleaved.
    pub per_key: u32,
    /// Whether the `_id`s are kept.
    pub item_ids: ItemIds,
    /// Limit of the reads of a key that the profiler has recorded. `advise` proposes pages of so many items,
    /// if it is 10, 20, 50, 100, ...
    pub read_limit: i32,
    /// Key patterns of the application's indexes.
    pub indexes: Vec<Document>,
}

impl DataSet {
    /// The field that documents are grouped by.
    pub const KEY: &str = "key";
    /// The field that documents of a key are ordered by.
    pub const TIME: &str = "at";

    /// A set with an index on key and time.
    #[must_use]
    pub fn new(content: Content, items: u32, per_key: u32) -> Self {
        Self {
            content,
            items,
            per_key,
            item_ids: ItemIds::Unique,
            read_limit: 10,
            indexes: vec![doc! { Self::KEY: 1, Self::TIME: 1 }],
        }
    }

    /// Sets the shape's `item_ids`.
    #[must_use]
    pub fn item_ids(mut self, item_ids: ItemIds) -> Self {
        self.item_ids = item_ids;
        self
    }

    /// Adds an index of the application.
    #[must_use]
    pub fn index(mut self, key: Document) -> Self {
        self.indexes.push(key);
        self
    }

    /// Sets the limit of recorded reads.
    #[must_use]
    pub fn read_limit(mut self, limit: i32) -> Self {
        self.read_limit = limit;
        self
    }

    /// The documents, in the order of their times.
    pub fn documents(&self) -> impl Iterator<Item = Document> {
        let mut random = StdRng::seed_from_u64(7);
        let (content, keys) = (self.content, (self.items / self.per_key).max(1));
        (0..self.items).map(move |number| {
            let at = BEGIN_MS + STEP_MS * i64::from(number);
            let state = STATES[random.random_range(0..STATES.len())];
            let mut document = doc! {
                "_id": id(number, at), Self::KEY: as_key(random.random_range(0..keys)),
                Self::TIME: DateTime::from_millis(at), "status": state,
                "user": format!("user{}", random.random_range(0..USERS)),
            };
            document.extend(content.fields(&mut random));
            document
        })
    }
}

/// Keys are int32, as a driver stores small numbers.
fn as_key(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// An `_id` as a driver makes it: seconds, the process, a counter.
fn id(number: u32, at_ms: i64) -> ObjectId {
    let seconds = u32::try_from(at_ms / 1000).unwrap_or(u32::MAX).to_be_bytes();
    let counter = number.to_be_bytes();
    let mut bytes = *b"....procs...";
    bytes[..4].copy_from_slice(&seconds);
    bytes[9..].copy_from_slice(&counter[1..]);
    ObjectId::from_bytes(bytes)
}

impl Content {
    /// The fields beside those that all sets have.
    fn fields(self, random: &mut StdRng) -> Document {
        match self {
            Self::Messages => doc! { "text": text(random, 2..12) },
            Self::Readings => {
                let mut fields = Document::new();
                for channel in 0..20 {
                    fields.insert(format!("channel{channel}"), 20.0 + random.random_range(0.0..1.0));
                }
                fields
            }
            Self::Orders => {
                let line = |random: &mut StdRng| {
                    doc! {
                        "product": text(random, 3..5), "description": text(random, 20..30), "quantity": random.random_range(1..9),
                        "price": random.random_range(100..9999),
                    }
                };
                let lines: Vec<Document> = (0..5).map(|_| line(random)).collect();
                doc! { "lines": lines, "address": text(random, 8..12), "note": text(random, 4..30) }
            }
            Self::Random => {
                let letters = (0..300).map(|_| char::from(random.random_range(33..127_u8)));
                doc! { "token": letters.collect::<String>() }
            }
        }
    }
}

/// A number of words.
fn text(random: &mut StdRng, words: std::ops::Range<usize>) -> String {
    let count = random.random_range(words);
    let words: Vec<&str> = (0..count).map(|_| WORDS[random.random_range(0..WORDS.len())]).collect();
    words.join(" ")
}
