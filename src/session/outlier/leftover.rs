//! Cursors whose last reply of mongod holds more documents than fit in a reply with their extras. The rest is
//! kept until a `getMore`.
//!
//! Such a cursor has an id of the proxy, which mongod does not know: if it is evicted, its reader gets
//! `CursorNotFound`, and no document is skipped.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bson::Timestamp;
use bson::raw::RawDocumentBuf;
use lru::LruCache;

use crate::command::error::{CommandError, ErrorCode};
use crate::session::cursor_owner::Owner;

/// Cursors remembered; the least recently used is forgotten first.
const MAX_CURSORS: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");
/// How long a cursor may be left alone: as long as mongod leaves its own.
const SESSION_TIMEOUT: Duration = Duration::from_mins(30);
const CURSOR_TIMEOUT: Duration = Duration::from_mins(10);
/// What is around a document that is kept, in bytes.
const AROUND_DOCUMENT: usize = 64;

/// What is left of a cursor.
#[derive(Debug)]
pub(super) struct Leftover {
    pub(super) owner: Owner,
    /// mongod's number of it; 0 when that has come to its end.
    pub(super) upstream: i64,
    pub(super) documents: VecDeque<RawDocumentBuf>,
    /// How many documents the last reply held: so many are asked for next.
    pub(super) fitted: usize,
    /// What mongod told with the documents.
    pub(super) gossip: RawDocumentBuf,
    /// The time of the snapshot that the documents were read from.
    pub(super) snapshot_time: Option<Timestamp>,
    pub(super) used: Instant,
}

impl Leftover {
    fn bytes(&self) -> usize {
        let bytes = |document: &RawDocumentBuf| document.as_bytes().len().saturating_add(AROUND_DOCUMENT);
        self.documents.iter().map(bytes).sum()
    }

    fn is_left_alone(&self) -> bool {
        let is_long = self.owner.session.is_some() || self.owner.never_times_out;
        self.used.elapsed() > if is_long { SESSION_TIMEOUT } else { CURSOR_TIMEOUT }
    }
}

#[derive(Debug)]
enum Slot {
    Kept(Box<Leftover>),
    /// A `getMore` has taken it.
    InUse,
}

/// The leftovers of a proxy.
#[derive(Debug)]
pub(in crate::session) struct Leftovers {
    open: Mutex<OpenLeftovers>,
    /// What all of them may weigh.
    most_bytes: usize,
}

#[derive(Debug)]
struct OpenLeftovers {
    slots: LruCache<i64, Slot>,
    bytes: usize,
}

/// One that was taken; it is forgotten unless it is given back.
#[derive(Debug)]
pub(super) struct BorrowedLeftover<'a> {
    pub(super) leftovers: &'a Leftovers,
    pub(super) id: i64,
    pub(super) leftover: Option<Box<Leftover>>,
}

impl Leftovers {
    /// None yet; all may weigh so many bytes.
    pub(in crate::session) fn new(most_bytes: usize) -> Self {
        let mut slots = LruCache::unbounded();
        slots.resize(MAX_CURSORS);
        let open = Mutex::new(OpenLeftovers { slots, bytes: 0 });
        Self { open, most_bytes }
    }

    /// Whether this is the number of one.
    pub(in crate::session) fn contains(&self, id: i64) -> bool {
        self.lock().slots.contains(&id)
    }

    /// Forgets one.
    pub(super) fn remove(&self, id: i64) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, OpenLeftovers> {
        // Nothing in here is ever left half done.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keep(&self, id: i64, mut leftover: Box<Leftover>) {
        leftover.used = Instant::now();
        let mut open = self.lock();
        open.bytes = open.bytes.saturating_add(leftover.bytes());
        let replaced = open.slots.push(id, Slot::Kept(leftover));
        open.forgotten(replaced.map(|(_, slot)| slot));
        while let Some((oldest, slot)) = open.slots.peek_lru() {
            let is_over = matches!(slot, Slot::Kept(leftover) if leftover.is_left_alone());
            if open.bytes <= self.most_bytes && !is_over {
                break;
            }
            let oldest = *oldest;
            open.remove(oldest);
        }
    }

    /// Takes one. `None`: there is no such number.
    pub(super) fn take(&self, id: i64) -> Option<Result<BorrowedLeftover<'_>, CommandError>> {
        let mut open = self.lock();
        let slot = open.slots.get_mut(&id)?;
        Some(match std::mem::replace(slot, Slot::InUse) {
            Slot::InUse => {
                let message = format!("cursor id {id} is already in use");
                Err(CommandError::new(ErrorCode::CursorInUse, message))
            }
            Slot::Kept(leftover) => {
                open.bytes = open.bytes.saturating_sub(leftover.bytes());
                Ok(BorrowedLeftover {
                    leftovers: self,
                    id,
                    leftover: Some(leftover),
                })
            }
        })
    }

    /// mongod's number of a cursor, if it is of these users.
    pub(super) fn upstream_of(&self, id: i64, users: &[u8]) -> Option<i64> {
        match self.lock().slots.peek(&id)? {
            Slot::Kept(leftover) if leftover.owner.users == users => Some(leftover.upstream),
            _ => None,
        }
    }
}

impl OpenLeftovers {
    fn remove(&mut self, id: i64) {
        let removed = self.slots.pop(&id);
        self.forgotten(removed);
    }

    fn forgotten(&mut self, slot: Option<Slot>) {
        if let Some(Slot::Kept(leftover)) = slot {
            self.bytes = self.bytes.saturating_sub(leftover.bytes());
        }
    }
}

impl BorrowedLeftover<'_> {
    /// Gives it back, unless it was forgotten meanwhile.
    pub(super) fn give_back(mut self) {
        if let Some(leftover) = self.leftover.take()
            && self.leftovers.contains(self.id)
        {
            self.leftovers.keep(self.id, leftover);
        }
    }
}

impl Drop for BorrowedLeftover<'_> {
    fn drop(&mut self) {
        if self.leftover.is_some() {
            self.leftovers.lock().remove(self.id);
        }
    }
}
