//! Reads in which mongod reassembles outliers.

use bson::raw::{RawDocument, RawDocumentBuf};

use crate::command::error::{CommandError, ErrorCode};
use crate::pattern::outlier::pipeline::MISSING;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamConnection;

/// Runs a pipeline that puts outliers together, again where one has got other pages meanwhile.
pub(in crate::session) async fn put_together(
    link: &mut UpstreamConnection,
    command: &RawDocument,
) -> Result<RawDocumentBuf, RunError> {
    let mut answer = link.run(command).await;
    for attempt in 0..MAX_ATTEMPTS {
        if !are_pages_missing(&answer) {
            return answer;
        }
        pause(attempt).await;
        answer = link.run(command).await;
    }
    if are_pages_missing(&answer) {
        return Err(missing_extras("an outlier collection that is read says").into());
    }
    answer
}

/// Whether mongod has failed because pages are missing: a document has got others since its base was read.
pub(super) fn are_pages_missing<T>(answer: &Result<T, RunError>) -> bool {
    let Err(RunError::Command(CommandError::Upstream(reply))) = answer else {
        return false;
    };
    reply.get_i32("code").is_ok_and(|code| code == CONVERSION_FAILURE)
        && reply.get_str("errmsg").is_ok_and(|message| message.contains(MISSING))
}

/// mongod's code for what could not be converted (`ConversionFailure`).
const CONVERSION_FAILURE: i32 = 241;

/// The error for documents whose extras were not there each time they were read. Somebody may have replaced
/// them each time, but hardly so often.
pub(super) fn missing_extras(who_says: &str) -> CommandError {
    let message = format!(
        "mongoshape cannot put a document together: {who_says} that it has extras, and they are missing; `mongoshape check` names it"
    );
    CommandError::new(ErrorCode::InvalidOptions, message)
}
