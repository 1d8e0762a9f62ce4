//! The collections that a proxy has checked: they contain only pages, and have the shape's indexes.
//!
//! A collection is checked at its first use, with the client's rights. The result is cached with the
//! collection's UUID, and every write names that UUID: a collection that was dropped and created again is
//! checked again before a write.

mod create;
mod inspect;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bson::Binary;
use bson::spec::BinarySubtype;

use super::error::RunError;
use super::metrics::SessionMetrics;
use super::namespace_cache::NamespaceCache;
use super::upstream_connection::UpstreamConnection;
use crate::command::arguments::InheritedOptions;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::namespace::Namespace;
use crate::pattern::bucket::item_index::StoredIndex;
use crate::pattern::shapes::BucketShape;

/// How often a collection that is dropped while it is being made ready is begun again.
const MAX_ATTEMPTS: u32 = 20;
/// After this time the indexes are listed again.
const INDEXES_AGE: Duration = Duration::from_secs(10);

/// The collections found ready, by namespace.
#[derive(Debug, Default)]
pub(super) struct CollectionCatalog {
    ready: NamespaceCache<ReadyCollection>,
    indexes: NamespaceCache<ListedIndexes>,
}

/// The indexes on items of a collection.
#[derive(Clone, Debug)]
struct ListedIndexes {
    collection: Option<Binary>,
    at: Instant,
    indexes: Arc<[StoredIndex]>,
}

/// A collection that is ready.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReadyCollection {
    pub(super) uuid: Binary,
    /// Whether it is clustered; `None` where only mongod knows.
    pub(super) is_clustered: Option<bool>,
}

/// Someone who asks for a collection to be ready.
pub(super) struct CatalogSession<'a> {
    /// What counts a collection that cannot be read, where the client is told.
    pub(super) metrics: Option<&'a SessionMetrics>,
    pub(super) link: &'a mut UpstreamConnection,
    pub(super) shape: &'a BucketShape,
    pub(super) namespace: Namespace<'a>,
    pub(super) carried: InheritedOptions<'a>,
    /// The client's transaction, if it asks in one.
    pub(super) transaction: Option<Transaction<'a>>,
}

/// The transaction of a client's command that makes a collection.
#[derive(Clone, Copy)]
pub(super) struct Transaction<'a> {
    /// Whether a command made from the client's has been sent that began it.
    pub(super) begun: &'a AtomicBool,
    /// Whether it is known to read what mongod makes no collection explicitly with: any concern but `local`.
    pub(super) makes_none: bool,
}

/// What stands for the UUID of a collection that a transaction has made and not committed: only mongod knows
/// it, so that nothing can name it, and nothing need, since the transaction holds the collection.
pub(super) fn uncommitted() -> Binary {
    Binary {
        subtype: BinarySubtype::Uuid,
        bytes: Vec::new(),
    }
}

/// A collection that is not checked: writes to it are a dry run.
fn assumed() -> ReadyCollection {
    ReadyCollection {
        uuid: uncommitted(),
        is_clustered: Some(false),
    }
}

impl CollectionCatalog {
    /// Makes the collection ready to be written to, creating it and its indexes where they are missing, and
    /// gives its UUID. A transaction makes it as a part of itself: its UUID is [`uncommitted`].
    pub(super) async fn for_writing(&self, asker: &mut CatalogSession<'_>) -> Result<ReadyCollection, RunError> {
        if asker.link.is_dry_run() {
            return Ok(assumed());
        }
        if let Some(ready) = self.ready.get(asker.namespace) {
            return Ok(ready);
        }
        // Looked up again after it was created, by this or by another proxy; somebody may drop it meanwhile.
        for _ in 0..MAX_ATTEMPTS {
            match asker.find_thawed().await? {
                Some(found) if found.has_page_index => {
                    self.ready.put(asker.namespace, found.ready.clone());
                    return Ok(found.ready);
                }
                None if asker.makes_it_in_transaction() => {
                    asker.create_in_transaction().await?;
                    return Ok(ReadyCollection {
                        uuid: uncommitted(),
                        is_clustered: None,
                    });
                }
                _ => asker.create_indexes().await?,
            }
        }
        Err(asker.vanished())
    }

    /// Refuses a collection that holds what a shape cannot read. One that is missing reads as empty: gives
    /// the UUID of one that is there.
    pub(super) async fn for_reading(&self, asker: &mut CatalogSession<'_>) -> Result<Option<Binary>, RunError> {
        if asker.link.is_dry_run() {
            return Ok(Some(assumed().uuid));
        }
        if let Some(ready) = self.ready.get(asker.namespace) {
            return Ok(Some(ready.uuid));
        }
        let found = asker.find().await?;
        let uuid = found.as_ref().map(|found| found.ready.uuid.clone());
        match found {
            Some(found) if found.has_page_index && !found.is_frozen => self.ready.put(asker.namespace, found.ready),
            _ => {}
        }
        Ok(uuid)
    }

    /// Forgets what was found, after a drop or when a write did not meet it.
    pub(super) fn forget(&self, namespace: Namespace<'_>) {
        self.ready.forget(namespace);
    }

    /// The indexes of the collection, as they were listed not long ago.
    pub(super) fn indexes(&self, namespace: Namespace<'_>, collection: Option<&Binary>) -> Option<Arc<[StoredIndex]>> {
        let listed = self.indexes.get(namespace)?;
        let is_current = listed.collection.as_ref() == collection && listed.at.elapsed() < INDEXES_AGE;
        is_current.then_some(listed.indexes)
    }

    pub(super) fn keep_indexes(
        &self,
        namespace: Namespace<'_>,
        collection: Option<Binary>,
        indexes: Arc<[StoredIndex]>,
    ) {
        let listed = ListedIndexes {
            collection,
            at: Instant::now(),
            indexes,
        };
        self.indexes.put(namespace, listed);
    }

    /// Forgets the indexes, after one was created or dropped.
    pub(super) fn forget_indexes(&self, namespace: Namespace<'_>) {
        self.indexes.forget(namespace);
    }
}

impl CatalogSession<'_> {
    fn vanished(&self) -> RunError {
        let message = format!("{} was dropped while its indexes were created", self.namespace);
        CommandError::new(ErrorCode::WriteConflict, message).into()
    }
}
