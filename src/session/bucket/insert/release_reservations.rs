//! Removes reservations of pages that were not begun, because another writer was faster or the items were
//! refused. A page with a reservation is never removed when it is empty.

use bson::raw::{RawDocumentBuf, cstr};

use super::batch::InsertBatch;
use crate::command::document::{array_of, single};
use crate::command::reply::succeeded;
use crate::pattern::bucket::insert::{KeyBatch, withdraw};
use crate::session::bucket::command::BucketCommand;
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

pub(super) async fn withdraw_all(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<(), RunError> {
    let reserved = batch.groups.iter_mut().flat_map(KeyBatch::abandon);
    let statements: Vec<RawDocumentBuf> = reserved.map(|reserved| withdraw(&reserved)).collect();
    // An aborted transaction leaves no reservations.
    if statements.is_empty() || (batch.in_transaction() && !batch.failed.is_empty()) {
        return Ok(());
    }
    let mut body = single("update", run.namespace.collection);
    body.append(cstr!("updates"), array_of(&statements));
    body.append(cstr!("ordered"), false);
    run.context
        .inherited()
        .not_retryable()
        .without_wait()
        .append_to_write(&mut body);
    succeeded(run.context.link.call(UpstreamRequest::plain(&body)).await?)?;
    Ok(())
}
