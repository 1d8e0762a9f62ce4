//! The size of a collection as it is, and in buckets. Pure.

use super::collection_stats::CollectionStats;
use super::forecast::{self, Measured};
use super::rounding::{count, whole};
use crate::pattern::shapes::BucketShape;

/// The size of a collection, in numbers and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) documents: u64,
    pub(super) entries: u64,
    pub(super) data: u64,
    pub(super) storage: u64,
    pub(super) indexes: u64,
}

impl Cost {
    /// Bytes on disk.
    pub(super) fn on_disk(&self) -> u64 {
        self.storage.saturating_add(self.indexes)
    }
}

/// The cost of the plain collection.
pub(super) fn now(facts: &CollectionStats) -> Cost {
    Cost {
        documents: facts.documents,
        entries: facts.documents.saturating_mul(count(facts.indexes.len())),
        data: facts.data,
        storage: facts.storage,
        indexes: facts.indexes.iter().map(|index| index.bytes).sum(),
    }
}

/// A cost in buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BucketCost {
    pub(super) cost: Cost,
    /// Bytes of the index on the items' `_id`, which exists with `item_ids = "unique"`.
    pub(super) item_ids: u64,
}

/// The cost in buckets. `None`: no sampled document can be an item.
pub(super) fn in_buckets(measured: &Measured<'_>, shape: &BucketShape) -> Option<BucketCost> {
    let forecast = forecast::in_shape(measured, shape)?;
    Some(BucketCost {
        cost: Cost {
            documents: whole(measured.pages),
            entries: whole(forecast.entries),
            data: whole(forecast.data),
            storage: whole(forecast.storage),
            indexes: whole(forecast.indexes),
        },
        item_ids: whole(forecast.item_ids),
    })
}
