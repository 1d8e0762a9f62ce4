//! The queried collection: messages of conversations, the same in every run.

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};

use crate::bench::trades::SplitMix64;

/// The field that pages are grouped by: the conversation.
pub(super) const KEY: &str = "conv";
/// The field that items are ordered by.
pub(super) const TIME: &str = "at";
/// The statuses of messages: one message in 50 is pending, one in three delivered, the others are read.
pub(super) const STATUSES: [&str; 3] = ["pending", "delivered", "read"];
/// The kinds of messages, equally frequent. No index has this field.
pub(super) const KINDS: [&str; 4] = ["text", "image", "file", "call"];

/// Items of a long key.
pub(super) const LONG_ITEMS: usize = 3007;
/// Items of the longest key.
const LONGEST_ITEMS: usize = 12_003;
/// The least collection that has a long key.
const SIZE_OF_LONG: usize = 10_000;
/// The least collection that has the longest key.
const SIZE_OF_LONGEST: usize = 50_000;
/// The least number of items of a short key; the most is 40 more.
const SHORT_ITEMS: usize = 80;
/// Messages of a sender, on average.
const OF_SENDER: usize = 50;

const BEGIN_MS: i64 = 1_698_335_223_000;
/// Between two messages, of whichever conversation.
const STEP_MS: i64 = 60_000;

/// One message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    /// Its place in the order of time, from 0.
    number: u32,
    pub(super) key: i32,
    pub(super) sender: u32,
    pub(super) status: &'static str,
    pub(super) kind: &'static str,
    n: i32,
}

impl Message {
    /// The message as an application inserts it, of about 250 bytes.
    pub(super) fn document(&self) -> Document {
        let text = format!(
            "message {} about something that takes a line or two to write, and is not read again often",
            self.number
        );
        doc! {
            "_id": self.id(), KEY: self.key, TIME: self.at(), "from": self.from(), "status": self.status,
            "kind": self.kind, "n": self.n, "text": text,
        }
    }

    /// The sender's name.
    pub(super) fn from(&self) -> String {
        format!("user{}", self.sender)
    }

    /// Its time, which no other message has.
    pub(super) fn at(&self) -> DateTime {
        DateTime::from_millis(BEGIN_MS + STEP_MS * i64::from(self.number))
    }

    /// As a driver makes it: seconds, the process, a counter. In the order of time.
    pub(super) fn id(&self) -> ObjectId {
        let seconds = u32::try_from(self.at().timestamp_millis() / 1000).unwrap_or(u32::MAX);
        let mut bytes = *b"....bench...";
        bytes[..4].copy_from_slice(&seconds.to_be_bytes());
        bytes[9..].copy_from_slice(&self.number.to_be_bytes()[1..]);
        ObjectId::from_bytes(bytes)
    }
}

/// All messages of a collection, and which of them each key has.
#[derive(Debug)]
pub(super) struct Messages {
    /// In the order of time.
    pub(super) all: Vec<Message>,
    /// For each key the places of its messages in `all`, ascending.
    places: Vec<Vec<usize>>,
    /// Keys of about 100 items.
    pub(super) short: Vec<i32>,
    /// Keys of [`LONG_ITEMS`].
    pub(super) long: Vec<i32>,
    /// The key of more than 10,000 items.
    pub(super) longest: Option<i32>,
}

impl Messages {
    /// So many messages. Those of a key are spread over the whole time, so the writes of all keys interleave.
    pub(super) fn new(size: usize) -> Self {
        let mut random = SplitMix64::new(0x7175_6572_6965_7321);
        let counts = counts(size);
        let mut messages = Self {
            all: Vec::with_capacity(size),
            places: counts.iter().map(|count| Vec::with_capacity(*count)).collect(),
            short: Vec::new(),
            long: Vec::new(),
            longest: None,
        };
        for (key, count) in (0..).zip(&counts) {
            match *count {
                LONGEST_ITEMS => messages.longest = Some(key),
                LONG_ITEMS => messages.long.push(key),
                SHORT_ITEMS.. => messages.short.push(key),
                _ => {}
            }
        }
        let mut keys: Vec<usize> = counts
            .iter()
            .enumerate()
            .flat_map(|(key, count)| std::iter::repeat_n(key, *count))
            .collect();
        shuffle(&mut keys, &mut random);
        let senders = u32::try_from(size / OF_SENDER).unwrap_or(u32::MAX).max(1);
        for (place, key) in keys.into_iter().enumerate() {
            messages.places[key].push(place);
            messages.all.push(message(place, key, senders, &mut random));
        }
        messages
    }

    /// The message of a key at this place in the key's order of time, from 0.
    pub(super) fn of_key(&self, key: i32, nth: usize) -> Option<&Message> {
        let places = self.places.get(usize::try_from(key).ok()?)?;
        self.all.get(*places.get(nth)?)
    }

    /// How many messages a key has.
    pub(super) fn count(&self, key: i32) -> usize {
        usize::try_from(key).map_or(0, |key| self.places[key].len())
    }

    /// How many keys there are.
    pub(super) fn keys(&self) -> usize {
        self.places.len()
    }
}

/// The number of items of each key: the longest key, the long keys, and short keys for all other items.
fn counts(size: usize) -> Vec<usize> {
    let mut counts = Vec::new();
    if size >= SIZE_OF_LONGEST {
        counts.push(LONGEST_ITEMS);
    }
    if size >= SIZE_OF_LONG {
        let long = (size / SIZE_OF_LONGEST).clamp(1, 10);
        counts.extend(std::iter::repeat_n(LONG_ITEMS, long));
    }
    let mut rest = size - counts.iter().sum::<usize>();
    while rest > 0 {
        let count = (SHORT_ITEMS + counts.len() * 7 % 41).min(rest);
        counts.push(count);
        rest -= count;
    }
    counts
}

fn shuffle(keys: &mut [usize], random: &mut SplitMix64) {
    for last in (1..keys.len()).rev() {
        let bound = u32::try_from(last + 1).unwrap_or(u32::MAX);
        keys.swap(last, random.below(bound) as usize);
    }
}

fn message(place: usize, key: usize, senders: u32, random: &mut SplitMix64) -> Message {
    let status = match random.below(150) {
        0..3 => 0,
        3..53 => 1,
        _ => 2,
    };
    Message {
        number: u32::try_from(place).unwrap_or(u32::MAX),
        key: i32::try_from(key).unwrap_or(i32::MAX),
        sender: random.below(senders),
        status: STATUSES[status],
        kind: KINDS[random.below(4) as usize],
        n: i32::try_from(random.below(1000)).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_has_its_size_and_its_keys_have_theirs() {
        for (size, long, has_longest) in [(2000, 0, false), (10_000, 1, false), (100_000, 2, true)] {
            let messages = Messages::new(size);
            assert_eq!(messages.all.len(), size);
            assert_eq!((messages.long.len(), messages.longest.is_some()), (long, has_longest));
            assert!(
                messages
                    .short
                    .iter()
                    .all(|key| (80..=120).contains(&messages.count(*key)))
            );
            assert!(messages.long.iter().all(|key| messages.count(*key) == LONG_ITEMS));
        }
    }

    #[test]
    fn times_and_ids_ascend_and_a_message_belongs_to_its_key() {
        let messages = Messages::new(2000);
        assert!(messages.all.is_sorted_by_key(Message::at));
        assert!(messages.all.is_sorted_by_key(Message::id));
        let key = messages.short[3];
        let of_key: Vec<_> = (0..messages.count(key))
            .filter_map(|nth| messages.of_key(key, nth))
            .collect();
        assert!(of_key.iter().all(|message| message.key == key));
        assert!(of_key.is_sorted_by_key(|message| message.at()));
    }
}
