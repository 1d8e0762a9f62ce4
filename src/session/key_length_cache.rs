//! Caches which keys have many pages. A query that would read all pages of a short key needs no page pruning,
//! which costs a round trip.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::bounded_cache::Bounded;
use super::first_page_cache::FirstPageKey;

/// How long a key is taken to be short. It may grow, also through other proxies.
const SHORT_FOR: Duration = Duration::from_mins(5);

/// Whether keys are long, as far as this is known.
#[derive(Debug, Default)]
pub(super) struct KeyLengths {
    lengths: Mutex<Bounded<FirstPageKey, KeyLength>>,
}

/// The number of pages of a key.
#[derive(Clone, Copy, Debug)]
enum KeyLength {
    /// Few pages at this time.
    Short(Instant),
    /// Many pages. A key that becomes short by deletes stays long here.
    Long,
}

impl KeyLengths {
    /// Whether the key has many pages. `None`: unknown.
    pub(super) fn is_long(&self, key: &FirstPageKey) -> Option<bool> {
        let mut lengths = self.lengths.lock().unwrap_or_else(PoisonError::into_inner);
        match lengths.get(key)? {
            KeyLength::Long => Some(true),
            KeyLength::Short(seen) => (seen.elapsed() < SHORT_FOR).then_some(false),
        }
    }

    pub(super) fn learn(&self, key: FirstPageKey, is_long: bool) {
        let length = if is_long {
            KeyLength::Long
        } else {
            KeyLength::Short(Instant::now())
        };
        let mut lengths = self.lengths.lock().unwrap_or_else(PoisonError::into_inner);
        lengths.put(key, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::namespace::Namespace;

    #[test]
    fn length_of_a_key_is_that_which_was_learned_last() {
        let namespace = Namespace {
            database: "d",
            collection: "c",
        };
        let key = |key: u8| FirstPageKey::new(namespace, vec![key]);
        let lengths = KeyLengths::default();
        assert_eq!(lengths.is_long(&key(1)), None);
        lengths.learn(key(1), false);
        lengths.learn(key(2), true);
        assert_eq!(
            [1, 2].map(|name| lengths.is_long(&key(name))),
            [Some(false), Some(true)]
        );
        lengths.learn(key(1), true);
        assert_eq!(lengths.is_long(&key(1)), Some(true));
    }
}
