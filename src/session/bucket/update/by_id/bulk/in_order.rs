//! Statements of which several name the same item, in one command.
//!
//! mongod ends an ordered command at its first failure. So each of the statements fails if it misses its
//! item, and the statements behind it are not executed before it is sent again. Whether it has failed or
//! missed its item need not be known: it is then sent alone, in the usual form.

use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};

use super::{Bulk, BulkResult, errors, number};
use crate::command::document::single;
use crate::command::error::ErrorCode;
use crate::command::reply::succeeded;
use crate::command::write_batch::command_ranges;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::retry_on_swap::is_swap_error;
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// The first statement that is not executed.
pub(super) struct Reached {
    pub(super) position: usize,
    /// Whether it has failed or missed its item.
    pub(super) stopped: bool,
}

impl Bulk<'_> {
    /// Sends at most this many statements from position `begin` on, in order. `None`: they cannot be sent in
    /// this way.
    pub(super) async fn in_order(
        &self,
        run: &mut BucketCommand<'_>,
        begin: usize,
        most: usize,
        result: &mut BulkResult,
    ) -> Result<Option<Reached>, RunError> {
        // An upsert would create a missing collection.
        let Some(uuid) = run.collection.as_ref().map(|collection| collection.uuid.clone()) else {
            return Ok(None);
        };
        let changes = self.changes.iter().enumerate().skip(begin).take(most);
        let statements: Vec<RawDocumentBuf> = changes
            .map(|(position, change)| self.targets.targeted(position, change.statement_or_failure()))
            .collect();
        let sizes = statements.iter().map(|statement| statement.as_bytes().len());
        let count = command_ranges(sizes).first().map_or(0, |range| range.end);
        let statements: Vec<&RawDocument> = statements.iter().take(count).map(|statement| &**statement).collect();
        let mut body = single("update", run.namespace.collection);
        body.append(cstr!("ordered"), true);
        body.append(cstr!("collectionUUID"), &uuid);
        if let Some(variables) = self.command.let_variables {
            body.append(cstr!("let"), variables);
        }
        if run.context.head.is_retryable_write() {
            let positions: Vec<usize> = (begin..self.changes.len()).take(count).collect();
            let ids = self.statement_ids(&positions).into_iter();
            body.append(cstr!("stmtIds"), ids.collect::<RawArrayBuf>());
        }
        run.context.inherited().append_to_write(&mut body);
        let request = UpstreamRequest {
            body: &body,
            sequence: Some(("updates", &statements)),
        };
        let answer = match succeeded(run.context.link.call(request).await?) {
            // The user may update, but not insert.
            Err(error) if error.is(ErrorCode::Unauthorized) || is_swap_error(&error) => return Ok(None),
            answer => answer?,
        };
        run.record_executed(&answer);
        let stopped = errors(&answer).into_keys().min();
        result.count(number(&answer, "n"), number(&answer, "nModified"));
        result.take(answer, true);
        Ok(Some(Reached {
            position: begin.saturating_add(stopped.unwrap_or(count)),
            stopped: stopped.is_some(),
        }))
    }
}
