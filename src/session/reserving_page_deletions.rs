//! Exponential back-off for the statement that deletes an item of a page that has reserved the next one. The statement
//! costs mongod less than the one for any page. If the item is on another page, it misses and costs a round trip.

use std::sync::{Mutex, PoisonError};

use bson::Binary;

use super::bounded_cache::{Bounded, Weighed};

/// The most deletions after a miss for which the statement is not sent.
const MOST_LEFT_OUT: u32 = 64;

/// Bytes of an entry.
const ENTRY: usize = 100;

/// The collections in which the statement has missed lately.
#[derive(Debug, Default)]
pub(super) struct ReservingPageDeletions {
    misses: Mutex<Bounded<CollectionId, Misses>>,
}

/// The UUID of a collection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CollectionId(Vec<u8>);

impl Weighed for CollectionId {
    fn bytes(&self) -> usize {
        self.0.len().saturating_add(ENTRY)
    }
}

/// The misses since the last match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Misses {
    /// Deletions after the last miss that do not send the statement: twice as many as after the miss before.
    left_out: u32,
    /// Those of them that are still to come.
    remaining: u32,
}

impl ReservingPageDeletions {
    /// Whether the next deletion is to send the statement.
    pub(super) fn is_due(&self, collection: &Binary) -> bool {
        let mut misses = self.misses.lock().unwrap_or_else(PoisonError::into_inner);
        let id = CollectionId(collection.bytes.clone());
        let Some(known) = misses.get(&id).copied().filter(|known| known.remaining > 0) else {
            return true;
        };
        let remaining = known.remaining.saturating_sub(1);
        misses.put(id, Misses { remaining, ..known });
        false
    }

    /// Records whether the statement has deleted its item.
    pub(super) fn record(&self, collection: &Binary, has_deleted: bool) {
        let mut misses = self.misses.lock().unwrap_or_else(PoisonError::into_inner);
        let id = CollectionId(collection.bytes.clone());
        let before = misses.get(&id).map(|known| known.left_out);
        if !has_deleted {
            let left_out = before.map_or(1, |before| before.saturating_mul(2).min(MOST_LEFT_OUT));
            let remaining = left_out;
            misses.put(id, Misses { left_out, remaining });
        } else if before.is_some() {
            misses.pop(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::spec::BinarySubtype;

    use super::*;

    #[test]
    fn each_miss_leaves_out_twice_as_many_deletions() {
        let [one, other] = [1, 2].map(|byte| Binary {
            subtype: BinarySubtype::Uuid,
            bytes: vec![byte],
        });
        let deletions = ReservingPageDeletions::default();
        let left_out = |collection: &Binary| (0..200).take_while(|_| !deletions.is_due(collection)).count();
        for expected in [1, 2, 4, 8, 16, 32, 64, 64] {
            deletions.record(&one, false);
            assert_eq!(left_out(&one), expected);
            assert_eq!(left_out(&other), 0);
        }
        deletions.record(&one, true);
        assert_eq!(left_out(&one), 0);
        deletions.record(&one, false);
        assert_eq!(left_out(&one), 1);
    }
}
