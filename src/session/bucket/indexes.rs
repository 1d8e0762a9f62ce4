//! Index commands and hints, in terms of the application's indexes.

pub(super) mod create;
pub(super) mod drop;
pub(super) mod list;
pub(super) mod modify;
mod uniqueness;

use std::sync::Arc;

use bson::raw::{RawBsonRef, RawDocument, cstr};

use super::command::BucketCommand;
use crate::command::arguments::InheritedOptions;
use crate::command::document::{as_whole_number, get, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::find::{ambiguous_hint, no_such_index};
use crate::command::reply::CursorReply;
use crate::pattern::bucket::item_index::{HintedIndex, IndexHint, Indexes, hint, reads_backward};
use crate::pattern::bucket::readable_indexes::ReadableIndexes;
use crate::session::error::RunError;

/// The collection's indexes. `None` if the collection does not exist.
pub(in crate::session) async fn there(run: &mut BucketCommand<'_>) -> Result<Option<Indexes>, RunError> {
    let mut command = single("listIndexes", run.namespace.collection);
    InheritedOptions::of(run.context.head.body()).append_to_inspect(&mut command);
    let reply = match run.context.link.run(&command).await {
        Err(RunError::Command(error)) if error.is(ErrorCode::NamespaceNotFound) => return Ok(None),
        reply => reply?,
    };
    let cursor = CursorReply::parse(&reply);
    let specs = cursor.iter().flat_map(CursorReply::documents);
    Ok(Some(Indexes::of(run.shape, specs)))
}

/// The indexes that reads use, without those that mongod builds: it knows no hint of them. The list is cached for
/// some seconds, because another proxy may create an index. Indexes that this proxy created are always in the
/// list.
pub(super) async fn stored(run: &mut BucketCommand<'_>) -> Result<Arc<ReadableIndexes>, RunError> {
    let settings = run.context.settings;
    let collection = run.collection.as_ref().map(|collection| collection.uuid.clone());
    if let Some(listed) = settings.catalog.indexes(run.namespace, collection.as_ref()) {
        return Ok(listed);
    }
    let mut command = single("listIndexes", run.namespace.collection);
    // The stable API does not have the option. mongod then refuses a hint, and the read takes a pipeline.
    if !run.is_strict() {
        command.append(cstr!("includeBuildUUIDs"), true);
    }
    InheritedOptions::of(run.context.head.body()).append_to_inspect(&mut command);
    let listed = match run.context.link.run(&command).await {
        // The collection was dropped, or the client lacks `listIndexes`.
        Err(RunError::Command(_)) => ReadableIndexes::default(),
        reply => {
            let reply = reply?;
            let cursor = CursorReply::parse(&reply);
            let specs = cursor.iter().flat_map(CursorReply::documents);
            let ready = specs.filter(|index| get(index, "buildUUID").is_none());
            ReadableIndexes::of(run.shape, ready)
        }
    };
    let listed = Arc::new(listed);
    let cached = Arc::clone(&listed);
    settings.catalog.keep_indexes(run.namespace, collection, cached);
    Ok(listed)
}

/// Drops the cached list of indexes.
pub(super) fn forget(run: &BucketCommand<'_>) {
    run.context.settings.catalog.forget_indexes(run.namespace);
}

/// Refuses a hint of an index that the application does not have. Not cached, because another proxy
/// may have created or dropped the index.
pub(super) async fn check_hint(run: &mut BucketCommand<'_>, given: Option<RawBsonRef<'_>>) -> Result<(), RunError> {
    let Some(wanted) = given.and_then(hint).filter(|hint| *hint != IndexHint::Always) else {
        return Ok(());
    };
    if run.context.link.is_dry_run() {
        // mongod has checked the hint of the relayed command.
        return Ok(());
    }
    if let IndexHint::Natural(pattern) = wanted {
        return validate_natural(run, pattern).await;
    }
    let Some(indexes) = there(run).await? else {
        return Ok(());
    };
    match wanted.resolve(&indexes) {
        HintedIndex::Complete => Ok(()),
        HintedIndex::Missing => Err(no_such_index().into()),
        HintedIndex::OmitsItems => {
            let what = "a hint of a sparse, partial or wildcard index (it may leave items out)";
            Err(run.unsupported(what).into())
        }
        HintedIndex::Ambiguous => Err(ambiguous_hint().into()),
    }
}

/// Refuses a hint by which mongod reads the collection from its end. For commands whose result depends on the
/// order in which documents are read.
pub(super) fn check_hinted_order(run: &BucketCommand<'_>, given: Option<RawBsonRef<'_>>) -> Result<(), CommandError> {
    if given.is_some_and(reads_backward) {
        return Err(run.unsupported("a hint of {$natural: -1}"));
    }
    Ok(())
}

/// Has mongod validate a `$natural` hint, by a query that reads one document.
async fn validate_natural(run: &mut BucketCommand<'_>, pattern: &RawDocument) -> Result<(), RunError> {
    let mut command = single("find", run.namespace.collection);
    command.append(cstr!("hint"), pattern);
    command.append(cstr!("projection"), single("_id", 1));
    command.append(cstr!("limit"), 1);
    command.append(cstr!("singleBatch"), true);
    InheritedOptions::of(run.context.head.body()).append_to_inspect(&mut command);
    match run.context.link.run(&command).await {
        Ok(_) => Ok(()),
        // Reported as an error of the client's own command.
        Err(RunError::Command(error)) if error.is(ErrorCode::BadValue) => {
            Err(CommandError::new(ErrorCode::BadValue, error.message()).into())
        }
        Err(error) => Err(error),
    }
}

/// mongod's error for a command that it does not run in a transaction.
fn not_in_transaction(run: &BucketCommand<'_>, name: &str) -> Result<(), CommandError> {
    if !run.context.head.in_transaction() {
        return Ok(());
    }
    let message = format!("Cannot run '{name}' in a multi-document transaction.");
    Err(CommandError::new(
        ErrorCode::OperationNotSupportedInTransaction,
        message,
    ))
}

/// The error after the last lost race with another writer.
pub(super) fn given_up(run: &BucketCommand<'_>) -> RunError {
    let message = format!(
        "write conflict: the indexes of {} were changed at the same time: try again",
        run.namespace
    );
    CommandError::new(ErrorCode::WriteConflict, message).into()
}

/// The number of indexes in a reply, without `others`: the indexes that the application does not see. Can be
/// 0 for a clustered collection.
pub(super) fn without_others(reply: &RawDocument, field: &str, others: usize) -> i32 {
    let all = get(reply, field).and_then(as_whole_number).unwrap_or(1);
    let known = all.saturating_sub(i64::try_from(others).unwrap_or(i64::MAX));
    i32::try_from(known).unwrap_or(i32::MAX).max(0)
}
