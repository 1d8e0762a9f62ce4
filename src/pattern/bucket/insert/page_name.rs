//! The suffixes of a page's `_id` that record how a retry chain was cut into pages.

/// The suffix of the name of a page that was begun with one item of a batch although
/// [`KeyBatch::extent`] has more, or with an item that has a repeated `_id`.
pub(super) const LONE: &str = "_s";

/// In the name of a page, precedes the `max_bytes` by which the chain's pages are cut. The name has
/// it if another `max_bytes` could cut the pages differently. A retry through a proxy with another
/// `max_bytes` continues with the recorded one.
pub(super) const CUT_BY: &str = "_b";
