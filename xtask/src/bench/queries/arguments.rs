//! The arguments of a query: a random key, a random message, a cursor of an application.

use std::ops::Range;

use anyhow::{Context as _, Result};
use bson::DateTime;

use super::messages::{Message, Messages};
use crate::bench::trades::SplitMix64;

/// The values of one query. A shape uses some of them.
#[derive(Debug)]
pub(super) struct Arguments<'a> {
    /// The collection of messages.
    pub(super) collection: &'a str,
    /// Any message but one of the first and last tenth.
    pub(super) message: &'a Message,
    /// A message in the midst of a key of about 100 items.
    pub(super) of_key: &'a Message,
    /// The times of that message and of the tenth after it.
    pub(super) range_of_10: Range<DateTime>,
    /// A key of 3007 items, where the collection has one.
    pub(super) long: Option<Long>,
    /// The key of 12,003 items, where the collection has it.
    pub(super) longest: Option<i32>,
    /// Five keys of about 100 items.
    pub(super) feed: Vec<i32>,
    /// A key from which on there are 20 more.
    pub(super) first_of_20: i32,
}

/// A key of 3007 items.
#[derive(Debug)]
pub(super) struct Long {
    pub(super) key: i32,
    /// The times of a message in the midst and of the tenth after it.
    pub(super) range_of_10: Range<DateTime>,
    /// The times of the same message and of the 300th after it.
    pub(super) range_of_300: Range<DateTime>,
}

impl<'a> Arguments<'a> {
    /// Random ones.
    pub(super) fn random(messages: &'a Messages, collection: &'a str, random: &mut SplitMix64) -> Result<Self> {
        let mut any_short = || pick(&messages.short, random);
        let key = any_short().context("no key of 80 items")?;
        let feed = (0..5).filter_map(|_| any_short()).collect();
        let nth = messages.count(key) / 4 + below(messages.count(key) / 2, random);
        let of_key = messages.of_key(key, nth).context("no message")?;
        let tenth_after = messages.of_key(key, nth + 10).context("no tenth message after")?;
        let long = pick(&messages.long, random).map(|key| Long::random(messages, key, random));
        let size = messages.all.len();
        let keys = messages.keys();
        Ok(Self {
            collection,
            message: &messages.all[size / 10 + below(size * 8 / 10, random)],
            of_key,
            range_of_10: of_key.at()..tenth_after.at(),
            long: long.flatten(),
            longest: messages.longest,
            feed,
            first_of_20: i32::try_from(below(keys.saturating_sub(20), random))?,
        })
    }
}

impl Long {
    fn random(messages: &Messages, key: i32, random: &mut SplitMix64) -> Option<Self> {
        let nth = 1000 + below(1000, random);
        let from = messages.of_key(key, nth)?;
        let tenth_after = messages.of_key(key, nth + 10)?;
        let until = messages.of_key(key, nth + 300)?;
        Some(Self {
            key,
            range_of_10: from.at()..tenth_after.at(),
            range_of_300: from.at()..until.at(),
        })
    }
}

fn pick(keys: &[i32], random: &mut SplitMix64) -> Option<i32> {
    keys.get(below(keys.len(), random)).copied()
}

/// A number from 0 to `bound`, exclusive; 0 if that is 0.
fn below(bound: usize, random: &mut SplitMix64) -> usize {
    random.below(u32::try_from(bound).unwrap_or(u32::MAX)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_ten_messages_of_the_key() -> Result<()> {
        let messages = Messages::new(2000);
        let mut random = SplitMix64::new(1);
        for _ in 0..100 {
            let arguments = Arguments::random(&messages, "c", &mut random)?;
            let of_key = messages
                .all
                .iter()
                .filter(|message| message.key == arguments.of_key.key);
            let within = of_key.filter(|message| arguments.range_of_10.contains(&message.at()));
            assert_eq!(within.count(), 10);
            assert!(arguments.long.is_none());
        }
        Ok(())
    }
}
