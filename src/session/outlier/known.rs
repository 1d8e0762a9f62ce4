//! Documents that were outliers when they were last written to, so that what is pushed to one need not be tried on a typical
//! document first.
//!
//! What is remembered is a guess: mongod's answer says whether it was right, and a wrong one costs a round trip.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bson::oid::ObjectId;
use bson::raw::RawBsonRef;
use lru::LruCache;

use crate::command::document::single;
use crate::command::namespace::Namespace;
use crate::pattern::outlier::page::Rest;
use crate::session::first_page::Place;

/// Documents remembered. One takes some 200 bytes.
const MAX_DOCUMENTS: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");

/// What an outlier was like.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    /// It had this generation.
    Generation(ObjectId),
    /// It was at rest.
    Rest(Rest),
}

impl Known {
    /// Its generation.
    pub(super) fn generation(self) -> ObjectId {
        match self {
            Self::Generation(generation) | Self::Rest(Rest { generation, .. }) => generation,
        }
    }
}

/// The outliers that a proxy knows of.
#[derive(Debug)]
pub(in crate::session) struct KnownOutliers {
    all: Mutex<LruCache<Place, Known>>,
}

impl Default for KnownOutliers {
    fn default() -> Self {
        // Grows as it is used.
        let mut all = LruCache::unbounded();
        all.resize(MAX_DOCUMENTS);
        Self { all: Mutex::new(all) }
    }
}

impl KnownOutliers {
    /// The place of a document.
    pub(super) fn place(namespace: Namespace<'_>, id: RawBsonRef<'_>) -> Place {
        Place::new(namespace, single("_id", id).into_bytes())
    }

    /// What it was like.
    pub(super) fn get(&self, place: &Place) -> Option<Known> {
        self.lock().get(place).copied()
    }

    /// Remembers it.
    pub(super) fn learn(&self, place: Place, known: Known) {
        self.lock().put(place, known);
    }

    /// Forgets one that was found to be wrong.
    pub(super) fn forget(&self, place: &Place) {
        self.lock().pop(place);
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Place, Known>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
