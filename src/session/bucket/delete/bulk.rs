//! Several deletions by `_id`, each of one item, in one command.
//!
//! mongod removes each item from its page by its `_id`. The statement fails if the page must be removed with
//! its last item. It can miss an item that is relocated concurrently, which only the retry records show. Such
//! statements are executed one by one afterwards. Each deletes at most one item with its `_id`, so their
//! order makes no difference.

use std::collections::BTreeSet;
use std::ops::Range;

use bson::raw::{RawBson, RawDocument, RawDocumentBuf, cstr};

use super::one::DeletionById;
use crate::command::delete::Delete;
use crate::command::document::{as_whole_number, get, single};
use crate::command::write_reply::WriteReply;
use crate::pattern::bucket::item_lookup::ItemSelector;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::insert::{SoughtRecord, remembered};
use crate::session::bucket::internal_transaction::OwnTransaction;
use crate::session::bucket::relocate::may_pass_moved_items;
use crate::session::bucket::retry_on_swap::{is_swap_error, write_errors};
use crate::session::bucket::sharding::{StatementById, StatementTargets, find_targets};
use crate::session::bucket::stored_ids::stored_ids;
use crate::session::bucket::write_statement::{is_retry_of_delete, retried_ids, send_updates};
use crate::session::error::RunError;

/// The most statements in the first command. The next one has twice as many as mongod executed.
const FIRST: usize = 1000;

/// The most bytes of statements in one command.
const MAX_BYTES: usize = 16 << 20;

/// Sends those statements of a command together that delete items by `_id`.
pub(super) struct Bulk<'a> {
    batch: &'a Delete<'a>,
    is_retryable: bool,
    /// Whether statements that may fail can be sent, and the filters have no variables to be validated.
    is_possible: bool,
    /// The most statements in the next command. mongod ends an ordered command at its first failure, and the
    /// statements behind it are sent again.
    most: usize,
    /// Whether the last statements were executed and their outcome is not known.
    pub(super) is_unclear: bool,
}

/// The statements from some position on that have been sent.
pub(super) struct Sent {
    /// The first statement behind them.
    pub(super) end: usize,
    /// Those that must be executed one by one, in order.
    pub(super) left: Vec<usize>,
    /// Whether those that are left were sent, and have not found their items.
    pub(super) has_missed: bool,
}

impl Sent {
    /// All statements before `end` are finished.
    pub(super) fn up_to(end: usize) -> Self {
        Self {
            end,
            left: Vec::new(),
            has_missed: false,
        }
    }

    /// None of the statements has been sent.
    fn nothing(range: Range<usize>) -> Self {
        Self {
            end: range.end,
            left: range.collect(),
            has_missed: false,
        }
    }
}

impl<'a> Bulk<'a> {
    pub(super) fn new(run: &BucketCommand<'_>, batch: &'a Delete<'a>, is_retryable: bool) -> Self {
        Self {
            batch,
            is_retryable,
            // A failure would end a transaction.
            is_possible: batch.let_variables.is_none() && !run.context.head.in_transaction(),
            most: FIRST,
            is_unclear: false,
        }
    }

    /// The statements from a position on that can be sent together.
    fn deletions(&self, run: &BucketCommand<'_>, begin: usize) -> Vec<DeletionById> {
        let mut deletions = Vec::new();
        let mut bytes = 0_usize;
        for statement in self.batch.statements.iter().skip(begin).take(self.most) {
            let is_plain = self.is_possible && statement.one && statement.hint.is_none();
            let wanted = ItemSelector {
                filter: Some(statement.filter),
                collation: statement.collation,
                ..ItemSelector::default()
            };
            let Some(deletion) = is_plain.then(|| DeletionById::new(run, wanted)).flatten() else {
                break;
            };
            bytes = bytes.saturating_add(deletion.statement.as_bytes().len());
            if bytes > MAX_BYTES {
                break;
            }
            deletions.push(deletion);
        }
        deletions
    }

    /// Sends the statements from a position on that can be sent together.
    pub(super) async fn send(
        &mut self,
        run: &mut BucketCommand<'_>,
        begin: usize,
        deleted: &mut WriteReply,
    ) -> Result<Sent, RunError> {
        let next = begin.saturating_add(1);
        if self.batch.statements.len() <= next {
            return Ok(Sent::nothing(begin..next));
        }
        let deletions = self.deletions(run, begin);
        let count = deletions.len();
        if count < 2 {
            return Ok(Sent::nothing(begin..next));
        }
        let all = begin..begin.saturating_add(count);
        let named = all.clone().zip(&deletions).filter_map(|(position, deletion)| {
            Some(StatementById {
                filter: self.batch.statements.get(position)?.filter,
                id: &deletion.id,
                statement_id: self.batch.statement_ids.of(position),
            })
        });
        let Some(targets) = find_targets(run, named).await? else {
            return Ok(Sent::nothing(all));
        };
        let group = Group {
            bulk: self,
            begin,
            deletions,
            targets,
            own: (!self.is_retryable && may_pass_moved_items(run)).then(|| OwnTransaction::unnumbered(run)),
        };
        let answer = match group.send(run).await {
            Ok(answer) => answer,
            // Executed one by one, each statement waits for the new collection, or returns its retry record.
            Err(RunError::Command(error)) if is_swap_error(&error) || is_retry_of_delete(&error) => {
                return Ok(Sent::nothing(all));
            }
            Err(error) => return Err(error),
        };
        let sent = group.outcome(run, answer, deleted).await;
        self.is_unclear = sent.is_err();
        let sent = sent?;
        let reached = sent.end.saturating_sub(begin);
        let twice = reached.saturating_mul(2);
        self.most = if reached < count { twice } else { self.most.max(twice) };
        Ok(sent)
    }
}

/// Statements that are sent together.
struct Group<'a> {
    bulk: &'a Bulk<'a>,
    begin: usize,
    deletions: Vec<DeletionById>,
    targets: StatementTargets,
    /// The session of the retry records if the client's command is not retryable.
    own: Option<OwnTransaction>,
}

impl Group<'_> {
    async fn send(&self, run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
        let mut body = single("update", run.namespace.collection);
        body.append(cstr!("ordered"), self.bulk.batch.ordered);
        // A collection of the same name may have pages with the same `_id`s.
        if let Some(collection) = &run.collection {
            body.append(cstr!("collectionUUID"), &collection.uuid);
        }
        let statements = self.deletions.iter().enumerate();
        let statements: Vec<RawDocumentBuf> = statements
            .map(|(place, deletion)| self.targets.targeted(place, deletion.statement.clone()))
            .collect();
        let statements: Vec<&RawDocument> = statements.iter().map(|statement| &**statement).collect();
        let ids: Vec<i32> = (0..self.deletions.len())
            .map(|place| self.statement_id(place))
            .collect();
        send_updates(run, body, &statements, &ids, self.own.as_ref()).await
    }

    /// The `stmtId` of the statement at a place of the group.
    fn statement_id(&self, place: usize) -> i32 {
        self.bulk.batch.statement_ids.of(self.begin.saturating_add(place))
    }

    /// What mongod did with the statements. Costs round trips only if some of them have not found their
    /// items.
    async fn outcome(
        &self,
        run: &mut BucketCommand<'_>,
        answer: RawDocumentBuf,
        deleted: &mut WriteReply,
    ) -> Result<Sent, RunError> {
        let failed: BTreeSet<usize> = write_errors(&answer).map(|(place, _)| place).collect();
        let first = failed.first().filter(|_| self.bulk.batch.ordered);
        let end = first.map_or(self.deletions.len(), |first| first.saturating_add(1));
        let executed: Vec<usize> = (0..end).filter(|place| !failed.contains(place)).collect();
        let found = get(&answer, "n").and_then(as_whole_number).unwrap_or_default();
        deleted.count(found);
        if self.own.is_none() {
            retried_ids(&answer).for_each(|id| deleted.add_retried(id));
        }
        deleted.take_answer(answer);
        let mut left: Vec<usize> = failed.into_iter().collect();
        let has_missed = usize::try_from(found).is_ok_and(|found| found < executed.len());
        if has_missed && may_pass_moved_items(run) {
            left.extend(self.missed(run, &executed).await?);
        }
        left.sort_unstable();
        let position = |place: usize| self.begin.saturating_add(place);
        Ok(Sent {
            end: position(end),
            left: left.into_iter().map(position).collect(),
            has_missed: true,
        })
    }

    /// The places of executed statements that have deleted nothing although an item has their `_id`.
    async fn missed(&self, run: &mut BucketCommand<'_>, executed: &[usize]) -> Result<Vec<usize>, RunError> {
        let id = |place: &usize| self.deletions.get(*place).map(|deletion| &deletion.id);
        let ids: Vec<&RawBson> = executed.iter().filter_map(id).collect();
        let stored = stored_ids(run, &ids).await?;
        let is_stored = |place: &usize| id(place).is_some_and(|id| stored.contains(id.as_raw_bson_ref()));
        let unclear: Vec<usize> = executed.iter().copied().filter(is_stored).collect();
        if unclear.is_empty() {
            return Ok(unclear);
        }
        // An item can have been inserted after the deletion of one with its `_id`.
        let sought = unclear.iter().map(|place| SoughtRecord {
            id: self.statement_id(*place),
            nothing: self.targets.no_statement(*place),
        });
        let sought: Vec<SoughtRecord> = sought.collect();
        let recorded = remembered(run, &sought, self.own.as_ref()).await?;
        let is_missed = |place: &usize| !recorded.contains_key(&self.statement_id(*place));
        Ok(unclear.into_iter().filter(is_missed).collect())
    }
}
