//! A quick check whether a collection contains only pages.

use std::time::Duration;

use bson::raw::{RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::error::{Error, ErrorKind};

use crate::command::document::{array_of, single};
use crate::command::value_text::id_text;
use crate::maintenance::finding::Finding;
use crate::maintenance::upstream::ShapedCollection;
use crate::pattern::bucket::adopt::foreign_documents;
use crate::pattern::shapes::BucketShape;

/// Maximum duration of an optional scan of a collection.
pub(crate) const SCAN_TIMEOUT: Duration = Duration::from_mins(1);
/// The server's code for an exceeded `maxTimeMS`.
const MAX_TIME_EXPIRED: i32 = 50;

/// The result of the check.
pub(crate) enum ContentsCheck {
    /// All documents are pages, as far as their own fields show.
    Pages,
    /// The `_id` of a document that is not a page.
    Foreign(String),
    /// The search timed out. A finding for the report.
    Unfinished(Finding),
}

/// Searches for a document that is not a valid page, for at most `limit`.
pub(crate) async fn first_foreign(
    target: &ShapedCollection,
    shape: &BucketShape,
    limit: Duration,
) -> Result<ContentsCheck, Error> {
    search(target, foreign_documents(shape), Some(limit)).await
}

/// Searches for a document that does not satisfy a clause of the validator, for at most `limit`.
pub(crate) async fn first_refused(
    target: &ShapedCollection,
    clause: RawDocumentBuf,
    limit: Option<Duration>,
) -> Result<ContentsCheck, Error> {
    search(target, single("$nor", array_of(&[clause])), limit).await
}

async fn search(
    target: &ShapedCollection,
    filter: RawDocumentBuf,
    limit: Option<Duration>,
) -> Result<ContentsCheck, Error> {
    let mut find = single("find", target.collection.as_str());
    find.append(cstr!("filter"), filter);
    find.append(cstr!("projection"), single("_id", 1));
    find.append(cstr!("limit"), 1);
    find.append(cstr!("singleBatch"), true);
    if let Some(limit) = limit {
        find.append(cstr!("maxTimeMS"), i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
    }
    let found = match target.database.run_raw_cursor_command(find).await {
        Ok(cursor) => cursor.with_type::<RawDocumentBuf>().try_next().await,
        Err(error) => Err(error),
    };
    match found {
        Ok(None) => Ok(ContentsCheck::Pages),
        Ok(Some(foreign)) => Ok(ContentsCheck::Foreign(id_text(&foreign))),
        Err(error) if is_timeout(&error) => {
            let seconds = limit.unwrap_or_default().as_secs();
            let text = format!(
                "the scan of the documents did not finish within {seconds} s; all documents inspected so far are buckets"
            );
            Ok(ContentsCheck::Unfinished(Finding::note(target.namespace(), text)))
        }
        Err(error) => Err(error),
    }
}

/// Whether a command exceeded its `maxTimeMS`.
pub(crate) fn is_timeout(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if command.code == MAX_TIME_EXPIRED)
}
