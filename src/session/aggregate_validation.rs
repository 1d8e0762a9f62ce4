//! Validation of an `aggregate` by mongod.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::error::RunError;
use super::upstream_connection::UpstreamConnection;
use crate::command::arguments::{InheritedOptions, is_generic, with_replaced};
use crate::command::document::{array_of, get, single};
use crate::command::error::CommandError;
use crate::command::header::CommandHeader;
use crate::command::reply::CursorReply;
use crate::pattern::pipeline::documents;
use crate::pattern::unwound::of_no_document;

/// Sends the client's `aggregate` with a pipeline that matches nothing, because mongod may report
/// another error before `error`. The pipeline is not the client's, so the reply contains no stored
/// data.
pub(super) async fn first_aggregate_error(
    link: &mut UpstreamConnection,
    head: &CommandHeader<'_>,
    error: CommandError,
) -> RunError {
    let body = head.body();
    let nothing = array_of(&[single("$match", of_no_document())]);
    // mongod refuses any other value of `pipeline`.
    let is_one = documents(get(body, "pipeline")).is_some();
    let replaced = [("pipeline", Some(RawBsonRef::Array(&nothing)))];
    let command = with_replaced(body, if is_one { &replaced } else { &[] });
    let reply = match link.run(&command).await {
        Ok(reply) => reply,
        Err(error) => return error,
    };
    if let Some(id) = CursorReply::parse(&reply).map(|cursor| cursor.id).filter(|id| *id != 0) {
        let ids: RawArrayBuf = [RawBsonRef::Int64(id)].into_iter().collect();
        let mut kill = single("killCursors", head.target.unwrap_or_default());
        kill.append(cstr!("cursors"), &ids);
        InheritedOptions::of(body).append_to_get_more(&mut kill);
        if let Err(error) = link.run(&kill).await {
            return error;
        }
    }
    error.into()
}

/// The `explain` of a pipeline with the options of the client's `aggregate`: mongod checks both, and executes
/// nothing. It is a command, because the option `explain` of `aggregate` is not in the stable API.
pub(super) fn explain_of(body: &RawDocument, stages: &[RawDocumentBuf]) -> RawDocumentBuf {
    let is_checked = |name: &str| name == "maxTimeMS" || !(name == "explain" || is_generic(name));
    let fields = body.iter().flatten().filter(|(name, _)| is_checked(name.as_str()));
    let aggregate: RawDocumentBuf = fields.collect();
    let stages = array_of(stages);
    let aggregate = with_replaced(&aggregate, &[("pipeline", Some(RawBsonRef::Array(&stages)))]);
    let mut command = single("explain", aggregate);
    command.append(cstr!("verbosity"), "queryPlanner");
    InheritedOptions::of(body).append_to_inspect(&mut command);
    command
}
