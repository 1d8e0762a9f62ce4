//! Several updates by `_id` in one command. Statements that missed their item are sent again.
//!
//! A statement can miss an item that is relocated concurrently, and the reply does not report which one
//! missed. mongod's retry records do: a statement without one has missed its item or left it unchanged. If
//! its item exists, it is sent again. It is then executed after later statements, so statements that are sent
//! together name different items, or [stop at the first miss](in_order).

mod in_order;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use bson::raw::{RawBson, RawDocument, RawDocumentBuf};

use super::{FailedStatement, ItemUpdateById, StatementTargets, is_found, looking, send};
use crate::command::document::{as_whole_number, get};
use crate::command::error::{CommandError, WriteError};
use crate::command::reply::succeeded;
use crate::command::update::Update;
use crate::command::write_reply::WriteReply;
use crate::pattern::bucket::insert::{IdSet, is_too_large};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::failed_update::FailedUpdate;
use crate::session::bucket::insert::{SoughtRecord, remembered};
use crate::session::bucket::internal_transaction::OwnTransaction;
use crate::session::bucket::item_update::given_up;
use crate::session::bucket::retry_on_swap::{
    MAX_RUNS, interrupted, is_swap_error, is_swap_write_error, not_executed, wait, write_errors,
};
use crate::session::bucket::room::{self, FreedBytes};
use crate::session::bucket::stored_ids::stored_ids;
use crate::session::bucket::write_statement::retried_ids;
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// Statements in the first command that is executed in order, and in the first one after a failure. Each next
/// one has twice as many.
const FIRST_IN_ORDER: usize = 1000;
/// Consecutive commands in order that executed fewer statements than could have been sent together. After
/// these, no more are sent.
const MAX_USELESS: usize = 3;
/// Items that are looked up one by one. Of more, those with a stored `_id` are selected first.
const MAX_LOOKUPS: usize = 100;

/// The statements of one command.
pub(super) struct Bulk<'a> {
    pub(super) command: &'a Update<'a>,
    pub(super) changes: &'a [ItemUpdateById],
    pub(super) targets: &'a StatementTargets,
    pub(super) statements: &'a [RawDocumentBuf],
}

/// The results of the statements so far.
struct BulkResult {
    reply: WriteReply,
    /// Failures, by the statement's position.
    failed: Vec<(usize, WriteError)>,
}

/// Statements that were sent together, by what mongod did with them. The numbers are their positions in the
/// client's command.
#[derive(Default)]
struct SentStatements {
    /// Executed without an error.
    executed: Vec<usize>,
    /// Not executed, because the collection is frozen or was swapped.
    replaced: Vec<usize>,
    /// mongod's error for one of `replaced`.
    replacement: Option<WriteError>,
    /// Refused because a page would be too large.
    outgrown: Vec<(usize, WriteError)>,
    /// Not executed, because mongod ended at one of `outgrown`.
    rest: Vec<usize>,
    failed: Vec<(usize, WriteError)>,
}

/// The outcome of executed statements.
struct ExecutedStatements {
    matched: usize,
    modified: usize,
    /// Positions of statements that are not counted, and whose items exist.
    passed: Vec<usize>,
}

impl Bulk<'_> {
    /// Sends the statements until each has matched its item, or no unmatched item exists.
    pub(super) async fn until_all_match(&self, run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
        let mut result = BulkResult::new();
        let mut begin = 0;
        let mut most = FIRST_IN_ORDER;
        let mut useless = 0_usize;
        while begin < self.changes.len() {
            let mut part = next_part(self.changes, begin);
            if part.end < self.changes.len() && useless < MAX_USELESS {
                match self.in_order(run, begin, most, &mut result).await? {
                    Some(reached) if !reached.stopped => {
                        begin = reached.position;
                        most = most.saturating_mul(2);
                        continue;
                    }
                    Some(reached) => {
                        let is_useless = reached.position < part.end;
                        useless = if is_useless { useless.saturating_add(1) } else { 0 };
                        most = FIRST_IN_ORDER;
                        part = reached.position..reached.position.saturating_add(1);
                    }
                    None => useless = MAX_USELESS,
                }
            }
            let end = part.end;
            begin = end;
            let left = self.execute(run, part.collect(), &mut result).await?;
            let is_ended = self.command.ordered && !result.failed.is_empty();
            if !left.is_empty() {
                run.is_interrupted = true;
                result.fail(&left, &interrupted());
                let rest: Vec<usize> = (end..self.statements.len()).filter(|_| !is_ended).collect();
                result.fail(&rest, &interrupted());
                break;
            }
            if is_ended {
                break;
            }
        }
        Ok(self.reply(run, result))
    }

    /// Sends the statements at these positions. Each names another item. Returns the positions that were not
    /// executed, because the collection got another layout. If the client's command is not retryable, the
    /// retry records are those of an internal session.
    async fn execute(
        &self,
        run: &mut BucketCommand<'_>,
        positions: Vec<usize>,
        result: &mut BulkResult,
    ) -> Result<Vec<usize>, RunError> {
        let mut open = positions;
        let mut is_replaced = false;
        let mut idle = 0;
        while idle < MAX_ATTEMPTS {
            let own = (!run.context.head.is_retryable_write()).then(|| OwnTransaction::unnumbered(run));
            let answer = self.send(run, &open, own.as_ref()).await?;
            let mut sent = self.sent(&open, &answer);
            let executed = self.outcome(run, own.as_ref(), &sent.executed, &answer).await?;
            let mut again = self.make_room(run, &mut sent).await?;
            result.failed.append(&mut sent.failed);
            result.count(executed.matched, executed.modified);
            result.take(answer, own.is_none());
            is_replaced = !sent.replaced.is_empty();
            let before = open.len();
            open = executed.passed;
            open.append(&mut again);
            open.append(&mut sent.replaced);
            open.sort_unstable();
            if open.is_empty() {
                return Ok(open);
            }
            idle = if open.len() < before { 0 } else { idle.saturating_add(1) };
            if !is_replaced {
                pause(idle).await;
                continue;
            }
            match wait(run).await {
                Err(RunError::LayoutChanged) if own.is_some() => return Ok(open),
                waited => waited?,
            }
        }
        let error = if is_replaced { not_executed(run) } else { given_up(run) };
        result.fail(&open, &error);
        Ok(Vec::new())
    }

    /// The outcome of executed statements. Costs round trips only if some of them matched nothing.
    async fn outcome(
        &self,
        run: &mut BucketCommand<'_>,
        own: Option<&OwnTransaction>,
        executed: &[usize],
        answer: &RawDocument,
    ) -> Result<ExecutedStatements, RunError> {
        let (matched, modified) = (number(answer, "n"), number(answer, "nModified"));
        if matched < executed.len() {
            let recorded = self.recorded(run, executed, own).await?;
            let unclear = executed.iter().copied().filter(|position| !recorded.contains(position));
            let unclear: Vec<usize> = unclear.collect();
            let passed = match self.existing(run, &unclear).await {
                // All of them are sent again, to the new collection.
                Err(RunError::Command(error)) if is_swap_error(&error) => unclear,
                passed => passed?,
            };
            if !passed.is_empty() {
                return Ok(ExecutedStatements {
                    matched: recorded.len(),
                    modified: recorded.len(),
                    passed,
                });
            }
        }
        Ok(ExecutedStatements {
            matched,
            modified,
            passed: Vec::new(),
        })
    }

    /// The positions of statements that have a retry record: they have changed their items.
    async fn recorded(
        &self,
        run: &mut BucketCommand<'_>,
        positions: &[usize],
        own: Option<&OwnTransaction>,
    ) -> Result<HashSet<usize>, RunError> {
        let sought = positions.iter().map(|position| SoughtRecord {
            id: self.command.statement_ids.of(*position),
            nothing: self.targets.no_statement(*position),
        });
        let sought: Vec<SoughtRecord> = sought.collect();
        let recorded = remembered(run, &sought, own).await?;
        let has_record = |position: &usize| recorded.contains_key(&self.command.statement_ids.of(*position));
        Ok(positions.iter().copied().filter(has_record).collect())
    }

    /// The positions of statements whose items match now.
    async fn existing(&self, run: &mut BucketCommand<'_>, positions: &[usize]) -> Result<Vec<usize>, RunError> {
        let positions = if positions.len() > MAX_LOOKUPS {
            self.with_stored_ids(run, positions).await?
        } else {
            positions.to_vec()
        };
        let changes = positions.iter().filter_map(|position| self.changes.get(*position));
        let finds: Vec<RawDocumentBuf> = changes.map(|change| looking(run, change)).collect();
        let finds: Vec<UpstreamRequest<'_>> = finds.iter().map(|find| UpstreamRequest::plain(find)).collect();
        let mut existing = Vec::new();
        for (position, answer) in positions.iter().zip(run.context.link.call_all(&finds).await?) {
            if is_found(&succeeded(answer)?) {
                existing.push(*position);
            }
        }
        Ok(existing)
    }

    /// The positions of statements whose `_id`s are stored.
    async fn with_stored_ids(&self, run: &mut BucketCommand<'_>, positions: &[usize]) -> Result<Vec<usize>, RunError> {
        let id = |position: &usize| self.changes.get(*position).map(|change| &change.id);
        let ids: Vec<&RawBson> = positions.iter().filter_map(id).collect();
        let stored = stored_ids(run, &ids).await?;
        let is_stored = |position: &usize| id(position).is_some_and(|id| stored.contains(id.as_raw_bson_ref()));
        Ok(positions.iter().copied().filter(is_stored).collect())
    }

    /// Sends the statements, and sends those again that failed because the collection was frozen or
    /// swapped. A standalone has no retry records, but its errors report which statements were not
    /// executed.
    pub(super) async fn until_none_is_frozen(&self, run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
        let mut result = BulkResult::new();
        let mut open: Vec<usize> = (0..self.statements.len()).collect();
        for round in 0..=MAX_RUNS {
            let answer = self.send(run, &open, None).await?;
            let mut sent = self.sent(&open, &answer);
            // On a standalone and in a transaction, these statements are refused.
            self.make_room(run, &mut sent).await?;
            result.failed.append(&mut sent.failed);
            result.count(number(&answer, "n"), number(&answer, "nModified"));
            result.take(answer, true);
            let Some(error) = sent.replacement else { break };
            if run.context.head.in_transaction() || round == MAX_RUNS {
                result.fail(&sent.replaced, &error);
                break;
            }
            match wait(run).await {
                Err(RunError::LayoutChanged) => {
                    run.is_interrupted = true;
                    result.fail(&sent.replaced, &interrupted());
                    break;
                }
                waited => waited?,
            }
            open = sent.replaced;
        }
        Ok(self.reply(run, result))
    }

    async fn send(
        &self,
        run: &mut BucketCommand<'_>,
        positions: &[usize],
        own: Option<&OwnTransaction>,
    ) -> Result<RawDocumentBuf, RunError> {
        let statements = positions.iter().filter_map(|position| self.statements.get(*position));
        let statements: Vec<&RawDocument> = statements.map(|statement| &**statement).collect();
        send(run, self.command, &statements, &self.statement_ids(positions), own).await
    }

    fn statement_ids(&self, positions: &[usize]) -> Vec<i32> {
        let ids = positions
            .iter()
            .map(|position| self.command.statement_ids.of(*position));
        ids.collect()
    }

    /// What mongod did with the statements at these positions.
    fn sent(&self, positions: &[usize], answer: &RawDocument) -> SentStatements {
        let mut errors = errors(answer);
        let mut sent = SentStatements::default();
        for (place, position) in positions.iter().enumerate() {
            let Some(error) = errors.remove(&place) else {
                sent.executed.push(*position);
                continue;
            };
            let behind = positions.get(place.saturating_add(1)..);
            let behind = behind.filter(|_| self.command.ordered).unwrap_or_default();
            if is_swap_write_error(&error) {
                sent.replaced.push(*position);
                sent.replaced.extend(behind);
                sent.replacement = Some(error);
            } else if is_too_large(error.code) {
                sent.outgrown.push((*position, error));
                sent.rest.extend(behind);
            } else {
                sent.failed.push((*position, error));
            }
            if self.command.ordered {
                break;
            }
        }
        sent
    }

    /// Makes room for the items of statements that mongod has refused because a page would be too large.
    /// Returns the positions of the statements to send again. Moves only as many items of a page as the
    /// statements need.
    async fn make_room(&self, run: &mut BucketCommand<'_>, sent: &mut SentStatements) -> Result<Vec<usize>, RunError> {
        let mut again = Vec::new();
        let mut freed = FreedBytes::default();
        for (position, error) in std::mem::take(&mut sent.outgrown) {
            let statement = self.command.statements.get(position);
            let Some((statement, change)) = statement.zip(self.changes.get(position)) else {
                continue;
            };
            let failed = FailedStatement {
                command: self.command,
                statement,
                change,
            };
            let task = failed.task();
            match room::make_for_several(run, FailedUpdate::new(&task, None), &mut freed).await {
                Ok(true) => again.push(position),
                Ok(false) => sent.failed.push((position, error)),
                Err(RunError::Command(CommandError::Own { code, message })) => {
                    sent.failed.push((position, WriteError::new(code, message)));
                }
                Err(RunError::Command(error)) if is_swap_error(&error) => {
                    sent.replacement.get_or_insert_with(|| not_executed(run));
                    sent.replaced.push(position);
                    sent.replaced.append(&mut sent.rest);
                }
                // For example, the user may update, but not insert. Other statements have been executed.
                Err(RunError::Command(error)) if let Some(refused) = WriteError::of_command(&error) => {
                    sent.failed.push((position, refused));
                }
                Err(error) => return Err(error),
            }
        }
        if !again.is_empty() {
            again.append(&mut sent.rest);
        }
        Ok(again)
    }

    /// The reply. An ordered command ends with its first failure.
    fn reply(&self, run: &BucketCommand<'_>, result: BulkResult) -> RawDocumentBuf {
        let BulkResult { mut reply, mut failed } = result;
        failed.sort_by_key(|(position, _)| *position);
        if self.command.ordered && !run.is_interrupted {
            failed.truncate(1);
        }
        for (position, error) in &failed {
            reply.fail(*position, error);
        }
        reply.into_document(run.context.head)
    }
}

impl BulkResult {
    fn new() -> Self {
        Self {
            reply: WriteReply::of_update(),
            failed: Vec::new(),
        }
    }

    fn count(&mut self, matched: usize, modified: usize) {
        let whole = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.reply.count(whole(matched));
        self.reply.count_modified(whole(modified));
    }

    /// Records the same error for the statements at these positions.
    fn fail(&mut self, positions: &[usize], error: &WriteError) {
        let failed = positions.iter().map(|position| (*position, error.clone()));
        self.failed.extend(failed);
    }

    /// Takes the other fields of mongod's reply. `are_clients`: whether its `stmtId`s are the client's, and
    /// not those of an internal session.
    fn take(&mut self, answer: RawDocumentBuf, are_clients: bool) {
        if are_clients {
            retried_ids(&answer).for_each(|id| self.reply.add_retried(id));
        }
        self.reply.take_answer(answer);
    }
}

/// The statements from this position on, up to the first that names the same item as another one before it.
fn next_part(changes: &[ItemUpdateById], begin: usize) -> Range<usize> {
    let mut ids = IdSet::default();
    let mut rest = changes.iter().enumerate().skip(begin);
    let repeated = rest.find(|(_, change)| !ids.add(change.id.as_raw_bson_ref()));
    begin..repeated.map_or(changes.len(), |(position, _)| position)
}

fn number(answer: &RawDocument, name: &str) -> usize {
    let number = get(answer, name).and_then(as_whole_number);
    number
        .and_then(|number| usize::try_from(number).ok())
        .unwrap_or_default()
}

/// The errors in a reply, by the place of the statement in the command that was sent.
fn errors(answer: &RawDocument) -> HashMap<usize, WriteError> {
    write_errors(answer).collect()
}
