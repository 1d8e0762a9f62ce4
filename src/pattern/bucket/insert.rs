//! Which statements put items on pages.
//!
//! The items of a command are taken in groups, one a key. A group is at one statement at a time, each of which either does
//! all that it says or fails without a trace:
//!
//! * *push* puts as many items as have room into the open page, if that is still as it is assumed to be; otherwise an
//!   expression in it fails (error 241), so that a miss is not a silent `n: 0`.
//! * *close* marks a page `short` that has no room left for the next item, which no arithmetic may miss. It is an upsert that
//!   cannot insert, so a miss is an error here too (66).
//! * *announce* lets a page that takes no more announce the next, without which none is begun: then the page is not removed
//!   whatever is deleted from it. Closing does the same, and a push that fills a page where more is to come. Done twice it does no harm.
//!   What several groups announce is one statement, which does not say where it misses.
//! * *mark* marks page 0 as unordered. It is stored before the statement is sent that makes a page behind it late, as far as
//!   the writer knows the first of its key; done twice it does no harm. It fails as a push does where there is no page 0.
//! * *page* inserts a page with its items. Two writers who open one page collide on the page index. A group's pages are the
//!   one case of several statements at once: they go in order, and none behind one that failed.
//!
//! What failed is planned again on fresh facts.
//!
//! # Exactly once
//!
//! A command that may be sent again ([`WriteGuarantee::ExactlyOnce`]) must leave the same items whoever runs it, how often, and how far each
//! attempt came; mongod remembers of each statement that wrote something its `stmtId`, and nothing else. So:
//!
//! * A statement's id is that of its first item. An item's statement is only sent by an attempt that knows all items of the
//!   group before it to be stored. So of two attempts at one item one alone is executed, and what is stored of a group is
//!   always what a chain of statements from its beginning covers.
//! * How many items a statement covers must follow from mongod's memory of it, which tells an update from an insert (and of
//!   an insert the `_id`). A push therefore carries one item. A page carries as many as `Group::extent` says, which only
//!   depends on the command and on the `max_bytes` of the attempt that begins the chain's first page: the page's name tells it
//!   (`CUT_BY`). Where some of those may not be stored, a page carries one, and its name says so (`LONE`).
//! * Pages are sent several at once only behind a page of the same attempt, which nobody else can have overtaken: a chain that
//!   has a page goes on with pages. See `docs/decisions/0007-exactly-once.md`.

mod failure;
mod grouping;
mod head_lookup;
mod ids;
mod item_times;
mod key_batch;
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

/// How the name of a page ends that was begun with one item of a group where [`KeyBatch::extent`] would have had more.
const LONE: &str = "_s";
/// What in the name of a page goes before the `max_bytes` by which the pages of its chain are cut, where another could cut them
/// otherwise: a resend through a proxy with another goes on with that.
const CUT_BY: &str = "_b";

#[cfg(test)]
mod tests;
