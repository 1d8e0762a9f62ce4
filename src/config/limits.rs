//! Limits that several options share.

/// The longest configurable timeout: an hour. A longer one is probably in the wrong unit.
pub(super) const LONGEST_WAIT_MS: usize = 3_600_000;
