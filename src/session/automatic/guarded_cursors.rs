//! Cursors of pipelines that reference collections with an automatic shape, and of change streams on their
//! database. mongod ends the cursors of a renamed collection, but a pipeline that references it by name would
//! go on with the other layout.
//!
//! The references of such a cursor are in the memory of the proxy that opened it. Another proxy must not relay
//! a `getMore`. So the client gets the negative of mongod's id. mongod's ids are positive: a `getMore` through
//! another proxy fails with `CursorNotFound`.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use lru::LruCache;

use super::stored::StoredCollection;
use super::touched::TouchedCollection;
use crate::command::arguments::with_replaced;
use crate::command::cursor::killed_ids;
use crate::command::document::{as_whole_number, get};
use crate::command::header::CommandHeader;
use crate::command::registry::Command;

/// The lists of cursors in the reply to `killCursors`.
const KILL_LISTS: [&str; 4] = ["cursorsKilled", "cursorsNotFound", "cursorsAlive", "cursorsUnknown"];

/// Guarded cursors. The least recently used one is forgotten first, and its next `getMore` gets
/// `CursorNotFound`.
const MAX_CURSORS: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// A collection that a pipeline references, as it was when the cursor was opened.
#[derive(Clone, Debug)]
pub(in crate::session) struct GuardedCollection {
    pub(in crate::session) collection: TouchedCollection,
    pub(in crate::session) stored: StoredCollection,
}

/// What an open cursor references.
#[derive(Clone, Debug)]
pub(in crate::session) struct GuardedReferences {
    pub(in crate::session) collections: Vec<GuardedCollection>,
    /// Whether this is the cursor of a change stream. A change stream watches a name, not a collection. So it
    /// continues with another collection of that name and layout.
    pub(in crate::session) is_stream: bool,
}

/// The id that the client gets instead of mongod's, and mongod's id for that of the client.
pub(in crate::session) fn negated(id: i64) -> i64 {
    id.wrapping_neg()
}

/// A `killCursors` with mongod's ids. `None`: it names no guarded cursor, or is another command.
pub(in crate::session) fn kill_by_mongod_ids(head: &CommandHeader<'_>) -> Option<RawDocumentBuf> {
    if head.command != Command::KillCursors {
        return None;
    }
    let body = head.body();
    let ids: Vec<RawBsonRef<'_>> = get(body, "cursors")?.as_array()?.into_iter().flatten().collect();
    let is_guarded = |id: &RawBsonRef<'_>| matches!(id, RawBsonRef::Int64(id) if *id < 0);
    if !ids.iter().any(is_guarded) {
        return None;
    }
    let of_mongod = ids.into_iter().map(|id| match id {
        RawBsonRef::Int64(id) => RawBsonRef::Int64(id.wrapping_abs()),
        // mongod refuses it.
        other => other,
    });
    let ids: RawArrayBuf = of_mongod.collect();
    Some(with_replaced(body, &[("cursors", Some(RawBsonRef::Array(&ids)))]))
}

/// The reply to that command, with the ids that the client's command `body` has.
pub(in crate::session) fn killed_by_client_ids(body: &RawDocument, reply: &RawDocument) -> RawDocumentBuf {
    let ids = killed_ids(body).unwrap_or_default();
    let of_client = |id: i64| if ids.contains(&id) { id } else { negated(id) };
    let lists = KILL_LISTS.map(|name| {
        let killed = reply.get_array(name).ok().into_iter().flatten().flatten();
        let killed = killed.filter_map(as_whole_number).map(of_client);
        (name, killed.map(RawBsonRef::Int64).collect::<RawArrayBuf>())
    });
    let lists = lists
        .each_ref()
        .map(|(name, ids)| (*name, Some(RawBsonRef::Array(ids))));
    with_replaced(reply, &lists)
}

/// The open cursors of such pipelines, by mongod's id.
#[derive(Debug)]
pub(in crate::session) struct GuardedCursors {
    open: Mutex<LruCache<i64, GuardedReferences>>,
}

impl Default for GuardedCursors {
    fn default() -> Self {
        // Allocates on demand.
        let mut open = LruCache::unbounded();
        open.resize(MAX_CURSORS);
        Self { open: Mutex::new(open) }
    }
}

impl GuardedCursors {
    pub(in crate::session) fn opened(&self, id: i64, references: GuardedReferences) {
        self.lock().put(id, references);
    }

    pub(in crate::session) fn of(&self, id: i64) -> Option<GuardedReferences> {
        self.lock().get(&id).cloned()
    }

    pub(in crate::session) fn closed(&self, id: i64) {
        self.lock().pop(&id);
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<i64, GuardedReferences>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
