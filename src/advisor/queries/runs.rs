//! Reads consecutive documents of indexes, from some random positions.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bson::raw::{RawBson, RawDocument, RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::Database;
use mongodb::error::Error;

use super::super::evidence::Evidence;
use super::{Ask, milliseconds, reason, sampled};
use crate::advisor::candidate::Candidate;
use crate::advisor::collection_stats::{CollectionStats, Index};
use crate::advisor::rounding::count;
use crate::advisor::runs::{IndexRun, Runs};
use crate::advisor::sample::Sample;
use crate::command::document::{get, put, single};

/// Runs of an index.
const RUNS: usize = 8;
/// Bytes of documents of a run: as many as mongod compresses together.
const RUN_BYTES: u64 = 128 << 10;
/// Documents of a run. At least some, so that runs of large documents contain whole keys.
const LEAST: u64 = 60;
const MOST: u64 = 1300;
/// The time limit of one run in mongod, and for beginning another one of a collection.
const RUN_TIME: Duration = Duration::from_secs(1);
const RUNS_TIME: Duration = Duration::from_secs(5);

/// Runs to read.
struct Wanted<'a> {
    index: &'a Index,
    /// Fields whose values are those of a sampled document at the beginning of a run.
    fixed: usize,
    /// Documents of a run.
    limit: u64,
    /// Whether only the fields of the index are read.
    is_projected: bool,
}

impl Ask<'_> {
    /// Documents in the order of a candidate's key. `None`: no index begins with it.
    pub(in crate::advisor) async fn key_runs(
        &mut self,
        database: &Database,
        Evidence { facts, sample, .. }: Evidence<'_>,
        candidate: &Candidate,
    ) -> Option<Runs> {
        if sample.is_whole {
            return None;
        }
        let index = facts
            .indexes
            .iter()
            .find(|index| Some(&index.name) == candidate.index.as_ref())?;
        let wanted = Wanted {
            index,
            fixed: candidate.key.len(),
            limit: (RUN_BYTES / facts.mean_bytes().max(1)).clamp(LEAST, MOST),
            is_projected: false,
        };
        self.runs(database, facts, sample, &wanted).await
    }

    /// Documents in the order of each index.
    pub(in crate::advisor) async fn index_runs(
        &mut self,
        database: &Database,
        facts: &CollectionStats,
        sample: &Sample,
    ) -> BTreeMap<String, Runs> {
        let mut by_index = BTreeMap::new();
        let end = Instant::now() + RUNS_TIME;
        for index in facts.indexes.iter().filter(|index| index.is_plain()) {
            if sample.is_whole || Instant::now() > end {
                break;
            }
            let wanted = Wanted {
                index,
                fixed: index.fields.len(),
                limit: MOST,
                is_projected: true,
            };
            if let Some(runs) = self.runs(database, facts, sample, &wanted).await {
                by_index.insert(index.name.clone(), runs);
            }
        }
        by_index
    }

    /// `None`: an index cannot be read, and a note was recorded.
    async fn runs(
        &mut self,
        database: &Database,
        facts: &CollectionStats,
        sample: &Sample,
        wanted: &Wanted<'_>,
    ) -> Option<Runs> {
        let mut runs = Vec::new();
        // The sample has no order, so any of its documents is as good as another.
        for document in sample.documents.iter().take(RUNS) {
            let Some(begin) = wanted.begin(document) else { continue };
            let mut find = single("find", facts.collection());
            find.append(cstr!("hint"), wanted.index.name.as_str());
            find.append(cstr!("min"), begin);
            find.append(cstr!("limit"), i64::try_from(wanted.limit).unwrap_or(i64::MAX));
            if wanted.is_projected {
                find.append(cstr!("projection"), wanted.projection());
            }
            find.append(cstr!("maxTimeMS"), milliseconds(RUN_TIME));
            match read_run(database, find).await {
                Ok(documents) => runs.push(IndexRun {
                    is_cut: count(documents.len()) >= wanted.limit,
                    documents,
                }),
                Err(error) => {
                    let text = format!("an index cannot be read in its order: {}", reason(&error));
                    self.note(text, &facts.namespace);
                    return None;
                }
            }
        }
        Some(Runs {
            runs,
            are_neighbours: true,
        })
    }
}

impl Wanted<'_> {
    /// The beginning of a run: the values of a document for some fields, and the least values for the others.
    /// `None`: a value is in an array, which has several positions.
    fn begin(&self, document: &RawDocument) -> Option<RawDocumentBuf> {
        let mut begin = RawDocumentBuf::new();
        for (place, (field, descending)) in self.index.fields.iter().zip(&self.index.descending).enumerate() {
            let value = match at_path(document, field) {
                _ if place >= self.fixed && *descending => RawBson::MaxKey,
                _ if place >= self.fixed => RawBson::MinKey,
                AtPath::Value(value) => value,
                AtPath::Array => return None,
            };
            put(&mut begin, field, value);
        }
        Some(begin)
    }

    /// The fields of the index. `_id` is left out if it is not one of them, so that mongod reads no document.
    fn projection(&self) -> RawDocumentBuf {
        let mut projection = RawDocumentBuf::new();
        for field in &self.index.fields {
            put(&mut projection, field, 1);
        }
        if !self.index.fields.iter().any(|field| field == "_id") {
            put(&mut projection, "_id", 0);
        }
        projection
    }
}

/// The value at a path.
enum AtPath {
    Value(RawBson),
    Array,
}

fn at_path(document: &RawDocument, path: &str) -> AtPath {
    let mut names = path.split('.');
    let mut value = names.next().and_then(|name| get(document, name));
    for name in names {
        if value.and_then(bson::raw::RawBsonRef::as_array).is_some() {
            return AtPath::Array;
        }
        let inner = value.and_then(bson::raw::RawBsonRef::as_document);
        value = inner.and_then(|inner| get(inner, name));
    }
    match value {
        Some(bson::raw::RawBsonRef::Array(_)) => AtPath::Array,
        found => AtPath::Value(found.map_or(RawBson::Null, RawBson::from)),
    }
}

async fn read_run(database: &Database, find: RawDocumentBuf) -> Result<Vec<RawDocumentBuf>, Error> {
    let cursor = database
        .run_raw_cursor_command(find)
        .selection_criteria(sampled())
        .await?;
    cursor.with_type::<RawDocumentBuf>().try_collect().await
}
