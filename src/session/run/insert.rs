//! `insert`: items placed on pages, round after round until each is stored or has failed for a reason of its own.

mod exchange;

use std::collections::HashSet;
use std::time::Duration;

use bson::raw::{RawDocumentBuf, cstr};

use self::exchange::Sent;
use super::Run;
use crate::command::arguments::Carried;
use crate::command::document::{array_of, as_flag, get};
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::insert::Insert;
use crate::command::reply::carry;
use crate::pattern::bucket::insert::{self as planner, Failure, Pending, Statement, StatementKind};
use crate::pattern::bucket::item::Item;
use crate::session::error::RunError;
use crate::session::mint::SystemMint;
use crate::session::upstream::UpstreamKind;

/// Rounds in which not one item was stored or refused, after which the races are called lost. Each round that a race costs
/// means that another writer got on, so this is only met when something is wrong.
const MAX_IDLE_ROUNDS: u32 = 100;
/// The longest pause before a round, in milliseconds.
const MAX_PAUSE_MS: u64 = 50;

pub(super) async fn run(run: &mut Run<'_>) -> Result<RawDocumentBuf, RunError> {
    let command = Insert::parse(run.head)?;
    refuse_retryable(run)?;
    let mut batch = Batch::prepare(run, &command);
    while batch.has_work() {
        batch.round(run).await.map_err(RunError::of_write)?;
    }
    run.shared.metrics.inserted(&run.label(), batch.inserted);
    Ok(batch.reply(&command))
}

/// Retryable writes need a replica set: before a standalone, mongod refuses them in these words. Before a replica set
/// they are not in this version: an insert that is sent again must not store its items again.
fn refuse_retryable(run: &Run<'_>) -> Result<(), CommandError> {
    if get(run.head.body(), "txnNumber").is_none() {
        return Ok(());
    }
    if run.upstream == UpstreamKind::Standalone {
        let message = "Transaction numbers are only allowed on a replica set member or mongos";
        return Err(CommandError::new(ErrorCode::IllegalOperation, message));
    }
    Err(run.unsupported("retryable writes (connect with retryWrites=false)"))
}

/// The items of one command, and what became of them.
struct Batch<'a> {
    carried: Carried<'a>,
    ordered: bool,
    look_up: LookUp,
    bypass_document_validation: Option<bool>,
    strict_api: bool,
    /// Items still to be placed, in the client's order.
    pending: Vec<Pending>,
    /// Failures, by the client's index. In an ordered command there is one at most, and nothing behind it is placed.
    failed: Vec<(usize, WriteError)>,
    inserted: u64,
    idle_rounds: u32,
    mint: SystemMint<'a>,
    /// mongod's last answer, for what a reply repeats of it.
    last_answer: RawDocumentBuf,
}

/// Whether the `_id`s of all items of an unordered command are looked up at once. It is done once, after a first failure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LookUp {
    NotYet,
    Due,
    Done,
}

impl<'a> Batch<'a> {
    fn prepare(run: &Run<'a>, command: &Insert<'_>) -> Self {
        let mut batch = Self {
            carried: run.carried(),
            ordered: command.ordered,
            look_up: LookUp::NotYet,
            bypass_document_validation: command.bypass_document_validation,
            strict_api: get(run.head.body(), "apiStrict").and_then(as_flag).unwrap_or(false),
            pending: Vec::with_capacity(command.documents.len()),
            failed: Vec::new(),
            inserted: 0,
            idle_rounds: 0,
            mint: SystemMint::new(&run.shared.timestamps),
            last_answer: RawDocumentBuf::new(),
        };
        for (index, document) in command.documents.iter().enumerate() {
            match Item::prepare(run.shape, index, document, &mut batch.mint) {
                Ok(item) => batch.pending.push(Pending {
                    item,
                    names_taken: 0,
                    misses: 0,
                }),
                Err(error) => {
                    batch.failed.push((index, error));
                    if batch.ordered {
                        break;
                    }
                }
            }
        }
        batch
    }

    fn has_work(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Looks at the pages, plans, sends, and sorts out what is still to be done.
    async fn round(&mut self, run: &mut Run<'_>) -> Result<(), RunError> {
        self.pause().await;
        let before = self.pending.len();
        let uuid = run.settings.readiness.for_writing(&mut run.asker()).await?;
        let duplicates = self.duplicates(run).await?;
        self.refuse(duplicates);
        let mut pages = self.look(run).await?;
        let statements = planner::plan(run.shape, &self.pending, &mut pages, &self.mint);
        let sent = self.send(run, &statements, &uuid).await?;
        self.settle(run, &statements, sent);
        self.idle_rounds = if self.pending.len() < before {
            0
        } else {
            self.idle_rounds.saturating_add(1)
        };
        if self.idle_rounds > MAX_IDLE_ROUNDS {
            self.give_up();
        }
        Ok(())
    }

    /// Waits a little, at random, when races were lost: the more often, the longer.
    async fn pause(&self) {
        if self.idle_rounds > 1 {
            let most = (1_u64 << self.idle_rounds.min(10)).min(MAX_PAUSE_MS);
            tokio::time::sleep(Duration::from_millis(rand::random_range(0..=most))).await;
        }
    }

    /// Takes the stored items and a refused one out of the pending, and learns from a failure.
    fn settle(&mut self, run: &Run<'_>, statements: &[Statement], sent: Sent) {
        let mut stored = 0;
        for statement in statements.iter().take(sent.executed) {
            stored += usize::from(statement.kind != StatementKind::Close);
            if statement.kind == StatementKind::Open {
                run.shared.metrics.buckets_opened.inc();
            }
        }
        let refused = sent.failure.and_then(|error| {
            let item = statements.get(sent.executed)?.item;
            self.learn(run, item, error)
        });
        // Items are placed in their order, so those that were stored are the first of the pending.
        self.pending.drain(..stored.min(self.pending.len()));
        self.inserted += u64::try_from(stored).unwrap_or(u64::MAX);
        self.refuse(refused.into_iter().collect());
    }

    /// What a failure means for the pending item at a position; the item's index and error if it is refused for it.
    fn learn(&mut self, run: &Run<'_>, item: usize, error: WriteError) -> Option<(usize, WriteError)> {
        if !self.ordered && self.look_up == LookUp::NotYet {
            self.look_up = LookUp::Due;
        }
        let pending = self.pending.get_mut(item)?;
        match planner::failure(run.shape, error) {
            Failure::Miss => pending.misses = pending.misses.saturating_add(1),
            Failure::NameTaken => pending.names_taken = pending.names_taken.saturating_add(1),
            Failure::NotReady => run.settings.readiness.forget(run.namespace),
            Failure::Final(error) => return Some((pending.item.index(), error)),
        }
        run.shared.metrics.conflicts.inc();
        None
    }

    /// Records refused items, by the client's index; in an ordered command nothing behind the first is placed.
    fn refuse(&mut self, refused: Vec<(usize, WriteError)>) {
        let indexes: HashSet<usize> = refused.iter().map(|(index, _)| *index).collect();
        self.pending.retain(|pending| !indexes.contains(&pending.item.index()));
        self.failed.extend(refused);
        if self.ordered
            && let Some(first) = self.failed.iter().map(|(index, _)| *index).min()
        {
            self.failed.retain(|(index, _)| *index == first);
            self.pending.retain(|pending| pending.item.index() < first);
        }
    }

    fn give_up(&mut self) {
        let message = "mongoshape lost the race for a page too often; nothing was stored of this document";
        for pending in std::mem::take(&mut self.pending) {
            self.failed
                .push((pending.item.index(), WriteError::new(ErrorCode::WriteConflict, message)));
            if self.ordered {
                break;
            }
        }
    }

    fn reply(mut self, command: &Insert<'_>) -> RawDocumentBuf {
        self.failed.sort_by_key(|(index, _)| *index);
        let mut reply = RawDocumentBuf::new();
        if command.unacknowledged {
            reply.append(cstr!("n"), 0);
            reply.append(cstr!("ok"), 1.0);
            return reply;
        }
        reply.append(cstr!("n"), i32::try_from(self.inserted).unwrap_or(i32::MAX));
        if !self.failed.is_empty() {
            let errors: Vec<_> = self
                .failed
                .iter()
                .map(|(index, error)| error.to_document(*index))
                .collect();
            reply.append(cstr!("writeErrors"), array_of(&errors));
        }
        if let Some(error) = get(&self.last_answer, "writeConcernError") {
            reply.append(cstr!("writeConcernError"), error);
        }
        reply.append(cstr!("ok"), 1.0);
        carry(&mut reply, &self.last_answer);
        reply
    }
}
