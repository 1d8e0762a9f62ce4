//! Makes documents of the copy equal to those of the collection.

pub(super) mod side;
pub(super) mod stored_pages;

use bson::Timestamp;
use bson::raw::{RawBson, RawBsonRef, RawDocument};
use futures_util::future::{try_join, try_join_all};

use super::ids::Ids;
use super::mirror::side::{DocumentChange, Found, Side, is_equal};
use super::mirror::stored_pages::{PlacedItems, Places, StoredPages};
use crate::command::document::get;
use crate::maintenance::swap::Halt;

/// The most documents, and the fewest ones if there are more, that are read by one command.
pub(super) const AT_ONCE: usize = 500;
const FEWEST: usize = 50;
/// Parts that are read or written at the same time.
pub(super) const CONNECTIONS: usize = 8;
/// The size of documents after which no more are read before the changes are written.
const MAX_BYTES: usize = 16 << 20;

/// The collection and its copy.
pub(super) struct Mirror {
    pub(super) source: Side,
    pub(super) copy: Side,
    /// The fields that determine a document's page in the copy. Empty: the copy has no pages.
    pub(super) placing: Vec<String>,
    /// The collection's pages, if an index finds their items.
    pub(super) source_pages: Option<StoredPages>,
    /// The copy's pages, if their items can also be changed page by page.
    pub(super) copy_pages: Option<StoredPages>,
}

impl Mirror {
    /// Makes the documents with these `_id`s equal. Returns those that a unique index of the copy refuses:
    /// another document in the copy has a value that it no longer has in the collection. `since`: the
    /// earliest time of the state that is copied.
    pub(super) async fn apply(&self, ids: Ids, since: Option<Timestamp>) -> Result<Ids, Halt> {
        let blocked = self.apply_parts(ids, since).await?;
        if blocked.is_empty() {
            return Ok(blocked);
        }
        // Documents that exchange their values block each other.
        let values: Vec<RawBson> = blocked.values().cloned().collect();
        self.copy.delete(&values).await?;
        self.apply_parts(blocked, since).await
    }

    async fn apply_parts(&self, mut ids: Ids, since: Option<Timestamp>) -> Result<Ids, Halt> {
        let mut refused = Ids::default();
        while !ids.is_empty() {
            let documents = self.read(&mut ids, since).await?;
            let mut changes = CopyChanges::of(&self.placing);
            for (identity, _) in documents.ids.iter() {
                changes.add(
                    documents.wanted.get(identity).map(|found| &**found),
                    documents.there.get(identity).map(|found| &**found),
                );
            }
            // A deletion moves the items behind it.
            let on_pages = self.update_pages(&changes.updated, &documents.places).await?;
            self.copy.delete(&changes.deleted).await?;
            if !on_pages {
                refused.extend(self.update(&changes.updated).await?);
            }
            refused.extend(self.copy.insert(&changes.inserted).await?);
        }
        Ok(refused)
    }

    /// Reads documents of both collections, until their size reaches a limit. Takes their `_id`s.
    async fn read(&self, ids: &mut Ids, since: Option<Timestamp>) -> Result<DocumentPairs, Halt> {
        let mut documents = DocumentPairs::default();
        while !ids.is_empty() && documents.bytes() < MAX_BYTES {
            let at_once = ids.len().div_ceil(CONNECTIONS).clamp(FEWEST, AT_ONCE);
            let parts: Vec<Ids> = (0..CONNECTIONS).map(|_| ids.split(at_once)).collect();
            let reads = parts.iter().filter(|part| !part.is_empty()).map(|part| async move {
                let read = try_join(
                    by_ids(&self.source, self.source_pages.as_ref(), part, since),
                    by_ids(&self.copy, self.copy_pages.as_ref(), part, None),
                );
                read.await
            });
            for (wanted, there) in try_join_all(reads).await? {
                documents.wanted.extend(wanted.documents);
                documents.there.extend(there.documents);
                documents.places.extend(there.places);
            }
            for part in parts {
                documents.ids.extend(part);
            }
        }
        Ok(documents)
    }

    /// Changes documents on the copy's pages. Returns whether all were changed.
    async fn update_pages(&self, changes: &[DocumentChange<'_>], places: &Places) -> Result<bool, Halt> {
        match &self.copy_pages {
            Some(pages) => pages.update(changes, places).await,
            None => Ok(false),
        }
    }

    async fn update(&self, changes: &[DocumentChange<'_>]) -> Result<Ids, Halt> {
        let at_once = changes.len().div_ceil(CONNECTIONS).max(1);
        let parts = changes.chunks(at_once).map(|part| self.copy.update(part));
        let mut refused = Ids::default();
        for of_part in try_join_all(parts).await? {
            refused.extend(of_part);
        }
        Ok(refused)
    }

    /// The documents with these `_id`s that differ.
    pub(super) async fn differing(&self, ids: &Ids, since: Option<Timestamp>) -> Result<Ids, Halt> {
        let mut differing = Ids::default();
        let mut rest = ids.clone();
        while !rest.is_empty() {
            let documents = self.read(&mut rest, since).await?;
            differing.extend(documents.differing());
        }
        Ok(differing)
    }
}

/// The documents with these `_id`s: from `pages`, or through the proxy without them.
async fn by_ids(
    side: &Side,
    pages: Option<&StoredPages>,
    ids: &Ids,
    since: Option<Timestamp>,
) -> Result<PlacedItems, Halt> {
    if let Some(pages) = pages {
        return pages.by_ids(ids, since.filter(|_| side.is_replicated)).await;
    }
    Ok(PlacedItems {
        documents: side.by_ids(ids, since).await?,
        places: Places::default(),
    })
}

/// Documents of the collection and of its copy.
#[derive(Default)]
struct DocumentPairs {
    ids: Ids,
    wanted: Found,
    there: Found,
    /// Of the documents of the copy, if its pages were read.
    places: Places,
}

impl DocumentPairs {
    fn bytes(&self) -> usize {
        let documents = self.wanted.values().chain(self.there.values());
        documents.map(|document| document.as_bytes().len()).sum()
    }

    /// The `_id`s whose documents differ.
    fn differing(&self) -> Ids {
        let mut differing = Ids::default();
        for (identity, id) in self.ids.iter() {
            let is_same = match (self.wanted.get(identity), self.there.get(identity)) {
                (Some(one), Some(other)) => is_equal(one, other),
                (None, None) => true,
                _ => false,
            };
            if !is_same {
                differing.add(id.as_raw_bson_ref());
            }
        }
        differing
    }
}

/// The writes that make documents of the copy equal.
struct CopyChanges<'a> {
    placing: &'a [String],
    deleted: Vec<RawBson>,
    updated: Vec<DocumentChange<'a>>,
    inserted: Vec<&'a RawDocument>,
}

impl<'a> CopyChanges<'a> {
    fn of(placing: &'a [String]) -> Self {
        Self {
            placing,
            deleted: Vec::new(),
            updated: Vec::new(),
            inserted: Vec::new(),
        }
    }

    fn add(&mut self, wanted: Option<&'a RawDocument>, there: Option<&'a RawDocument>) {
        let id = |document: &RawDocument| -> RawBson { get(document, "_id").unwrap_or(RawBsonRef::Null).into() };
        match (wanted, there) {
            (Some(wanted), None) => self.inserted.push(wanted),
            (Some(wanted), Some(there)) if is_equal(wanted, there) => {}
            (Some(wanted), Some(there)) if id(wanted) == id(there) && !self.moves(wanted, there) => {
                self.updated.push(DocumentChange {
                    before: there,
                    after: wanted,
                });
            }
            // An update cannot change the type of an `_id`, and moves an item to another page in a
            // transaction.
            (Some(wanted), Some(there)) => {
                self.deleted.push(id(there));
                self.inserted.push(wanted);
            }
            (None, Some(there)) => self.deleted.push(id(there)),
            (None, None) => {}
        }
    }

    fn moves(&self, one: &RawDocument, other: &RawDocument) -> bool {
        self.placing.iter().any(|field| get(one, field) != get(other, field))
    }
}
