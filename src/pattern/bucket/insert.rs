//! Plans the statements that store items on pages.
//!
//! The items of a command form batches, one for each key. A batch has one statement at a time. A statement is
//! executed completely or fails without a trace:
//!
//! * *push* appends as many items as have room to the open page, if it is in the assumed state; otherwise an
//!   expression in it fails (error 241), so that a miss is not a silent `n: 0`.
//! * *close* marks a page `short` that has no room for the next item. It is an upsert that cannot insert, so
//!   a miss is error 66.
//! * *reserve* records the next page on a page that takes no more items. No page is begun without it, and a
//!   page with a reservation is not removed. Closing reserves, too, and so does a push that fills a page
//!   before more items. Safe to repeat. The reservations of several batches are one statement, which does not
//!   report where it misses.
//! * *mark* marks page 0 as unordered, before the statement that makes a later page out of order, as far as
//!   the writer knows the first of its key. Safe to repeat. Fails like a push if there is no page 0.
//! * *page* inserts a page with its items. Two writers that begin one page collide on the page index. Only
//!   pages of a batch are sent several at once: in order, up to the first failure.
//!
//! Failed statements are planned again on fresh page headers.
//!
//! # Exactly once
//!
//! A retryable command ([`WriteGuarantee::ExactlyOnce`]) must store the same items, whichever proxy runs it,
//! how often, and how far each attempt came. mongod records the `stmtId` of each statement that wrote
//! something, and nothing else. So:
//!
//! * A statement's id is that of its first item. It is sent only by an attempt that knows all earlier items
//!   of the batch to be stored. So of two attempts at one item only one is executed, and the stored items of
//!   a batch are what a chain of statements from its beginning covers.
//! * How many items a statement covers must follow from mongod's record, which distinguishes an update from
//!   an insert (and has the insert's `_id`). So a push has one item. A page has as many as `KeyBatch::extent`
//!   computes, from the command and from the `max_bytes` of the attempt that begins the chain's first page,
//!   which is in the page's name (`CUT_BY`). If some of those may not be stored, a page has one item, and its
//!   name says so (`LONE`).
//! * Pages are sent several at once only after a page of the same attempt, which no other attempt can have
//!   passed: a chain with a page continues with pages. See `docs/decisions/0007-exactly-once.md`.

mod failure;
mod grouping;
mod head_lookup;
mod ids;
mod item_times;
mod key_batch;
mod page_name;
mod page_span;
mod plan;
mod preconditions;
mod reserve;
mod statement;

pub use self::failure::{Failure, failure};
pub use self::grouping::Groups;
pub use self::head_lookup::{HeadLookup, append_facts_query};
pub use self::ids::{Hits, ids_query};
pub(in crate::pattern::bucket) use self::item_times::ItemTimes;
pub use self::key_batch::{Announcement, KeyBatch, Recorded, StatementOutcome};
pub use self::plan::{Planner, WriteGuarantee};
pub use self::reserve::{announce_together, is_announced_together, withdraw};
pub use self::statement::{InsertStatement, StatementKind, no_statement, page_as_upsert};

#[cfg(test)]
mod tests;
