//! Lists a collection with an automatic shape, and waits while a conversion exchanges it.

use std::time::Duration;

use bson::Binary;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use tokio::time::{Instant, sleep};

use crate::command::arguments::InheritedOptions;
use crate::command::document::{as_whole_number, get, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::find::misses_own_index;
use crate::command::namespace::Namespace;
use crate::command::reply::{CursorReply, succeeded};
use crate::pattern::bucket::{compact, conversion, index, pack};
use crate::pattern::shapes::StoredLayout;
use crate::session::error::RunError;
use crate::session::upstream_connection::{UpstreamConnection, UpstreamRequest};

/// The longest time that a command waits for a cut-over, and the interval between two checks. The same as for
/// a collection that `compact` has frozen.
pub(in crate::session) const MAX_HELD: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(30);

/// A collection as last listed.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::session) struct StoredCollection {
    /// `None`: it is missing, or a view.
    pub(in crate::session) uuid: Option<Binary>,
    pub(in crate::session) layout: StoredLayout,
    /// Retryable writes may have been executed there.
    pub(in crate::session) former: Option<FormerCollection>,
    /// Whether the client that listed it may not read the collection in its former layout, or may not read
    /// whether there is one.
    pub(in crate::session) is_former_hidden: bool,
    /// The number of its last swap that was given up, or that `--back` made, before it was listed. 0: there
    /// was none.
    pub(in crate::session) swap_number: i64,
}

impl StoredCollection {
    /// The collection as a command is planned for.
    pub(in crate::session) fn expected(&self) -> ExpectedCollection<'_> {
        ExpectedCollection {
            uuid: self.uuid.as_ref(),
            swap_number: Some(self.swap_number),
        }
    }
}

/// A collection as a command was planned for.
#[derive(Clone, Copy, Debug)]
pub(in crate::session) struct ExpectedCollection<'a> {
    /// `None`: it is missing.
    pub(in crate::session) uuid: Option<&'a Binary>,
    /// The number of the last such swap. `None`: it is not compared.
    pub(in crate::session) swap_number: Option<i64>,
}

/// The collection in its layout before the last conversion, which is kept beside it. It has the name of a
/// copy while `convert --back` makes it equal.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::session) struct FormerCollection {
    pub(in crate::session) name: String,
    pub(in crate::session) uuid: Binary,
    pub(in crate::session) layout: StoredLayout,
}

impl FormerCollection {
    /// The collection as a retried write is looked up in it.
    pub(in crate::session) fn expected(&self) -> ExpectedCollection<'_> {
        ExpectedCollection {
            uuid: Some(&self.uuid),
            swap_number: None,
        }
    }
}

/// A collection with its state in a conversion.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::session) struct Observed {
    pub(in crate::session) stored: StoredCollection,
    /// Whether a conversion is in progress.
    pub(in crate::session) is_converting: bool,
    /// Whether a conversion has frozen it, so that writes fail.
    pub(in crate::session) is_frozen: bool,
}

/// The connection and options with which a collection is listed.
pub(in crate::session) struct CollectionObserver<'a, 'c> {
    pub(in crate::session) link: &'c mut UpstreamConnection,
    pub(in crate::session) carried: InheritedOptions<'a>,
    pub(in crate::session) namespace: Namespace<'a>,
}

/// The reply to `listCollections`.
struct ListedCollections<'a>(Option<CursorReply<'a>>);

impl<'a> ListedCollections<'a> {
    fn of(reply: &'a RawDocument) -> Self {
        Self(CursorReply::parse(reply))
    }

    fn named(&self, name: &str) -> Option<&'a RawDocument> {
        let mut listed = self.0.iter().flat_map(CursorReply::documents);
        listed.find(|listed| get(listed, "name") == Some(RawBsonRef::String(name)))
    }
}

impl CollectionObserver<'_, '_> {
    /// What the name denotes. Waits while it denotes nothing because of a cut-over.
    ///
    /// # Errors
    /// mongod's, or `WriteConflict` after [`MAX_HELD`].
    pub(in crate::session) async fn stored(&mut self) -> Result<Observed, RunError> {
        self.stored_since(Instant::now()).await
    }

    /// Like [`Self::stored`], for a command that began to wait earlier, for the list of another session.
    pub(in crate::session) async fn stored_since(&mut self, begun: Instant) -> Result<Observed, RunError> {
        let mut was_missing = false;
        loop {
            match self.look().await? {
                Some(found) if found.stored.uuid.is_some() || found.stored.layout.is_plain() => {
                    return Ok(found);
                }
                // The names are not listed at one point in time: the copy may have taken the name, and the
                // state may be gone, between two of them. A second list that begins later decides.
                Some(found) if !found.is_converting => {
                    if std::mem::replace(&mut was_missing, true) {
                        return Ok(found);
                    }
                }
                _ => {
                    was_missing = false;
                    if begun.elapsed() > MAX_HELD {
                        return Err(self.held_too_long().into());
                    }
                    sleep(POLL).await;
                }
            }
        }
    }

    /// Like [`Self::stored`], for a transaction that has begun. It may hold the name, even without a
    /// collection, and the cut-over would wait for it. `None`: between the renamings.
    pub(in crate::session) async fn stored_at_once(&mut self) -> Result<Option<Observed>, RunError> {
        let found = self.look().await?;
        Ok(found.filter(|found| {
            let is_there = found.stored.uuid.is_some() || found.stored.layout.is_plain();
            is_there || !found.is_converting
        }))
    }

    /// The error after [`MAX_HELD`].
    pub(in crate::session) fn held_too_long(&self) -> CommandError {
        let message = format!(
            "`mongoshape convert` has held {} for longer than a command waits: try again; if no `mongoshape convert` runs, run it again",
            self.namespace
        );
        CommandError::new(ErrorCode::WriteConflict, message)
    }

    /// Whether the collection is frozen, or has no name because of a cut-over.
    pub(in crate::session) async fn is_held(&mut self) -> Result<bool, RunError> {
        let name = self.namespace.collection;
        let copy = conversion::copy_name(name);
        let reply = self.list(&[name, &copy]).await?;
        let listed = ListedCollections::of(&reply);
        Ok(match listed.named(name) {
            Some(found) => is_frozen(found),
            None => listed.named(&copy).is_some(),
        })
    }

    /// The client's options. Its command may be on another database than the collection.
    fn options(&self) -> InheritedOptions<'_> {
        self.carried.in_database(self.namespace.database)
    }

    async fn list(&mut self, names: &[&str]) -> Result<RawDocumentBuf, RunError> {
        let names: RawArrayBuf = names.iter().copied().collect();
        let mut command = RawDocumentBuf::new();
        command.append(cstr!("listCollections"), 1);
        command.append(cstr!("filter"), single("name", single("$in", &names)));
        self.options().append_to_inspect(&mut command);
        self.link.run(&command).await
    }

    /// One look. `None`: the collection was dropped or renamed meanwhile.
    async fn look(&mut self) -> Result<Option<Observed>, RunError> {
        let name = self.namespace.collection;
        // From before the freeze until it takes the collection's name, there is a copy.
        let (copy, kept) = (conversion::copy_name(name), conversion::kept_name(name));
        let record = conversion::record_name(name);
        let reply = self.list(&[name, &copy, &kept, &record]).await?;
        let all = ListedCollections::of(&reply);
        let (found, is_converting) = (all.named(name), all.named(&copy).is_some());
        let (former, is_former_hidden) = match self.former(&all).await {
            // The client may have rights on its own collection only.
            Err(RunError::Command(error)) if error.is(ErrorCode::Unauthorized) => (None, true),
            former => (former?, false),
        };
        // Read before the collection's name is checked again, which is when its indexes are listed.
        let swap_number = match all.named(&record) {
            Some(_) => self.swap_number().await?,
            None => 0,
        };
        let observed = |uuid: Option<Binary>, layout: StoredLayout, is_frozen: bool| Observed {
            stored: StoredCollection {
                uuid,
                layout,
                former,
                is_former_hidden,
                swap_number,
            },
            is_converting,
            is_frozen,
        };
        let Some(found) = found else {
            return Ok(Some(observed(None, StoredLayout::Pages(None), false)));
        };
        let Some(uuid) = uuid_of(found) else {
            // A view is relayed like a plain collection.
            return Ok(Some(observed(None, StoredLayout::Plain, false)));
        };
        let is_frozen = is_frozen(found);
        let layout = self.layout_of(name, &uuid).await?;
        Ok(layout.map(|layout| observed(Some(uuid), layout, is_frozen)))
    }

    /// The collection in its former layout. `None`: there is none, or it has just been dropped, so drivers no
    /// longer send writes again that were executed there.
    async fn former(&mut self, all: &ListedCollections<'_>) -> Result<Option<FormerCollection>, RunError> {
        let own = self.namespace.collection;
        let (copy, kept) = (conversion::copy_name(own), conversion::kept_name(own));
        // Before the collection gets the kept name in a swap, a placeholder has it.
        let kept_uuid = all.named(&kept).filter(|kept| !is_placeholder(kept)).and_then(uuid_of);
        let (name, uuid) = match (kept_uuid, all.named(&copy).and_then(uuid_of)) {
            (Some(uuid), _) => (kept, uuid),
            (None, Some(uuid)) if self.is_former(&uuid).await? => (copy, uuid),
            _ => return Ok(None),
        };
        let layout = self.layout_of(&name, &uuid).await?;
        Ok(layout.map(|layout| FormerCollection { name, uuid, layout }))
    }

    /// Whether the copy of a conversion is the collection in its former layout, as the record of the
    /// conversion says.
    async fn is_former(&mut self, copy: &Binary) -> Result<bool, RunError> {
        let mut filter = single(conversion::DIRECTION, conversion::BACK);
        filter.append(cstr!("copy"), copy);
        let mut find = single("find", conversion::record_name(self.namespace.collection));
        find.append(cstr!("filter"), &filter);
        find.append(cstr!("limit"), 1);
        find.append(cstr!("singleBatch"), true);
        self.options().append_to_inspect(&mut find);
        let reply = self.link.run(&find).await?;
        Ok(CursorReply::parse(&reply).is_some_and(|cursor| cursor.documents().next().is_some()))
    }

    /// The [number](conversion::SWAP_NUMBER) in the record of the conversion. 0 if the client may not read
    /// it.
    async fn swap_number(&mut self) -> Result<i64, RunError> {
        let mut find = swap_number_find(self.namespace.collection);
        self.options().append_to_inspect(&mut find);
        let reply = self.link.call(UpstreamRequest::plain(&find)).await?;
        Ok(swap_number_of(&reply).unwrap_or_default())
    }

    /// The layout of a collection. A command that names its UUID follows in the same round trip, so the
    /// indexes are its own. `None`: the name denotes another collection by now.
    async fn layout_of(&mut self, collection: &str, uuid: &Binary) -> Result<Option<StoredLayout>, RunError> {
        let mut indexes = single("listIndexes", collection);
        self.options().append_to_inspect(&mut indexes);
        // With a hint, any filter would examine the whole index.
        let mut find = find_one(collection, &RawDocumentBuf::new(), uuid);
        find.append(cstr!("hint"), index::PAGE);
        self.options().without_api_strict().append_to_inspect(&mut find);
        let requests = [UpstreamRequest::plain(&indexes), UpstreamRequest::plain(&find)];
        let mut replies = self.link.call_all(&requests).await?.into_iter().map(succeeded);
        let (indexes, found) = (replies.next(), replies.next());
        match found {
            Some(Err(error)) if error.is(ErrorCode::CollectionUuidMismatch) => return Ok(None),
            Some(Err(CommandError::Upstream(reply)))
                if reply
                    .get_i32("code")
                    .is_ok_and(|code| misses_own_index(code, reply.get_str("errmsg").unwrap_or_default())) =>
            {
                return Ok(Some(StoredLayout::Plain));
            }
            Some(Err(error)) => return Err(error.into()),
            Some(Ok(_)) | None => {}
        }
        let indexes = match indexes {
            // It had another name for a moment.
            Some(Err(error)) if error.is(ErrorCode::NamespaceNotFound) => return Ok(None),
            Some(Err(error)) => return Err(error.into()),
            Some(Ok(reply)) => reply,
            None => return Ok(None),
        };
        let cursor = CursorReply::parse(&indexes);
        let indexes = cursor.iter().flat_map(CursorReply::documents);
        Ok(Some(StoredLayout::of_pages(indexes)))
    }
}

/// The cheapest query: by an `_id` that hardly any document has. It fails if the name denotes another
/// collection.
pub(in crate::session) fn identity_find(collection: &str, uuid: &Binary) -> RawDocumentBuf {
    find_one(collection, &single("_id", RawBsonRef::MinKey), uuid)
}

/// A query of the [number](conversion::SWAP_NUMBER) in the record of the conversion.
pub(super) fn swap_number_find(collection: &str) -> RawDocumentBuf {
    let mut find = single("find", conversion::record_name(collection));
    find.append(cstr!("projection"), single(conversion::SWAP_NUMBER, 1));
    find.append(cstr!("limit"), 1);
    find.append(cstr!("singleBatch"), true);
    find
}

/// That number in the reply. 0 if there is no record. `None`: the client may not read it.
pub(super) fn swap_number_of(reply: &RawDocument) -> Option<i64> {
    let record = CursorReply::parse(reply)?.documents().next();
    let number = record.and_then(|record| get(record, conversion::SWAP_NUMBER).and_then(as_whole_number));
    Some(number.unwrap_or_default())
}

/// A query of the `_id` of one document. It fails if the name denotes another collection.
fn find_one(collection: &str, filter: &RawDocument, uuid: &Binary) -> RawDocumentBuf {
    let mut find = single("find", collection);
    find.append(cstr!("filter"), filter);
    find.append(cstr!("projection"), single("_id", 1));
    find.append(cstr!("limit"), 1);
    find.append(cstr!("singleBatch"), true);
    find.append(cstr!("collectionUUID"), uuid);
    find
}

/// The error of a command in a transaction whose collection was exchanged. The driver tries the whole
/// transaction again.
pub(in crate::session) fn exchanged_in_transaction(namespace: Namespace<'_>) -> CommandError {
    let message = format!("`mongoshape convert` is exchanging {namespace}: try the transaction again");
    CommandError::new(ErrorCode::WriteConflict, message).transient()
}

/// Whether a freeze refuses the writes to a listed collection.
fn is_frozen(listed: &RawDocument) -> bool {
    options_of(listed).is_some_and(|options| pack::is_frozen(options) || compact::is_frozen(options))
}

/// Whether a listed collection only reserves the kept name.
fn is_placeholder(listed: &RawDocument) -> bool {
    options_of(listed).is_some_and(pack::is_placeholder)
}

fn options_of(listed: &RawDocument) -> Option<&RawDocument> {
    get(listed, "options").and_then(RawBsonRef::as_document)
}

fn uuid_of(listed: &RawDocument) -> Option<Binary> {
    let info = get(listed, "info").and_then(RawBsonRef::as_document)?;
    match get(info, "uuid")? {
        RawBsonRef::Binary(uuid) => Some(uuid.to_binary()),
        _ => None,
    }
}
