//! The clock and the generator of ids for planners.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bson::oid::ObjectId;
use bson::{DateTime, Timestamp};

use crate::pattern::bucket::item::IdSource;

/// The last timestamp: seconds in the upper half, increment in the lower. Shared by all sessions,
/// as a mongos does for its clients, so timestamps are unique and ascending.
#[derive(Debug, Default)]
pub(super) struct Timestamps(AtomicU64);

impl Timestamps {
    fn next(&self) -> Timestamp {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = elapsed.map_or(0, |elapsed| elapsed.as_secs().min(u32::MAX.into()));
        let first = (seconds << 32) | 1;
        let after = |last: u64| last.saturating_add(1).max(first);
        let last = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(after(last)));
        // The closure always returns a value, so both variants of the result contain the value before
        // the update.
        let [t1, t2, t3, t4, i1, i2, i3, i4] = after(last.unwrap_or_else(|last| last)).to_be_bytes();
        Timestamp {
            time: u32::from_be_bytes([t1, t2, t3, t4]),
            increment: u32::from_be_bytes([i1, i2, i3, i4]),
        }
    }
}

/// The system's clock.
#[derive(Debug)]
pub(super) struct SystemIdSource<'a> {
    timestamps: &'a Timestamps,
}

impl<'a> SystemIdSource<'a> {
    pub(super) fn new(timestamps: &'a Timestamps) -> Self {
        Self { timestamps }
    }
}

impl IdSource for SystemIdSource<'_> {
    fn now(&self) -> DateTime {
        DateTime::now()
    }

    fn object_id(&mut self) -> ObjectId {
        ObjectId::new()
    }

    fn timestamp(&mut self) -> Timestamp {
        self.timestamps.next()
    }

    fn nonce(&self) -> i64 {
        rand::random_range(1..=i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_ascend_also_from_one_command_to_the_next() {
        let timestamps = Timestamps::default();
        let given: Vec<Timestamp> = (0..100).map(|_| SystemIdSource::new(&timestamps).timestamp()).collect();
        assert!(given.is_sorted_by(|one, next| one < next), "{given:?}");
        assert!(given[0].time > 1_700_000_000);
    }
}
