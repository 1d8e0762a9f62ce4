//! `insert`: items placed on pages, round after round until each is stored or has failed for a reason of its own.

use std::collections::HashSet;
use std::time::Duration;

use bson::Binary;
use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};

use super::{Run, RunError};
use crate::command::arguments::Carried;
use crate::command::document::{array_of, as_flag, get, single};
use crate::command::duplicate::duplicate_id;
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::insert::Insert;
use crate::command::reply::{CursorReply, carry, succeeded};
use crate::pattern::bucket::insert::{self as planner, AfterFailure, Failure, Pages, Pending, Statement};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::layout::PageFacts;
use crate::pattern::shapes::ItemIds;
use crate::session::link::Request;
use crate::session::mint::SystemMint;

/// Rounds in which not one item was stored or refused, after which the races are called lost. Each round that a race costs means that
/// another writer got on, so this is only met when something is wrong.
const MAX_IDLE_ROUNDS: u32 = 100;
/// The longest pause before a round, in milliseconds.
const MAX_PAUSE_MS: u64 = 50;
/// Bytes of statements in one command, with room for the rest of a message of 48,000,000.
const MAX_COMMAND_BYTES: usize = 40_000_000;
/// Statements in one command: hello's `maxWriteBatchSize`.
const MAX_STATEMENTS: usize = 100_000;

pub(super) async fn run(run: &mut Run<'_>) -> Result<RawDocumentBuf, RunError> {
    let command = Insert::parse(run.head)?;
    refuse_sessions_writes(run)?;
    let mut batch = Batch::prepare(run, &command);
    while batch.has_work() {
        batch.round(run).await?;
    }
    run.shared.metrics.inserted(&run.label(), batch.inserted);
    Ok(batch.reply(&command))
}

/// Retryable writes and transactions need a replica set. Before a standalone, mongod refuses them, and so does this.
fn refuse_sessions_writes(run: &Run<'_>) -> Result<(), CommandError> {
    if get(run.head.body(), "txnNumber").is_some() || run.head.in_transaction() {
        let message = "Transaction numbers are only allowed on a replica set member or mongos";
        return Err(CommandError::new(ErrorCode::IllegalOperation, message));
    }
    Ok(())
}

/// The items of one command, and what became of them.
struct Batch<'a> {
    carried: Carried<'a>,
    ordered: bool,
    bypass_document_validation: Option<bool>,
    strict_api: bool,
    /// Items still to be placed, in the client's order.
    pending: Vec<Pending>,
    /// Failures, by the client's index. In an ordered command there is one at most, and nothing behind it is placed.
    failed: Vec<(usize, WriteError)>,
    inserted: u64,
    idle_rounds: u32,
    mint: SystemMint,
    /// mongod's last answer, for what a reply repeats of it.
    last_answer: RawDocumentBuf,
}

impl<'a> Batch<'a> {
    fn prepare(run: &Run<'a>, command: &Insert<'_>) -> Self {
        let mut batch = Self {
            carried: run.carried(),
            ordered: command.ordered,
            bypass_document_validation: command.bypass_document_validation,
            strict_api: get(run.head.body(), "apiStrict").and_then(as_flag).unwrap_or(false),
            pending: Vec::with_capacity(command.documents.len()),
            failed: Vec::new(),
            inserted: 0,
            idle_rounds: 0,
            mint: SystemMint::default(),
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
        let shared = run.shared;
        let uuid = shared.readiness.for_writing(&mut run.asker()).await?;
        self.drop_duplicates(run).await?;
        let mut pages = self.look(run).await?;
        let after_failure = if self.ordered {
            AfterFailure::Stops
        } else {
            AfterFailure::GoesOn
        };
        let statements = planner::plan(run.shape, &self.pending, &mut pages, &self.mint, after_failure);
        let failures = self.send(run, &statements, &uuid).await?;
        self.settle(run, &statements, failures);
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

    /// The highest page of each key among the pending items.
    async fn look(&mut self, run: &mut Run<'_>) -> Result<Pages, RunError> {
        let mut seen = HashSet::new();
        let firsts: Vec<&Item> = self
            .pending
            .iter()
            .map(|pending| &pending.item)
            .filter(|item| seen.insert(item.identity()))
            .collect();
        let queries: Vec<RawDocumentBuf> = firsts
            .iter()
            .map(|item| {
                let mut query = single("find", run.namespace.collection);
                planner::append_facts_query(run.shape, item, &mut query);
                self.carried.append_identity(&mut query);
                query
            })
            .collect();
        let mut pages = Pages::new();
        for (item, answer) in firsts.iter().zip(run.link.call_all(&queries).await?) {
            let answer = succeeded(answer)?;
            let bucket = CursorReply::parse(&answer).and_then(|cursor| cursor.documents().next());
            let facts = bucket
                .map(|bucket| PageFacts::parse(run.shape, bucket).ok_or_else(|| unreadable(run)))
                .transpose()?;
            pages.insert(item.identity().to_vec(), facts);
        }
        Ok(pages)
    }

    /// Finds out which of the items that missed did so because their page holds their `_id` already.
    async fn drop_duplicates(&mut self, run: &mut Run<'_>) -> Result<(), RunError> {
        if run.shape.item_ids() != ItemIds::Unique {
            return Ok(());
        }
        let missed: Vec<(usize, RawDocumentBuf)> = self
            .pending
            .iter()
            .filter(|pending| pending.misses > 0)
            .filter_map(|pending| {
                Some((
                    pending.item.index(),
                    self.duplicate_query(run, pending.item.id()?.as_raw_bson_ref()),
                ))
            })
            .collect();
        let (indexes, queries): (Vec<usize>, Vec<RawDocumentBuf>) = missed.into_iter().unzip();
        for (index, answer) in indexes.into_iter().zip(run.link.call_all(&queries).await?) {
            let answer = succeeded(answer)?;
            if CursorReply::parse(&answer).is_some_and(|cursor| cursor.documents().next().is_some()) {
                self.fail_duplicate(run, index);
            }
        }
        Ok(())
    }

    fn duplicate_query(&self, run: &Run<'_>, id: RawBsonRef<'_>) -> RawDocumentBuf {
        let mut query = single("find", run.namespace.collection);
        let condition = single("$elemMatch", &single("_id", &single("$eq", id)));
        query.append(cstr!("filter"), &single(run.shape.items(), &condition));
        query.append(cstr!("projection"), &single("_id", 1));
        query.append(cstr!("limit"), 1);
        query.append(cstr!("singleBatch"), true);
        self.carried.append_identity(&mut query);
        query
    }

    fn fail_duplicate(&mut self, run: &Run<'_>, index: usize) {
        let Some(position) = self.pending.iter().position(|pending| pending.item.index() == index) else {
            return;
        };
        let pending = self.pending.remove(position);
        if let Some(id) = pending.item.id() {
            self.fail(index, duplicate_id(run.namespace, id.as_raw_bson_ref()));
        }
    }

    /// Records a failure; in an ordered command nothing behind it is placed.
    fn fail(&mut self, index: usize, error: WriteError) {
        if self.ordered {
            self.pending.retain(|pending| pending.item.index() < index);
            self.failed.retain(|(later, _)| *later < index);
        }
        self.failed.push((index, error));
    }

    /// Sends the statements and gives those that failed, by position. An ordered command ends with the first.
    async fn send(&mut self, run: &mut Run<'_>, statements: &[Statement], uuid: &Binary) -> Result<Sent, RunError> {
        let mut sent = Sent::default();
        let mut body = single("update", run.namespace.collection);
        body.append(cstr!("ordered"), self.ordered);
        if let Some(bypass) = self.bypass_document_validation {
            body.append(cstr!("bypassDocumentValidation"), bypass);
        }
        // Not in the stable API: under `apiStrict` the hint alone tells a collection that was made anew without indexes.
        if !self.strict_api {
            body.append(cstr!("collectionUUID"), uuid);
        }
        self.carried.append_to_write(&mut body);
        while sent.count < statements.len() && !(self.ordered && !sent.failures.is_empty()) {
            let command = next_command(statements.get(sent.count..).unwrap_or_default());
            let answer = run
                .link
                .call(Request {
                    body: &body,
                    sequence: Some(("updates", &command)),
                })
                .await?;
            self.last_answer = succeeded(answer)?;
            let errors = self.last_answer.get_array("writeErrors").ok();
            let errors = errors
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(RawBsonRef::as_document);
            sent.failures.extend(
                errors
                    .filter_map(WriteError::parse)
                    .map(|(index, error)| (sent.count + index, error)),
            );
            sent.count += command.len();
        }
        Ok(sent)
    }

    /// Takes the stored items and the failed ones out of the pending.
    fn settle(&mut self, run: &Run<'_>, statements: &[Statement], sent: Sent) {
        let first_failure = sent.failures.first().map(|(position, _)| *position);
        // In an ordered command nothing behind the first failure was executed.
        let executed = if self.ordered {
            first_failure.unwrap_or(sent.count)
        } else {
            sent.count
        };
        let failed: HashSet<usize> = sent.failures.iter().map(|(position, _)| *position).collect();
        let stored = statements
            .iter()
            .take(executed)
            .enumerate()
            .filter(|(position, _)| !failed.contains(position));
        let stored: Vec<&Statement> = stored.map(|(_, statement)| statement).collect();
        let opened = stored.iter().filter(|statement| statement.opens).count();
        run.shared
            .metrics
            .buckets_opened
            .inc_by(u64::try_from(opened).unwrap_or(u64::MAX));
        let stored: HashSet<usize> = stored.into_iter().filter_map(|statement| statement.item).collect();
        let mut finals = Vec::new();
        for (position, error) in sent.failures {
            let item = statements.get(position).and_then(|statement| statement.item);
            let Some(pending) = item.and_then(|item| self.pending.get_mut(item)) else {
                continue;
            };
            match planner::failure(run.shape, error) {
                Failure::Miss => pending.misses = pending.misses.saturating_add(1),
                Failure::NameTaken => pending.names_taken = pending.names_taken.saturating_add(1),
                Failure::NotReady => run.shared.readiness.forget(run.namespace),
                Failure::Final(error) => {
                    finals.push((pending.item.index(), error));
                    continue;
                }
            }
            run.shared.metrics.conflicts.inc();
        }
        self.inserted += u64::try_from(stored.len()).unwrap_or(u64::MAX);
        let mut position = 0;
        self.pending.retain(|_| {
            position += 1;
            !stored.contains(&(position - 1))
        });
        self.pending
            .retain(|pending| !finals.iter().any(|(index, _)| *index == pending.item.index()));
        finals.into_iter().for_each(|(index, error)| self.fail(index, error));
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
            reply.append(cstr!("writeErrors"), &array_of(&errors));
        }
        if let Some(error) = get(&self.last_answer, "writeConcernError") {
            reply.append(cstr!("writeConcernError"), error);
        }
        reply.append(cstr!("ok"), 1.0);
        carry(&mut reply, &self.last_answer);
        reply
    }
}

/// What came of sending statements.
#[derive(Default)]
struct Sent {
    /// How many were sent.
    count: usize,
    /// Those that failed, by position, ascending.
    failures: Vec<(usize, WriteError)>,
}

/// As many statements as one command may carry.
fn next_command(statements: &[Statement]) -> Vec<RawDocumentBuf> {
    let mut bytes = 0;
    let fitting = statements.iter().take(MAX_STATEMENTS).take_while(|statement| {
        let first = bytes == 0;
        bytes += statement.update.as_bytes().len();
        first || bytes <= MAX_COMMAND_BYTES
    });
    fitting.map(|statement| statement.update.clone()).collect()
}

fn unreadable(run: &Run<'_>) -> CommandError {
    let message = format!(
        "{} holds a document that is no bucket of layout version 1: run `mongoshape check`",
        run.namespace
    );
    CommandError::new(ErrorCode::InvalidOptions, message)
}
