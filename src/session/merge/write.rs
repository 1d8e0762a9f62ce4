//! Writes batches of documents, with the code that executes `insert` and `update`.

use std::collections::BTreeMap;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::MergeCommand;
use crate::command::arguments::with_replaced;
use crate::command::document::{array_of, as_whole_number, get, put, single};
use crate::command::error::{ErrorCode, WriteError};
use crate::command::header::CommandHeader;
use crate::command::merge::{MergeStage, WhenMatched, WhenNotMatched};
use crate::command::write_batch::command_ranges_within;
use crate::pattern::bucket::merge::{
    MergeStrategy, MergedDocument, StatementOptions, Upsert, failed, is_match, no_match,
};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::bucket::BucketCommand;
use crate::session::error::RunError;

/// The most bytes of statements in one internal command with several statements, which are in its body.
const MAX_COMMAND_BYTES: usize = 8 << 20;
/// Executions of a statement that fails because the collection is swapped.
const MAX_SWAPS: u32 = 10;

/// Writes documents into the collection.
pub(super) struct MergeWriter<'a> {
    pub(super) merge: MergeStage<'a>,
    strategy: MergeStrategy,
    collation: Option<&'a RawDocument>,
    last_answer: Option<RawDocumentBuf>,
    write_concern_error: Option<RawDocumentBuf>,
}

/// The kind of an internal command.
#[derive(Clone, Copy)]
enum Kind {
    Insert,
    Update,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
        }
    }

    fn list(self) -> &'static str {
        match self {
            Self::Insert => "documents",
            Self::Update => "updates",
        }
    }
}

/// A document to insert, or a statement of an `update`.
struct Statement {
    /// The position of its document in the batch.
    position: usize,
    document: RawDocumentBuf,
}

/// The result of statements.
#[derive(Default)]
struct MergeOutcome {
    /// Documents that were inserted or matched.
    n: i64,
    /// The statements that failed, by their positions.
    failed: BTreeMap<usize, WriteError>,
}

impl MergeOutcome {
    /// Takes the result of the statement at `position`.
    fn add(&mut self, position: usize, written: MergeOutcome) {
        self.n = self.n.saturating_add(written.n);
        self.failed
            .extend(written.failed.into_values().map(|error| (position, error)));
    }

    /// Removes the failures of documents that were not inserted because one with their `on` fields exists.
    /// Returns the positions of these documents, in order.
    fn take_matches(&mut self, merge: &MergeStage<'_>) -> Vec<usize> {
        let mut matches = Vec::new();
        self.failed.retain(|position, error| {
            let exists = is_match(merge, error);
            if exists {
                matches.push(*position);
            }
            !exists
        });
        matches
    }
}

impl<'a> MergeWriter<'a> {
    pub(super) fn new(merge: MergeStage<'a>, strategy: MergeStrategy, collation: Option<&'a RawDocument>) -> Self {
        Self {
            merge,
            strategy,
            collation,
            last_answer: None,
            write_concern_error: None,
        }
    }

    /// mongod's reply to the last write.
    pub(super) fn last_answer(&self) -> Option<&RawDocument> {
        self.last_answer.as_deref()
    }

    pub(super) fn write_concern_error(&self) -> Option<&RawDocument> {
        self.write_concern_error.as_deref()
    }

    /// Writes a batch. As in mongod, a document that cannot be written does not keep the others from being
    /// written, and the first failure is the error of the command.
    pub(super) async fn write(&mut self, run: &mut MergeCommand<'_>, batch: &[MergedDocument]) -> Result<(), RunError> {
        let all: Vec<usize> = (0..batch.len()).collect();
        let as_they_are = |document: &MergedDocument| document.is_inserted_as_it_is(&self.merge);
        let written = match self.strategy {
            MergeStrategy::Insert => self.insert(run, batch, &all).await?,
            MergeStrategy::InsertThenUpdate if batch.iter().all(as_they_are) => {
                self.insert_then_update(run, batch, &all).await?
            }
            MergeStrategy::InsertThenUpdate | MergeStrategy::Upsert => {
                self.update(run, batch, &all, Upsert::Yes).await?
            }
            MergeStrategy::Update => self.update(run, batch, &all, Upsert::No).await?,
            MergeStrategy::UpdateThenInsert => {
                let mut written = MergeOutcome::default();
                for position in all {
                    written.add(position, self.update_then_insert(run, batch, position).await?);
                }
                written
            }
        };
        if let Some((_, error)) = written.failed.into_iter().next() {
            return Err(failed(&self.merge, error).into());
        }
        let is_strict = self.merge.when_not_matched == WhenNotMatched::Fail;
        if is_strict && usize::try_from(written.n).is_ok_and(|n| n < batch.len()) {
            return Err(no_match().into());
        }
        Ok(())
    }

    async fn insert_then_update(
        &mut self,
        run: &mut MergeCommand<'_>,
        batch: &[MergedDocument],
        all: &[usize],
    ) -> Result<MergeOutcome, RunError> {
        let mut written = self.insert(run, batch, all).await?;
        let existing = written.take_matches(&self.merge);
        if self.merge.when_matched != WhenMatched::KeepExisting {
            let updated = self.update(run, batch, &existing, Upsert::Yes).await?;
            written.failed.extend(updated.failed);
        }
        Ok(written)
    }

    /// Updates one document, or inserts it if it does not exist. Repeats both if another writer inserts or
    /// deletes it in between.
    async fn update_then_insert(
        &mut self,
        run: &mut MergeCommand<'_>,
        batch: &[MergedDocument],
        position: usize,
    ) -> Result<MergeOutcome, RunError> {
        let mut written = MergeOutcome::default();
        for attempt in 0..MAX_ATTEMPTS {
            pause(attempt).await;
            written = self.update(run, batch, &[position], Upsert::No).await?;
            if written.n > 0 || !written.failed.is_empty() {
                return Ok(written);
            }
            if !matches!(self.merge.when_matched, WhenMatched::Pipeline(_)) {
                // Nothing matches with the collation, so nothing matches without one.
                let collation = self.collation.take();
                let upserted = self.update(run, batch, &[position], Upsert::Yes).await;
                self.collation = collation;
                return upserted;
            }
            written = self.insert(run, batch, &[position]).await?;
            if !written.failed.values().any(|error| is_match(&self.merge, error)) {
                return Ok(written);
            }
        }
        Ok(written)
    }

    async fn insert(
        &mut self,
        run: &mut MergeCommand<'_>,
        batch: &[MergedDocument],
        positions: &[usize],
    ) -> Result<MergeOutcome, RunError> {
        let statement = |document: &MergedDocument| document.document.clone();
        self.send_all(run, Kind::Insert, &statements(batch, positions, statement))
            .await
    }

    async fn update(
        &mut self,
        run: &mut MergeCommand<'_>,
        batch: &[MergedDocument],
        positions: &[usize],
        upsert: Upsert,
    ) -> Result<MergeOutcome, RunError> {
        let options = StatementOptions {
            upsert,
            collation: self.collation,
        };
        let statement = |document: &MergedDocument| document.statement(&self.merge, options);
        let statements = statements(batch, positions, statement);
        self.send_all(run, Kind::Update, &statements).await
    }

    /// Sends statements, and again those that failed because the collection was swapped for a packed copy.
    async fn send_all(
        &mut self,
        run: &mut MergeCommand<'_>,
        kind: Kind,
        statements: &[Statement],
    ) -> Result<MergeOutcome, RunError> {
        let mut written = MergeOutcome::default();
        let mut left: Vec<&Statement> = statements.iter().collect();
        for attempt in 0..MAX_SWAPS {
            pause(attempt).await;
            let mut conflicts = Vec::new();
            for chunk in chunks(&left) {
                let sent = self.send(run, kind, chunk).await?;
                written.n = written.n.saturating_add(sent.n);
                for (index, error) in sent.failed {
                    let Some(statement) = chunk.get(index) else {
                        continue;
                    };
                    if error.code == ErrorCode::WriteConflict.number() {
                        conflicts.push(*statement);
                    }
                    written.failed.insert(statement.position, error);
                }
            }
            if conflicts.is_empty() {
                break;
            }
            left = conflicts;
            if attempt.saturating_add(1) < MAX_SWAPS {
                for again in &left {
                    written.failed.remove(&again.position);
                }
            }
        }
        Ok(written)
    }

    async fn send(
        &mut self,
        run: &mut MergeCommand<'_>,
        kind: Kind,
        statements: &[&Statement],
    ) -> Result<MergeOutcome, RunError> {
        let body = self.command(run, kind, statements);
        let head = CommandHeader::of_body(&body)?;
        let (shape, into) = (run.shape, run.into.namespace);
        let context = run.context.for_internal_command(&head, false);
        let answer = Box::pin(BucketCommand::new(context, shape, into).run()).await?;
        let mut written = MergeOutcome {
            n: get(&answer, "n").and_then(as_whole_number).unwrap_or_default(),
            failed: BTreeMap::new(),
        };
        let errors = get(&answer, "writeErrors").and_then(RawBsonRef::as_array);
        let errors = errors.into_iter().flatten().flatten();
        written.failed = errors
            .filter_map(|error| WriteError::parse(error.as_document()?))
            .collect();
        if let Some(error) = get(&answer, "writeConcernError").and_then(RawBsonRef::as_document) {
            self.write_concern_error = Some(error.to_owned());
        }
        self.last_answer = Some(answer);
        Ok(written)
    }

    /// An unordered `insert` or `update` with the client's options.
    fn command(&self, run: &MergeCommand<'_>, kind: Kind, statements: &[&Statement]) -> RawDocumentBuf {
        let client = run.context.head.body();
        let mut body = single(kind.name(), run.into.namespace.collection);
        body.append(cstr!("ordered"), false);
        if let Some(bypass) = get(client, "bypassDocumentValidation") {
            body.append(cstr!("bypassDocumentValidation"), bypass);
        }
        if let (Kind::Update, WhenMatched::Pipeline(_), Some(variables)) =
            (kind, self.merge.when_matched, get(client, "let"))
        {
            body.append(cstr!("let"), variables);
        }
        let list: Vec<RawDocumentBuf> = statements.iter().map(|statement| statement.document.clone()).collect();
        put(&mut body, kind.list(), array_of(&list));
        run.context.options().append_to_write(&mut body);
        // The collection may be in another database than the source.
        with_replaced(&body, &[("$db", Some(RawBsonRef::String(run.into.namespace.database)))])
    }
}

/// The statements of the documents at these positions of a batch.
fn statements(
    batch: &[MergedDocument],
    positions: &[usize],
    of_document: impl Fn(&MergedDocument) -> RawDocumentBuf,
) -> Vec<Statement> {
    let statement = |position: &usize| {
        Some(Statement {
            position: *position,
            document: of_document(batch.get(*position)?),
        })
    };
    positions.iter().filter_map(statement).collect()
}

/// Consecutive statements that fit into one internal command.
fn chunks<'s, 'd>(statements: &'s [&'d Statement]) -> impl Iterator<Item = &'s [&'d Statement]> {
    let sizes = statements.iter().map(|statement| statement.document.as_bytes().len());
    let ranges = command_ranges_within(sizes, MAX_COMMAND_BYTES);
    ranges.into_iter().filter_map(move |range| statements.get(range))
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn duplicate_key(pattern: RawDocumentBuf) -> WriteError {
        WriteError {
            detail: single("keyPattern", pattern),
            ..WriteError::new(ErrorCode::DuplicateKey, "duplicate key")
        }
    }

    #[test]
    fn a_full_batch_of_existing_documents_is_taken_in_one_pass() {
        // Existing documents that are compared with each other would take minutes here.
        const EXISTING: usize = 200_000;
        let stage = rawdoc! { "$merge": "c" };
        let merge = MergeStage::parse(&stage).unwrap();
        let existing = duplicate_key(rawdoc! { "_id": 1 });
        let mut written = MergeOutcome {
            n: 0,
            failed: (0..EXISTING).map(|position| (position, existing.clone())).collect(),
        };
        written.failed.insert(EXISTING, duplicate_key(rawdoc! { "other": 1 }));
        let matches = written.take_matches(&merge);
        assert!(matches.into_iter().eq(0..EXISTING));
        assert!(written.failed.into_keys().eq([EXISTING]));
    }
}
