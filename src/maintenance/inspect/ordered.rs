//! Reads a collection's documents in batches, in the order of the scan.
//!
//! mongod sorts only the `_id`s, on disk if necessary, and the documents are fetched by `_id`, so
//! neither side holds more than a batch. A document may change between sorting and fetching. A page
//! that a proxy fills in the meantime is not affected, because a page does not change after the
//! next one was begun. A document that another run adopted in the meantime is marked.

use std::collections::HashMap;

use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::Cursor;
use mongodb::error::Error;

use super::aggregate;
use crate::command::document::{as_flag, as_whole_number, get, single};
use crate::maintenance::upstream::ShapedCollection;
use crate::pattern::bucket::adopt::order;
use crate::pattern::shapes::BucketShape;

/// Documents in a batch.
const MAX_DOCUMENTS: usize = 500;
/// Bytes in a batch. The last document may exceed it.
const MAX_BYTES: i64 = 8 << 20;
/// `_id`s in one batch of the cursor: few enough to fetch all before mongod closes the idle cursor
/// (10 minutes).
const IDS_AT_ONCE: u32 = 10_000;

pub(crate) struct Fetched {
    pub(crate) document: RawDocumentBuf,
    /// Whether it got its `control` field between sorting and fetching.
    pub(crate) is_adopted_meanwhile: bool,
}

/// The documents of a collection, in [`order`].
pub(crate) struct Ordered<'a> {
    target: &'a ShapedCollection,
    rows: Cursor<RawDocumentBuf>,
}

impl<'a> Ordered<'a> {
    /// Has mongod sort the documents.
    pub(crate) async fn open(target: &'a ShapedCollection, shape: &BucketShape) -> Result<Self, Error> {
        let command = aggregate(target, &order(shape));
        let rows = target.database.run_raw_cursor_command(command);
        let rows = rows.batch_size(IDS_AT_ONCE).await?.with_type();
        Ok(Self { target, rows })
    }

    /// The next documents. `None` at the end. Documents that were removed in the meantime are left
    /// out.
    pub(crate) async fn next_batch(&mut self) -> Result<Option<Vec<Fetched>>, Error> {
        let mut rows: Vec<RawDocumentBuf> = Vec::new();
        let mut bytes = 0;
        while rows.len() < MAX_DOCUMENTS && bytes < MAX_BYTES {
            let Some(row) = self.rows.try_next().await? else {
                break;
            };
            bytes += get(&row, "bytes").and_then(as_whole_number).unwrap_or(0);
            rows.push(row);
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let mut documents = self.fetch(&rows).await?;
        let in_order = rows.iter().filter_map(|row| {
            let document = documents.remove(&id_of(row))?;
            let had_control = get(row, BucketShape::CONTROL).and_then(as_flag) == Some(true);
            Some(Fetched {
                is_adopted_meanwhile: !had_control && get(&document, BucketShape::CONTROL).is_some(),
                document,
            })
        });
        Ok(Some(in_order.collect()))
    }

    async fn fetch(&self, rows: &[RawDocumentBuf]) -> Result<HashMap<Vec<u8>, RawDocumentBuf>, Error> {
        let among: RawArrayBuf = rows.iter().filter_map(|row| get(row, "_id")).collect();
        let mut command = single("find", self.target.collection.as_str());
        command.append(cstr!("filter"), single("_id", single("$in", &among)));
        let found = self.target.database.run_raw_cursor_command(command).await?;
        let mut found = found.with_type::<RawDocumentBuf>();
        let mut documents = HashMap::with_capacity(rows.len());
        while let Some(document) = found.try_next().await? {
            documents.insert(id_of(&document), document);
        }
        Ok(documents)
    }
}

fn id_of(document: &RawDocument) -> Vec<u8> {
    get(document, "_id").map_or_else(Vec::new, |id| single("", id).into_bytes())
}
