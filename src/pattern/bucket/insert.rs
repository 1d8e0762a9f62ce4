//! Plans the statements that store items on pages.
//!
//! The items of a command form batches, one for each key. A batch has one statement in flight. A
//! statement is executed completely or changes nothing:
//!
//! * *push* appends as many items as fit to the open page, if the page is in the assumed state.
//!   Otherwise the statement fails, so that a miss is not a silent `n: 0`: see `push`.
//! * *close* marks a page `short` that has no room for the next item. It is an upsert that cannot
//!   insert, so a miss is error 66.
//! * *reserve* records the next page on a page that takes no more items. No page is begun without a
//!   reservation, and a page with a reservation is not removed. *close* also reserves, and so does
//!   a *push* that fills a page while more items are pending. Safe to repeat. The reservations of
//!   several batches are one statement, which does not report which of them missed.
//! * *mark* marks page 0 as unordered. It is sent before the statement that makes a later page late, unless
//!   the known page headers show the mark. Safe to repeat. Fails like a push if there is no page 0.
//! * *page* inserts a page with its items. Two writers that begin the same page collide on the page
//!   index. Only the pages of a batch are sent several at once: in order, up to the first failure.
//!
//! Failed statements are planned again on fresh page headers.
//!
//! # Exactly once
//!
//! A retryable command ([`WriteGuarantee::ExactlyOnce`]) must store the same items, no matter which
//! proxies run it, how often, and how far each attempt came. mongod records the `stmtId` of
//! each statement that wrote something, but not its items. So:
//!
//! * The id of a statement is the id of its first item. An attempt sends the statement only after all earlier
//!   items of the batch are stored. So of two attempts at one item only one is executed, and the stored items
//!   of a batch are those that a chain of statements from its beginning covers.
//! * mongod's record distinguishes an update from an insert, and has the `_id` of the insert. A push records its
//!   items on the page, see [`RetryNumber`].
//! * A page has as many items as `KeyBatch::extent` computes, from the command and from the
//!   `max_bytes` of the attempt that began the chain's first page. That `max_bytes` is in the
//!   page's name (`CUT_BY`). If some of those items may not be stored, the page has one item, and
//!   its name records that (`LONE`).
//! * An item with the `_id` of an earlier item of the command is no part of the chain: another attempt may
//!   refuse the earlier item, or not. It is pushed alone, or begins a `LONE` page.
//! * Pages are sent several at once only after a page of the same attempt. No other attempt can
//!   have passed that page, because a chain with a page continues with pages. See
//!   `docs/decisions/0007-exactly-once.md`.

mod failure;
mod grouping;
mod head_lookup;
mod ids;
mod item_times;
mod key_batch;
mod member;
mod page_capacity;
mod page_name;
mod plan;
mod preconditions;
mod push;
mod push_record;
mod reserve;
mod statement;

pub use self::failure::{Failure, failure, is_too_large};
pub use self::grouping::Groups;
pub use self::head_lookup::{HeadLookup, HeaderFields, append_facts_query, head_pages};
pub use self::ids::{IdSet, ids_of, ids_query, unique_id, unique_scope};
pub(in crate::pattern::bucket) use self::item_times::ItemTimes;
pub use self::key_batch::{KeyBatch, PageReservation, Recorded, StatementOutcome, UnknownPush};
pub use self::plan::{Planner, WriteGuarantee};
pub(in crate::pattern::bucket) use self::push_record::PushRecords;
pub use self::push_record::RetryNumber;
pub use self::reserve::{is_reserved_together, reserve_together, withdraw};
pub use self::statement::{InsertStatement, MAX_STATEMENTS, StatementKind, no_statement, page_as_upsert, record_query};

#[cfg(test)]
mod tests;
