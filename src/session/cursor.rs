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
use super::cursor_owner::Owner;
use crate::pattern::shapes::BucketShape;

/// Open cursors remembered; the least recently used is forgotten first, and its reader told that it is not
/// found.
const MAX_CURSORS: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");
/// How long a cursor may be left alone: as long as a session (`localLogicalSessionTimeoutMinutes`), or
/// without one as long as mongod's own default (`cursorTimeoutMillis`).
const SESSION_TIMEOUT: Duration = Duration::from_mins(30);
const CURSOR_TIMEOUT: Duration = Duration::from_mins(10);
/// How often cursors are looked at for that.
const REAP_INTERVAL: Duration = Duration::from_mins(1);

/// A stream between two batches.
#[derive(Debug)]
pub(super) struct OpenCursor {
    pub(super) owner: Owner,
    /// What its buckets are made by: a cursor ends under the settings that it began with.
    pub(super) shape: BucketShape,
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
    /// mongod's own.
    Upstream,
    /// A stream, and when it was used last.
    Stream(Box<OpenCursor>, Instant),
    /// A stream that a `getMore` has taken, and its owner.
    InUse(Owner),
}

/// What was found under an id.
#[derive(Debug)]
pub(super) enum CursorLookup<'a> {
    /// Nothing.
    Missing,
    /// Another `getMore` is reading it.
    InUse,
    /// A cursor of mongod's own.
    Upstream,
    /// A stream, which nobody else may read meanwhile.
    Stream(BorrowedCursor<'a>),
}

/// A stream that was taken; it is gone unless it is [given back](BorrowedCursor::give_back).
#[derive(Debug)]
pub(super) struct BorrowedCursor<'a> {
    registry: &'a CursorRegistry,
    id: i64,
    kept: Option<Box<OpenCursor>>,
}

/// The cursors that sessions have opened on shaped collections.
#[derive(Debug)]
pub(super) struct CursorRegistry {
    open: Mutex<OpenCursors>,
}

#[derive(Debug)]
struct OpenCursors {
    cursors: LruCache<i64, Cursor>,
    /// What the streams weigh.
    bytes: usize,
    /// What they may weigh: all items that are unpacked and not answered yet.
    most_bytes: usize,
    /// When all streams were last looked at.
    reaped: Instant,
}

impl CursorRegistry {
    /// None yet; streams may weigh so many bytes together.
    pub(super) fn new(most_bytes: usize) -> Self {
        // Grows as it is used: most proxies have a handful of cursors open.
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

    /// Remembers a cursor that a reply of mongod's has named; 0 is none.
    pub(super) fn opened(&self, id: i64) {
        if id != 0 {
            self.lock().put(id, Cursor::Upstream);
        }
    }

    /// Keeps a stream under an id.
    pub(super) fn keep(&self, id: i64, mut kept: Box<OpenCursor>) {
        kept.source.rest();
        let mut open = self.lock();
        open.reap();
        open.put(id, Cursor::Stream(kept, Instant::now()));
    }

    /// Takes a cursor to read it.
    pub(super) fn take(&self, id: i64) -> CursorLookup<'_> {
        let mut open = self.lock();
        open.reap();
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

    /// The owner of a stream. `None`: there is no such cursor, or mongod knows its owner.
    pub(super) fn owner(&self, id: i64) -> Option<Owner> {
        let mut open = self.lock();
        open.reap();
        match open.cursors.peek(&id)? {
            Cursor::Upstream => None,
            Cursor::InUse(owner) => Some(owner.clone()),
            Cursor::Stream(kept, _) => Some(kept.owner.clone()),
        }
    }

    /// The owner of a stream behind which mongod has no cursor, or may have none: nobody else can say whose
    /// it is.
    pub(super) fn owner_here(&self, id: i64) -> Option<Owner> {
        let mut open = self.lock();
        open.reap();
        match open.cursors.peek(&id)? {
            Cursor::InUse(owner) => Some(owner.clone()),
            Cursor::Stream(kept, _) if kept.source.upstream_id().is_none() => Some(kept.owner.clone()),
            Cursor::Upstream | Cursor::Stream(..) => None,
        }
    }

    /// Forgets a cursor that is exhausted or was killed; whether there was one.
    pub(super) fn closed(&self, id: i64) -> bool {
        self.lock().remove(id)
    }

    fn lock(&self) -> MutexGuard<'_, OpenCursors> {
        // Nothing in here is ever left half done.
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

    /// Forgets streams that were left alone for too long, now and then.
    fn reap(&mut self) {
        if self.reaped.elapsed() < REAP_INTERVAL {
            return;
        }
        self.reaped = Instant::now();
        let is_left = |cursor: &Cursor| matches!(cursor, Cursor::Stream(kept, used) if used.elapsed() > kept.timeout());
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
}

impl BorrowedCursor<'_> {
    /// What was taken.
    pub(super) fn kept(&mut self) -> Option<&mut OpenCursor> {
        self.kept.as_deref_mut()
    }

    /// Gives it back, unless it was killed meanwhile: then it comes back to the caller.
    pub(super) fn give_back(mut self) -> Option<Box<OpenCursor>> {
        let mut kept = self.kept.take()?;
        kept.source.rest();
        // One lock for both: a `killCursors` in between would be answered, and the cursor be there again.
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
