//! The quick look: whether any document is no page.

use std::time::Duration;

use bson::raw::{RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::error::{Error, ErrorKind};

use crate::command::document::single;
use crate::command::value_text::id_text;
use crate::maintenance::finding::Finding;
use crate::maintenance::upstream::ShapedCollection;
use crate::pattern::bucket::adopt::strays;
use crate::pattern::shapes::BucketShape;

/// How long looking through a collection may take where nothing depends on it.
pub(crate) const SCAN_TIMEOUT: Duration = Duration::from_mins(1);
/// The server's code for that time being up.
const MAX_TIME_EXPIRED: i32 = 50;

/// What came of it.
pub(crate) enum ContentsCheck {
    /// All are pages, as far as each can say by itself.
    Pages,
    /// One is not; its `_id`.
    Stray(String),
    /// None was found in time, for a report.
    Unfinished(Finding),
}

/// Looks for a document that is no page, or not what it says, for no longer than `limit`.
pub(crate) async fn first_stray(
    target: &ShapedCollection,
    shape: &BucketShape,
    limit: Duration,
) -> Result<ContentsCheck, Error> {
    let mut find = single("find", target.collection.as_str());
    find.append(cstr!("filter"), strays(shape));
    find.append(cstr!("projection"), single("_id", 1));
    find.append(cstr!("limit"), 1);
    find.append(cstr!("singleBatch"), true);
    find.append(cstr!("maxTimeMS"), i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
    let found = match target.database.run_raw_cursor_command(find).await {
        Ok(cursor) => cursor.with_type::<RawDocumentBuf>().try_next().await,
        Err(error) => Err(error),
    };
    match found {
        Ok(None) => Ok(ContentsCheck::Pages),
        Ok(Some(stray)) => Ok(ContentsCheck::Stray(id_text(&stray))),
        Err(error) if is_timeout(&error) => {
            let seconds = limit.as_secs();
            let text = format!("not all documents were looked at within {seconds} s; none before was strange");
            Ok(ContentsCheck::Unfinished(Finding::note(target.namespace(), text)))
        }
        Err(error) => Err(error),
    }
}

pub(super) fn is_timeout(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if command.code == MAX_TIME_EXPIRED)
}
