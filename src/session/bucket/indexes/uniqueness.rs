//! The validator that keeps items of one page apart, beside the unique indexes of mongod.
//!
//! A unique index is created in this order: the clause of the validator, a search for pages that do not
//! satisfy it, the index, and once more a check that every unique index has its clause, because a compaction
//! may have replaced the validator meanwhile. So an index without its clause is never reported as created. A
//! clause without an index remains if a proxy is stopped in between. It refuses writes with
//! [`interrupted`](crate::pattern::bucket::unique_index::interrupted), until the index is created again or
//! dropped.

use std::time::Duration;

use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use tokio::time::sleep;

use super::there;
use crate::command::arguments::InheritedOptions;
use crate::command::document::{append_fields, array_of, get, single};
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::reply::CursorReply;
use crate::pattern::bucket::compact;
use crate::pattern::bucket::fence::{ValidatorFence, is_validator_fence};
use crate::pattern::bucket::unique_index::{ClauseOfIndex, UniqueIndex, clause, clauses};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::bucket::command::BucketCommand;
use crate::session::error::RunError;

/// Pause before the state of the collection is read again.
const POLL: Duration = Duration::from_millis(50);
/// The most such pauses while the collection is frozen: 30 seconds.
const MAX_FROZEN: u32 = 600;
/// The most such pauses for another change, before its fence is dropped: 5 seconds. Its proxy may have been
/// stopped.
const MAX_FENCED: u32 = 100;

/// Adds the clauses that these indexes and the existing ones lack.
///
/// # Errors
/// mongod's error for duplicates if a page does not satisfy a clause.
pub(super) async fn enforce(run: &mut BucketCommand<'_>, wanted: &[UniqueIndex]) -> Result<(), RunError> {
    for _ in 0..MAX_ATTEMPTS {
        let mut added: Vec<UniqueIndex> = Vec::new();
        let shape = run.shape;
        let edit = |state: &State| {
            let all = state.indexes.iter().chain(wanted);
            added = all
                .filter(|index| !state.clauses.contains(&ClauseOfIndex::of(shape, index)))
                .cloned()
                .collect();
            let mut clauses = state.clauses.clone();
            clauses.retain(|clause| added.iter().all(|index| index.name() != clause.index));
            for clause in added.iter().map(|index| ClauseOfIndex::of(shape, index)) {
                if !clauses.contains(&clause) {
                    clauses.push(clause);
                }
            }
            clauses
        };
        replace(run, edit).await?;
        if added.is_empty() {
            return Ok(());
        }
        for index in &added {
            if let Some(error) = duplicate(run, index).await? {
                return Err(build_failed(run, error).into());
            }
        }
    }
    Err(super::given_up(run))
}

/// Removes the clauses without an index: those with these names, or all.
pub(super) async fn withdraw(run: &mut BucketCommand<'_>, names: Option<&[&str]>) -> Result<(), RunError> {
    let is_meant = |clause: &ClauseOfIndex| names.is_none_or(|names| names.contains(&clause.index.as_str()));
    let edit = |state: &State| {
        let has_index = |clause: &ClauseOfIndex| state.indexes.iter().any(|index| index.name() == clause.index);
        let kept = state
            .clauses
            .iter()
            .filter(|clause| !is_meant(clause) || has_index(clause));
        kept.cloned().collect()
    };
    replace(run, edit).await
}

/// The unique indexes and the validator.
struct State {
    indexes: Vec<UniqueIndex>,
    clauses: Vec<ClauseOfIndex>,
    /// The names of the fences of other changes.
    fences: Vec<String>,
}

/// Reads the state, and waits while the collection is frozen. `None`: it does not exist.
async fn state(run: &mut BucketCommand<'_>) -> Result<Option<State>, RunError> {
    for _ in 0..MAX_FROZEN {
        let Some(there) = there(run).await? else {
            return Ok(None);
        };
        let mut command = single("listCollections", 1);
        command.append(cstr!("filter"), single("name", run.namespace.collection));
        InheritedOptions::of(run.context.head.body()).append_to_inspect(&mut command);
        let reply = run.context.link.run(&command).await?;
        let cursor = CursorReply::parse(&reply);
        let described = cursor.as_ref().and_then(|cursor| cursor.documents().next());
        let options = described.and_then(|described| get(described, "options")?.as_document());
        if options.is_some_and(compact::is_frozen) {
            sleep(POLL).await;
            continue;
        }
        let validator = options.and_then(|options| get(options, "validator")?.as_document());
        let fences = there.others.iter().filter(|name| is_validator_fence(name));
        return Ok(Some(State {
            indexes: UniqueIndex::all(run.shape, there.stored()),
            clauses: validator.map(clauses).unwrap_or_default(),
            fences: fences.cloned().collect(),
        }));
    }
    Err(super::given_up(run))
}

/// Replaces the clauses of the validator by those that `edit` returns for the current state. Only one change
/// at a time has a fence, so the state is current.
async fn replace(
    run: &mut BucketCommand<'_>,
    mut edit: impl FnMut(&State) -> Vec<ClauseOfIndex>,
) -> Result<(), RunError> {
    let mut waited = 0_u32;
    for round in 0..MAX_ATTEMPTS.saturating_add(MAX_FENCED) {
        let Some(before) = state(run).await? else {
            return Ok(());
        };
        if edit(&before) == before.clauses {
            return Ok(());
        }
        pause(round).await;
        if !before.fences.is_empty() && waited < MAX_FENCED {
            waited = waited.saturating_add(1);
            sleep(POLL).await;
            continue;
        }
        drop_indexes(run, &before.fences).await?;
        let fence = ValidatorFence::of_run(rand::random());
        let mut command = single("createIndexes", run.namespace.collection);
        command.append(cstr!("indexes"), array_of(&[fence.spec()]));
        match modify(run, command).await {
            Err(RunError::Command(error)) if is_overtaken(&error) => continue,
            created => created?,
        }
        let changed = match state(run).await? {
            Some(state) => modify(run, with_clauses(run, fence, &edit(&state))).await,
            None => Ok(()),
        };
        drop_indexes(run, &[fence.name()]).await?;
        match changed {
            // Another change has dropped the fence.
            Err(RunError::Command(error)) if error.is(ErrorCode::IndexNotFound) => {}
            changed => return changed,
        }
    }
    Err(super::given_up(run))
}

/// Whether another change has begun, or has dropped the fence while it was created.
fn is_overtaken(error: &CommandError) -> bool {
    error.is(ErrorCode::IndexOptionsConflict) || error.is(ErrorCode::IndexBuildAborted)
}

/// The `collMod` that sets the validator, if the fence exists. A page that does not satisfy the validator
/// already may still be changed: its items are older than the index.
fn with_clauses(run: &BucketCommand<'_>, fence: ValidatorFence, clauses: &[ClauseOfIndex]) -> RawDocumentBuf {
    let clauses: Vec<RawDocumentBuf> = clauses.iter().map(|clause| clause.clause.clone()).collect();
    let mut command = single("collMod", run.namespace.collection);
    let mut demanded = single("name", fence.name());
    demanded.append(cstr!("hidden"), true);
    command.append(cstr!("index"), demanded);
    if clauses.is_empty() {
        command.append(cstr!("validator"), RawDocumentBuf::new());
    } else {
        command.append(cstr!("validator"), single("$and", array_of(&clauses)));
        command.append(cstr!("validationLevel"), "moderate");
        command.append(cstr!("validationAction"), "error");
    }
    command
}

async fn drop_indexes(run: &mut BucketCommand<'_>, names: &[String]) -> Result<(), RunError> {
    for name in names {
        let mut command = single("dropIndexes", run.namespace.collection);
        command.append(cstr!("index"), name.as_str());
        match modify(run, command).await {
            Err(RunError::Command(error)) if error.is(ErrorCode::IndexNotFound) => {}
            dropped => dropped?,
        }
    }
    Ok(())
}

/// Sends a command that changes the collection's metadata.
async fn modify(run: &mut BucketCommand<'_>, mut command: RawDocumentBuf) -> Result<(), RunError> {
    if let Some(concern) = get(run.context.head.body(), "writeConcern") {
        command.append(cstr!("writeConcern"), concern);
    }
    InheritedOptions::of(run.context.head.body()).append_identity(&mut command);
    run.context.link.run(&command).await.map(drop)
}

/// The error for two items of one page with an equal key.
async fn duplicate(run: &mut BucketCommand<'_>, index: &UniqueIndex) -> Result<Option<WriteError>, RunError> {
    let refused = single("$nor", array_of(&[clause(run.shape, index)]));
    let mut command = single("find", run.namespace.collection);
    command.append(cstr!("filter"), refused);
    command.append(cstr!("limit"), 1);
    command.append(cstr!("singleBatch"), true);
    InheritedOptions::of(run.context.head.body()).append_to_inspect(&mut command);
    let reply = run.context.link.run(&command).await?;
    let cursor = CursorReply::parse(&reply);
    let page: Option<&RawDocument> = cursor.as_ref().and_then(|cursor| cursor.documents().next());
    Ok(page.map(|page| match index.first_duplicate(run.shape, page) {
        Ok(Some(key)) => index.duplicate(run.namespace, &key),
        Ok(None) => index.duplicate_of_unknown_key(run.namespace),
        Err(_) => index.path_through_array(run.namespace),
    }))
}

/// The error of a failed index build.
pub(super) fn build_failed(run: &BucketCommand<'_>, error: WriteError) -> CommandError {
    if error.code != ErrorCode::DuplicateKey.number() {
        return error.into_command_error();
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("ok"), 0.0);
    let message = format!(
        "Index build failed: Collection {} :: caused by :: {}",
        run.namespace, error.message
    );
    reply.append(cstr!("errmsg"), message);
    reply.append(cstr!("code"), error.code);
    reply.append(cstr!("codeName"), ErrorCode::DuplicateKey.name());
    append_fields(&mut reply, &error.detail);
    CommandError::Upstream(reply)
}
