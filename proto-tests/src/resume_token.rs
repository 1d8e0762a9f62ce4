//! Resume tokens of change streams.

use bson::Timestamp;

/// The time in the `_data` of a token of mongod, behind a byte for its type. `None`: the token is malformed.
pub(crate) fn time_of(data: &str) -> Option<Timestamp> {
    let part = |from: usize| u32::from_str_radix(data.get(from..from + 8)?, 16).ok();
    Some(Timestamp {
        time: part(2)?,
        increment: part(10)?,
    })
}
