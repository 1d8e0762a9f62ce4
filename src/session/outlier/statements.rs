//! Executes the statements of an `update` or a `delete` in order, and collects the results.

use bson::raw::{RawBsonRef, RawDocumentBuf};

use super::command::OutlierCommand;
use super::internal_write::OutlierWriteResult;
use super::{delete, update};
use crate::command::document::get;
use crate::command::error::{CommandError, WriteError};
use crate::command::write_reply::WriteReply;
use crate::session::error::RunError;

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

    /// The result if looking up the documents failed with `error`. mongod validates the whole
    /// statement, with a filter that matches nothing, and may report another error first.
    async fn validated(
        &self,
        run: &mut OutlierCommand<'_>,
        error: CommandError,
    ) -> Result<OutlierWriteResult, RunError> {
        if run.context.head.in_transaction() {
            return Err(error.into());
        }
        let result = self.on_none(run).await?;
        if result.error.is_some() || result.n > 0 {
            return Ok(result);
        }
        Err(error.into())
    }
}

/// Executes the statements until one fails, if the command is ordered or in a transaction. Returns
/// the reply.
pub(super) async fn run_each(
    run: &mut OutlierCommand<'_>,
    statements: &[WriteStatement<'_, '_>],
    mut reply: WriteReply,
    ordered: bool,
) -> Result<RawDocumentBuf, RunError> {
    for (index, statement) in statements.iter().enumerate() {
        let mut results = Results::new(&mut reply, index);
        let ended = match statement.run(run, &mut results).await {
            Err(RunError::Command(error)) if results.is_empty => {
                let result = statement.validated(run, error).await;
                result.map(|result| results.add(&result))
            }
            ended => ended,
        };
        let failed = match ended {
            Ok(()) => results.has_failed,
            Err(RunError::Command(error)) => {
                results.take_back_counts();
                let Some(error) = WriteError::of_command(&error) else {
                    return Err(error.into());
                };
                reply.fail(index, &error);
                true
            }
            Err(error) => return Err(error),
        };
        if failed && (ordered || run.context.head.in_transaction()) {
            break;
        }
    }
    Ok(reply.into_document(run.context.head))
}

/// The results of one statement so far.
pub(super) struct Results<'t> {
    reply: &'t mut WriteReply,
    index: usize,
    is_empty: bool,
    has_failed: bool,
    /// The documents that the statement has matched and modified so far.
    n: i64,
    modified: i64,
}

impl<'t> Results<'t> {
    fn new(reply: &'t mut WriteReply, index: usize) -> Self {
        Self {
            reply,
            index,
            is_empty: true,
            has_failed: false,
            n: 0,
            modified: 0,
        }
    }

    fn count(&mut self, n: i64, modified: i64) {
        self.n = self.n.saturating_add(n);
        self.modified = self.modified.saturating_add(modified);
        self.reply.count(n);
        self.reply.count_modified(modified);
    }

    /// mongod counts nothing of a statement that fails, although documents may have been changed.
    fn take_back_counts(&mut self) {
        self.count(self.n.saturating_neg(), self.modified.saturating_neg());
    }

    /// Adds mongod's reply for one or several documents.
    pub(super) fn add(&mut self, result: &OutlierWriteResult) {
        self.is_empty = false;
        self.has_failed |= result.error.is_some();
        self.count(result.n, result.modified);
        if self.has_failed {
            self.take_back_counts();
        }
        let upserted = get(&result.answer, "upserted").and_then(RawBsonRef::as_array);
        let upserted = upserted.into_iter().flatten().flatten();
        for id in upserted.filter_map(|element| get(element.as_document()?, "_id")) {
            self.reply.add_upserted(self.index, id);
        }
        let retried = get(&result.answer, "retriedStmtIds").and_then(RawBsonRef::as_array);
        for id in retried.into_iter().flatten().flatten().filter_map(RawBsonRef::as_i32) {
            self.reply.add_retried(id);
        }
        if let Some(error) = &result.error {
            self.reply.fail(self.index, error);
        }
        self.reply.take_answer(result.answer.clone());
    }
}
