//! Limits of several options.

/// The longest wait that may be configured: an hour. Longer is a slip of the unit.
pub(super) const LONGEST_WAIT_MS: usize = 3_600_000;
