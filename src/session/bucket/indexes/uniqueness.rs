//! The validator that keeps items of one page apart, beside the unique indexes of mongod.
//!
//! A unique index is created in this order: the clause of the validator, a search for pages that do not satisfy
//! it, the index, and once more a check that every unique index has its clause, because another proxy may have
//! replaced the validator at the same time. So an index without its clause is never reported as created. A clause
//! without an index remains if a proxy is stopped in between. It refuses writes with
//! [`interrupted`](crate::pattern::bucket::unique_index::interrupted), until the index is created again or
//! dropped.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::there;
use crate::command::arguments::InheritedOptions;
use crate::command::document::{array_of, get, single};
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::reply::CursorReply;
use crate::pattern::bucket::unique_index::{ClauseOfIndex, UniqueIndex, clause, clauses};
use crate::session::backoff::MAX_ATTEMPTS;
use crate::session::bucket::command::BucketCommand;
use crate::session::error::RunError;

/// Adds the clauses that these indexes and the existing ones lack.
///
/// # Errors
/// mongod's error for duplicates if a page does not satisfy a clause.
pub(super) async fn enforce(run: &mut BucketCommand<'_>, wanted: &[UniqueIndex]) -> Result<(), RunError> {
    for _ in 0..MAX_ATTEMPTS {
        let there = there(run).await?.unwrap_or_default();
        let mut kept = current(run).await?;
        let all = there.unique(run.shape).chain(wanted.iter().cloned());
        let mut missing: Vec<UniqueIndex> = Vec::new();
        for index in all {
            let has = |other: &ClauseOfIndex| other.index == index.name() && other.clause == clause(run.shape, &index);
            if !kept.iter().any(has) && !missing.contains(&index) {
                missing.push(index);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        kept.retain(|clause| missing.iter().all(|index| index.name() != clause.index));
        kept.extend(missing.iter().map(|index| ClauseOfIndex {
            index: index.name().to_owned(),
            clause: clause(run.shape, index),
        }));
        replace(run, &kept).await?;
        for index in &missing {
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
    let mut kept = current(run).await?;
    if !kept.iter().any(is_meant) {
        return Ok(());
    }
    let there = there(run).await?.unwrap_or_default();
    let has_index = |clause: &ClauseOfIndex| there.unique(run.shape).any(|index| index.name() == clause.index);
    kept.retain(|clause| !is_meant(clause) || has_index(clause));
    replace(run, &kept).await
}

/// The clauses of the collection's validator.
pub(super) async fn current(run: &mut BucketCommand<'_>) -> Result<Vec<ClauseOfIndex>, RunError> {
    let mut command = single("listCollections", 1);
    command.append(cstr!("filter"), single("name", run.namespace.collection));
    InheritedOptions::of(run.context.head.body()).append_to_inspect(&mut command);
    let reply = run.context.link.run(&command).await?;
    let cursor = CursorReply::parse(&reply);
    let described = cursor.as_ref().and_then(|cursor| cursor.documents().next());
    let options = described.and_then(|described| get(described, "options")?.as_document());
    let validator = options.and_then(|options| get(options, "validator")?.as_document());
    Ok(validator.map(clauses).unwrap_or_default())
}

/// Replaces the validator. A page that does not satisfy it already may still be changed: its items existed
/// before the index.
async fn replace(run: &mut BucketCommand<'_>, clauses: &[ClauseOfIndex]) -> Result<(), RunError> {
    let clauses: Vec<RawDocumentBuf> = clauses.iter().map(|clause| clause.clause.clone()).collect();
    let mut command = single("collMod", run.namespace.collection);
    if clauses.is_empty() {
        command.append(cstr!("validator"), RawDocumentBuf::new());
    } else {
        command.append(cstr!("validator"), single("$and", array_of(&clauses)));
        command.append(cstr!("validationLevel"), "moderate");
        command.append(cstr!("validationAction"), "error");
    }
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
    for (name, value) in error.detail.iter().flatten() {
        let value: RawBsonRef<'_> = value;
        reply.append(name, value);
    }
    CommandError::Upstream(reply)
}
