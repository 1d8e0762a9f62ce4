//! Cursors with leftovers: documents of mongod's last reply that did not fit in the client's reply together
//! with their extras. They are kept until the next `getMore`.
//!
//! Such a cursor has an id of the proxy, for which mongod has no cursor. If the cursor is evicted, the client
//! gets `CursorNotFound`, so no document is skipped unnoticed.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bson::Timestamp;
use bson::raw::RawDocumentBuf;
use lru::LruCache;

use crate::command::error::{CommandError, ErrorCode};
use crate::session::cursor_owner::{NamedSessions, Owner};

/// Cursors in the cache. The least recently used one is evicted first.
const MAX_CURSORS: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");
/// Idle timeouts of a cursor, as in mongod: with and without a session.
const SESSION_TIMEOUT: Duration = Duration::from_mins(30);
const CURSOR_TIMEOUT: Duration = Duration::from_mins(10);
/// Bytes of overhead for each kept document.
const AROUND_DOCUMENT: usize = 64;

/// The leftover of one cursor.
#[derive(Debug)]
pub(super) struct Leftover {
    pub(super) owner: Owner,
    /// The id of the upstream cursor. 0 if it is exhausted.
    pub(super) upstream: i64,
    pub(super) documents: VecDeque<RawDocumentBuf>,
    /// Number of documents in the last reply. The next upstream batch has about that size.
    pub(super) fitted: usize,
    /// Fields of the upstream reply that every reply repeats, for example the cluster time.
    pub(super) cluster_time: RawDocumentBuf,
    /// The `atClusterTime` of the snapshot from which the documents were read.
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
    /// A `getMore` of its owner is using it.
    InUse(Owner),
}

impl Slot {
    fn owner(&self) -> &Owner {
        match self {
            Self::Kept(leftover) => &leftover.owner,
            Self::InUse(owner) => owner,
        }
    }
}

/// All leftovers of a proxy.
#[derive(Debug)]
pub(in crate::session) struct Leftovers {
    open: Mutex<OpenLeftovers>,
    /// Maximum bytes of all leftovers.
    most_bytes: usize,
}

#[derive(Debug)]
struct OpenLeftovers {
    slots: LruCache<i64, Slot>,
    bytes: usize,
}

/// The cursor whose leftover a `getMore` is using. It is removed unless the leftover is given back.
#[derive(Debug)]
pub(super) struct BorrowedLeftover<'a> {
    leftovers: &'a Leftovers,
    id: i64,
    is_given_back: bool,
}

impl Leftovers {
    /// `most_bytes`: maximum bytes of all leftovers.
    pub(in crate::session) fn new(most_bytes: usize) -> Self {
        let mut slots = LruCache::unbounded();
        slots.resize(MAX_CURSORS);
        let open = Mutex::new(OpenLeftovers { slots, bytes: 0 });
        Self { open, most_bytes }
    }

    pub(in crate::session) fn contains(&self, id: i64) -> bool {
        self.lock().slots.contains(&id)
    }

    pub(super) fn remove(&self, id: i64) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, OpenLeftovers> {
        // No panic can leave the map inconsistent, so a poisoned lock is usable.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keep(&self, id: i64, leftover: Box<Leftover>) {
        self.lock().keep(id, leftover, self.most_bytes);
    }

    /// Removes the cursors of sessions that were killed. Costs one pass over all cursors.
    pub(in crate::session) fn close_of(&self, sessions: &NamedSessions) {
        let mut open = self.lock();
        for id in open.ids_of(sessions) {
            open.remove(id);
        }
    }

    /// Restarts the timeout of the cursors of sessions. Costs one pass over all cursors.
    pub(in crate::session) fn refresh_of(&self, sessions: &NamedSessions) {
        let mut open = self.lock();
        // The least recently used cursor expires first, so their order is kept.
        for id in open.ids_of(sessions).into_iter().rev() {
            if let Some(Slot::Kept(leftover)) = open.slots.get_mut(&id) {
                leftover.used = Instant::now();
            }
        }
    }

    /// Takes a leftover. `None`: unknown id. `Err`: another `getMore` is using it.
    pub(super) fn take(&self, id: i64) -> Option<Result<(BorrowedLeftover<'_>, Box<Leftover>), CommandError>> {
        let mut open = self.lock();
        let slot = open.slots.get_mut(&id)?;
        let in_use = Slot::InUse(slot.owner().clone());
        Some(match std::mem::replace(slot, in_use) {
            Slot::InUse(_) => {
                let message = format!("cursor id {id} is already in use");
                Err(CommandError::new(ErrorCode::CursorInUse, message))
            }
            Slot::Kept(leftover) => {
                open.bytes = open.bytes.saturating_sub(leftover.bytes());
                let cursor = BorrowedLeftover {
                    leftovers: self,
                    id,
                    is_given_back: false,
                };
                Ok((cursor, leftover))
            }
        })
    }

    /// The id of the upstream cursor, if the cursor belongs to these users.
    pub(super) fn upstream_of(&self, id: i64, users: &[u8]) -> Option<i64> {
        match self.lock().slots.peek(&id)? {
            Slot::Kept(leftover) if leftover.owner.users == users => Some(leftover.upstream),
            _ => None,
        }
    }
}

impl OpenLeftovers {
    fn keep(&mut self, id: i64, mut leftover: Box<Leftover>, most_bytes: usize) {
        leftover.used = Instant::now();
        self.bytes = self.bytes.saturating_add(leftover.bytes());
        let replaced = self.slots.push(id, Slot::Kept(leftover));
        self.forgotten(replaced.map(|(_, slot)| slot));
        while let Some((oldest, slot)) = self.slots.peek_lru() {
            let is_over = matches!(slot, Slot::Kept(leftover) if leftover.is_left_alone());
            if self.bytes <= most_bytes && !is_over {
                break;
            }
            let oldest = *oldest;
            self.remove(oldest);
        }
    }

    /// The cursors of sessions, the most recently used one first.
    fn ids_of(&self, sessions: &NamedSessions) -> Vec<i64> {
        let of_sessions = self.slots.iter().filter(|(_, slot)| sessions.have(slot.owner()));
        of_sessions.map(|(id, _)| *id).collect()
    }

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
    /// Gives the leftover back, unless the cursor was removed in the meantime.
    pub(super) fn give_back(mut self, leftover: Box<Leftover>) {
        self.is_given_back = true;
        // One lock for check and insertion: a cursor that is removed in between would return.
        let mut open = self.leftovers.lock();
        if open.slots.contains(&self.id) {
            open.keep(self.id, leftover, self.leftovers.most_bytes);
        }
    }
}

impl Drop for BorrowedLeftover<'_> {
    fn drop(&mut self) {
        if !self.is_given_back {
            self.leftovers.lock().remove(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::spec::BinarySubtype;
    use bson::{Binary, rawdoc};

    use super::*;

    const ID: [u8; 16] = [1; 16];

    fn leftover() -> Box<Leftover> {
        of_session(None)
    }

    fn of_session(session: Option<&[u8]>) -> Box<Leftover> {
        let owner = Owner {
            namespace: "shop.sales".to_owned(),
            session: session.map(<[u8]>::to_vec),
            transaction: None,
            users: Vec::new(),
            never_times_out: false,
            awaits_data: false,
        };
        Box::new(Leftover {
            owner,
            upstream: 5,
            documents: VecDeque::from([RawDocumentBuf::new()]),
            fitted: 1,
            cluster_time: RawDocumentBuf::new(),
            snapshot_time: None,
            used: Instant::now(),
        })
    }

    #[test]
    fn cursor_exists_until_its_leftover_is_not_given_back() {
        let leftovers = Leftovers::new(1000);
        leftovers.keep(7, leftover());
        let (cursor, taken) = leftovers.take(7).unwrap().unwrap();
        assert!(leftovers.take(7).unwrap().is_err());
        cursor.give_back(taken);
        drop(leftovers.take(7));
        assert!(leftovers.take(7).is_none());
        assert_eq!(leftovers.lock().bytes, 0);
    }

    #[test]
    fn killed_cursor_does_not_come_back() {
        let leftovers = Leftovers::new(1000);
        leftovers.keep(7, leftover());
        let (cursor, taken) = leftovers.take(7).unwrap().unwrap();
        leftovers.remove(7);
        cursor.give_back(taken);
        assert!(!leftovers.contains(7));
        assert_eq!(leftovers.lock().bytes, 0);
    }

    /// Three cursors, of which the first two belong to the session, and the session.
    fn of_sessions() -> (Leftovers, NamedSessions) {
        let leftovers = Leftovers::new(1000);
        for (id, session) in [(1, &ID), (2, &ID), (3, &[2; 16])] {
            leftovers.keep(id, of_session(Some(session.as_slice())));
        }
        let id = Binary {
            subtype: BinarySubtype::Uuid,
            bytes: ID.to_vec(),
        };
        let body = rawdoc! { "killSessions": [{ "id": id }], "$db": "admin" };
        (leftovers, NamedSessions::killed(&body, Vec::new()))
    }

    #[test]
    fn killed_session_has_no_cursor() {
        let (leftovers, sessions) = of_sessions();
        let (cursor, taken) = leftovers.take(1).unwrap().unwrap();
        leftovers.close_of(&sessions);
        cursor.give_back(taken);
        assert_eq!([1, 2, 3].map(|id| leftovers.contains(id)), [false, false, true]);
    }

    #[test]
    fn cursors_of_a_refreshed_session_expire_last() {
        let (leftovers, sessions) = of_sessions();
        leftovers.refresh_of(&sessions);
        let open = leftovers.lock();
        let oldest_first: Vec<i64> = open.slots.iter().rev().map(|(id, _)| *id).collect();
        assert_eq!(oldest_first, [3, 1, 2]);
    }
}
