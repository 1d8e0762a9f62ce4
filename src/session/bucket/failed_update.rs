//! The item of an update that mongod has refused, before and after the update.

use bson::raw::RawDocumentBuf;

use super::command::BucketCommand;
use super::item_lookup;
use super::item_update::{Evaluated, ItemUpdate};
use crate::command::arguments::with_replaced;
use crate::command::document::get;
use crate::command::error::{ErrorCode, WriteError};
use crate::command::value_text::{MAX_OBJECT_BYTES, too_large_text};
use crate::pattern::bucket::item::{Item, KeepsTimestamps};
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::unique_index::{IndexKey, UniqueIndex};
use crate::pattern::bucket::update_by_position::{InPlace, Wish};
use crate::pattern::bucket::upsert::changed;
use crate::session::error::RunError;
use crate::session::id_source::SystemIdSource;

/// The most bytes of a document.
pub(super) const MAX_DOCUMENT_BYTES: usize = 16 << 20;

/// For each unique index, the first new key of an item that another item has.
#[derive(Debug, Default)]
pub(super) struct HeldKeys(pub(super) Vec<(String, IndexKey)>);

impl HeldKeys {
    pub(super) fn first_in(&self, index: &UniqueIndex) -> Option<&IndexKey> {
        let mut keys = self.0.iter();
        keys.find(|(name, _)| name == index.name()).map(|(_, key)| key)
    }
}

/// The item of a failed update.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedUpdate<'a> {
    pub(super) task: &'a ItemUpdate<'a>,
    /// The item before the update. `None`: it was not looked up.
    pub(super) found: Option<&'a LocatedItem>,
    /// The item's change, if it was planned for this item alone.
    pub(super) change: Option<&'a InPlace>,
    /// The keys that were looked up before the statement was sent.
    pub(super) held: Option<&'a HeldKeys>,
}

impl<'a> FailedUpdate<'a> {
    pub(super) fn new(task: &'a ItemUpdate<'a>, found: Option<&'a LocatedItem>) -> Self {
        Self {
            task,
            found,
            change: None,
            held: None,
        }
    }

    /// The item before the update. `None`: no item matches, or it is unknown, because the error has ended the
    /// transaction.
    pub(super) async fn before(self, run: &mut BucketCommand<'_>) -> Result<Option<LocatedItem>, RunError> {
        match self.found {
            Some(found) => Ok(Some(found.clone())),
            None if run.context.head.in_transaction() => Ok(None),
            None => item_lookup::first(run, self.task.wanted()).await,
        }
    }

    /// mongod's error for a page that would be too large, or that for the item if the item would be too
    /// large.
    pub(super) async fn size_error(
        self,
        run: &mut BucketCommand<'_>,
        of_page: WriteError,
    ) -> Result<WriteError, RunError> {
        let Some(found) = self.before(run).await? else {
            return Ok(of_page);
        };
        let Some(after) = self.after(run, &found).await? else {
            return Ok(of_page);
        };
        let bytes = after.as_bytes().len();
        Ok(if bytes > MAX_OBJECT_BYTES {
            WriteError::new(ErrorCode::BsonObjectTooLarge, too_large_text(&after))
        } else if bytes > MAX_DOCUMENT_BYTES {
            let message = format!("Resulting document after update is larger than {MAX_DOCUMENT_BYTES}");
            WriteError::new(ErrorCode::UpdatedDocumentTooLarge, message)
        } else {
            of_page
        })
    }

    /// The item after the update. `None`: the proxy cannot evaluate the update.
    pub(super) async fn item_after(
        self,
        run: &mut BucketCommand<'_>,
        found: &LocatedItem,
    ) -> Result<Option<Item>, RunError> {
        let after = self.after(run, found).await?;
        let mut mint = SystemIdSource::new(&run.context.shared.timestamps);
        Ok(after.and_then(|item| Item::prepare(run.shape, 0, &item, &mut KeepsTimestamps(&mut mint)).ok()))
    }

    /// The item after the update, as in a plain collection. `None`: the proxy cannot evaluate the update.
    pub(super) async fn after(
        self,
        run: &mut BucketCommand<'_>,
        found: &LocatedItem,
    ) -> Result<Option<RawDocumentBuf>, RunError> {
        let task = self.task;
        let mut mint = SystemIdSource::new(&run.context.shared.timestamps);
        Ok(match Wish::of(task.asked.change) {
            Some(Wish::Operators(operators)) => changed(&found.item, task.operator_update(operators), &mut mint).ok(),
            Some(Wish::Replacement(replacement)) => {
                let id = found.id().filter(|_| get(replacement, "_id").is_none());
                Some(with_replaced(replacement, &[("_id", id)]))
            }
            Some(Wish::Pipeline(_)) if run.context.head.in_transaction() => {
                task.make_one_after_transaction(run, &found.item).await?
            }
            Some(Wish::Pipeline(_)) => match task.make_one(run, &found.item).await? {
                Evaluated::Value(item) => Some(item),
                Evaluated::Failed(_) => None,
            },
            None => None,
        })
    }
}
