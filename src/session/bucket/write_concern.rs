//! Waits for the client's `writeConcern` if no statement that was sent contained it.

use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};

use super::command::BucketCommand;
use crate::command::arguments::InheritedOptions;
use crate::command::document::{array_of, as_whole_number, get, single};
use crate::command::reply::succeeded;
use crate::pattern::bucket::insert::no_statement;
use crate::pattern::bucket::targeting;
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// Whether the write concern requires more than a write on the primary. A command without a write
/// concern has the default of the replica set, which may be `majority`.
pub(super) fn asks_for_more(run: &BucketCommand<'_>) -> bool {
    let Some(RawBsonRef::Document(concern)) = get(run.context.head.body(), "writeConcern") else {
        return true;
    };
    let journal = get(concern, "j").is_some_and(|journal| journal == RawBsonRef::Boolean(true));
    let members = get(concern, "w").and_then(as_whole_number);
    journal || !matches!(members, Some(0 | 1))
}

/// Waits for the write concern of all earlier writes, by an update that matches nothing: mongod
/// waits for its newest write. Returns mongod's reply. Costs one round trip.
pub(super) async fn wait(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let mut command = single("update", run.namespace.collection);
    let mut nothing = no_statement();
    if run.is_behind_mongos() {
        // Each shard waits for its own writes. The collection may not be known yet.
        nothing = single("q", single("_id", targeting::nothing()));
        nothing.append(cstr!("u"), single("$set", single("_", 0)));
        nothing.append(cstr!("multi"), true);
    }
    command.append(cstr!("updates"), array_of(&[nothing]));
    InheritedOptions::of(run.context.head.body())
        .not_retryable()
        .append_to_write(&mut command);
    Ok(succeeded(
        run.context.link.call(UpstreamRequest::plain(&command)).await?,
    )?)
}

/// Waits for the command's write concern although it has written nothing, as mongod does. `None`:
/// nothing to wait for.
pub(super) async fn wait_after_no_write(run: &mut BucketCommand<'_>) -> Result<Option<RawDocumentBuf>, RunError> {
    let is_named = get(run.context.head.body(), "writeConcern").is_some();
    if !is_named || run.context.head.in_transaction() || !asks_for_more(run) {
        return Ok(None);
    }
    wait(run).await.map(Some)
}
