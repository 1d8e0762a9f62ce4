//! Unique indexes of the application on items.
//!
//! mongod's unique index keeps equal values out of different pages, but compares no items of one page. So
//! the collection also has a [validator](super::validator): mongod refuses every write, of any client, after
//! which two items of a page have equal values
//! ([decision](../../../docs/decisions/0033-a-unique-index-has-a-validator.md)).
//!
//! The stored index is partial, because the pages without items would be equal.

mod definition;
mod duplicate;
mod key;
mod key_order;
mod lookup;
mod validator;

#[cfg(test)]
mod tests;

pub use self::definition::UniqueIndex;
pub use self::duplicate::{Violation, interrupted, violation};
pub use self::key::{IndexKey, MAX_KEYS_BYTES, NoKeys, added_keys};
pub use self::lookup::{KeyLookup, KeysHeld, lookups};
pub use self::validator::{ClauseOfIndex, clause, clause_of_index};
