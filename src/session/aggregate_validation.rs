//! Validation of an `aggregate` by mongod.

use bson::raw::{RawArrayBuf, RawBsonRef, cstr};

use super::error::RunError;
use super::upstream_connection::UpstreamConnection;
use crate::command::arguments::{InheritedOptions, with_replaced};
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
