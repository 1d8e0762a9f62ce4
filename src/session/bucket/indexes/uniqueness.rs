//! The validator that keeps items of one page apart, beside the unique indexes of mongod.
//!
//! A unique index is created in this order: the clause of the validator, a search for pages that do not
//! satisfy it, the index, and once more a check that every unique index has its clause, because a compaction
//! may have replaced the validator meanwhile. So an index without its clause is never reported as created. A
//! clause without an index remains if a proxy is stopped in between. It refuses writes with
//! [`interrupted`](crate::pattern::bucket::unique_index::interrupted), until the index is created again or
//! dropped.

use bson::raw::{RawDocument, RawDocumentBuf, cstr};

use crate::command::arguments::InheritedOptions;
use crate::command::document::{append_fields, array_of, single};
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::reply::CursorReply;
use crate::pattern::bucket::unique_index::{ClauseOfIndex, UniqueIndex, clause};
use crate::session::backoff::MAX_ATTEMPTS;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::page_validator::{self, ValidatorPart, ValidatorState};
use crate::session::error::RunError;

/// Adds the clauses that these indexes and the existing ones lack.
///
/// # Errors
/// mongod's error for duplicates if a page does not satisfy a clause.
pub(super) async fn enforce(run: &mut BucketCommand<'_>, wanted: &[UniqueIndex]) -> Result<(), RunError> {
    for _ in 0..MAX_ATTEMPTS {
        let mut added: Vec<UniqueIndex> = Vec::new();
        let shape = run.shape;
        let edit = |state: &ValidatorState| {
            let all = state.indexes.iter().chain(wanted);
            let mut validator = state.validator.clone();
            let clauses = &mut validator.indexes;
            added = all
                .filter(|index| !clauses.contains(&ClauseOfIndex::of(shape, index)))
                .cloned()
                .collect();
            clauses.retain(|clause| added.iter().all(|index| index.name() != clause.index));
            for clause in added.iter().map(|index| ClauseOfIndex::of(shape, index)) {
                if !clauses.contains(&clause) {
                    clauses.push(clause);
                }
            }
            validator
        };
        page_validator::replace(run, ValidatorPart::Indexes, edit).await?;
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
    let edit = |state: &ValidatorState| {
        let has_index = |clause: &ClauseOfIndex| state.indexes.iter().any(|index| index.name() == clause.index);
        let mut validator = state.validator.clone();
        validator
            .indexes
            .retain(|clause| !is_meant(clause) || has_index(clause));
        validator
    };
    page_validator::replace(run, ValidatorPart::Indexes, edit).await
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
        Err(reason) => index.without_keys(run.namespace, reason),
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
