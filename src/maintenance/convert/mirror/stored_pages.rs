//! Reads items on the stored pages, and changes those of the copy there: the changes of one page are one
//! statement.
//!
//! mongod unwinds a whole page for a read through the proxy, which takes longer than to send it. Only the
//! conversion writes into the copy. So a page that was read contains the same items when it is changed.
//! Changes that this path does not execute are executed one by one by the proxy.

use std::collections::HashMap;

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Binary, Timestamp, rawdoc};
use futures_util::TryStreamExt;
use futures_util::future::try_join_all;
use mongodb::Database;

use crate::command::document::{array_of, as_whole_number, get, put, single};
use crate::maintenance::convert::changes::StreamSource;
use crate::maintenance::convert::ids::Ids;
use crate::maintenance::convert::mirror::CONNECTIONS;
use crate::maintenance::convert::mirror::side::{DocumentChange, Found, MAX_BYTES, majority};
use crate::maintenance::swap::{Halt, concern_kept};
use crate::maintenance::upstream::as_integer;
use crate::pattern::bucket::index::{ITEM_ID, item_id_path};
use crate::pattern::bucket::item_decoder::ItemDecoder;
use crate::pattern::bucket::key::value_identity;
use crate::pattern::bucket::layout::{VERSION, path};
use crate::pattern::bucket::projection::Projection;
use crate::pattern::shapes::{BucketShape, ItemIds};

/// The stored pages of a collection.
pub(in crate::maintenance::convert) struct StoredPages {
    /// On the server itself.
    database: Database,
    collection: String,
    uuid: Option<Binary>,
    shape: BucketShape,
}

/// The place of an item.
pub(in crate::maintenance::convert) struct Place {
    page: RawBson,
    position: usize,
}

/// The places of items, by the identities of their `_id`s.
pub(in crate::maintenance::convert) type Places = HashMap<Vec<u8>, Place>;

/// Items as documents.
#[derive(Default)]
pub(in crate::maintenance::convert) struct PlacedItems {
    pub(in crate::maintenance::convert) documents: Found,
    /// Empty if they were read through the proxy.
    pub(in crate::maintenance::convert) places: Places,
}

/// The statement of a page.
#[derive(Default)]
struct PageUpdate {
    query: RawDocumentBuf,
    set: RawDocumentBuf,
    unset: RawDocumentBuf,
}

impl StoredPages {
    /// Those of the copy. `None`: an index of the application demands more of a page than that its items are
    /// stored, or no index finds items.
    pub(in crate::maintenance::convert) fn of_copy(
        database: &Database,
        collection: String,
        shape: BucketShape,
        indexes: &[RawDocumentBuf],
    ) -> Option<Self> {
        Self::is_possible(&shape, indexes).then(|| Self {
            database: database.clone(),
            collection,
            uuid: None,
            shape,
        })
    }

    /// Those that a change stream watches. `None`: they are plain documents, or no index finds items.
    pub(in crate::maintenance::convert) fn of_source(source: &StreamSource) -> Option<Self> {
        let shape = source.pages.clone()?;
        (shape.item_ids() == ItemIds::Unique).then(|| Self {
            database: source.database.clone(),
            collection: source.collection.clone(),
            uuid: Some(source.uuid.clone()),
            shape,
        })
    }

    fn is_possible(shape: &BucketShape, indexes: &[RawDocumentBuf]) -> bool {
        let is_simple = |index: &RawDocumentBuf| {
            let key = get(index, "key").and_then(RawBsonRef::as_document);
            let is_unique = get(index, "unique").is_some();
            let mut values = key.into_iter().flatten().flatten();
            !is_unique && values.all(|(_, value)| as_whole_number(value).is_some())
        };
        shape.item_ids() == ItemIds::Unique && indexes.iter().all(is_simple)
    }

    /// The items with these `_id`s. `since`: the earliest time of the state that is read, which the majority
    /// has.
    pub(in crate::maintenance::convert) async fn by_ids(
        &self,
        ids: &Ids,
        since: Option<Timestamp>,
    ) -> Result<PlacedItems, Halt> {
        let mut found = PlacedItems::default();
        if ids.is_empty() {
            return Ok(found);
        }
        let mut filter = single(path::VERSION, VERSION);
        put(&mut filter, self.shape.count(), single("$gt", 0));
        put(&mut filter, &item_id_path(&self.shape), single("$in", ids.array()));
        let mut find = single("find", self.collection.as_str());
        find.append(cstr!("filter"), filter);
        find.append(cstr!("hint"), ITEM_ID);
        if since.is_some() {
            find.append(cstr!("readConcern"), majority(since));
        }
        if let Some(uuid) = &self.uuid {
            find.append(cstr!("collectionUUID"), uuid);
        }
        let cursor = self.database.run_raw_cursor_command(find).await?;
        let mut pages = cursor.with_type::<RawDocumentBuf>();
        while let Some(page) = pages.try_next().await? {
            self.add(&page, ids, &mut found)?;
        }
        Ok(found)
    }

    /// Adds the items of a page with these `_id`s.
    fn add(&self, page: &RawDocument, ids: &Ids, found: &mut PlacedItems) -> Result<(), Halt> {
        let mut decoder = ItemDecoder::new(&self.shape, &Projection::All, page);
        let items = get(page, self.shape.items()).and_then(RawBsonRef::as_array);
        for (position, item) in items.into_iter().flatten().flatten().enumerate() {
            let item = item.as_document();
            let identity = item.and_then(|item| get(item, "_id")).map(value_identity);
            let (Some(item), Some(identity)) = (item, identity.filter(|identity| ids.contains(identity))) else {
                continue;
            };
            let mut document = Vec::new();
            decoder.append(item, &mut document);
            let document = RawDocumentBuf::from_bytes(document).map_err(|error| Halt::Words(error.to_string()))?;
            let page = get(page, "_id").unwrap_or(RawBsonRef::Null).into();
            found.places.insert(identity.clone(), Place { page, position });
            found.documents.insert(identity, document);
        }
        Ok(())
    }

    /// Executes changes that leave items on their pages. Returns whether all were executed.
    pub(in crate::maintenance::convert) async fn update(
        &self,
        changes: &[DocumentChange<'_>],
        places: &Places,
    ) -> Result<bool, Halt> {
        let bytes: usize = changes.iter().map(|change| change.after.as_bytes().len()).sum();
        if changes.is_empty() || bytes > MAX_BYTES {
            return Ok(changes.is_empty());
        }
        let mut updates: HashMap<Vec<u8>, PageUpdate> = HashMap::new();
        for change in changes {
            let id = get(change.after, "_id").unwrap_or(RawBsonRef::Null);
            let (Some(place), Some(operators)) = (places.get(&value_identity(id)), change.operators()) else {
                return Ok(false);
            };
            let update = updates
                .entry(value_identity(place.page.as_raw_bson_ref()))
                .or_insert_with(|| PageUpdate::of(&place.page));
            update.add(&self.shape, place.position, id, &operators);
        }
        let statements: Vec<RawDocumentBuf> = updates.values().map(PageUpdate::statement).collect();
        let at_once = statements.len().div_ceil(CONNECTIONS).max(1);
        let parts = statements.chunks(at_once).map(|part| self.execute(part));
        Ok(try_join_all(parts).await?.into_iter().all(|is_executed| is_executed))
    }

    /// Executes statements. Returns whether each has found its page.
    async fn execute(&self, statements: &[RawDocumentBuf]) -> Result<bool, Halt> {
        let mut command = single("update", self.collection.as_str());
        command.append(cstr!("updates"), array_of(statements));
        command.append(cstr!("ordered"), false);
        command.append(cstr!("writeConcern"), rawdoc! { "w": "majority" });
        let reply = self.database.run_raw_command(command).await?;
        concern_kept(&reply)?;
        let matched = reply.get("n").and_then(as_integer);
        Ok(matched.is_some_and(|matched| usize::try_from(matched) == Ok(statements.len())))
    }
}

impl PageUpdate {
    fn of(page: &RawBson) -> Self {
        Self {
            query: single("_id", single("$eq", page)),
            ..Self::default()
        }
    }

    /// Adds the operators on an item.
    fn add(&mut self, shape: &BucketShape, position: usize, id: RawBsonRef<'_>, operators: &RawDocument) {
        let item = format!("{}.{position}", shape.items());
        put(&mut self.query, &format!("{item}._id"), single("$eq", id));
        for (operator, fields) in [("$set", &mut self.set), ("$unset", &mut self.unset)] {
            let of_item = get(operators, operator).and_then(RawBsonRef::as_document);
            for (name, value) in of_item.into_iter().flatten().flatten() {
                let stored = shape.rename().stored(name.as_str());
                put(fields, &format!("{item}.{stored}"), value);
            }
        }
    }

    fn statement(&self) -> RawDocumentBuf {
        let mut update = RawDocumentBuf::new();
        for (operator, fields) in [("$set", &self.set), ("$unset", &self.unset)] {
            if !fields.is_empty() {
                put(&mut update, operator, fields);
            }
        }
        let mut statement = single("q", &self.query);
        statement.append(cstr!("u"), update);
        statement
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    #[test]
    fn the_changes_of_a_page_are_one_statement() {
        let mut options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
        options.rename.insert("quantity".into(), "qty".into());
        let shape = BucketShape::new(options).unwrap();
        let before = rawdoc! { "_id": 7, "k": 1, "quantity": 1, "old": true };
        let after = rawdoc! { "_id": 7, "k": 1, "quantity": 2 };
        let change = DocumentChange {
            before: &before,
            after: &after,
        };
        let mut update = PageUpdate::of(&RawBson::String("1_5".into()));
        update.add(&shape, 3, RawBsonRef::Int32(7), &change.operators().unwrap());
        update.add(
            &shape,
            4,
            RawBsonRef::Int32(8),
            &rawdoc! { "$set": { "quantity": 5_i64 } },
        );
        let expected = rawdoc! {
            "q": { "_id": { "$eq": "1_5" }, "history.3._id": { "$eq": 7 }, "history.4._id": { "$eq": 8 } },
            "u": { "$set": { "history.3.qty": 2, "history.4.qty": 5_i64 }, "$unset": { "history.3.old": 1 } },
        };
        assert_eq!(update.statement(), expected);
    }

    #[test]
    fn indexes_that_demand_more_are_left_to_the_proxy() {
        let of = |spec: RawDocumentBuf| {
            let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
            let shape = BucketShape::new(options).unwrap();
            StoredPages::is_possible(&shape, &[spec])
        };
        assert!(of(rawdoc! { "key": { "a": 1, "b": -1.0 }, "name": "a" }));
        assert!(!of(rawdoc! { "key": { "a": 1 }, "name": "a", "unique": true }));
        assert!(!of(rawdoc! { "key": { "a": "2dsphere" }, "name": "a" }));
    }
}
