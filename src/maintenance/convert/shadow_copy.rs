//! The copy that a run keeps up to date, as proxies in shadow mode read it from the record.

use bson::{Binary, Timestamp};
use mongodb::Database;
use mongodb::error::Error;

use super::layout::PagesOf;
use super::record::{Direction, Phase, Record, stored};
use crate::pattern::bucket::conversion::copy_name;
use crate::pattern::shapes::{BucketShape, Shape};

/// A copy in pages of a collection of plain documents.
#[derive(Clone, Debug)]
pub(crate) struct ShadowCopy {
    /// The shape of the pages, with the copy's namespace.
    pub(crate) shape: BucketShape,
    pub(crate) uuid: Binary,
    /// The cluster time before which the copy contains all changes.
    pub(crate) applied_until: Timestamp,
}

impl ShadowCopy {
    /// The copy of a collection. `None`: there is none that contains all documents.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub(crate) async fn read(database: &Database, collection: &str) -> Result<Option<Self>, Error> {
        let Some(found) = stored(database, collection).await? else {
            return Ok(None);
        };
        let Ok(record) = Record::of(&found, database, collection) else {
            return Ok(None);
        };
        let progress = found.get_document("progress").ok();
        let applied_until = progress.and_then(|progress| progress.get_timestamp("applied_until").ok());
        let is_complete = record.direction == Direction::Forward && record.phase == Phase::Following;
        let (Some(applied_until), Some(uuid), true) = (
            applied_until,
            record.known_copy(),
            is_complete && record.from.is_plain(),
        ) else {
            return Ok(None);
        };
        let of = PagesOf {
            database,
            collection: &copy_name(collection),
            has_change_streams: false,
            rejects_direct_writes: false,
        };
        let Ok(Some(Shape::Bucket(shape))) = record.to.shape(&of) else {
            return Ok(None);
        };
        Ok(Some(Self {
            shape,
            uuid: uuid.clone(),
            applied_until,
        }))
    }
}
