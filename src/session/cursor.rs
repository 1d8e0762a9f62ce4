//! Cursors on shaped collections.
//!
//! A cursor that another program opened on raw buckets must not be read through the proxy, so an id that no
//! session of this proxy opened is not found. Any connection of the same owner may use a cursor.
//!
//! A cursor of a pipeline is mongod's, and the proxy records only its id. A [`CursorSource`] is kept by the
//! proxy between two `getMore`s, for as long as mongod keeps a cursor, in bounded memory.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use super::bucket::cursor_source::CursorSource;
use super::cursor_owner::{NamedSessions, Owner};

/// Cursors in the registry. The least recently used one is evicted first, and its next `getMore`
/// gets `CursorNotFound`.
const MAX_CURSORS: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");
/// Idle timeouts of a cursor, as in mongod: that of its session
/// (`localLogicalSessionTimeoutMinutes`), or without a session the default (`cursorTimeoutMillis`). In mongod
/// every command of a session refreshes it. The proxy knows of `getMore` and `refreshSessions`.
const SESSION_TIMEOUT: Duration = Duration::from_mins(30);
const CURSOR_TIMEOUT: Duration = Duration::from_mins(10);
/// The interval at which expired cursors are removed.
const REAP_INTERVAL: Duration = Duration::from_mins(1);

/// A cursor of the proxy between two batches.
#[derive(Debug)]
pub(super) struct OpenCursor {
    pub(super) owner: Owner,
    pub(super) source: CursorSource,
}

impl OpenCursor {
    fn timeout(&self) -> Duration {
        if self.owner.session.is_some() || self.owner.never_times_out {
            SESSION_TIMEOUT
        } else {
            CURSOR_TIMEOUT
        }
    }
}

#[derive(Debug)]
enum Cursor {
    /// A cursor that mongod keeps.
    Upstream,
    /// A cursor that the proxy keeps, and the time of its last use.
    Stream(Box<OpenCursor>, Instant),
    /// A cursor that a `getMore` is using, and its owner.
    InUse(Owner),
}

impl Cursor {
    /// The owner. `None` if mongod keeps the cursor.
    fn owner(&self) -> Option<&Owner> {
        match self {
            Self::Upstream => None,
            Self::Stream(kept, _) => Some(&kept.owner),
            Self::InUse(owner) => Some(owner),
        }
    }
}

/// The result of looking an id up.
#[derive(Debug)]
pub(super) enum CursorLookup<'a> {
    Missing,
    /// Another `getMore` is using it.
    InUse,
    /// A cursor that mongod keeps.
    Upstream,
    /// A cursor that the proxy keeps. Exclusive until it is given back.
    Stream(BorrowedCursor<'a>),
}

/// A cursor in use. It is removed unless it is [given back](BorrowedCursor::give_back).
#[derive(Debug)]
pub(super) struct BorrowedCursor<'a> {
    registry: &'a CursorRegistry,
    id: i64,
    kept: Option<Box<OpenCursor>>,
}

/// The cursors that sessions of this proxy opened on shaped collections.
#[derive(Debug)]
pub(super) struct CursorRegistry {
    open: Mutex<OpenCursors>,
}

#[derive(Debug)]
struct OpenCursors {
    cursors: LruCache<i64, Cursor>,
    /// Bytes of the cursors that the proxy keeps.
    bytes: usize,
    /// Maximum of `bytes`: decoded items that were not returned yet.
    most_bytes: usize,
    /// When expired cursors were last removed.
    reaped: Instant,
}

impl CursorRegistry {
    /// `most_bytes`: maximum bytes of the cursors that the proxy keeps.
    pub(super) fn new(most_bytes: usize) -> Self {
        // Allocates on demand: most proxies have few open cursors.
        let mut cursors = LruCache::unbounded();
        cursors.resize(MAX_CURSORS);
        let open = Mutex::new(OpenCursors {
            cursors,
            bytes: 0,
            most_bytes,
            reaped: Instant::now(),
        });
        Self { open }
    }

    /// Registers the cursor id of a mongod reply. 0 means that no cursor is open.
    pub(super) fn opened(&self, id: i64) {
        if id != 0 {
            self.lock().put(id, Cursor::Upstream);
        }
    }

    pub(super) fn keep(&self, id: i64, mut kept: Box<OpenCursor>) {
        kept.source.rest();
        let mut open = self.lock();
        open.reap(Instant::now());
        open.put(id, Cursor::Stream(kept, Instant::now()));
    }

    /// Takes a cursor for a `getMore`.
    pub(super) fn take(&self, id: i64) -> CursorLookup<'_> {
        let mut open = self.lock();
        open.reap(Instant::now());
        let Some(cursor) = open.cursors.get_mut(&id) else {
            return CursorLookup::Missing;
        };
        let owner = match cursor {
            Cursor::Upstream => return CursorLookup::Upstream,
            Cursor::InUse(_) => return CursorLookup::InUse,
            Cursor::Stream(kept, _) => kept.owner.clone(),
        };
        match std::mem::replace(cursor, Cursor::InUse(owner)) {
            Cursor::Upstream => CursorLookup::Upstream,
            Cursor::InUse(_) => CursorLookup::InUse,
            Cursor::Stream(kept, _) => {
                open.bytes = open.bytes.saturating_sub(kept.source.weight());
                CursorLookup::Stream(BorrowedCursor {
                    registry: self,
                    id,
                    kept: Some(kept),
                })
            }
        }
    }

    /// The owner of a cursor that the proxy keeps. `None`: the id is unknown, or mongod checks the
    /// owner.
    pub(super) fn owner(&self, id: i64) -> Option<Owner> {
        let mut open = self.lock();
        open.reap(Instant::now());
        open.cursors.peek(&id)?.owner().cloned()
    }

    /// The owner of a cursor for which mongod has no cursor of the same id or may have none, so that only
    /// the proxy can check the owner.
    pub(super) fn owner_here(&self, id: i64) -> Option<Owner> {
        let mut open = self.lock();
        open.reap(Instant::now());
        match open.cursors.peek(&id)? {
            Cursor::InUse(owner) => Some(owner.clone()),
            Cursor::Stream(kept, _) if kept.source.upstream_id() != Some(id) => Some(kept.owner.clone()),
            Cursor::Upstream | Cursor::Stream(..) => None,
        }
    }

    /// The upstream cursor of a cursor with another id: that of a later query of the same read.
    pub(super) fn later_upstream_id(&self, id: i64) -> Option<i64> {
        match self.lock().cursors.peek(&id)? {
            Cursor::Stream(kept, _) => kept.source.upstream_id().filter(|upstream| *upstream != id),
            Cursor::InUse(_) | Cursor::Upstream => None,
        }
    }

    /// Removes a cursor that is exhausted or was killed. Returns whether it was registered.
    pub(super) fn closed(&self, id: i64) -> bool {
        self.lock().remove(id)
    }

    /// Removes the cursors of sessions that were killed. Costs one pass over all cursors.
    pub(super) fn close_of(&self, sessions: &NamedSessions) {
        self.lock()
            .remove_all(|cursor| cursor.owner().is_some_and(|owner| sessions.have(owner)));
    }

    /// Restarts the timeout of the cursors of sessions. Costs one pass over all cursors.
    pub(super) fn refresh_of(&self, sessions: &NamedSessions) {
        self.lock().refresh(sessions, Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, OpenCursors> {
        // No panic can leave the map inconsistent, so a poisoned lock is usable.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenCursors {
    fn put(&mut self, id: i64, cursor: Cursor) {
        if let Cursor::Stream(kept, _) = &cursor {
            self.bytes = self.bytes.saturating_add(kept.source.weight());
        }
        let replaced = self.cursors.push(id, cursor);
        self.forgotten(replaced.as_ref());
        while self.bytes > self.most_bytes {
            let is_stream = |(_, cursor): &(&i64, &Cursor)| matches!(cursor, Cursor::Stream(..));
            let Some(oldest) = self.cursors.iter().rev().find(is_stream).map(|(id, _)| *id) else {
                break;
            };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, id: i64) -> bool {
        let removed = self.cursors.pop(&id).map(|cursor| (id, cursor));
        self.forgotten(removed.as_ref());
        removed.is_some()
    }

    fn forgotten(&mut self, cursor: Option<&(i64, Cursor)>) {
        if let Some((_, Cursor::Stream(kept, _))) = cursor {
            self.bytes = self.bytes.saturating_sub(kept.source.weight());
        }
    }

    /// Removes expired cursors, at most once per interval.
    fn reap(&mut self, now: Instant) {
        if now.saturating_duration_since(self.reaped) < REAP_INTERVAL {
            return;
        }
        self.reaped = now;
        self.remove_all(|cursor| match cursor {
            Cursor::Stream(kept, used) => now.saturating_duration_since(*used) > kept.timeout(),
            Cursor::Upstream | Cursor::InUse(_) => false,
        });
    }

    fn remove_all(&mut self, is_left: impl Fn(&Cursor) -> bool) {
        let left: Vec<i64> = self
            .cursors
            .iter()
            .filter(|(_, cursor)| is_left(cursor))
            .map(|(id, _)| *id)
            .collect();
        for id in left {
            self.remove(id);
        }
    }

    fn refresh(&mut self, sessions: &NamedSessions, now: Instant) {
        for (_, cursor) in &mut self.cursors {
            if let Cursor::Stream(kept, used) = cursor
                && sessions.have(&kept.owner)
            {
                *used = now;
            }
        }
    }
}

impl BorrowedCursor<'_> {
    /// The cursor's state.
    pub(super) fn kept(&mut self) -> Option<&mut OpenCursor> {
        self.kept.as_deref_mut()
    }

    /// Gives the cursor back. If it was killed in the meantime, it is returned to the caller.
    pub(super) fn give_back(mut self) -> Option<Box<OpenCursor>> {
        let mut kept = self.kept.take()?;
        kept.source.rest();
        // One lock for check and insertion: a `killCursors` in between would be confirmed, and the
        // cursor would be registered again.
        let mut open = self.registry.lock();
        if !matches!(open.cursors.peek(&self.id), Some(Cursor::InUse(_))) {
            return Some(kept);
        }
        open.put(self.id, Cursor::Stream(kept, Instant::now()));
        None
    }
}

impl Drop for BorrowedCursor<'_> {
    fn drop(&mut self) {
        if self.kept.is_some() {
            self.registry.closed(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::raw::RawDocumentBuf;
    use bson::spec::BinarySubtype;
    use bson::{Binary, rawdoc};

    use super::*;
    use crate::session::bucket::cursor_source::MaterializedList;

    const ID: [u8; 16] = [1; 16];

    fn registry(owners: &[(&[u8], &[u8])]) -> CursorRegistry {
        let registry = CursorRegistry::new(1 << 20);
        for (id, (session, users)) in (1..).zip(owners) {
            let owner = Owner {
                namespace: "d.c".to_owned(),
                session: Some(session.to_vec()),
                transaction: None,
                users: users.to_vec(),
                never_times_out: true,
                awaits_data: false,
            };
            let source = CursorSource::Listed(MaterializedList::new(Vec::new(), RawDocumentBuf::new()));
            registry.keep(id, Box::new(OpenCursor { owner, source }));
        }
        registry
    }

    fn sessions() -> NamedSessions {
        let id = Binary {
            subtype: BinarySubtype::Uuid,
            bytes: ID.to_vec(),
        };
        let body = rawdoc! { "killSessions": [{ "id": id }], "$db": "admin" };
        NamedSessions::killed(&body, b"user".to_vec())
    }

    #[test]
    fn a_cursor_of_a_refreshed_session_does_not_expire() {
        let registry = registry(&[(&ID, b"user"), (&[2; 16], b"user"), (&ID, b"other")]);
        let mut open = registry.lock();
        let kept = Instant::now();
        open.refresh(&sessions(), kept + Duration::from_mins(20));
        open.reap(kept + SESSION_TIMEOUT + REAP_INTERVAL);
        let are_open = [1_i64, 2, 3].map(|id| open.cursors.contains(&id));
        assert_eq!(are_open, [true, false, false]);
    }

    #[test]
    fn a_killed_session_has_no_cursor() {
        let registry = registry(&[(&ID, b"user"), (&[2; 16], b"user"), (&ID, b"other")]);
        registry.close_of(&sessions());
        let are_open = [1, 2, 3].map(|id| registry.owner(id).is_some());
        assert_eq!(are_open, [false, true, true]);
    }

    #[test]
    fn an_empty_list_kills_all_sessions_of_the_user() {
        let registry = registry(&[(&ID, b"user"), (&[2; 16], b"user"), (&ID, b"other")]);
        let body = rawdoc! { "killSessions": [], "$db": "admin" };
        registry.close_of(&NamedSessions::killed(&body, b"user".to_vec()));
        let are_open = [1, 2, 3].map(|id| registry.owner(id).is_some());
        assert_eq!(are_open, [false, false, true]);
    }
}
