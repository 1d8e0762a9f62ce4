//! Defines the copy: its options and indexes, which are those of the collection as applications see them.

use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;
use mongodb::error::{Error, ErrorKind};

use super::Conversion;
use super::changes::{self, Changes, ReadLimits, StreamSource, is_lost};
use super::layout::PagesOf;
use super::mirror::side::{DUPLICATE_KEY, is_equal};
use super::mirror::stored_pages::StoredPages;
use super::record::Phase;
use super::subject::uuid_named;
use crate::command::collection::{IMAGES, VALIDATION, enabled_images};
use crate::command::document::{get, put, single};
use crate::maintenance::swap::Halt;
use crate::pattern::bucket::conversion::copy_name;
use crate::pattern::bucket::item_index::{EXPIRE_AFTER, name};
use crate::pattern::bucket::validation::Validation;
use crate::pattern::shapes::Shape;

/// The copy of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    WithNewCopy,
    WithTheCopy,
}

impl Conversion<'_> {
    /// Opens the change stream, and creates the copy if it is new.
    pub(super) async fn prepare(&mut self, start: Start, has_writers: bool) -> Result<(), Halt> {
        self.indexes = self.mirror.source.indexes().await?;
        self.mirror.copy_pages = self.copy_pages()?;
        self.mirror.source_pages = StoredPages::of_source(&self.stream_source()?);
        let options = self.mirror.source.options().await?.unwrap_or_default();
        self.validation = Validation::of(&options);
        let definition = CopyDefinition::of(&options, &self.indexes);
        let start = match start {
            Start::WithTheCopy => self.renew_copy(&definition).await?,
            Start::WithNewCopy => start,
        };
        if start == Start::WithNewCopy {
            // Recorded first, because the stream enables images, and a killed run may leave a copy.
            self.record.copy = self.record.source.clone();
            self.record.token = None;
            self.enter(Phase::Copying).await?;
        }
        if has_writers {
            self.open_changes().await?;
        }
        if start == Start::WithNewCopy {
            self.create_copy(&definition).await?;
        }
        self.late_options = definition.late;
        self.enter(self.record.phase).await
    }

    async fn create_copy(&mut self, definition: &CopyDefinition) -> Result<(), Halt> {
        let database = &self.target.database;
        let copy = copy_name(&self.target.collection);
        // A late drop by name would drop the copy of the next run.
        if let Some(former) = uuid_named(database, &copy).await? {
            self.by().drop(&copy, Some(&former)).await?;
        }
        self.mirror.copy.run("create", &definition.create).await?;
        self.mirror.copy.create_indexes(&definition.indexes).await?;
        let uuid = uuid_named(database, &copy).await?;
        self.record.copy = uuid.ok_or_else(|| Halt::Words(format!("another program dropped {copy}")))?;
        Ok(())
    }

    /// Gives the copy of an earlier run, or the former collection, the indexes that the collection has now.
    /// Its validator is removed: it could refuse documents that the collection has. TTL indexes are created
    /// again, and get their time at the end: until then mongod would delete documents by the former time.
    async fn renew_copy(&mut self, definition: &CopyDefinition) -> Result<Start, Halt> {
        let copy = self.mirror.copy.clone();
        if copy.validation().await?.has_validator() {
            copy.run("collMod", &single("validator", RawDocumentBuf::new())).await?;
        }
        let there = copy.indexes().await?;
        if copy.is_plain && there.iter().any(|index| get(index, EXPIRE_AFTER).is_some()) {
            // mongod may have deleted documents that the collection has, so all are compared and corrected.
            self.record.phase = Phase::Copying;
        }
        for index in &there {
            if !definition.indexes.iter().any(|wanted| is_equal(index, wanted)) {
                copy.run("dropIndexes", &single("index", name(index))).await?;
            }
        }
        let is_missing = |wanted: &&RawDocumentBuf| !there.iter().any(|index| is_equal(index, wanted));
        let missing: Vec<RawDocumentBuf> = definition.indexes.iter().filter(is_missing).cloned().collect();
        match copy.create_indexes(&missing).await {
            Ok(()) => Ok(Start::WithTheCopy),
            Err(Halt::Failed(error)) if is_duplicate(&error) && !self.record.is_way_back() => {
                self.say("the copy has documents that a new unique index refuses; begins with a new copy");
                Ok(Start::WithNewCopy)
            }
            Err(halt) => Err(halt),
        }
    }

    /// The copy's pages, if their items can be read and changed page by page.
    fn copy_pages(&self) -> Result<Option<StoredPages>, Halt> {
        let (database, collection) = (&self.target.database, self.mirror.copy.collection.clone());
        let of = PagesOf {
            database,
            collection: &collection,
            has_change_streams: false,
            rejects_direct_writes: false,
        };
        Ok(match self.record.to.shape(&of)? {
            Some(Shape::Bucket(shape)) => StoredPages::of_copy(database, collection, shape, &self.indexes),
            _ => None,
        })
    }

    fn stream_source(&self) -> Result<StreamSource, Halt> {
        let of = PagesOf {
            database: &self.target.database,
            collection: &self.target.collection,
            has_change_streams: true,
            rejects_direct_writes: false,
        };
        let pages = match self.record.from.shape(&of)? {
            Some(Shape::Bucket(shape)) => Some(shape),
            _ => None,
        };
        Ok(StreamSource {
            database: self.target.database.clone(),
            collection: self.target.collection.clone(),
            uuid: self.record.source.clone(),
            pages,
        })
    }

    /// Has mongod store images of pages, from which the stream returns the items before a change.
    async fn enable_images(&self, source: &StreamSource) -> Result<(), Halt> {
        let mut command = single("collMod", source.collection.as_str());
        command.append(cstr!("collectionUUID"), &source.uuid);
        put(&mut command, IMAGES, enabled_images());
        self.by().modify(command, self.stop).await
    }

    async fn open_changes(&mut self) -> Result<(), Halt> {
        let source = self.stream_source()?;
        if source.pages.is_some() {
            self.enable_images(&source).await?;
        }
        let mut opened = match Changes::open(source.clone(), self.record.token.clone()).await {
            Err(halt) if self.record.token.is_some() && is_lost(&halt) => {
                self.say(
                    "the oplog no longer contains the changes since the earlier run; all documents are compared again",
                );
                self.record.phase = Phase::Copying;
                Changes::open(source, None).await?
            }
            opened => opened?,
        };
        if opened.position().is_none() {
            // Changes were in the reply that opened the stream. All documents are copied after them.
            self.pending.extend(opened.next(ReadLimits::NONE).await?.ids);
        }
        self.opened = changes::cluster_time(self.client).await?;
        self.record.token = opened.position();
        self.changes = Some(opened);
        if self.record.token.is_none() {
            return Err(Halt::Words(
                "the server returned no position of the change stream".to_owned(),
            ));
        }
        Ok(())
    }
}

fn without_expiry(index: &RawDocument) -> RawDocumentBuf {
    let mut without = RawDocumentBuf::new();
    for (field, value) in index.iter().flatten().filter(|(field, _)| *field != EXPIRE_AFTER) {
        without.append(field, value);
    }
    without
}

fn is_duplicate(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if i64::from(command.code) == DUPLICATE_KEY)
}

/// The commands that define the copy.
struct CopyDefinition {
    /// Arguments of `create`.
    create: RawDocumentBuf,
    indexes: Vec<RawDocumentBuf>,
    /// Arguments of `collMod`, when it is equal: a validator would be evaluated for every document, and a TTL
    /// index would delete documents.
    late: Vec<RawDocumentBuf>,
}

impl CopyDefinition {
    /// The definition for these options and indexes of the application.
    fn of(options: &RawDocument, indexes: &[RawDocumentBuf]) -> Self {
        let mut definition = Self {
            create: RawDocumentBuf::new(),
            indexes: Vec::new(),
            late: Vec::new(),
        };
        for (field, value) in options.iter().flatten() {
            if !VALIDATION.contains(&field.as_str()) && field.as_str() != IMAGES {
                definition.create.append(field, value);
            }
        }
        let validation = Validation::of(options);
        if validation.has_validator() {
            definition.late.push(validation.arguments());
        }
        for index in indexes {
            if let Some(seconds) = get(index, EXPIRE_AFTER) {
                let mut expiring = rawdoc! { "name": name(index) };
                expiring.append(cstr!("expireAfterSeconds"), seconds);
                definition.late.push(single("index", expiring));
            }
            definition.indexes.push(without_expiry(index));
        }
        definition
    }
}
