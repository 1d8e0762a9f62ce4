//! Checks a collection: its options, its page index and, if that is missing, its documents.

use std::sync::Arc;
use std::time::Duration;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use tokio::time::{Instant, sleep};

use super::{CatalogSession, ReadyCollection, Transaction};
use crate::command::collection::{CLUSTERED, images};
use crate::command::document::{as_flag, get, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::reply::CursorReply;
use crate::command::value_text::id_text;
use crate::pattern::bucket::validator::PageValidator;
use crate::pattern::bucket::{adopt, compact, conversion, index, pack};
use crate::pattern::shape_marker;
use crate::pattern::shapes::ItemIds;
use crate::session::automatic::stored::{CollectionObserver, exchanged_in_transaction};
use crate::session::error::RunError;
use crate::session::upstream::UpstreamKind;

/// The longest time that a write waits for a frozen collection, and the interval between two checks whether a
/// collection without a name has one again.
pub(super) const MAX_FROZEN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// Options of a collection that make buckets behave differently from items.
const IMPOSSIBLE_OPTIONS: &[&str] = &[
    "capped",
    "collation",
    "encryptedFields",
    "expireAfterSeconds",
    "timeseries",
    "validator",
    "viewOn",
];

/// A collection as `listCollections` describes it.
pub(super) struct ListedCollection {
    pub(super) ready: ReadyCollection,
    pub(super) has_page_index: bool,
    /// Whether a swap has frozen it. Then mongod refuses all writes.
    pub(super) is_frozen: bool,
}

/// Which of the shape's indexes exist.
#[derive(Default)]
struct OwnIndexes {
    has_pages: bool,
    /// Whether the index on the items' `_id` exists, in its current form.
    has_item_ids: bool,
}

/// What the name of a collection denotes.
enum Named {
    Collection(Option<ListedCollection>),
    /// Nothing, while a conversion has a copy of the collection.
    OnlyCopy,
}

impl ListedCollection {
    /// Whether nothing is missing for reads and writes.
    pub(super) fn is_ready(&self) -> bool {
        self.has_page_index && self.ready.has_images
    }
}

impl CatalogSession<'_> {
    /// Waits while the collection is frozen. `begun`: the time before it was found frozen.
    pub(super) async fn wait_until_thawed(&mut self, begun: Instant, limit: Instant) -> Result<(), RunError> {
        let thaws = self.thaws;
        // A transaction that has begun may hold the collection, and the swap would wait for it.
        if self.holds_collections() || !thaws.wait(&mut self.observer(), begun, limit).await? {
            return Err(self.frozen());
        }
        Ok(())
    }

    fn observer(&mut self) -> CollectionObserver<'_, '_> {
        CollectionObserver {
            link: self.link,
            carried: self.carried,
            namespace: self.namespace,
        }
    }

    fn frozen(&self) -> RunError {
        let message = format!(
            "`mongoshape compact` or `mongoshape convert` has frozen {}: try again; if none of them runs, run it again",
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

    pub(super) async fn find(&mut self) -> Result<Option<ListedCollection>, RunError> {
        if self.link.fence_of(self.namespace).is_none() {
            return self.find_unfenced().await;
        }
        let holds_collections = self.holds_collections();
        loop {
            let mut observer = self.observer();
            let now = if holds_collections {
                let found = observer.stored_at_once().await?;
                found.ok_or_else(|| exchanged_in_transaction(self.namespace))?
            } else {
                observer.stored().await?
            };
            let layout = &now.stored.layout;
            if layout.is_plain() || layout.recorded_shape(self.shape).is_some() {
                return Err(RunError::LayoutChanged);
            }
            // Otherwise the collection was exchanged between the lists.
            if let Named::Collection(found) = self.find_now().await?
                && found.as_ref().map(|found| &found.ready.uuid) == now.stored.uuid.as_ref()
            {
                return Ok(found);
            }
        }
    }

    /// A collection that is missing while a conversion has a copy of it gets its name back, or the copy takes
    /// the name.
    async fn find_unfenced(&mut self) -> Result<Option<ListedCollection>, RunError> {
        let begun = Instant::now();
        loop {
            match self.find_now().await? {
                Named::Collection(found) => return Ok(found),
                Named::OnlyCopy if begun.elapsed() < MAX_FROZEN && !self.holds_collections() => sleep(POLL).await,
                Named::OnlyCopy => return Err(self.frozen()),
            }
        }
    }

    /// Whether a transaction has begun, so that it may hold collections.
    pub(super) fn holds_collections(&self) -> bool {
        self.transaction.is_some_and(Transaction::is_open)
    }

    async fn find_now(&mut self) -> Result<Named, RunError> {
        let copy = conversion::copy_name(self.namespace.collection);
        let names: RawArrayBuf = [self.namespace.collection, &copy].into_iter().collect();
        let mut command = RawDocumentBuf::new();
        command.append(cstr!("listCollections"), 1);
        command.append(cstr!("filter"), single("name", single("$in", &names)));
        self.carried.append_to_inspect(&mut command);
        let reply = self.link.run(&command).await?;
        let cursor = CursorReply::parse(&reply);
        let listed = |name: &str| {
            let mut listed = cursor.iter().flat_map(CursorReply::documents);
            listed.find(|listed| get(listed, "name") == Some(RawBsonRef::String(name)))
        };
        let Some(collection) = listed(self.namespace.collection) else {
            return Ok(match listed(&copy) {
                Some(_) => Named::OnlyCopy,
                None => Named::Collection(None),
            });
        };
        self.inspect(collection).await.map(Named::Collection)
    }

    async fn inspect(&mut self, collection: &RawDocument) -> Result<Option<ListedCollection>, RunError> {
        let options = get(collection, "options").and_then(RawBsonRef::as_document);
        let is_automatic = self.link.fence_of(self.namespace).is_some();
        if options.is_some_and(pack::is_frozen) {
            if is_automatic {
                return Err(RunError::LayoutChanged);
            }
            let remedy = "wait for its end, or run it again if it does not run";
            return Err(self
                .misfit("is being packed by `mongoshape setup --pack`", remedy)
                .into());
        }
        let is_frozen = options.is_some_and(compact::is_frozen);
        let validator = options.and_then(|options| get(options, compact::VALIDATOR)?.as_document());
        let validator = validator.map(PageValidator::parse);
        if !is_frozen {
            self.check_options(options, matches!(validator, Some(None)))?;
        }
        let uuid = collection.get_document("info").ok().and_then(|info| get(info, "uuid"));
        let Some(RawBsonRef::Binary(uuid)) = uuid else {
            return Ok(None);
        };
        let uuid = uuid.to_binary();
        let is_sharded = self.is_sharded().await?;
        let is_clustered = Some(options.is_some_and(|options| get(options, CLUSTERED).is_some()));
        let indexes = self.own_indexes().await?;
        if !indexes.has_pages && is_automatic {
            return Err(RunError::LayoutChanged);
        }
        if !indexes.has_pages {
            self.check_contents().await?;
        }
        Ok(Some(ListedCollection {
            ready: ReadyCollection {
                uuid,
                is_sharded,
                is_clustered,
                has_item_id_index: indexes.has_item_ids,
                validator: validator
                    .flatten()
                    .and_then(|validator| validator.enforced())
                    .map(Arc::new),
                has_images: !self.shape.change_streams() || options.and_then(images) == Some(true),
            },
            has_page_index: indexes.has_pages,
            is_frozen,
        }))
    }

    /// Whether the collection is distributed to shards.
    async fn is_sharded(&mut self) -> Result<bool, RunError> {
        if self.upstream != UpstreamKind::Mongos {
            return Ok(false);
        }
        let mut command = single("collStats", self.namespace.collection);
        // The stable API does not have the command.
        self.carried.without_api_strict().append_to_inspect(&mut command);
        let statistics = self.link.run(&command).await?;
        let is_sharded = get(&statistics, "sharded").and_then(as_flag) == Some(true);
        if is_sharded && self.shape.item_ids() == ItemIds::Unique {
            let remedy = "set `item_ids` to \"unique_in_key\": a mongos has no unique index on `_id` alone";
            return Err(self.misfit("is sharded", remedy).into());
        }
        Ok(is_sharded)
    }

    /// `is_foreign`: whether the validator has a clause of another program.
    fn check_options(&self, options: Option<&RawDocument>, is_foreign: bool) -> Result<(), RunError> {
        let given = options
            .into_iter()
            .flat_map(RawDocument::iter)
            .flatten()
            .map(|(name, _)| name.as_str());
        // In a clustered collection, `_id`s are unique.
        let are_unique = self.shape.item_ids() == ItemIds::Unique;
        let is_impossible = |name: &&str| {
            (IMPOSSIBLE_OPTIONS.contains(name) && (is_foreign || *name != compact::VALIDATOR))
                || (*name == CLUSTERED && !are_unique)
        };
        let impossible = given.into_iter().find(is_impossible);
        if let Some(option) = impossible {
            self.count_misfit();
            let message = format!(
                "mongoshape is configured to store {} in the bucket pattern, but the collection has the option '{option}', which the \
                 pattern does not support",
                self.namespace
            );
            return Err(CommandError::new(ErrorCode::InvalidOptions, message).into());
        }
        Ok(())
    }

    /// The shape's indexes, after a check of the shape marker.
    async fn own_indexes(&mut self) -> Result<OwnIndexes, RunError> {
        let mut command = single("listIndexes", self.namespace.collection);
        self.carried.append_to_inspect(&mut command);
        let reply = match self.link.run(&command).await {
            // The collection was dropped after it was listed.
            Err(RunError::Command(error)) if error.is(ErrorCode::NamespaceNotFound) => return Ok(OwnIndexes::default()),
            reply => reply?,
        };
        let indexes = CursorReply::parse(&reply);
        let named = |name: &str| {
            let mut indexes = indexes.iter().flat_map(CursorReply::documents);
            indexes.find(|spec| spec.get_str("name").is_ok_and(|found| found == name))
        };
        let has_pages = named(index::PAGE).is_some();
        let item_ids = named(index::ITEM_ID);
        // Pages are read only if their shape marker matches the shape.
        match named(shape_marker::INDEX).map(|said| shape_marker::differing(self.shape.stored_as(), said)) {
            None if has_pages => {
                let what = format!("has no index {}, which records its shape", shape_marker::INDEX);
                Err(self.misfit(&what, "run `mongoshape setup`").into())
            }
            Some(differing) if !differing.is_empty() => {
                let what = format!("has the layout of another shape: {}", differing.join(", "));
                Err(self.misfit(&what, shape_marker::REMEDY).into())
            }
            _ => Ok(OwnIndexes {
                has_pages,
                has_item_ids: item_ids.is_some_and(|spec| !index::is_item_id_without_prefix(self.shape, spec)),
            }),
        }
    }

    /// Checks that the collection contains only pages. Other documents were written directly to
    /// mongod, or before the collection was shaped. The error names the first one.
    async fn check_contents(&mut self) -> Result<(), RunError> {
        let mut command = single("find", self.namespace.collection);
        command.append(cstr!("filter"), adopt::foreign_documents(self.shape));
        command.append(cstr!("projection"), single("_id", 1));
        command.append(cstr!("limit"), 1);
        command.append(cstr!("singleBatch"), true);
        self.carried.append_to_inspect(&mut command);
        let reply = self.link.run(&command).await?;
        let foreign = CursorReply::parse(&reply).and_then(|cursor| cursor.documents().next().map(id_text));
        let Some(id) = foreign else { return Ok(()) };
        let what = format!("contains documents that are not buckets of layout version 1, the first with _id {id}");
        let remedy = "run `mongoshape setup` to adopt hand-written buckets, `mongoshape setup --pack` to pack plain documents, or \
                      `mongoshape check` to find the cause";
        Err(self.misfit(&what, remedy).into())
    }

    fn misfit(&self, what: &str, remedy: &str) -> CommandError {
        self.count_misfit();
        let namespace = self.namespace;
        let message =
            format!("mongoshape is configured to store {namespace} in the bucket pattern, but it {what}: {remedy}");
        CommandError::new(ErrorCode::InvalidOptions, message)
    }

    fn count_misfit(&self) {
        if let Some(refusals) = self.refusals {
            refusals.misfit(self.shape.namespace());
        }
    }
}
