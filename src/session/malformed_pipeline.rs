//! The error of a malformed pipeline in an `update`.
//!
//! mongod executes all statements first, and a malformed one fails. Then it counts the stages of
//! all pipelines, executed or not, and the first malformed pipeline fails the command
//! (`write_commands.cpp`, `incrementUpdateMetrics`).

use bson::raw::{RawArray, RawBsonRef, RawDocument, cstr};

use super::error::RunError;
use super::upstream_connection::{UpstreamConnection, UpstreamRequest};
use crate::command::arguments::InheritedOptions;
use crate::command::document::{array_of, first_field, get, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::reply::succeeded;
use crate::command::update::Update;
use crate::pattern::bucket::insert::no_statement;

/// The stages that updates support.
const STAGES: [&str; 6] = [
    "$addFields",
    "$set",
    "$unset",
    "$project",
    "$replaceRoot",
    "$replaceWith",
];
/// mongod's codes for a stage without exactly one field, and for an unknown stage.
const MALFORMED: [i32; 2] = [40323, 40324];

/// Whether a statement failed because of its malformed pipeline.
pub(super) fn is_cause(error: &CommandError) -> bool {
    match error {
        CommandError::Upstream(reply) => reply.get_i32("code").is_ok_and(|code| MALFORMED.contains(&code)),
        CommandError::Own { .. } => false,
    }
}

/// Returns mongod's error for the first malformed pipeline of an executed command. If the proxy
/// refused a statement, nothing is checked, because the client must get that refusal. Costs one
/// round trip for each pipeline with a stage that updates do not support. The statement is sent
/// outside the client's transaction, which may have ended.
pub(super) async fn check(
    link: &mut UpstreamConnection,
    head: &CommandHeader<'_>,
    command: &Update<'_>,
    reply: &RawDocument,
) -> Result<(), RunError> {
    if has_refusal(reply) {
        return Ok(());
    }
    for statement in &command.statements {
        let Some(pipeline) = statement.change.as_array().filter(|pipeline| is_suspect(pipeline)) else {
            continue;
        };
        let mut on_none = single("q", get(&no_statement(), "q").unwrap_or(RawBsonRef::Null));
        put(&mut on_none, "u", pipeline);
        // A mongos sends it to all shards.
        put(&mut on_none, "multi", true);
        let mut body = single("update", head.target.unwrap_or_default());
        body.append(cstr!("updates"), array_of(&[on_none]));
        InheritedOptions::of(head.body()).append_identity(&mut body);
        match succeeded(link.call(UpstreamRequest::plain(&body)).await?) {
            Err(error) if is_cause(&error) => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

fn has_refusal(reply: &RawDocument) -> bool {
    let errors = get(reply, "writeErrors").and_then(RawBsonRef::as_array);
    let errors = errors.into_iter().flatten().flatten();
    let mut codes = errors.filter_map(|error| error.as_document()?.get_i32("code").ok());
    codes.any(|code| code == ErrorCode::CommandNotSupported.number())
}

fn is_suspect(pipeline: &RawArray) -> bool {
    let is_stage = |stage: &RawDocument| {
        stage.iter().count() == 1 && first_field(stage).is_some_and(|(name, _)| STAGES.contains(&name))
    };
    let mut stages = pipeline.into_iter().flatten().filter_map(RawBsonRef::as_document);
    !stages.all(is_stage)
}
