//! The clock and the ids that pure planners are given.

use std::time::{SystemTime, UNIX_EPOCH};

use bson::oid::ObjectId;
use bson::{DateTime, Timestamp};

use crate::pattern::bucket::item::Mint;

/// The real clock.
#[derive(Debug, Default)]
pub(super) struct SystemMint {
    increment: u32,
}

impl Mint for SystemMint {
    fn now(&self) -> DateTime {
        DateTime::now()
    }

    fn object_id(&mut self) -> ObjectId {
        ObjectId::new()
    }

    fn timestamp(&mut self) -> Timestamp {
        // mongod counts up within a second; the proxy does within a command.
        self.increment = self.increment.wrapping_add(1);
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |elapsed| elapsed.as_secs());
        Timestamp {
            time: u32::try_from(seconds).unwrap_or(u32::MAX),
            increment: self.increment,
        }
    }
}
