//! The inline documents that an update of many changes: mongod changes many with one command.

use bson::raw::{RawBson, RawDocument, RawDocumentBuf};

use super::OutlierUpdate;
use crate::pattern::outlier::inline::{inline_or_failure, is_not_inline};
use crate::session::error::RunError;
use crate::session::outlier::command::OutlierCommand;
use crate::session::outlier::hot_documents::KnownOutliers;
use crate::session::outlier::internal_write::{OutlierWriteResult, WriteOrigin, first_error};

/// Statements in one command.
const MAX_STATEMENTS: usize = 1000;
/// Bytes of statements in one command. A document whose statement is longer is changed by itself.
const MAX_BYTES: usize = 1 << 20;

/// The result of one command.
pub(super) struct InlineChanges {
    /// Number of documents, from the first, that were changed or do not match any more.
    pub(super) done: usize,
    /// Whether the next document is not inline, or has no room.
    pub(super) meets_other: bool,
    pub(super) result: OutlierWriteResult,
}

/// Changes the first of these documents, in order, until one is not inline or cannot be changed. `None`: the
/// first one must be changed by itself.
pub(super) async fn change(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierUpdate<'_, '_>,
    ids: &[RawBson],
) -> Result<Option<InlineChanges>, RunError> {
    // A document that is not inline fails a statement, which would end a transaction.
    if run.context.head.in_transaction() {
        return Ok(None);
    }
    let elements = elements(run, statement, ids)?;
    if elements.len() < 2 {
        return Ok(None);
    }
    let sent: Vec<&RawDocument> = elements.iter().map(RawDocumentBuf::as_ref).collect();
    let origin = WriteOrigin::Client(statement.id);
    let result = run.write_all(run.namespace.collection, "update", &sent, origin).await?;
    Ok(Some(match first_error(&result.answer) {
        Some((done, error)) if is_not_inline(&error) => InlineChanges {
            done,
            meets_other: true,
            result: OutlierWriteResult { error: None, ..result },
        },
        _ => InlineChanges {
            done: elements.len(),
            meets_other: false,
            result,
        },
    }))
}

/// The elements of `updates` for the first documents, up to one that was an outlier when a command last read
/// it.
fn elements(
    run: &OutlierCommand<'_>,
    statement: &OutlierUpdate<'_, '_>,
    ids: &[RawBson],
) -> Result<Vec<RawDocumentBuf>, RunError> {
    let selector = statement.selector();
    let (growth, change) = statement.inline_change();
    let mut elements: Vec<RawDocumentBuf> = Vec::new();
    let mut bytes = 0_usize;
    for id in ids.iter().take(MAX_STATEMENTS) {
        let id = id.as_raw_bson_ref();
        let place = KnownOutliers::place(run.namespace, id);
        if run.context.settings.known_outliers.get(&place).is_some() {
            break;
        }
        let filter = run.filter_of(selector, id)?;
        let Some(filter) = inline_or_failure(run.shape, &filter, id, growth) else {
            break;
        };
        let element = statement.element(&filter, change, false, false);
        bytes = bytes.saturating_add(element.as_bytes().len());
        if bytes > MAX_BYTES {
            break;
        }
        elements.push(element);
    }
    Ok(elements)
}
