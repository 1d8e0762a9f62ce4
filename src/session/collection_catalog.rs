//! The collections that a proxy has checked: they contain only pages, and have the shape's indexes.
//!
//! The check runs at the first use of a collection, with the client's rights. Its result is cached
//! with the collection's UUID, and every write names that UUID. So a collection that was dropped
//! and created again is checked again before a write.

mod create;
mod inspect;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bson::Binary;
use bson::raw::RawDocumentBuf;
use bson::spec::BinarySubtype;
use tokio::time::Instant;

use self::inspect::{ListedCollection, MAX_FROZEN};
use super::error::RunError;
use super::namespace_cache::{CacheLookup, NamespaceCache};
use super::refusal::RefusalRecorder;
use super::thaw_watch::ThawWatch;
use super::upstream::UpstreamKind;
use super::upstream_connection::UpstreamConnection;
use crate::command::arguments::InheritedOptions;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::namespace::Namespace;
use crate::pattern::bucket::readable_indexes::ReadableIndexes;
use crate::pattern::shapes::BucketShape;

/// Attempts to create a collection that is dropped concurrently.
const MAX_ATTEMPTS: u32 = 20;
/// Maximum age of the cached list of indexes.
const INDEXES_AGE: Duration = Duration::from_secs(10);

/// The checked collections, by namespace.
#[derive(Debug, Default)]
pub(super) struct CollectionCatalog {
    ready: NamespaceCache<ReadyCollection>,
    /// The creations in progress. Has no values.
    creations: NamespaceCache<()>,
    indexes: NamespaceCache<ListedIndexes>,
    thaws: ThawWatch,
}

/// The indexes of a collection that reads use, as last listed.
#[derive(Clone, Debug)]
struct ListedIndexes {
    collection: Option<Binary>,
    at: Instant,
    indexes: Arc<ReadableIndexes>,
}

/// A checked collection.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReadyCollection {
    pub(super) uuid: Binary,
    /// Whether the collection is distributed to shards.
    pub(super) is_sharded: bool,
    /// Whether it is clustered. `None`: unknown, because the client's transaction creates it.
    pub(super) is_clustered: Option<bool>,
    /// Whether a read may state bounds of the current index on the items' `_id`. `false`: the index is that
    /// of an earlier version, missing, or not known to exist.
    pub(super) has_item_id_index: bool,
    /// Whether mongod stores the images of pages that the shape requires.
    pub(super) has_images: bool,
    /// The application's validator, if items must satisfy it. `None`: also if that is not known.
    pub(super) validator: Option<Arc<RawDocumentBuf>>,
}

/// The connection and rights with which a collection is checked.
pub(super) struct CatalogSession<'a> {
    /// Counts collections that cannot be read, if the client gets the error.
    pub(super) refusals: Option<RefusalRecorder<'a>>,
    pub(super) link: &'a mut UpstreamConnection,
    pub(super) upstream: UpstreamKind,
    pub(super) thaws: &'a ThawWatch,
    pub(super) shape: &'a BucketShape,
    pub(super) namespace: Namespace<'a>,
    pub(super) carried: InheritedOptions<'a>,
    /// The client's transaction, if the command is in one.
    pub(super) transaction: Option<Transaction<'a>>,
}

/// The client's transaction, which creates a missing collection as part of itself.
#[derive(Clone, Copy)]
pub(super) struct Transaction<'a> {
    /// Whether an internal command has begun the transaction.
    pub(super) begun: &'a AtomicBool,
    /// Whether the client's command begins the transaction.
    pub(super) begins: bool,
    /// Whether the transaction's read concern is known to be one with which mongod does not create
    /// collections: any but `local`.
    pub(super) makes_none: bool,
}

impl Transaction<'_> {
    /// Whether it has begun, so that it may hold collections.
    fn is_open(self) -> bool {
        !self.begins || self.begun.load(Ordering::Relaxed)
    }
}

/// Placeholder for the UUID of a collection that a transaction created and has not committed. The
/// UUID is unknown to the proxy. It is not needed, because the transaction holds the collection.
pub(super) fn uncommitted() -> Binary {
    Binary {
        subtype: BinarySubtype::Uuid,
        bytes: Vec::new(),
    }
}

/// The collection that a dry run assumes: checked, and not clustered.
fn assumed() -> ReadyCollection {
    ReadyCollection {
        uuid: uncommitted(),
        is_sharded: false,
        is_clustered: Some(false),
        has_item_id_index: false,
        has_images: true,
        validator: None,
    }
}

impl CollectionCatalog {
    /// Prepares a collection for writes: waits while it is frozen, and creates it and its indexes
    /// if they are missing. Returns its UUID, or [`uncommitted`] if the client's transaction
    /// creates it.
    pub(super) async fn for_writing(&self, asker: &mut CatalogSession<'_>) -> Result<ReadyCollection, RunError> {
        if asker.link.is_dry_run() {
            return Ok(assumed());
        }
        let limit = Instant::now() + MAX_FROZEN;
        // A session with a transaction that holds collections waits for no other session.
        let mut waits_for_creation = !asker.holds_collections();
        // After creation, by this or another proxy, the collection is checked again. It may be dropped
        // in the meantime.
        for _ in 0..MAX_ATTEMPTS {
            let begun = Instant::now();
            let turn = match self.lookup(asker).await {
                CacheLookup::Known(ready) => {
                    asker.fence(Some(&ready));
                    return Ok(ready);
                }
                CacheLookup::Unknown(turn) => turn,
            };
            let found = asker.find().await?;
            let usable = found.as_ref().filter(|found| found.is_ready() && !found.is_frozen);
            if let Some(ListedCollection { ready, .. }) = usable {
                self.ready.put(asker.namespace, ready.clone());
                asker.fence(Some(ready));
                return Ok(ready.clone());
            }
            drop(turn);
            match found {
                Some(found) if found.is_frozen => asker.wait_until_thawed(begun, limit).await?,
                None if asker.makes_it_in_transaction() => {
                    asker.create_in_transaction().await?;
                    return Ok(ReadyCollection {
                        uuid: uncommitted(),
                        is_sharded: false,
                        is_clustered: None,
                        has_item_id_index: false,
                        has_images: true,
                        validator: None,
                    });
                }
                // mongod would execute the commands of all sessions that find the collection missing at the same time.
                found if waits_for_creation => {
                    waits_for_creation = false;
                    if let CacheLookup::Unknown(Some(_turn)) = self.creations.lookup(asker.namespace).await {
                        asker.complete(found.as_ref()).await?;
                    }
                }
                found => asker.complete(found.as_ref()).await?,
            }
        }
        Err(asker.vanished())
    }

    /// The cached entry. A transaction that holds collections waits for no other session.
    async fn lookup(&self, asker: &CatalogSession<'_>) -> CacheLookup<ReadyCollection> {
        if asker.holds_collections() {
            return match self.ready.get(asker.namespace) {
                Some(ready) => CacheLookup::Known(ready),
                None => CacheLookup::Unknown(None),
            };
        }
        self.ready.lookup(asker.namespace).await
    }

    /// Refuses a collection with content that the shape cannot read. A missing collection reads as
    /// empty. Returns the collection if it exists.
    pub(super) async fn for_reading(
        &self,
        asker: &mut CatalogSession<'_>,
    ) -> Result<Option<ReadyCollection>, RunError> {
        if asker.link.is_dry_run() {
            return Ok(Some(assumed()));
        }
        let _turn = match self.lookup(asker).await {
            CacheLookup::Known(ready) => {
                asker.fence(Some(&ready));
                return Ok(Some(ready));
            }
            CacheLookup::Unknown(turn) => turn,
        };
        let Some(found) = asker.find().await? else {
            asker.fence(None);
            return Ok(None);
        };
        asker.fence(Some(&found.ready));
        if found.is_ready() && !found.is_frozen {
            self.ready.put(asker.namespace, found.ready.clone());
        }
        Ok(Some(found.ready))
    }

    /// The waits for frozen collections.
    pub(super) fn thaws(&self) -> &ThawWatch {
        &self.thaws
    }

    /// Drops the cached result after a drop, or after a write that named an outdated UUID.
    pub(super) fn forget(&self, namespace: Namespace<'_>) {
        self.ready.forget(namespace);
    }

    /// The cached list of indexes, if it is recent and of this collection.
    pub(super) fn indexes(
        &self,
        namespace: Namespace<'_>,
        collection: Option<&Binary>,
    ) -> Option<Arc<ReadableIndexes>> {
        let listed = self.indexes.get(namespace)?;
        let is_current = listed.collection.as_ref() == collection && listed.at.elapsed() < INDEXES_AGE;
        is_current.then_some(listed.indexes)
    }

    pub(super) fn keep_indexes(
        &self,
        namespace: Namespace<'_>,
        collection: Option<Binary>,
        indexes: Arc<ReadableIndexes>,
    ) {
        let listed = ListedIndexes {
            collection,
            at: Instant::now(),
            indexes,
        };
        self.indexes.put(namespace, listed);
    }

    /// Drops the cached list after an index was created or dropped.
    pub(super) fn forget_indexes(&self, namespace: Namespace<'_>) {
        self.indexes.forget(namespace);
    }
}

impl CatalogSession<'_> {
    /// Has the internal commands on a collection with an automatic shape name this UUID.
    fn fence(&mut self, ready: Option<&ReadyCollection>) {
        if let Some(fence) = self.link.fence_of(self.namespace) {
            fence.set(ready.map(|ready| ready.uuid.clone()));
        }
    }

    fn vanished(&self) -> RunError {
        let message = format!("{} was dropped while its indexes were created", self.namespace);
        CommandError::new(ErrorCode::WriteConflict, message).into()
    }
}
