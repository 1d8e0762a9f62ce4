//! Change events of items.

use std::collections::{HashMap, VecDeque};

use bson::Timestamp;
use bson::raw::{CStr, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::change_record::ChangeRecord;
use super::images::{BeforeChange, FullDocument, Images};
use super::page_changes::{PageChange, PageItem, is_bucket, page, page_changes};
use super::resume_token::{ItemPosition, ResumeToken};
use super::update_description::{ItemUpdate, ItemVersions, UpdateDescription, computed_nan};
use crate::command::arguments::with_replaced;
use crate::command::document::get;
use crate::command::update::UpdateForm;
use crate::pattern::bucket::key::value_identity;
use crate::pattern::shapes::BucketShape;

/// An event as the client gets it.
#[derive(Clone, Debug)]
pub struct ItemEvent {
    /// The event.
    pub document: RawDocumentBuf,
    /// Whether the current version of the document must become `fullDocument`.
    pub needs_current_version: bool,
}

impl ItemEvent {
    /// An event that contains all that the client gets.
    #[must_use]
    pub fn complete(document: RawDocumentBuf) -> Self {
        Self {
            document,
            needs_current_version: false,
        }
    }
}

/// The reason why an event of a page has no events of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventError {
    /// mongod has no image of the page before or after the change.
    NoImages,
    /// The event has no token or no cluster time.
    Malformed,
}

/// Whether the changed document has the fields of a bucket of the shape, as far as the event has images.
/// Otherwise the collection had another layout then, or the document was not written by a proxy.
#[must_use]
pub fn is_of_shape(shape: &BucketShape, event: &RawDocument) -> bool {
    let images = ["fullDocumentBeforeChange", "fullDocument"].map(|name| get(event, name)?.as_document());
    images.into_iter().flatten().all(|image| is_bucket(shape, image))
}

/// Computes the events of items of one change stream. Keeps the items that have left their page and not
/// arrived on another one.
#[derive(Debug, Default)]
pub struct ItemEvents {
    images: Images,
    /// By the collection and the `_id`.
    moving: HashMap<Vec<u8>, VecDeque<MovingItem>>,
    /// The cluster time of the last event.
    time: Option<Timestamp>,
}

/// An item that has left its page.
#[derive(Debug)]
struct MovingItem {
    before: RawDocumentBuf,
    record: ChangeRecord,
    /// The identity of the values of the key.
    key: Vec<u8>,
}

impl MovingItem {
    /// Whether the proxy has moved the item as it was, which is no change for the application.
    fn is_unchanged(&self, after: &PageItem) -> bool {
        self.record.is_own_transaction && self.before.as_bytes() == after.item.as_bytes()
    }
}

/// The change of an item.
struct Change {
    operation: Operation,
    before: Option<RawDocumentBuf>,
    after: Option<RawDocumentBuf>,
    /// Whether the event belongs to the application's transaction, if the event of the page has one.
    is_in_transaction: bool,
}

enum Operation {
    Insert,
    Update(UpdateDescription),
    Replace,
    Delete,
}

impl ItemEvents {
    /// The events of a stream that requests these images.
    #[must_use]
    pub fn new(images: Images) -> Self {
        Self {
            images,
            ..Self::default()
        }
    }

    /// Whether an item has left its page and has not arrived on another. The stream cannot be resumed at the
    /// current event of mongod then.
    #[must_use]
    pub fn is_within_move(&self) -> bool {
        !self.moving.is_empty()
    }

    /// The events of items for an event of a page: `insert`, `update`, `replace` or `delete`. A document that
    /// is no page has none. `skipped`: the number of events that the client has received before.
    ///
    /// # Errors
    /// If the event lacks an image, a token or a time.
    pub fn of_page(
        &mut self,
        shape: &BucketShape,
        event: &RawDocument,
        skipped: u32,
    ) -> Result<Vec<ItemEvent>, EventError> {
        let document = |name| get(event, name).and_then(RawBsonRef::as_document);
        let token = document("_id")
            .and_then(ResumeToken::behind)
            .ok_or(EventError::Malformed)?;
        let Some(RawBsonRef::Timestamp(time)) = get(event, "clusterTime") else {
            return Err(EventError::Malformed);
        };
        if self.time.replace(time) != Some(time) {
            self.moving.clear();
        }
        let changes = self.changes(shape, event)?;
        let is_in_transaction = get(event, "txnNumber").is_some();
        let last = changes.len().checked_sub(1);
        let numbered = (0_u32..).zip(&changes).enumerate();
        let events = numbered
            .filter(|(_, (number, _))| *number >= skipped)
            .map(|(position, (number, change))| {
                // A move is in two events of a transaction, so a stream cannot be resumed between them.
                let is_whole = Some(position) == last && !is_in_transaction;
                let item = (!is_whole).then_some(ItemPosition {
                    number,
                    cluster_time: time,
                });
                let upstream = token.upstream.clone();
                change.event(event, &ResumeToken { upstream, item }, self.images)
            });
        Ok(events.collect())
    }

    /// The event for an event of a document that is not a page, in a stream of images that
    /// [are stored or not](Images).
    #[must_use]
    pub fn of_document(&self, event: &RawDocument) -> ItemEvent {
        let is_update = get(event, "operationType") == Some(RawBsonRef::String("update"));
        let mut replaced = Vec::new();
        match self.images.full_document {
            FullDocument::Default if is_update => replaced.push(("fullDocument", None)),
            FullDocument::UpdateLookup if is_update => replaced.push(("fullDocument", Some(RawBsonRef::Null))),
            _ => {}
        }
        if self.images.before_change == BeforeChange::Off {
            replaced.push(("fullDocumentBeforeChange", None));
        }
        ItemEvent {
            document: with_replaced(event, &replaced),
            needs_current_version: is_update && self.images.full_document == FullDocument::UpdateLookup,
        }
    }

    /// The item that has left another page for this one. Items of several keys may have one `_id`. An item
    /// that changes its key is the one that has left first. In a sharded collection, no item does.
    fn arrived(&mut self, shape: &BucketShape, event: &RawDocument, item: &PageItem) -> Option<MovingItem> {
        let identity = identity(event, &item.id);
        let moving = self.moving.get_mut(&identity)?;
        let key = key_identity(shape, &item.item);
        let of_key = moving.iter().position(|moving| moving.key == key);
        let place = of_key.or_else(|| shard_key(event).next().is_none().then_some(0))?;
        let arrived = moving.remove(place);
        if moving.is_empty() {
            self.moving.remove(&identity);
        }
        arrived
    }

    fn changes(&mut self, shape: &BucketShape, event: &RawDocument) -> Result<Vec<Change>, EventError> {
        let document = |name| get(event, name).and_then(RawBsonRef::as_document);
        let (before, after) = (document("fullDocumentBeforeChange"), document("fullDocument"));
        let operation = get(event, "operationType").and_then(RawBsonRef::as_str);
        match operation {
            Some("insert") if after.is_some() => {}
            Some("delete") if before.is_some() => {}
            _ if before.is_some() && after.is_some() => {}
            _ => return Err(EventError::NoImages),
        }
        let (before, after) = (page(shape, before), page(shape, after));
        let record = before
            .zip(after)
            .and_then(|(before, after)| ChangeRecord::between(before, after));
        let description = document("updateDescription");
        let mut changes = Vec::new();
        let computed_nan = description.map(|page| computed_nan(shape, page)).unwrap_or_default();
        for change in page_changes(shape, before, after, &computed_nan) {
            match (change, &record) {
                (PageChange::Removed(PageItem { id, item }), Some(record)) => {
                    let key = key_identity(shape, &item);
                    let moving = MovingItem {
                        before: item,
                        record: record.clone(),
                        key,
                    };
                    self.moving.entry(identity(event, &id)).or_default().push_back(moving);
                }
                (PageChange::Removed(removed), None) => changes.push(Change::removed(removed.item)),
                (PageChange::Added(added), _) => {
                    let moved = self.arrived(shape, event, &added);
                    if !moved.as_ref().is_some_and(|moved| moved.is_unchanged(&added)) {
                        changes.push(Change::added(added.item, moved));
                    }
                }
                (
                    PageChange::Changed {
                        before,
                        after,
                        position,
                    },
                    recorded,
                ) => {
                    let versions = ItemVersions {
                        position,
                        before: &before,
                        after: &after.item,
                    };
                    let described = description.map(|page| ItemUpdate::of(shape, page, versions));
                    let described = described.unwrap_or(ItemUpdate::Unknown(UpdateForm::Operators.into()));
                    let update = match (recorded.as_ref().map(|record| &record.update), described) {
                        (Some(update), _) if update.form == UpdateForm::Replacement => ItemUpdate::Whole,
                        (Some(update), ItemUpdate::Whole | ItemUpdate::Unknown(_)) => {
                            ItemUpdate::Unknown(update.clone())
                        }
                        (_, described) => described,
                    };
                    changes.push(Change::changed(before, after.item, update));
                }
            }
        }
        Ok(changes)
    }
}

/// Equal for equal `_id`s in the collection of the event.
fn identity(event: &RawDocument, id: &RawBson) -> Vec<u8> {
    let namespace = get(event, "ns").unwrap_or(RawBsonRef::Null);
    let both: RawArrayBuf = [namespace, id.as_raw_bson_ref()].into_iter().collect();
    value_identity(RawBsonRef::Array(&both))
}

/// The fields of the shard key in the event of a page. None: the collection is not sharded.
fn shard_key(event: &RawDocument) -> impl Iterator<Item = &CStr> {
    let key = get(event, "documentKey").and_then(RawBsonRef::as_document);
    let fields = key.into_iter().flat_map(RawDocument::iter).flatten();
    fields.map(|(name, _)| name).filter(|name| name.as_str() != "_id")
}

/// Equal for items of one key.
fn key_identity(shape: &BucketShape, item: &RawDocument) -> Vec<u8> {
    let values = shape
        .key()
        .iter()
        .map(|field| get(item, field).unwrap_or(RawBsonRef::Null));
    let values: RawArrayBuf = values.collect();
    value_identity(RawBsonRef::Array(&values))
}

impl Change {
    fn removed(item: RawDocumentBuf) -> Self {
        Self {
            operation: Operation::Delete,
            before: Some(item),
            after: None,
            is_in_transaction: true,
        }
    }

    fn added(item: RawDocumentBuf, moved: Option<MovingItem>) -> Self {
        let Some(MovingItem { before, record, .. }) = moved else {
            return Self {
                operation: Operation::Insert,
                before: None,
                after: Some(item),
                is_in_transaction: true,
            };
        };
        let operation = match record.update.form {
            UpdateForm::Replacement => Operation::Replace,
            _ => Operation::Update(UpdateDescription::between(&before, &item, &record.update)),
        };
        Self {
            operation,
            before: Some(before),
            after: Some(item),
            is_in_transaction: !record.is_own_transaction,
        }
    }

    fn changed(before: RawDocumentBuf, item: RawDocumentBuf, update: ItemUpdate) -> Self {
        let operation = match update {
            ItemUpdate::Whole => Operation::Replace,
            ItemUpdate::Fields(description) => Operation::Update(description),
            ItemUpdate::Unknown(update) => Operation::Update(UpdateDescription::between(&before, &item, &update)),
        };
        Self {
            operation,
            before: Some(before),
            after: Some(item),
            is_in_transaction: true,
        }
    }

    /// The event, with the fields that the page's event has, in mongod's order.
    fn event(&self, page: &RawDocument, token: &ResumeToken, images: Images) -> ItemEvent {
        let mut event = RawDocumentBuf::new();
        let copy = |event: &mut RawDocumentBuf, names: &[&str]| {
            for (name, value) in page.iter().flatten() {
                if names.contains(&name.as_str()) {
                    event.append(name, value);
                }
            }
        };
        if self.is_in_transaction {
            copy(&mut event, &["txnNumber", "lsid"]);
        }
        event.append(cstr!("_id"), token.document());
        event.append(cstr!("operationType"), self.operation.name());
        copy(&mut event, &["clusterTime", "wallTime"]);
        let needs_current_version = self.append_full_document(&mut event, images.full_document);
        copy(&mut event, &["ns"]);
        event.append(cstr!("documentKey"), self.document_key(page));
        if let Operation::Update(description) = &self.operation {
            event.append(cstr!("updateDescription"), description.document());
        }
        if let Some(before) = self
            .before
            .as_ref()
            .filter(|_| images.before_change == BeforeChange::PreImage)
        {
            event.append(cstr!("fullDocumentBeforeChange"), before);
        }
        ItemEvent {
            document: event,
            needs_current_version,
        }
    }

    /// The `_id` of the item before the change. In a sharded collection, the shard key precedes it.
    fn document_key(&self, page: &RawDocument) -> RawDocumentBuf {
        let mut key = RawDocumentBuf::new();
        let item = self.before.as_ref().or(self.after.as_ref());
        for name in shard_key(page).chain([cstr!("_id")]) {
            if let Some(value) = item.and_then(|item| get(item, name.as_str())) {
                key.append(name, value);
            }
        }
        key
    }

    /// Appends `fullDocument` where mongod does. Returns whether it must be the current version of the item.
    fn append_full_document(&self, event: &mut RawDocumentBuf, requested: FullDocument) -> bool {
        let Some(after) = &self.after else { return false };
        match (&self.operation, requested) {
            (Operation::Update(_), FullDocument::Default) => false,
            (Operation::Update(_), FullDocument::UpdateLookup) => {
                event.append(cstr!("fullDocument"), RawBsonRef::Null);
                true
            }
            _ => {
                event.append(cstr!("fullDocument"), after);
                false
            }
        }
    }
}

impl Operation {
    fn name(&self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update(_) => "update",
            Self::Replace => "replace",
            Self::Delete => "delete",
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    const TIME: Timestamp = Timestamp { time: 1, increment: 1 };

    fn shape() -> BucketShape {
        let pattern = NamespacePattern::parse("d.c").unwrap();
        BucketShape::new(BucketOptions::new(pattern, vec!["k".into()])).unwrap()
    }

    /// An item leaves its page of a key.
    fn leaves(key: i32, is_own_transaction: bool) -> RawDocumentBuf {
        let record = rawdoc! { "count": 1, "own": is_own_transaction, "replaced": false, "pipeline": false };
        rawdoc! {
            "_id": { "_data": "82A1" }, "operationType": "update", "clusterTime": TIME,
            "documentKey": { "k": key, "_id": "1_1" },
            "fullDocumentBeforeChange": { "_id": "1_1", "k": key, "count": 1, "history": [{ "_id": 1, "n": 1 }], "control": { "v": 1, "page": 0 } },
            "fullDocument": { "_id": "1_1", "k": key, "count": 0, "history": [], "control": { "v": 1, "page": 0, "moved": record } },
        }
    }

    /// It arrives on another page of a key, with this `n`.
    fn arrives(key: i32, n: i32) -> RawDocumentBuf {
        rawdoc! {
            "_id": { "_data": "82A2" }, "operationType": "insert", "clusterTime": TIME,
            "documentKey": { "k": key, "_id": "1_2" },
            "fullDocument": { "_id": "1_2", "k": key, "count": 1, "history": [{ "_id": 1, "n": n }], "control": { "v": 1, "page": 0 } },
        }
    }

    fn events_of(pages: &[RawDocumentBuf]) -> Vec<RawDocumentBuf> {
        let mut events = ItemEvents::default();
        let events = pages.iter().map(|event| events.of_page(&shape(), event, 0).unwrap());
        events.flatten().map(|event| event.document).collect()
    }

    fn check_operations(pages: &[RawDocumentBuf], expected: &[&str]) {
        let events = events_of(pages);
        let operations = events.iter().map(|event| event.get_str("operationType").unwrap());
        assert!(operations.eq(expected.iter().copied()), "{events:?}");
    }

    #[test]
    fn an_item_that_moves_as_it_is_has_no_event() {
        check_operations(&[leaves(1, true), arrives(1, 1)], &[]);
        check_operations(&[leaves(1, true), arrives(1, 2)], &["update"]);
        check_operations(&[leaves(1, false), arrives(1, 1)], &["update"]);
    }

    #[test]
    fn items_of_two_shards_move_at_the_same_time() {
        let pages = [leaves(1, true), leaves(2, true), arrives(2, 5), arrives(1, 1)];
        check_operations(&pages, &["update"]);
        let events = events_of(&pages);
        let key = events.first().unwrap().get_document("documentKey").unwrap();
        assert_eq!(key, &*rawdoc! { "k": 2, "_id": 1 });
        // No item moves to another key of a sharded collection.
        check_operations(&[leaves(1, true), arrives(2, 1)], &["insert"]);
    }
}
