//! Runs the statements of an `update` or a `delete` in order, and collects the results.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use super::internal_write::OutlierWriteResult;
use super::{delete, update};
use crate::command::document::{array_of, get, single};
use crate::command::error::{CommandError, WriteError};
use crate::command::reply::copy_cluster_time;
use crate::session::error::RunError;

/// One statement of a command.
pub(super) enum WriteStatement<'s, 'a> {
    Update(update::OutlierUpdate<'s, 'a>),
    Delete(delete::OutlierDelete<'s, 'a>),
}

impl WriteStatement<'_, '_> {
    async fn run(&self, run: &mut OutlierCommand<'_>, results: &mut Results<'_>) -> Result<(), RunError> {
        match self {
            Self::Update(update) => update.run(run, results).await,
            Self::Delete(delete) => delete.run(run, results).await,
        }
    }

    async fn on_none(&self, run: &mut OutlierCommand<'_>) -> Result<OutlierWriteResult, RunError> {
        match self {
            Self::Update(update) => update.on_none(run).await,
            Self::Delete(delete) => delete.on_none(run).await,
        }
    }

    /// What came of it, where the documents that it means could not be looked for: mongod judges all of it,
    /// by one that meets none, and may find something else wrong first.
    async fn judged(&self, run: &mut OutlierCommand<'_>, error: CommandError) -> Result<OutlierWriteResult, RunError> {
        if run.context.head.in_transaction() {
            return Err(error.into());
        }
        let told = self.on_none(run).await?;
        if told.error.is_some() || told.n > 0 {
            return Ok(told);
        }
        Err(error.into())
    }
}

/// Does one after another, until one fails that the next must not follow; the command's reply.
pub(super) async fn run_each(
    run: &mut OutlierCommand<'_>,
    statements: &[WriteStatement<'_, '_>],
    (mut tally, ordered): (WriteTally, bool),
) -> Result<RawDocumentBuf, RunError> {
    for (index, statement) in statements.iter().enumerate() {
        let mut results = Results::new(&mut tally, index);
        let ended = match statement.run(run, &mut results).await {
            Err(RunError::Command(error)) if results.is_empty => {
                let told = statement.judged(run, error).await;
                told.map(|told| results.add(&told))
            }
            ended => ended,
        };
        let failed = match ended {
            Ok(()) => results.has_failed,
            // What was done before it stays counted.
            Err(RunError::Command(error)) => {
                tally.refuse(index, error)?;
                true
            }
            Err(error) => return Err(error),
        };
        if failed && (ordered || run.context.head.in_transaction()) {
            break;
        }
    }
    Ok(tally.reply())
}

/// What came of one statement so far, document by document.
pub(super) struct Results<'t> {
    tally: &'t mut WriteTally,
    index: usize,
    is_empty: bool,
    has_failed: bool,
}

impl<'t> Results<'t> {
    fn new(tally: &'t mut WriteTally, index: usize) -> Self {
        Self {
            tally,
            index,
            is_empty: true,
            has_failed: false,
        }
    }

    /// Adds what mongod has answered of one document, or of several.
    pub(super) fn add(&mut self, told: &OutlierWriteResult) {
        self.is_empty = false;
        self.has_failed |= told.error.is_some();
        self.tally.add(self.index, told);
    }
}

/// What came of the statements of a command so far.
#[derive(Debug, Default)]
pub(super) struct WriteTally {
    n: i64,
    modified: Option<i64>,
    upserted: Vec<RawDocumentBuf>,
    errors: Vec<RawDocumentBuf>,
    concern: Option<RawDocumentBuf>,
    /// By which drivers know whether that may be tried again.
    labels: Option<RawArrayBuf>,
    last: RawDocumentBuf,
}

impl WriteTally {
    /// For a command that tells how many were changed.
    pub(super) fn of_update() -> Self {
        Self {
            modified: Some(0),
            ..Self::default()
        }
    }

    fn add(&mut self, index: usize, told: &OutlierWriteResult) {
        self.n = self.n.saturating_add(told.n);
        self.modified = self.modified.map(|modified| modified.saturating_add(told.modified));
        let upserted = get(&told.answer, "upserted").and_then(RawBsonRef::as_array);
        for upserted in upserted
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(RawBsonRef::as_document)
        {
            let mut here = single("index", i32::try_from(index).unwrap_or(i32::MAX));
            if let Some(id) = get(upserted, "_id") {
                here.append(cstr!("_id"), id);
            }
            self.upserted.push(here);
        }
        if let Some(error) = &told.error {
            self.errors.push(error.to_document(index));
        }
        if let Some(concern) = get(&told.answer, "writeConcernError").and_then(RawBsonRef::as_document) {
            self.concern = Some(concern.to_owned());
            self.labels = get(&told.answer, "errorLabels")
                .and_then(RawBsonRef::as_array)
                .map(ToOwned::to_owned);
        }
        self.last = told.answer.clone();
    }

    /// Adds that one statement cannot be done.
    fn refuse(&mut self, index: usize, error: CommandError) -> Result<(), RunError> {
        let Some(error) = WriteError::of_command(&error) else {
            return Err(error.into());
        };
        self.errors.push(error.to_document(index));
        Ok(())
    }

    /// The reply.
    fn reply(self) -> RawDocumentBuf {
        let mut reply = RawDocumentBuf::new();
        reply.append(cstr!("n"), i32::try_from(self.n).unwrap_or(i32::MAX));
        if !self.upserted.is_empty() {
            reply.append(cstr!("upserted"), array_of(&self.upserted));
        }
        if let Some(modified) = self.modified {
            reply.append(cstr!("nModified"), i32::try_from(modified).unwrap_or(i32::MAX));
        }
        if !self.errors.is_empty() {
            reply.append(cstr!("writeErrors"), array_of(&self.errors));
        }
        if let Some(concern) = &self.concern {
            reply.append(cstr!("writeConcernError"), concern);
        }
        if let Some(labels) = &self.labels {
            reply.append(cstr!("errorLabels"), labels);
        }
        reply.append(cstr!("ok"), 1.0);
        copy_cluster_time(&mut reply, &self.last);
        reply
    }
}
