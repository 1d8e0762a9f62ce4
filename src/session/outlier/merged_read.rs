//! Reads in which mongod reassembles outliers.

use bson::raw::{RawDocument, RawDocumentBuf};

use crate::command::error::{CommandError, ErrorCode};
use crate::pattern::outlier::pipeline::MISSING;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamConnection;

/// Executes a pipeline that reassembles outliers. Executes it again if the pages of a document were
/// replaced in the meantime.
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
        return Err(missing_extras("a document of an outlier collection").into());
    }
    answer
}

/// Whether the pipeline failed because pages were missing: they were replaced after the base
/// document was read.
pub(super) fn are_pages_missing<T>(answer: &Result<T, RunError>) -> bool {
    let Err(RunError::Command(error)) = answer else {
        return false;
    };
    error.is(ErrorCode::ConversionFailure) && error.message().contains(MISSING)
}

/// The error for documents whose extras do not exist. Concurrent replacements can also cause it,
/// but hardly in every attempt.
pub(super) fn missing_extras(document: &str) -> CommandError {
    let message = format!(
        "missing extras: {document} records extras that do not exist; run `mongoshape check`, which names the document"
    );
    CommandError::new(ErrorCode::InvalidOptions, message)
}
