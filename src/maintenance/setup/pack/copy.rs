//! Fills the copy. Documents are read in the order of the pages, and packed key by key.

use std::time::{Duration, Instant};

use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use tokio_util::sync::CancellationToken;

use crate::command::document::single;
use crate::command::error::WriteError;
use crate::command::value_text::id_text;
use crate::maintenance::compact::given;
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::swap::{Flushed, Halt, Writer};
use crate::maintenance::upstream::ShapedCollection;
use crate::pattern::bucket::compact::{Packed, Packer};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::item_index::SphereLocations;
use crate::pattern::bucket::pack;
use crate::pattern::shapes::BucketShape;

/// Interval of progress reports.
pub(super) const REPORT_EVERY: Duration = Duration::from_secs(10);

/// What determines the pages.
#[derive(Clone, Copy)]
pub(super) struct Paging<'a> {
    pub(super) shape: &'a BucketShape,
    /// The locations of an empty page, in the indexes of the copy.
    pub(super) locations: &'a SphereLocations,
}

/// Packs all documents of a collection into the copy. mongod sorts them, on disk if no index has
/// their order.
pub(super) async fn fill(
    target: &ShapedCollection,
    paging: Paging<'_>,
    writer: &mut Writer<'_>,
    stop: &CancellationToken,
    findings: &mut Findings,
) -> Result<(), Halt> {
    let mut find = single("find", target.collection.as_str());
    find.append(cstr!("sort"), pack::order(paging.shape));
    find.append(cstr!("allowDiskUse"), true);
    let found = target.database.run_raw_cursor_command(find).await?;
    let mut documents = found.with_type::<RawDocumentBuf>();
    let mut filling = PageCopy {
        paging,
        packer: None,
        pages: 0,
        writer,
    };
    let (mut read, mut reported) = (0_u64, Instant::now());
    while let Some(document) = documents.try_next().await? {
        if stop.is_cancelled() {
            return Err(Halt::Stopped);
        }
        let item = pack::item(paging.shape, &document).map_err(|error| unfit(&document, &error))?;
        filling.add(item).await?;
        read += 1;
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            let text = format!("packed {read} documents, {} pages so far", filling.pages);
            findings.add(&Finding::note(target.namespace(), text));
        }
    }
    filling.end_key().await?;
    filling.flush().await?;
    let text = format!("packed {read} documents, {} pages", filling.pages);
    findings.add(&Finding::note(target.namespace(), text));
    Ok(())
}

/// The reason to end if a document cannot be an item.
pub(super) fn unfit(document: &RawDocument, error: &WriteError) -> Halt {
    Halt::Words(format!("document with _id {}: {}", id_text(document), error.message))
}

struct PageCopy<'a, 'w> {
    paging: Paging<'a>,
    packer: Option<Packer<'a>>,
    pages: u64,
    writer: &'a mut Writer<'w>,
}

impl PageCopy<'_, '_> {
    async fn add(&mut self, item: Item) -> Result<(), Halt> {
        let is_same_key = |packer: &Packer<'_>| packer.identity() == item.identity();
        if !self.packer.as_ref().is_some_and(is_same_key) {
            self.end_key().await?;
        }
        let Paging { shape, locations } = self.paging;
        let packer = self.packer.get_or_insert_with(|| {
            Packer::of_key(shape, given(), item.key().clone()).with_locations(locations.clone())
        });
        if let Some(full) = packer.add(item) {
            self.push(full).await?;
        }
        Ok(())
    }

    async fn end_key(&mut self) -> Result<(), Halt> {
        let Some(packer) = self.packer.take() else {
            return Ok(());
        };
        for page in packer.finish() {
            self.push(page).await?;
        }
        Ok(())
    }

    async fn push(&mut self, page: Packed) -> Result<(), Halt> {
        self.pages += 1;
        if self.writer.push(page) {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Halt> {
        match self.writer.flush().await? {
            Flushed::All => Ok(()),
            Flushed::ItemsInTheWay { .. } => {
                let words = "two documents have the same _id, or another program writes to the copy";
                Err(Halt::Words(words.to_owned()))
            }
        }
    }
}
