//! Removes reservations of pages that were not begun, because another writer was faster or the items were
//! refused. A page with a reservation is never removed when it is empty. So a page that was emptied in the
//! meantime is removed here.

use bson::raw::{RawDocumentBuf, cstr};

use super::batch::InsertBatch;
use crate::command::document::{array_of, put, single};
use crate::command::reply::{CursorReply, succeeded};
use crate::pattern::bucket::insert::{KeyBatch, PageReservation, withdraw};
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::predicate_pushdown::is_page;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::delete::remove_empty_pages;
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

pub(super) async fn withdraw_all(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<(), RunError> {
    let reserved: Vec<PageReservation> = batch.groups.iter_mut().flat_map(KeyBatch::abandon).collect();
    let statements: Vec<RawDocumentBuf> = reserved.iter().map(withdraw).collect();
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
    // Within a transaction, nobody else has changed these pages.
    if !batch.in_transaction() {
        remove_if_empty(run, &reserved).await?;
    }
    Ok(())
}

/// Removes the pages whose reservations were withdrawn, if they are empty. The deletion that emptied a page has
/// left it because of the reservation.
async fn remove_if_empty(run: &mut BucketCommand<'_>, reserved: &[PageReservation]) -> Result<(), RunError> {
    let pages = reserved
        .iter()
        .map(|reserved| single("_id", single("$eq", &reserved.before)));
    let mut filter = is_page();
    put(&mut filter, run.shape.count(), 0);
    put(&mut filter, "$or", array_of(&pages.collect::<Vec<RawDocumentBuf>>()));
    let mut find = single("find", run.namespace.collection);
    find.append(cstr!("filter"), &filter);
    find.append(cstr!("projection"), single(run.shape.items(), 0));
    find.append(cstr!("batchSize"), i64::try_from(reserved.len()).unwrap_or(i64::MAX));
    find.append(cstr!("singleBatch"), true);
    run.context.inherited().append_to_read_of_write(&mut find);
    let answer = succeeded(run.context.link.run(&find).await?)?;
    let empty = CursorReply::parse(&answer).map(|cursor| {
        let keys = cursor.documents().filter_map(|page| Key::of(run.shape, page).ok());
        keys.map(|key| key.filter(run.shape)).collect::<Vec<RawDocumentBuf>>()
    });
    for key in empty.unwrap_or_default() {
        remove_empty_pages::key(run, &key).await?;
    }
    Ok(())
}
