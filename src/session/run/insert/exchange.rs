//! What an insert asks of mongod: the pages as they are, whether an `_id` is taken, and the planned statements.

use std::collections::HashSet;

use bson::Binary;
use bson::raw::{RawBson, RawDocumentBuf, cstr};

use super::{Batch, LookUp};
use crate::command::document::single;
use crate::command::duplicate::duplicate_id;
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::reply::{CursorReply, succeeded};
use crate::pattern::bucket::insert::{self as planner, Pages, Statement};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::layout::PageFacts;
use crate::pattern::shapes::ItemIds;
use crate::session::error::RunError;
use crate::session::link::Request;
use crate::session::run::Run;

/// Bytes of statements in one command, with room for the rest of a message of 48,000,000.
const MAX_COMMAND_BYTES: usize = 40_000_000;
/// Statements in one command: hello's `maxWriteBatchSize`.
const MAX_STATEMENTS: usize = 100_000;

impl Batch<'_> {
    /// The highest page of each key among the pending items.
    pub(super) async fn look(&self, run: &mut Run<'_>) -> Result<Pages, RunError> {
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

    /// Finds out which of the items that missed did so because their page holds their `_id` already: mongod compares the
    /// `_id`s of one bucket for nobody. Gives their indexes and the error that each is refused with.
    ///
    /// Where an unordered command had one duplicate it may have many, as when an import is run again: then all of its items
    /// are looked up at once, rather than one a round.
    pub(super) async fn duplicates(&mut self, run: &mut Run<'_>) -> Result<Vec<(usize, WriteError)>, RunError> {
        if run.shape.item_ids() != ItemIds::Unique {
            return Ok(Vec::new());
        }
        let all = self.look_up == LookUp::Due;
        if all {
            self.look_up = LookUp::Done;
        }
        let missed = self.pending.iter().filter(|pending| all || pending.misses > 0);
        let missed: Vec<(usize, &RawBson)> = missed
            .filter_map(|pending| Some((pending.item.index(), pending.item.id()?)))
            .collect();
        let queries: Vec<RawDocumentBuf> = missed.iter().map(|(_, id)| self.duplicate_query(run, id)).collect();
        let mut duplicates = Vec::new();
        for ((index, id), answer) in missed.into_iter().zip(run.link.call_all(&queries).await?) {
            let answer = succeeded(answer)?;
            if CursorReply::parse(&answer).is_some_and(|cursor| cursor.documents().next().is_some()) {
                duplicates.push((index, duplicate_id(run.namespace, id.as_raw_bson_ref())));
            }
        }
        Ok(duplicates)
    }

    fn duplicate_query(&self, run: &Run<'_>, id: &RawBson) -> RawDocumentBuf {
        let mut query = single("find", run.namespace.collection);
        let condition = single("$elemMatch", single("_id", single("$eq", id)));
        query.append(cstr!("filter"), single(run.shape.items(), &condition));
        query.append(cstr!("projection"), single("_id", 1));
        query.append(cstr!("limit"), 1);
        query.append(cstr!("singleBatch"), true);
        self.carried.append_identity(&mut query);
        query
    }

    /// Sends the statements, which end with the first that fails, and gives how far they came.
    pub(super) async fn send(
        &mut self,
        run: &mut Run<'_>,
        statements: &[Statement],
        uuid: &Binary,
    ) -> Result<Sent, RunError> {
        let mut sent = Sent::default();
        let mut body = single("update", run.namespace.collection);
        body.append(cstr!("ordered"), true);
        if let Some(bypass) = self.bypass_document_validation {
            body.append(cstr!("bypassDocumentValidation"), bypass);
        }
        // Not in the stable API: under `apiStrict` the hint alone tells a collection that was made anew without indexes.
        if !self.strict_api {
            body.append(cstr!("collectionUUID"), uuid);
        }
        self.carried.append_to_write(&mut body);
        while sent.executed < statements.len() && sent.failure.is_none() {
            let command = next_command(statements.get(sent.executed..).unwrap_or_default());
            let answer = run
                .link
                .call(Request {
                    body: &body,
                    sequence: Some(("updates", &command)),
                })
                .await?;
            self.last_answer = succeeded(answer)?;
            let errors = self.last_answer.get_array("writeErrors").ok();
            let error = errors.and_then(|errors| errors.into_iter().flatten().next()?.as_document());
            match error.and_then(WriteError::parse) {
                Some((position, error)) => {
                    sent.executed += position;
                    sent.failure = Some(error);
                }
                None => sent.executed += command.len(),
            }
        }
        Ok(sent)
    }
}

/// What came of sending statements.
#[derive(Default)]
pub(super) struct Sent {
    /// How many were executed with success: all before the failure.
    pub(super) executed: usize,
    /// What the next one failed with.
    pub(super) failure: Option<WriteError>,
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
