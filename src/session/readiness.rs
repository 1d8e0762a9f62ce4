//! Whether a shaped collection is what its shape needs: buckets and nothing else, with the shape's indexes.
//!
//! Looked at when a proxy first meets a namespace, with the client's own rights. What was found is kept with the
//! collection's UUID, which every write names: a collection that was dropped and made again, by anybody, is looked at
//! again before anything is written to it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bson::Binary;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::spec::BinarySubtype;
use tokio::time::{Instant, sleep};

use super::error::RunError;
use super::link::Link;
use super::metrics::{Refusal, SessionMetrics};
use crate::command::arguments::Carried;
use crate::command::collection::CLUSTERED;
use crate::command::document::{array_of, get, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::namespace::Namespace;
use crate::command::reply::CursorReply;
use crate::command::value_text::id_text;
use crate::pattern::bucket::{adopt, compact, index, pack};
use crate::pattern::shapes::{BucketShape, ItemIds};

/// Namespaces remembered; with a shape for every database there may be many. Beyond it, all are looked at anew.
const MAX_NAMESPACES: usize = 10_000;

/// How often a collection that is dropped while it is being made ready is begun again.
const MAX_ATTEMPTS: u32 = 20;

/// How long a write waits for a collection that is about to be replaced, and how often it looks.
const MAX_FROZEN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// Options of a collection under which buckets cannot stand for items.
const IMPOSSIBLE_OPTIONS: &[&str] = &[
    "capped",
    "collation",
    "encryptedFields",
    "expireAfterSeconds",
    "timeseries",
    "validator",
    "viewOn",
];

/// The collections found ready, by namespace.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    ready: Mutex<HashMap<String, Ready>>,
}

/// A collection that is ready.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ready {
    pub(super) uuid: Binary,
    /// Whether it is clustered; `None` where only mongod knows.
    pub(super) is_clustered: Option<bool>,
}

/// Someone who asks for a collection to be ready.
pub(super) struct Asker<'a> {
    /// What counts a collection that cannot be read, where the client is told.
    pub(super) metrics: Option<&'a SessionMetrics>,
    pub(super) link: &'a mut Link,
    pub(super) shape: &'a BucketShape,
    pub(super) namespace: Namespace<'a>,
    pub(super) carried: Carried<'a>,
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

/// What stands for the UUID of a collection that a transaction has made and not committed: only mongod knows it, so that
/// nothing can name it, and nothing need, since the transaction holds the collection.
pub(super) fn uncommitted() -> Binary {
    Binary {
        subtype: BinarySubtype::Uuid,
        bytes: Vec::new(),
    }
}

/// A collection that nobody looks at: what is written to it is only rehearsed.
fn assumed() -> Ready {
    Ready {
        uuid: uncommitted(),
        is_clustered: Some(false),
    }
}

/// A collection as `listCollections` describes it.
struct Found {
    ready: Ready,
    has_page_index: bool,
    /// It is about to be replaced: nothing can be written to it.
    is_frozen: bool,
}

impl Readiness {
    /// Makes the collection ready to be written to, creating it and its indexes where they are missing, and gives its UUID.
    /// A transaction makes it as a part of itself: its UUID is [`uncommitted`].
    pub(super) async fn for_writing(&self, asker: &mut Asker<'_>) -> Result<Ready, RunError> {
        if asker.link.rehearses() {
            return Ok(assumed());
        }
        if let Some(ready) = self.known(asker.namespace) {
            return Ok(ready);
        }
        // Looked up again after it was created, by this or by another proxy; somebody may drop it meanwhile.
        for _ in 0..MAX_ATTEMPTS {
            match asker.find_thawed().await? {
                Some(found) if found.has_page_index => {
                    self.remember(asker.namespace, found.ready.clone());
                    return Ok(found.ready);
                }
                None if asker.makes_it_in_transaction() => {
                    asker.create_in_transaction().await?;
                    return Ok(Ready {
                        uuid: uncommitted(),
                        is_clustered: None,
                    });
                }
                _ => asker.create_indexes().await?,
            }
        }
        Err(asker.vanished())
    }

    /// Refuses a collection that holds what a shape cannot read. One that is missing reads as empty: gives the UUID of one
    /// that is there.
    pub(super) async fn for_reading(&self, asker: &mut Asker<'_>) -> Result<Option<Binary>, RunError> {
        if asker.link.rehearses() {
            return Ok(Some(assumed().uuid));
        }
        if let Some(ready) = self.known(asker.namespace) {
            return Ok(Some(ready.uuid));
        }
        let found = asker.find().await?;
        let uuid = found.as_ref().map(|found| found.ready.uuid.clone());
        match found {
            Some(found) if found.has_page_index && !found.is_frozen => self.remember(asker.namespace, found.ready),
            _ => {}
        }
        Ok(uuid)
    }

    /// Forgets what was found, after a drop or when a write did not meet it.
    pub(super) fn forget(&self, namespace: Namespace<'_>) {
        self.lock().remove(&namespace.to_string());
    }

    fn known(&self, namespace: Namespace<'_>) -> Option<Ready> {
        self.lock().get(&namespace.to_string()).cloned()
    }

    fn remember(&self, namespace: Namespace<'_>, found: Ready) {
        let mut ready = self.lock();
        if ready.len() >= MAX_NAMESPACES {
            ready.clear();
        }
        ready.insert(namespace.to_string(), found);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Ready>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asker<'_> {
    /// Waits until the collection can be written to, for as long as it is about to be replaced.
    async fn find_thawed(&mut self) -> Result<Option<Found>, RunError> {
        let begun = Instant::now();
        loop {
            let found = self.find().await?;
            if found.as_ref().is_none_or(|found| !found.is_frozen) {
                return Ok(found);
            }
            if begun.elapsed() > MAX_FROZEN {
                return Err(self.frozen());
            }
            sleep(POLL).await;
        }
    }

    fn frozen(&self) -> RunError {
        let message = format!(
            "{} is about to be replaced by a packed copy of itself and takes no writes, for longer than is waited for: run \
             `mongoshape compact` again if it does not run",
            self.namespace
        );
        let error = CommandError::new(ErrorCode::WriteConflict, message);
        if self.transaction.is_some() {
            error.transient()
        } else {
            error
        }
        .into()
    }

    async fn find(&mut self) -> Result<Option<Found>, RunError> {
        let mut command = RawDocumentBuf::new();
        command.append(cstr!("listCollections"), 1);
        command.append(cstr!("filter"), single("name", self.namespace.collection));
        self.carried.append_identity(&mut command);
        let reply = self.link.run(&command).await?;
        let Some(collection) = CursorReply::parse(&reply).and_then(|cursor| cursor.documents().next()) else {
            return Ok(None);
        };
        let options = get(collection, "options").and_then(RawBsonRef::as_document);
        if options.is_some_and(pack::is_frozen) {
            let remedy = "wait for the end of that, or run it again if it does not run";
            return Err(self
                .misfit("is being packed by `mongoshape setup --pack`", remedy)
                .into());
        }
        let is_frozen = options.is_some_and(compact::is_frozen);
        if !is_frozen {
            self.check_options(options)?;
        }
        let uuid = collection.get_document("info").ok().and_then(|info| get(info, "uuid"));
        let Some(RawBsonRef::Binary(uuid)) = uuid else {
            return Ok(None);
        };
        let ready = Ready {
            uuid: uuid.to_binary(),
            is_clustered: Some(options.is_some_and(|options| get(options, CLUSTERED).is_some())),
        };
        let has_page_index = self.has_page_index().await?;
        if !has_page_index {
            self.check_contents().await?;
        }
        Ok(Some(Found {
            ready,
            has_page_index,
            is_frozen,
        }))
    }

    fn check_options(&self, options: Option<&RawDocument>) -> Result<(), RunError> {
        let given = options
            .into_iter()
            .flat_map(RawDocument::iter)
            .flatten()
            .map(|(name, _)| name.as_str());
        // A clustered collection keeps `_id`s unique.
        let are_unique = self.shape.item_ids() == ItemIds::Unique;
        let is_impossible = |name: &&str| IMPOSSIBLE_OPTIONS.contains(name) || (*name == CLUSTERED && !are_unique);
        let impossible = given.into_iter().find(is_impossible);
        if let Some(option) = impossible {
            self.count_misfit();
            let message = format!(
                "mongoshape is configured to store {} in the bucket pattern, but the collection has the option '{option}', \
                 under which it cannot",
                self.namespace
            );
            return Err(CommandError::new(ErrorCode::InvalidOptions, message).into());
        }
        Ok(())
    }

    async fn has_page_index(&mut self) -> Result<bool, RunError> {
        let mut command = single("listIndexes", self.namespace.collection);
        self.carried.append_identity(&mut command);
        let reply = match self.link.run(&command).await {
            // Dropped since it was listed.
            Err(RunError::Command(error)) if error.is(ErrorCode::NamespaceNotFound) => return Ok(false),
            reply => reply?,
        };
        let expected = index::specs(self.shape).into_iter().next();
        let expected = expected.as_deref().and_then(|spec| spec.get_document("key").ok());
        let indexes = CursorReply::parse(&reply);
        let mut indexes = indexes.iter().flat_map(CursorReply::documents);
        let Some(page) = indexes.find(|spec| spec.get_str("name").is_ok_and(|name| name == index::PAGE)) else {
            return Ok(false);
        };
        // An index made for another key: the shape's key was changed over data that is there.
        let same = page
            .get_document("key")
            .ok()
            .zip(expected)
            .is_some_and(|(is, should)| same_fields(is, should));
        if same {
            Ok(true)
        } else {
            let remedy = "run `mongoshape check`, which says more";
            Err(self.misfit("was stored under another key", remedy).into())
        }
    }

    /// Any document that is no bucket, or not what it says it is, was written past the proxy, or before the collection was
    /// shaped. Names it.
    async fn check_contents(&mut self) -> Result<(), RunError> {
        let mut command = single("find", self.namespace.collection);
        command.append(cstr!("filter"), adopt::strays(self.shape));
        command.append(cstr!("projection"), single("_id", 1));
        command.append(cstr!("limit"), 1);
        command.append(cstr!("singleBatch"), true);
        self.carried.append_identity(&mut command);
        let reply = self.link.run(&command).await?;
        let stray = CursorReply::parse(&reply).and_then(|cursor| cursor.documents().next().map(id_text));
        let Some(id) = stray else { return Ok(()) };
        let what = format!("holds documents that are not buckets of layout version 1, the first with _id {id}");
        let remedy = "run `mongoshape setup`, which adopts buckets that were written by hand, `mongoshape setup --pack`, which puts \
                      plain documents into pages, or `mongoshape check`, which says what is wrong with others";
        Err(self.misfit(&what, remedy).into())
    }

    async fn create_indexes(&mut self) -> Result<(), RunError> {
        let mut command = single("createIndexes", self.namespace.collection);
        put(&mut command, "indexes", array_of(&index::specs(self.shape)));
        self.carried.append_identity(&mut command);
        let reply = self.link.run(&command).await?;
        // Of many who begin at once, one does it and says so.
        if get(&reply, "numIndexesBefore") != get(&reply, "numIndexesAfter") {
            tracing::info!(namespace = %self.namespace, "created the shape's indexes");
        }
        Ok(())
    }

    fn makes_it_in_transaction(&self) -> bool {
        self.transaction.is_some_and(|transaction| !transaction.makes_none)
    }

    /// Has the client's transaction make the collection. Where its read concern turns out to be one that mongod does not do
    /// that with, it is made outside, and the transaction, which that has ended, is to be tried again.
    async fn create_in_transaction(&mut self) -> Result<(), RunError> {
        match self.make_in_transaction().await {
            Err(RunError::Command(error)) if is_unsupported_read_concern(&error) => {
                self.create_indexes().await?;
                let message = format!(
                    "{} was made for a transaction, which is to be tried again",
                    self.namespace
                );
                Err(CommandError::new(ErrorCode::WriteConflict, message).transient().into())
            }
            made => made.map(drop),
        }
    }

    /// Has the client's transaction make the shape's indexes, with the collection where it is not there, and gives the
    /// answer. Changes nothing where it has done so before.
    pub(super) async fn make_in_transaction(&mut self) -> Result<RawDocumentBuf, RunError> {
        let mut command = single("createIndexes", self.namespace.collection);
        put(&mut command, "indexes", array_of(&index::specs(self.shape)));
        let begun = self
            .transaction
            .map(|transaction| transaction.begun.swap(true, Ordering::Relaxed));
        self.carried
            .begun(begun.unwrap_or_default())
            .append_to_write(&mut command);
        self.link.run(&command).await
    }

    fn misfit(&self, what: &str, remedy: &str) -> CommandError {
        self.count_misfit();
        let namespace = self.namespace;
        let message =
            format!("mongoshape is configured to store {namespace} in the bucket pattern, but it {what}: {remedy}");
        CommandError::new(ErrorCode::InvalidOptions, message)
    }

    fn count_misfit(&self) {
        if let Some(metrics) = self.metrics {
            metrics.rejected(&self.shape.namespace().to_string(), Refusal::Misfit);
        }
    }

    fn vanished(&self) -> RunError {
        let message = format!("{} was dropped while it was being made ready", self.namespace);
        CommandError::new(ErrorCode::WriteConflict, message).into()
    }
}

/// mongod's error for a transaction that may make nothing explicitly.
fn is_unsupported_read_concern(error: &CommandError) -> bool {
    error.is(ErrorCode::InvalidOptions) && error.message().contains("read concern not supported")
}

/// Whether two index keys name the same fields in the same order.
fn same_fields(one: &RawDocument, other: &RawDocument) -> bool {
    let names = |document: &RawDocument| -> Vec<String> {
        document
            .iter()
            .flatten()
            .map(|(name, _)| name.as_str().to_owned())
            .collect()
    };
    names(one) == names(other)
}
