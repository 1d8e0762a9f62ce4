//! Reads the pages of a collection in the order of the page index: by key, then by page number.

use bson::DateTime;
use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::error::Error;
use mongodb::{Cursor, Database};

use crate::command::document::{put, single};
use crate::maintenance::swap::Halt;
use crate::pattern::bucket::compact::Given;
use crate::pattern::bucket::index;
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::layout::path;
use crate::pattern::shapes::BucketShape;

pub(super) struct PageCursor<'a> {
    shape: &'a BucketShape,
    cursor: Cursor<RawDocumentBuf>,
    next: Option<(RawDocumentBuf, Vec<u8>)>,
}

impl<'a> PageCursor<'a> {
    /// Opens a cursor of the pages of all keys, or of one.
    pub(super) async fn open(
        database: &Database,
        collection: &str,
        shape: &'a BucketShape,
        key: Option<&Key>,
    ) -> Result<Self, Halt> {
        let mut filter = RawDocumentBuf::new();
        if let Some(key) = key {
            key.append_filter(shape, &mut filter);
        }
        let mut order = RawDocumentBuf::new();
        for field in shape.key().iter().map(String::as_str).chain([path::PAGE]) {
            put(&mut order, field, 1);
        }
        let mut find = single("find", collection);
        find.append(cstr!("filter"), &filter);
        find.append(cstr!("sort"), &order);
        find.append(cstr!("hint"), index::PAGE);
        let cursor = database.run_raw_cursor_command(find).await?.with_type();
        let mut pages = Self {
            shape,
            cursor,
            next: None,
        };
        pages.advance().await?;
        Ok(pages)
    }

    /// The next page.
    pub(super) fn peek(&self) -> Option<&RawDocument> {
        self.next.as_ref().map(|(page, _)| &**page)
    }

    /// The identity of the next page's key.
    pub(super) fn identity(&self) -> Option<&[u8]> {
        self.next.as_ref().map(|(_, identity)| identity.as_slice())
    }

    /// Takes the next page if it belongs to this key.
    pub(super) async fn take_of(&mut self, identity: &[u8]) -> Result<Option<RawDocumentBuf>, Halt> {
        if self.identity() != Some(identity) {
            return Ok(None);
        }
        let page = self.next.take().map(|(page, _)| page);
        self.advance().await?;
        Ok(page)
    }

    async fn advance(&mut self) -> Result<(), Halt> {
        let next = self.cursor.try_next().await?;
        self.next = next
            .map(|page| {
                let key = Key::of(self.shape, &page).map_err(|_| Halt::Misfit)?;
                Ok::<_, Halt>((page, key.identity()))
            })
            .transpose()?;
        Ok(())
    }
}

/// The clock and the source of nonces for packed pages.
pub(crate) fn given() -> Given {
    Given {
        now: DateTime::now(),
        nonce: || rand::random_range(1..=i64::MAX),
    }
}

pub(super) async fn has_key(
    database: &Database,
    collection: &str,
    shape: &BucketShape,
    key: &Key,
) -> Result<bool, Error> {
    let mut filter = RawDocumentBuf::new();
    key.append_filter(shape, &mut filter);
    let mut find = single("find", collection);
    find.append(cstr!("filter"), &filter);
    find.append(cstr!("hint"), index::PAGE);
    find.append(cstr!("projection"), single("_id", 1));
    find.append(cstr!("limit"), 1);
    find.append(cstr!("singleBatch"), true);
    let mut found = database.run_raw_cursor_command(find).await?;
    Ok(found.try_next().await?.is_some())
}
