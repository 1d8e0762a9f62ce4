//! The error for a page of the proxy that mongod refuses as a [direct write](direct_writes). mongod's own
//! error is about the page, and could be taken for that of another clause.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};

use super::command::BucketCommand;
use super::retry_on_swap::CommandReply;
use crate::command::arguments::with_replaced;
use crate::command::document::get;
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::pattern::bucket::validator::direct_writes;
use crate::session::error::RunError;

/// The reply with the proxy's errors in place of those for refused pages.
pub(super) fn in_own_words(run: &BucketCommand<'_>, answer: CommandReply) -> CommandReply {
    match answer {
        Err(RunError::Command(CommandError::Upstream(reply))) if direct_writes::is_refused(&reply) => {
            Err(CommandError::new(ErrorCode::InvalidOptions, message(run)).into())
        }
        Ok(reply) => Ok(with_own_write_errors(run, reply)),
        answer => answer,
    }
}

fn with_own_write_errors(run: &BucketCommand<'_>, reply: RawDocumentBuf) -> RawDocumentBuf {
    let Some(errors) = get(&reply, "writeErrors").and_then(RawBsonRef::as_array) else {
        return reply;
    };
    let mut replaced = RawArrayBuf::new();
    for error in errors.into_iter().flatten() {
        match error.as_document().filter(|error| direct_writes::is_refused(error)) {
            None => replaced.push(error),
            Some(refused) => {
                let index = get(refused, "index").and_then(RawBsonRef::as_i32);
                let index = index.and_then(|index| usize::try_from(index).ok()).unwrap_or_default();
                let error = WriteError::new(ErrorCode::InvalidOptions, message(run));
                replaced.push(error.to_document(index));
            }
        }
    }
    with_replaced(&reply, &[("writeErrors", Some(RawBsonRef::Array(&replaced)))])
}

fn message(run: &BucketCommand<'_>) -> String {
    format!(
        "mongod refuses a page of {} because of `reject_direct_writes`: the page or the collection's validator has another form than \
         this mongoshape writes; run `mongoshape check`, which names it, and `mongoshape setup`, which replaces the validator",
        run.namespace
    )
}
