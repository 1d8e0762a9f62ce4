//! The copy: made like the collection, filled in batches, and put right.

use std::collections::HashSet;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Binary, Bson, Document, doc, rawdoc};
use futures_util::TryStreamExt;
use mongodb::error::{Error, ErrorKind};

use super::freeze::concern_kept;
use super::halt::Halt;
use crate::cli::upstream::{Target, as_integer, description};
use crate::command::document::{array_of, get, single};
use crate::pattern::bucket::compact::{Packed, VALIDATOR, copy_name};
use crate::pattern::bucket::index;
use crate::pattern::bucket::key::Key;
use crate::pattern::shapes::BucketShape;

/// Pages in one command.
const MAX_PAGES: usize = 1000;
/// Bytes of pages in one command; beyond it there is at most one page more.
const MAX_BYTES: usize = 8 << 20;
/// How often a page that is in the way of another is looked for.
const MAX_ATTEMPTS: u32 = 100;
/// How long a set's members may take to have them.
const REPLICATION_TIMEOUT_MS: i64 = 60_000;
/// Of a collection that is frozen, or has been.
const VALIDATION: [&str; 3] = [VALIDATOR, "validationLevel", "validationAction"];

/// The copy of a collection.
pub(super) struct Copy<'a> {
    target: &'a Target,
    shape: &'a BucketShape,
    name: String,
    uuid: Binary,
    waiting: Vec<Packed>,
    bytes: usize,
    is_new: bool,
    /// Whether nothing is in it but what was written in this pass.
    is_fresh: bool,
    /// Keys whose pages made room for others in this pass.
    evicted: HashSet<Vec<u8>>,
    for_the_majority: bool,
}

/// What is in the way of a page.
enum InTheWay {
    Name,
    Items,
    Other(String),
}

impl<'a> Copy<'a> {
    /// Goes on with the one that is there, or makes it; whether it is new.
    pub(super) async fn open(
        target: &'a Target,
        shape: &'a BucketShape,
        described: &Document,
    ) -> Result<(Self, bool), Halt> {
        let name = copy_name(&target.collection);
        let options = |described: &Document| -> Document {
            let options = described.get_document("options").cloned().unwrap_or_default();
            let is_kept = |(option, _): &(String, Bson)| !VALIDATION.contains(&option.as_str());
            options.into_iter().filter(is_kept).collect()
        };
        let wanted = options(described);
        let mut there = description(&target.database, &name).await?;
        if there.as_ref().is_some_and(|there| options(there) != wanted) {
            drop_if_there(target).await?;
            there = None;
        }
        let is_new = there.is_none();
        let there = match there {
            Some(there) => there,
            None => make(target, &name, described).await?,
        };
        let copy = Self {
            target,
            shape,
            uuid: uuid_of(&there)?,
            name,
            waiting: Vec::new(),
            bytes: 0,
            is_new,
            is_fresh: false,
            evicted: HashSet::new(),
            for_the_majority: false,
        };
        copy.take_over_indexes().await?;
        Ok((copy, is_new))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn uuid(&self) -> &Binary {
        &self.uuid
    }

    /// From now on what is written is to outlive a change of the primary.
    pub(super) fn wait_for_the_majority(&mut self) {
        self.for_the_majority = true;
    }

    /// Begins another pass.
    pub(super) fn begin(&mut self) {
        self.is_fresh = std::mem::take(&mut self.is_new);
        self.evicted.clear();
        self.waiting.clear();
        self.bytes = 0;
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// Whether the pages of a key had to make room for others in this pass.
    pub(super) fn is_evicted(&self, identity: &[u8]) -> bool {
        self.evicted.contains(identity)
    }

    /// Whether any had.
    pub(super) fn has_evicted(&self) -> bool {
        !self.evicted.is_empty()
    }

    /// Makes the copy's indexes those of the collection, names included.
    pub(super) async fn take_over_indexes(&self) -> Result<(), Halt> {
        let wanted = indexes(self.target, &self.target.collection).await?;
        let there = indexes(self.target, &self.name).await?;
        for found in there.iter().filter(|found| !wanted.contains(found)) {
            let name = found.get_str("name").unwrap_or_default();
            let command = doc! { "dropIndexes": &self.name, "index": name };
            self.target.database.run_command(command).await?;
        }
        let missing: Vec<Document> = wanted.into_iter().filter(|wanted| !there.contains(wanted)).collect();
        if !missing.is_empty() {
            let command = doc! { "createIndexes": &self.name, "indexes": missing };
            self.target.database.run_command(command).await?;
        }
        Ok(())
    }

    /// Removes a key's pages.
    pub(super) async fn remove(&mut self, key: &Key) -> Result<(), Halt> {
        self.flush().await?;
        let mut filter = RawDocumentBuf::new();
        key.append_filter(self.shape, &mut filter);
        let mut statement = single("q", &filter);
        statement.append(cstr!("limit"), 0);
        statement.append(cstr!("hint"), index::PAGE);
        let mut command = single("delete", self.name.as_str());
        command.append(cstr!("deletes"), array_of(&[statement]));
        let reply = self.run(command).await?;
        match write_error(&reply) {
            Some((_, InTheWay::Other(words))) => Err(Halt::Words(words)),
            _ => Ok(()),
        }
    }

    /// Adds a page.
    pub(super) async fn push(&mut self, page: Packed) -> Result<(), Halt> {
        self.bytes += page.document.as_bytes().len();
        self.waiting.push(page);
        if self.waiting.len() >= MAX_PAGES || self.bytes >= MAX_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Writes what waits.
    pub(super) async fn flush(&mut self) -> Result<(), Halt> {
        let mut pages = std::mem::take(&mut self.waiting);
        self.bytes = 0;
        let mut attempts = 0;
        while !pages.is_empty() {
            let reply = self.insert(&pages).await?;
            let Some((position, in_the_way)) = write_error(&reply) else {
                return Ok(());
            };
            attempts = if position > 0 { 0 } else { attempts + 1 };
            pages.drain(..position.min(pages.len()));
            match in_the_way {
                InTheWay::Other(words) => return Err(Halt::Words(words)),
                _ if attempts > MAX_ATTEMPTS => {
                    let words = format!("{} is written by somebody else", self.name);
                    return Err(Halt::Words(words));
                }
                InTheWay::Name => pages.first_mut().into_iter().for_each(Packed::take_another_name),
                InTheWay::Items => {
                    if let Some(page) = pages.first() {
                        self.make_room(&page.document).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn insert(&self, pages: &[Packed]) -> Result<Document, Halt> {
        let documents: RawArrayBuf = pages.iter().map(|page| &*page.document).collect();
        let mut command = single("insert", self.name.as_str());
        command.append(cstr!("documents"), &documents);
        command.append(cstr!("ordered"), true);
        self.run(command).await
    }

    /// Removes the keys that have items of this page: those have gone from one key to another.
    async fn make_room(&mut self, page: &RawDocument) -> Result<(), Halt> {
        let items = get(page, self.shape.items()).and_then(RawBsonRef::as_array);
        let items = items
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(RawBsonRef::as_document);
        let ids: RawArrayBuf = items.filter_map(|item| get(item, "_id")).collect();
        let mut find = single("find", self.name.as_str());
        find.append(
            cstr!("filter"),
            single(&index::item_id_path(self.shape), single("$in", &ids)),
        );
        find.append(cstr!("hint"), index::ITEM_ID);
        find.append(cstr!("projection"), single(self.shape.items(), 0));
        let found = self.target.database.run_raw_cursor_command(find).await?;
        let found: Vec<RawDocumentBuf> = found.with_type().try_collect().await?;
        for page in found {
            let key = Key::of(self.shape, &page).map_err(|_| Halt::Misfit)?;
            self.evicted.insert(key.identity());
            Box::pin(self.remove(&key)).await?;
        }
        Ok(())
    }

    /// Runs a command on the copy, and on no other collection of its name.
    async fn run(&self, mut command: RawDocumentBuf) -> Result<Document, Halt> {
        command.append(cstr!("collectionUUID"), &self.uuid);
        if self.for_the_majority {
            command.append(
                cstr!("writeConcern"),
                rawdoc! { "w": "majority", "wtimeout": REPLICATION_TIMEOUT_MS },
            );
        }
        let reply = self.target.database.run_raw_command(command).await?;
        concern_kept(&reply)?;
        Ok(reply)
    }
}

/// Makes it with the collection's options.
async fn make(target: &Target, name: &str, described: &Document) -> Result<Document, Halt> {
    let mut create = doc! { "create": name };
    create.extend(described.get_document("options").cloned().unwrap_or_default());
    create.remove(VALIDATOR);
    target.database.run_command(create).await?;
    let made = description(&target.database, name).await?;
    made.ok_or_else(|| Halt::Words(format!("{name} was dropped by somebody")))
}

/// The first error of a reply: the position of its statement, and what was in the way.
fn write_error(reply: &Document) -> Option<(usize, InTheWay)> {
    const DUPLICATE_KEY: i64 = 11000;
    let error = reply.get_array("writeErrors").ok()?.first()?.as_document()?;
    let position = error.get("index").and_then(as_integer)?;
    let words = error.get_str("errmsg").unwrap_or_default();
    let pattern = error.get_document("keyPattern").ok();
    let field = pattern.and_then(|pattern| pattern.keys().next());
    let in_the_way = match field.map(String::as_str) {
        Some("_id") => InTheWay::Name,
        Some(field) if field.ends_with("._id") => InTheWay::Items,
        _ => InTheWay::Other(words.to_owned()),
    };
    let is_duplicate = error.get("code").and_then(as_integer) == Some(DUPLICATE_KEY);
    let in_the_way = if is_duplicate {
        in_the_way
    } else {
        InTheWay::Other(words.to_owned())
    };
    Some((usize::try_from(position).ok()?, in_the_way))
}

/// The indexes of a collection but that on `_id`.
async fn indexes(target: &Target, collection: &str) -> Result<Vec<Document>, Error> {
    let command = doc! { "listIndexes": collection };
    let found: Vec<Document> = target.database.run_cursor_command(command).await?.try_collect().await?;
    let is_own = |found: &Document| found.get_str("name").is_ok_and(|name| name != "_id_");
    Ok(found.into_iter().filter(is_own).collect())
}

/// The UUID of a collection, as `listCollections` describes it.
pub(super) fn uuid_of(described: &Document) -> Result<Binary, Halt> {
    let info = described.get_document("info").ok();
    match info.and_then(|info| info.get("uuid")) {
        Some(Bson::Binary(uuid)) => Ok(uuid.clone()),
        _ => Err(Halt::Words("its UUID is not told".to_owned())),
    }
}

/// Drops the copy that an earlier run has left.
pub(super) async fn drop_if_there(target: &Target) -> Result<(), Error> {
    const NAMESPACE_NOT_FOUND: i32 = 26;
    let command = doc! { "drop": copy_name(&target.collection) };
    match target.database.run_command(command).await {
        Err(error) if !matches!(error.kind.as_ref(), ErrorKind::Command(command) if command.code == NAMESPACE_NOT_FOUND) => {
            Err(error)
        }
        _ => Ok(()),
    }
}
