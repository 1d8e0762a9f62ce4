//! Writes pages into a collection in batches.

use bson::raw::{RawArrayBuf, RawDocumentBuf, cstr};
use bson::{Binary, Document, rawdoc};

use super::commands::concern_kept;
use super::halt::Halt;
use super::kind::REPLICATION_TIMEOUT_MS;
use crate::command::document::{array_of, single};
use crate::maintenance::upstream::{ShapedCollection, as_integer};
use crate::pattern::bucket::compact::Packed;
use crate::pattern::bucket::layout::path;

/// Pages in one command.
const MAX_PAGES: usize = 1000;
/// Bytes of pages in one command. The last page may exceed it.
const MAX_BYTES: usize = 8 << 20;
/// The most `_id`s that are tried for one page.
const MAX_ATTEMPTS: u32 = 100;

/// Writes pages into the collection with one UUID.
pub(crate) struct Writer<'a> {
    target: &'a ShapedCollection,
    name: String,
    uuid: Binary,
    waiting: Vec<Packed>,
    bytes: usize,
    for_the_majority: bool,
}

/// The result of writing the waiting pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    All,
    /// The collection already has items of the first waiting page. `behind_others`: whether pages
    /// were written before it.
    ItemsInTheWay {
        behind_others: bool,
    },
}

/// The obstacle to writing a page.
enum Obstacle {
    Name,
    Items,
    Other(String),
}

impl<'a> Writer<'a> {
    /// A writer for the collection with that name and UUID, in the database of `target`.
    pub(crate) fn new(target: &'a ShapedCollection, name: String, uuid: Binary) -> Self {
        Self {
            target,
            name,
            uuid,
            waiting: Vec::new(),
            bytes: 0,
            for_the_majority: false,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn uuid(&self) -> &Binary {
        &self.uuid
    }

    /// From now on, writes wait for the majority, so that they survive a change of the primary.
    pub(crate) fn wait_for_the_majority(&mut self) {
        self.for_the_majority = true;
    }

    /// Drops the waiting pages.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
    }

    /// Adds a page. Returns whether the pages should be [flushed](Self::flush).
    pub(crate) fn push(&mut self, page: Packed) -> bool {
        self.bytes += page.document.as_bytes().len();
        self.waiting.push(page);
        self.waiting.len() >= MAX_PAGES || self.bytes >= MAX_BYTES
    }

    /// The next page to write.
    pub(crate) fn first(&self) -> Option<&Packed> {
        self.waiting.first()
    }

    /// Writes the waiting pages.
    pub(crate) async fn flush(&mut self) -> Result<Flushed, Halt> {
        let (mut attempts, mut behind_others) = (0, false);
        while !self.waiting.is_empty() {
            let reply = self.insert().await?;
            let Some((position, obstacle)) = write_error(&reply) else {
                break;
            };
            attempts = if position > 0 { 0 } else { attempts + 1 };
            behind_others |= position > 0;
            self.waiting.drain(..position.min(self.waiting.len()));
            match obstacle {
                Obstacle::Other(words) => return Err(Halt::Words(words)),
                Obstacle::Items => return Ok(Flushed::ItemsInTheWay { behind_others }),
                Obstacle::Name if attempts > MAX_ATTEMPTS => {
                    let words = format!("another program writes to {}", self.name);
                    return Err(Halt::Words(words));
                }
                Obstacle::Name => {
                    let first = self.waiting.first_mut();
                    first.into_iter().for_each(Packed::take_another_name);
                }
            }
        }
        self.clear();
        Ok(Flushed::All)
    }

    async fn insert(&self) -> Result<Document, Halt> {
        let documents: RawArrayBuf = self.waiting.iter().map(|page| &*page.document).collect();
        let mut command = single("insert", self.name.as_str());
        command.append(cstr!("documents"), &documents);
        command.append(cstr!("ordered"), true);
        self.run(command).await
    }

    /// Executes one delete statement.
    pub(crate) async fn delete(&self, statement: RawDocumentBuf) -> Result<(), Halt> {
        let mut command = single("delete", self.name.as_str());
        command.append(cstr!("deletes"), array_of(&[statement]));
        let reply = self.run(command).await?;
        match write_error(&reply) {
            Some((_, Obstacle::Other(words))) => Err(Halt::Words(words)),
            _ => Ok(()),
        }
    }

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

/// The first error of a reply: the position of its statement, and the obstacle.
fn write_error(reply: &Document) -> Option<(usize, Obstacle)> {
    const DUPLICATE_KEY: i64 = 11000;
    let error = reply.get_array("writeErrors").ok()?.first()?.as_document()?;
    let position = error.get("index").and_then(as_integer)?;
    let words = error.get_str("errmsg").unwrap_or_default();
    let pattern = error.get_document("keyPattern").ok();
    let field = pattern.and_then(|pattern| pattern.keys().last());
    let obstacle = match field.map(String::as_str) {
        Some("_id") => Obstacle::Name,
        Some(path::PAGE) | None => Obstacle::Other(words.to_owned()),
        Some(_) => Obstacle::Items,
    };
    let is_duplicate = error.get("code").and_then(as_integer) == Some(DUPLICATE_KEY);
    let obstacle = if is_duplicate {
        obstacle
    } else {
        Obstacle::Other(words.to_owned())
    };
    Some((usize::try_from(position).ok()?, obstacle))
}
