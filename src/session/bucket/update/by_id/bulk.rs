//! Several updates by `_id` in one command. Statements that missed their item are sent again.

use std::collections::HashSet;

use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::{ItemUpdateById, is_found, looking, send};
use crate::command::arguments::with_replaced;
use crate::command::document::{array_of, as_whole_number, get};
use crate::command::error::WriteError;
use crate::command::reply::succeeded;
use crate::command::update::Update;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::internal_transaction::OwnTransaction;
use crate::session::bucket::retry_on_swap::{MAX_RUNS, interrupted, is_swap_write_error, statement_hit_swap, wait};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// The statements of one command.
pub(super) struct Bulk<'a> {
    pub(super) command: &'a Update<'a>,
    pub(super) changes: &'a [ItemUpdateById],
    pub(super) statements: &'a [RawDocumentBuf],
    /// The `stmtId`s.
    pub(super) ids: &'a RawArrayBuf,
}

/// The results of the statements in a reply.
struct BulkReport {
    matched: usize,
    /// Positions of statements that were executed before.
    retried: HashSet<usize>,
    errors: Vec<(usize, WriteError)>,
}

impl Bulk<'_> {
    /// Sends the statements until each has matched its item, or no unmatched item exists. A
    /// statement can miss an item that is relocated concurrently. The reply does not report which
    /// statements missed, so the command is sent again with the same `stmtId`s: mongod executes
    /// only statements without a retry record. Returns the last reply in the form of a first one.
    /// If the client's command is not retryable, an internal session is used.
    pub(super) async fn until_all_match(&self, run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
        let own = (!run.context.head.is_retryable_write()).then(|| OwnTransaction::unnumbered(run));
        let first = self.send(run, own.as_ref()).await?;
        let mut last = first.clone();
        for round in 0..MAX_ATTEMPTS {
            if statement_hit_swap(&last) {
                match wait(run).await {
                    Err(RunError::LayoutChanged) if own.is_some() => {
                        run.is_interrupted = true;
                        last = self.interrupted(&last);
                        break;
                    }
                    waited => waited?,
                }
            } else {
                let report = self.report(&last);
                let is_all = report.matched >= self.reached(&report).count();
                if is_all || (round > 0 && !self.has_passed(run, &report).await?) {
                    break;
                }
                pause(round).await;
            }
            last = self.send(run, own.as_ref()).await?;
        }
        // The `stmtId`s are those of the internal session, not of the client's.
        let unknown = [("retriedStmtIds", None), ("errorLabels", None)];
        Ok(match own {
            Some(_) => with_replaced(&last, &unknown),
            None => with_replaced(&last, &[("retriedStmtIds", get(&first, "retriedStmtIds"))]),
        })
    }

    /// The reply with a mark for every statement that a swap has kept from being executed.
    fn interrupted(&self, answer: &RawDocument) -> RawDocumentBuf {
        let (swapped, mut failed): (Vec<_>, Vec<_>) = errors(answer)
            .into_iter()
            .partition(|(_, error)| is_swap_write_error(error));
        for (position, _) in swapped {
            let end = position.saturating_add(1);
            let end = if self.command.ordered {
                self.statements.len()
            } else {
                end
            };
            failed.extend((position..end).map(|position| (position, interrupted())));
        }
        let failed: Vec<RawDocumentBuf> = failed
            .iter()
            .map(|(position, error)| error.to_document(*position))
            .collect();
        let failed = array_of(&failed);
        with_replaced(answer, &[("writeErrors", Some(RawBsonRef::Array(&failed)))])
    }

    async fn send(
        &self,
        run: &mut BucketCommand<'_>,
        own: Option<&OwnTransaction>,
    ) -> Result<RawDocumentBuf, RunError> {
        send(run, self.command, self.statements, self.ids, own).await
    }

    /// Whether more of the items exist than the last execution matched.
    async fn has_passed(&self, run: &mut BucketCommand<'_>, report: &BulkReport) -> Result<bool, RunError> {
        let executed = self
            .reached(report)
            .filter(|position| !report.retried.contains(position));
        let finds: Vec<RawDocumentBuf> = executed
            .filter_map(|position| self.changes.get(position))
            .map(|change| looking(run, change))
            .collect();
        let finds: Vec<UpstreamRequest<'_>> = finds.iter().map(|find| UpstreamRequest::plain(find)).collect();
        let mut there = 0_usize;
        for answer in run.context.link.call_all(&finds).await? {
            there = there.saturating_add(usize::from(is_found(&succeeded(answer)?)));
        }
        Ok(there > report.matched.saturating_sub(report.retried.len()))
    }

    /// Positions of statements that were executed without an error.
    fn reached(&self, report: &BulkReport) -> impl Iterator<Item = usize> {
        let failed: HashSet<usize> = report.errors.iter().map(|(position, _)| *position).collect();
        let end = failed.iter().copied().min().filter(|_| self.command.ordered);
        let all = 0..end.unwrap_or(self.statements.len());
        all.filter(move |position| !failed.contains(position))
    }

    fn report(&self, answer: &RawDocument) -> BulkReport {
        let numbers: Vec<i64> = whole_numbers(self.ids).collect();
        let retried = get(answer, "retriedStmtIds").and_then(RawBsonRef::as_array);
        let retried: HashSet<i64> = retried.into_iter().flat_map(whole_numbers).collect();
        let positions = numbers.iter().enumerate();
        let retried = positions.filter(|(_, number)| retried.contains(number));
        BulkReport {
            matched: number(answer, "n"),
            retried: retried.map(|(position, _)| position).collect(),
            errors: errors(answer),
        }
    }

    /// Sends the statements, and sends those again that failed because the collection was frozen or
    /// swapped. A standalone has no retry records, but its errors report which statements were not
    /// executed.
    pub(super) async fn until_none_is_frozen(&self, run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
        let mut answer = self.send(run, None).await?;
        let mut positions: Vec<usize> = (0..self.statements.len()).collect();
        let (mut matched, mut modified) = (0_usize, 0_usize);
        let mut failed: Vec<(usize, WriteError)> = Vec::new();
        for round in 0..=MAX_RUNS {
            matched = matched.saturating_add(number(&answer, "n"));
            modified = modified.saturating_add(number(&answer, "nModified"));
            let mut rest = Vec::new();
            for (place, error) in errors(&answer) {
                let may_repeat = is_swap_write_error(&error) && round < MAX_RUNS && !run.context.head.in_transaction();
                match positions.get(place) {
                    Some(_) if may_repeat && self.command.ordered => rest = positions.split_off(place),
                    Some(position) if may_repeat => rest.push(*position),
                    Some(position) => failed.push((*position, error)),
                    None => {}
                }
            }
            if rest.is_empty() {
                break;
            }
            match wait(run).await {
                Err(RunError::LayoutChanged) if !run.context.head.in_transaction() => {
                    run.is_interrupted = true;
                    failed.extend(rest.into_iter().map(|position| (position, interrupted())));
                    break;
                }
                waited => waited?,
            }
            let statements: Vec<RawDocumentBuf> = rest
                .iter()
                .filter_map(|position| self.statements.get(*position).cloned())
                .collect();
            answer = send(run, self.command, &statements, self.ids, None).await?;
            positions = rest;
        }
        failed.sort_by_key(|(position, _)| *position);
        let failed: Vec<RawDocumentBuf> = failed
            .iter()
            .map(|(position, error)| error.to_document(*position))
            .collect();
        let whole = |number: usize| Some(RawBsonRef::Int32(i32::try_from(number).unwrap_or(i32::MAX)));
        let fields = [
            ("n", whole(matched)),
            ("nModified", whole(modified)),
            ("writeErrors", None),
        ];
        let mut answer = with_replaced(&answer, &fields);
        if !failed.is_empty() {
            answer.append(cstr!("writeErrors"), array_of(&failed));
        }
        Ok(answer)
    }
}

fn whole_numbers(array: &RawArray) -> impl Iterator<Item = i64> {
    array.into_iter().flatten().filter_map(as_whole_number)
}

fn number(answer: &RawDocument, name: &str) -> usize {
    let number = get(answer, name).and_then(as_whole_number);
    number
        .and_then(|number| usize::try_from(number).ok())
        .unwrap_or_default()
}

fn errors(answer: &RawDocument) -> Vec<(usize, WriteError)> {
    let errors = get(answer, "writeErrors").and_then(RawBsonRef::as_array);
    let errors = errors.into_iter().flatten().flatten();
    errors
        .filter_map(RawBsonRef::as_document)
        .filter_map(WriteError::parse)
        .collect()
}
