//! The copy: created with the collection's options, filled in batches, and corrected.

use std::collections::HashSet;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Binary, Document, doc};
use futures_util::TryStreamExt;
use mongodb::error::{Error, ErrorKind};

use crate::command::document::{get, put, single};
use crate::maintenance::swap::{
    CollectionRename, Flushed, Frozen, Halt, REPLICATION_TIMEOUT_MS, Writer, concern_kept, options_of, set_validator,
    uuid_of,
};
use crate::maintenance::upstream::{ShapedCollection, description, indexes_of, raw_specs};
use crate::pattern::bucket::compact::{Packed, copy_name, stopped_name};
use crate::pattern::bucket::fence::is_fence;
use crate::pattern::bucket::item_index::SphereLocations;
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::predicate_pushdown::is_page_of_any_layout;
use crate::pattern::bucket::unique_index::{IndexKey, UniqueIndex, lookups};
use crate::pattern::bucket::{index, item_index};
use crate::pattern::shapes::{BucketShape, ItemIds};

/// The most removals of other keys to make room for one page.
const MAX_ATTEMPTS: u32 = 100;

pub(super) struct Copy<'a> {
    target: &'a ShapedCollection,
    shape: &'a BucketShape,
    writer: Writer<'a>,
    is_new: bool,
    /// Whether everything in the copy was written in this pass.
    is_fresh: bool,
    /// Keys that were removed in this pass to make room for others.
    evicted: HashSet<Vec<u8>>,
    /// The locations of an empty page, in the indexes of the collection.
    locations: SphereLocations,
}

impl<'a> Copy<'a> {
    /// Continues with the copy of a stopped run, or creates one. Returns whether it is new. No
    /// other collection has its name.
    pub(super) async fn open(
        target: &'a ShapedCollection,
        shape: &'a BucketShape,
        frozen: &Frozen<'_>,
        described: &Document,
    ) -> Result<(Self, bool), Halt> {
        let (name, stopped) = (copy_name(&target.collection), stopped_name(&target.collection));
        let mut there = description(&target.database, &stopped).await?;
        if let Some(other) = there.take_if(|there| options_of(there) != options_of(described)) {
            frozen.by().drop(&stopped, Some(&uuid_of(&other)?)).await?;
        }
        let is_new = there.is_none();
        let uuid = match there {
            Some(there) => uuid_of(&there)?,
            None => uuid_of(&make(target, &name, described).await?)?,
        };
        if !is_new {
            let renamed = CollectionRename {
                from: &stopped,
                uuid: &uuid,
                to: &name,
                dropped: None,
            };
            frozen.by().rename(renamed).await?;
        }
        let copy = Self {
            target,
            shape,
            writer: Writer::new(target, name, uuid),
            is_new,
            is_fresh: false,
            evicted: HashSet::new(),
            locations: SphereLocations::default(),
        };
        Ok((copy, is_new))
    }

    pub(super) fn name(&self) -> &str {
        self.writer.name()
    }

    pub(super) fn uuid(&self) -> &Binary {
        self.writer.uuid()
    }

    /// From now on, writes wait for the majority, so that they survive a change of the primary.
    pub(super) fn wait_for_the_majority(&mut self) {
        self.writer.wait_for_the_majority();
    }

    /// Begins a pass.
    pub(super) fn begin(&mut self) {
        self.is_fresh = std::mem::take(&mut self.is_new);
        self.evicted.clear();
        self.writer.clear();
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// Whether the pages of a key were removed in this pass to make room for others.
    pub(super) fn is_evicted(&self, identity: &[u8]) -> bool {
        self.evicted.contains(identity)
    }

    /// Whether any key was removed in this pass to make room for others.
    pub(super) fn has_evicted(&self) -> bool {
        !self.evicted.is_empty()
    }

    /// Makes the indexes of the copy equal to those of the collection, including names. An index in the form
    /// of an earlier version is replaced by the current one. Non-unique indexes
    /// of a new copy are created after its first pass, because an index built in one go needs much less
    /// space.
    pub(super) async fn take_over_indexes(&mut self) -> Result<(), Halt> {
        let mut wanted = indexes(self.target, &self.target.collection).await?;
        for index in &mut wanted {
            self.renew(index);
        }
        self.locations = SphereLocations::of(self.shape, raw_specs(&wanted));
        if self.is_new {
            wanted.retain(|index| index.get_bool("unique").unwrap_or(false));
        }
        let there = indexes(self.target, self.name()).await?;
        for found in there.iter().filter(|found| !wanted.contains(found)) {
            let name = found.get_str("name").unwrap_or_default();
            let command = doc! { "dropIndexes": self.name(), "index": name };
            self.target.database.run_command(command).await?;
        }
        let missing: Vec<Document> = wanted.into_iter().filter(|wanted| !there.contains(wanted)).collect();
        if !missing.is_empty() {
            let command = doc! { "createIndexes": self.name(), "indexes": missing };
            self.target.database.run_command(command).await?;
        }
        Ok(())
    }

    /// Replaces an index in the form of an earlier version by the current one.
    fn renew(&self, index: &mut Document) {
        let Ok(spec) = RawDocumentBuf::try_from(&*index) else {
            return;
        };
        let current = if index::is_item_id_without_prefix(self.shape, &spec) {
            let mut current = index::item_id(self.shape);
            // As `listIndexes` returns it.
            put(&mut current, "v", 2);
            Some(current)
        } else {
            item_index::current_form(self.shape, &spec)
        };
        if let Some(Ok(current)) = current.map(|current| Document::try_from(&current)) {
            *index = current;
        }
    }

    /// The locations of an empty page, in the indexes that were taken over.
    pub(super) fn locations(&self) -> &SphereLocations {
        &self.locations
    }

    /// Removes the pages of a key.
    pub(super) async fn remove(&mut self, key: &Key) -> Result<(), Halt> {
        self.flush().await?;
        self.delete(key).await
    }

    async fn delete(&self, key: &Key) -> Result<(), Halt> {
        let mut filter = RawDocumentBuf::new();
        key.append_filter(self.shape, &mut filter);
        let mut statement = single("q", &filter);
        statement.append(cstr!("limit"), 0);
        statement.append(cstr!("hint"), index::PAGE);
        self.writer.delete(statement).await
    }

    pub(super) async fn push(&mut self, page: Packed) -> Result<(), Halt> {
        if self.writer.push(page) {
            self.flush().await?;
        }
        Ok(())
    }

    /// Writes the waiting pages.
    pub(super) async fn flush(&mut self) -> Result<(), Halt> {
        let mut attempts = 0;
        while let Flushed::ItemsInTheWay { behind_others } = self.writer.flush().await? {
            attempts = if behind_others { 0 } else { attempts + 1 };
            if attempts > MAX_ATTEMPTS {
                let words = format!("another program writes to {}", self.name());
                return Err(Halt::Words(words));
            }
            if let Some(page) = self.writer.first() {
                let page = page.document.clone();
                self.make_room(&page).await?;
            }
        }
        Ok(())
    }

    /// Sets the collection's validator. Until then, a page of the copy may contain an item as it was
    /// before another item of the page got its values.
    pub(super) async fn set_validator(&self, frozen: &Frozen<'_>) -> Result<(), Halt> {
        set_validator(self.target, self.shape, self.name(), frozen.page_validator()).await
    }

    /// Removes the keys that have items of this page, or items with their values in a unique index: these
    /// items were moved to another key or changed.
    async fn make_room(&mut self, page: &RawDocument) -> Result<(), Halt> {
        self.make_room_for_ids(page).await?;
        let listed = indexes(self.target, self.name()).await?;
        for index in UniqueIndex::all(self.shape, raw_specs(&listed)) {
            let keys: Vec<IndexKey> = index.keys_of_page(self.shape, page).collect();
            let keys: Vec<&IndexKey> = keys.iter().collect();
            for lookup in lookups(self.shape, &index, &keys) {
                let mut find = single("find", self.name());
                find.append(cstr!("filter"), &lookup.filter);
                self.evict(find).await?;
            }
        }
        Ok(())
    }

    async fn make_room_for_ids(&mut self, page: &RawDocument) -> Result<(), Halt> {
        if self.shape.item_ids() != ItemIds::Unique {
            return Ok(());
        }
        let items = get(page, self.shape.items()).and_then(RawBsonRef::as_array);
        let items = items
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(RawBsonRef::as_document);
        let ids: RawArrayBuf = items.filter_map(|item| get(item, "_id")).collect();
        let mut filter = is_page_of_any_layout();
        put(&mut filter, &index::item_id_path(self.shape), single("$in", &ids));
        let mut find = single("find", self.name());
        find.append(cstr!("filter"), &filter);
        find.append(cstr!("hint"), index::ITEM_ID);
        self.evict(find).await
    }

    /// Removes the keys of the pages that a query returns.
    async fn evict(&mut self, mut find: RawDocumentBuf) -> Result<(), Halt> {
        find.append(cstr!("projection"), single(self.shape.items(), 0));
        let found = self.target.database.run_raw_cursor_command(find).await?;
        let found: Vec<RawDocumentBuf> = found.with_type().try_collect().await?;
        for page in found {
            let key = Key::of(self.shape, &page).map_err(|_| Halt::Misfit)?;
            self.evicted.insert(key.identity());
            self.delete(&key).await?;
        }
        Ok(())
    }
}

/// Creates the copy with the collection's options.
async fn make(target: &ShapedCollection, name: &str, described: &Document) -> Result<Document, Halt> {
    let mut create = doc! { "create": name };
    create.extend(options_of(described));
    target.database.run_command(create).await?;
    let made = description(&target.database, name).await?;
    made.ok_or_else(|| Halt::Words(format!("another program dropped {name}")))
}

/// The indexes of a collection, without that on `_id` and without fences.
async fn indexes(target: &ShapedCollection, collection: &str) -> Result<Vec<Document>, Error> {
    let mut found = indexes_of(&target.database, collection).await?;
    found.retain(|found| {
        found
            .get_str("name")
            .is_ok_and(|name| name != "_id_" && !is_fence(name))
    });
    Ok(found)
}

/// Leaves the copy to the next run under another name. All commands on the copy must have been
/// answered.
pub(super) async fn put_aside(target: &ShapedCollection, frozen: &Frozen<'_>, uuid: &Binary) -> Result<(), Halt> {
    let (name, stopped) = (copy_name(&target.collection), stopped_name(&target.collection));
    let renamed = CollectionRename {
        from: &name,
        uuid,
        to: &stopped,
        dropped: None,
    };
    frozen.by().rename(renamed).await
}

/// Drops the copies of earlier runs.
pub(super) async fn drop_if_there(target: &ShapedCollection) -> Result<(), Halt> {
    drop_named(target, copy_name(&target.collection)).await?;
    drop_named(target, stopped_name(&target.collection)).await
}

async fn drop_named(target: &ShapedCollection, name: String) -> Result<(), Halt> {
    const NAMESPACE_NOT_FOUND: i32 = 26;
    let concern = doc! { "w": "majority", "wtimeout": REPLICATION_TIMEOUT_MS };
    let command = doc! { "drop": name, "writeConcern": concern };
    match target.database.run_command(command).await {
        Ok(reply) => concern_kept(&reply),
        Err(error) if matches!(error.kind.as_ref(), ErrorKind::Command(command) if command.code == NAMESPACE_NOT_FOUND) => {
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
