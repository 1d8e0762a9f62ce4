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
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use lru::LruCache;

use super::OutlierCommand;
use super::reassemble::Merged;
use crate::command::arguments::with_replaced;
use crate::command::batch::BatchKind;
use crate::command::cursor::{GetMore, killed_ids};
use crate::command::document::{as_whole_number, get};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::reply::{CursorReply, copy_cluster_time};
use crate::session::cursor::Owner;
use crate::session::error::RunError;

/// Cursors remembered; the least recently used is forgotten first.
const MAX_CURSORS: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");
/// How long a cursor may be left alone: as long as mongod leaves its own.
const SESSION_TIMEOUT: Duration = Duration::from_mins(30);
const CURSOR_TIMEOUT: Duration = Duration::from_mins(10);
/// What is around a document that is kept, in bytes.
const AROUND_DOCUMENT: usize = 64;

/// What is left of a cursor.
#[derive(Debug)]
struct Leftover {
    owner: Owner,
    /// The transaction that it was opened in.
    transaction: Option<i64>,
    /// mongod's number of it; 0 when that has come to its end.
    upstream: i64,
    documents: VecDeque<RawDocumentBuf>,
    /// How many documents the last reply held: so many are asked for next.
    fitted: usize,
    /// What mongod told with the documents.
    gossip: RawDocumentBuf,
    /// The time of the snapshot that the documents were read from.
    snapshot_time: Option<Timestamp>,
    used: Instant,
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
struct BorrowedLeftover<'a> {
    leftovers: &'a Leftovers,
    id: i64,
    leftover: Option<Box<Leftover>>,
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

    fn lock(&self) -> MutexGuard<'_, OpenLeftovers> {
        // Nothing in here is ever left half done.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, id: i64, mut leftover: Box<Leftover>) {
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
    fn take(&self, id: i64) -> Option<Result<BorrowedLeftover<'_>, CommandError>> {
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
    fn upstream_of(&self, id: i64, users: &[u8]) -> Option<i64> {
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
    fn give_back(mut self) {
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

impl OutlierCommand<'_> {
    /// Keeps what a reply had no place for, and gives the number to ask for it by. `upstream` is mongod's,
    /// `fitted` says how many documents the reply holds.
    pub(super) async fn keep_leftover(
        &mut self,
        answer: &RawDocument,
        documents: &[&RawDocument],
        fitted: usize,
    ) -> Result<i64, RunError> {
        let upstream = CursorReply::parse(answer).map_or(0, |cursor| cursor.id);
        if documents.is_empty() {
            return Ok(upstream);
        }
        let body = self.context.head.body();
        let owner = Owner {
            namespace: self.namespace.to_string(),
            session: session_of(body),
            users: self.context.link.users(body).await?,
            never_times_out: get(body, "noCursorTimeout") == Some(RawBsonRef::Boolean(true)),
        };
        let mut gossip = RawDocumentBuf::new();
        copy_cluster_time(&mut gossip, answer);
        let id = rand::random_range(1..i64::MAX);
        let leftover = Leftover {
            owner,
            transaction: self.transaction(),
            upstream,
            documents: documents.iter().map(|&document| document.to_owned()).collect(),
            fitted,
            gossip,
            snapshot_time: self.facts.snapshot_time,
            used: Instant::now(),
        };
        self.context.shared.leftovers.keep(id, Box::new(leftover));
        Ok(id)
    }

    fn transaction(&self) -> Option<i64> {
        let number = get(self.context.head.body(), "txnNumber").and_then(as_whole_number);
        number.filter(|_| self.context.head.in_transaction())
    }

    /// What mongod checks of a `getMore` (`getmore_cmd.cpp`).
    async fn check_owner(&mut self, more: &GetMore, leftover: &Leftover) -> Result<(), RunError> {
        let (id, owner, body) = (more.id, &leftover.owner, self.context.head.body());
        let refused =
            |code, how: &str| CommandError::malformed(code, &format!("Cannot run getMore on cursor {id}, {how}"));
        if self.context.link.users(body).await? != owner.users {
            let message = format!("cursor id {id} was not created by the authenticated user");
            return Err(CommandError::new(ErrorCode::Unauthorized, message).into());
        }
        match (&owner.session, session_of(body)) {
            (None, Some(_)) => return Err(refused(50736, "which was not created in a session, in a session").into()),
            (Some(_), None) => return Err(refused(50737, "which was created in a session, without an lsid").into()),
            (Some(of), Some(by)) if *of != by => {
                return Err(refused(50738, "which was created in a session, in another session").into());
            }
            _ => {}
        }
        match (leftover.transaction, self.transaction()) {
            (of, by) if of == by => {}
            (None, _) => {
                return Err(refused(50739, "which was not created in a transaction, in a transaction").into());
            }
            (Some(_), None) => {
                return Err(refused(50740, "which was created in a transaction, without a txnNumber").into());
            }
            (Some(_), Some(_)) => {
                return Err(refused(50741, "which was created in a transaction, in another transaction").into());
            }
        }
        Ok(owner.check_request(self.namespace, more)?)
    }
}

/// The next reply of a cursor of which documents were left. `None`: it is none of these.
pub(super) async fn get_more(run: &mut OutlierCommand<'_>) -> Result<Option<RawDocumentBuf>, RunError> {
    let more = GetMore::parse(run.context.head.body())?;
    let shared = run.context.shared;
    let Some(taken) = shared.leftovers.take(more.id) else {
        return Ok(None);
    };
    let mut borrowed = taken?;
    let Some(mut leftover) = borrowed.leftover.take() else {
        return Ok(None);
    };
    if let Err(error) = run.check_owner(&more, &leftover).await {
        borrowed.leftover = Some(leftover);
        borrowed.give_back();
        return Err(error);
    }
    run.facts.snapshot_time = leftover.snapshot_time;
    // From here on it is forgotten where something fails.
    let wanted = usize::try_from(more.batch_size.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    if leftover.documents.is_empty() {
        run.ask_for_more(&mut leftover, wanted).await?;
    }
    let documents: Vec<&RawDocument> = leftover.documents.iter().take(wanted).map(AsRef::as_ref).collect();
    let (batch, count) = match run.merge(&documents, BatchKind::Next).await? {
        Merged::Batch(batch, count) => (batch, count),
        Merged::Stale => {
            if leftover.upstream != 0 {
                run.close_cursor(run.namespace.collection, leftover.upstream).await?;
            }
            return Err(run.other_extras().into());
        }
    };
    leftover.documents.drain(..count);
    leftover.fitted = count;
    let is_over = leftover.documents.is_empty() && leftover.upstream == 0;
    let mut reply = batch.into_reply(run.namespace, if is_over { 0 } else { more.id });
    copy_cluster_time(&mut reply, &leftover.gossip);
    if !is_over {
        borrowed.leftover = Some(leftover);
        borrowed.give_back();
    }
    Ok(Some(reply))
}

impl OutlierCommand<'_> {
    /// The next documents of mongod's cursor: about as many as a reply has held.
    async fn ask_for_more(&mut self, leftover: &mut Leftover, wanted: usize) -> Result<(), RunError> {
        let size = i64::try_from(leftover.fitted.saturating_add(1).min(wanted)).unwrap_or(i64::MAX);
        let body = self.context.head.body();
        let replaced = [
            ("getMore", Some(RawBsonRef::Int64(leftover.upstream))),
            ("batchSize", Some(RawBsonRef::Int64(size))),
        ];
        let command = with_replaced(body, &replaced);
        let answer = self.context.link.run_reserving(&command, self.reply_memory).await?;
        if let Some(cursor) = CursorReply::parse(&answer) {
            leftover.upstream = cursor.id;
            leftover.documents = cursor.documents().map(RawDocument::to_owned).collect();
        }
        leftover.gossip = RawDocumentBuf::new();
        copy_cluster_time(&mut leftover.gossip, &answer);
        Ok(())
    }

    /// The error for a document that cannot be put together any more.
    pub(super) fn other_extras(&self) -> CommandError {
        let message = format!(
            "a document of {} has got other extras while it was read",
            self.namespace
        );
        CommandError::new(ErrorCode::QueryPlanKilled, message)
    }
}

/// `killCursors`: mongod's answer, with its numbers in place of the proxy's and back.
pub(super) async fn kill(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = run.context.head.body();
    // What is wrong with the list is mongod's to say.
    let ids = killed_ids(body).unwrap_or_default();
    if !ids.iter().any(|id| run.context.shared.leftovers.contains(*id)) {
        return run.as_it_is().await;
    }
    let users = run.context.link.users(body).await?;
    let known: Vec<(i64, i64)> = ids
        .iter()
        .filter_map(|id| Some((*id, run.context.shared.leftovers.upstream_of(*id, &users)?)))
        .collect();
    let upstream_of = |id: i64| {
        known
            .iter()
            .find(|(own, _)| *own == id)
            .map_or(id, |(_, upstream)| *upstream)
    };
    let asked: RawArrayBuf = ids
        .iter()
        .map(|id| upstream_of(*id))
        .filter(|id| *id != 0)
        .map(RawBsonRef::Int64)
        .collect();
    let reply = run
        .context
        .link
        .run(&with_replaced(body, &[("cursors", Some(RawBsonRef::Array(&asked)))]))
        .await?;
    for (own, _) in &known {
        run.context.shared.leftovers.lock().remove(*own);
    }
    let is_known = |id: i64| known.iter().any(|(_, upstream)| *upstream == id);
    let listed = |name: &str| {
        let ids = reply.get_array(name).ok().into_iter().flatten().flatten();
        ids.filter_map(RawBsonRef::as_i64)
            .filter(|id| !is_known(*id))
            .collect::<Vec<i64>>()
    };
    let killed = listed("cursorsKilled")
        .into_iter()
        .chain(known.iter().map(|(own, _)| *own));
    let killed: RawArrayBuf = killed.map(RawBsonRef::Int64).collect();
    let missing: RawArrayBuf = listed("cursorsNotFound").into_iter().map(RawBsonRef::Int64).collect();
    Ok(with_replaced(
        &reply,
        &[
            ("cursorsKilled", Some(RawBsonRef::Array(&killed))),
            ("cursorsNotFound", Some(RawBsonRef::Array(&missing))),
        ],
    ))
}

/// The id of the session that a command runs in.
fn session_of(body: &RawDocument) -> Option<Vec<u8>> {
    let session = get(body, "lsid")?.as_document()?;
    match get(session, "id")? {
        RawBsonRef::Binary(id) => Some(id.bytes.to_vec()),
        _ => None,
    }
}
