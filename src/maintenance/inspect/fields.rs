//! Checks whether a collection's documents have the fields that its shape names. With a misspelt
//! key, all documents would get the key `null` and one chain of pages. With a misspelt time, they
//! would have no order.

mod census;

use bson::raw::{RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::error::Error;

pub(crate) use self::census::{FieldCensus, MissingFields};
use super::foreign_document::SCAN_TIMEOUT;
use super::foreign_document::is_timeout;
use super::plain::has;
use crate::command::document::{array_of, single};
use crate::maintenance::upstream::ShapedCollection;

/// Documents in a sample.
const SAMPLE: i32 = 100;

/// Adds a random sample of at most [`SAMPLE`] documents. If a field is missing in the sample, the
/// whole collection is searched for it, for at most [`SCAN_TIMEOUT`], because few documents may
/// have it.
pub(crate) async fn sample(target: &ShapedCollection, mut census: FieldCensus) -> Result<FieldCensus, Error> {
    let mut command = single("aggregate", target.collection.as_str());
    let stage = single("$sample", single("size", SAMPLE));
    command.append(cstr!("pipeline"), array_of(&[stage]));
    command.append(cstr!("cursor"), RawDocumentBuf::new());
    let sampled = target.database.run_raw_cursor_command(command).await?;
    let mut sampled = sampled.with_type::<RawDocumentBuf>();
    while let Some(document) = sampled.try_next().await? {
        census.add(&document);
    }
    for field in census.absent() {
        let filter = single(field.as_str(), single("$exists", true));
        let timeout = i64::try_from(SCAN_TIMEOUT.as_millis()).unwrap_or(i64::MAX);
        let found = match has(target, filter, Some(timeout)).await {
            Err(error) if is_timeout(&error) => None,
            found => found?,
        };
        if found.is_some() {
            census.is_present(&field);
        }
    }
    Ok(census)
}
