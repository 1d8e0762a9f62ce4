//! The parts of a page's `_id` that record how a retryable chain was cut.

/// How the name of a page ends that was begun with one item of a group where [`KeyBatch::extent`] would have
/// had more.
pub(super) const LONE: &str = "_s";

/// What in the name of a page goes before the `max_bytes` by which the pages of its chain are cut, where
/// another could cut them otherwise: a resend through a proxy with another goes on with that.
pub(super) const CUT_BY: &str = "_b";
