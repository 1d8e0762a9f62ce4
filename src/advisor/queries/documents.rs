//! Samples documents, and counts the documents of some keys.

use std::time::{Duration, Instant};

use bson::raw::{RawDocumentBuf, cstr};
use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::Database;
use mongodb::error::Error;

use super::super::evidence::Evidence;
use super::{Ask, milliseconds, reason, sampled};
use crate::advisor::candidate::Candidate;
use crate::advisor::collection_stats::CollectionStats;
use crate::advisor::rounding::count;
use crate::advisor::sample::Sample;
use crate::advisor::sizes::Sizes;
use crate::command::document::{as_whole_number, get, single};

/// Time limit of the sample in mongod.
const SAMPLE_TIME: Duration = Duration::from_secs(10);
/// Documents are read up to this many bytes.
const SAMPLE_BYTES: u64 = 32 << 20;
/// For a sample of more than a twentieth of the documents, mongod scans the collection. If the
/// collection is larger than this, a smaller sample is requested.
const SCANNED_BYTES: u64 = 32 << 20;
const PART: u64 = 25;
/// With fewer documents, mongod always scans the collection.
const RANDOM_AT_LEAST: u64 = 100;
/// Keys to count at most. Fewer are counted if they have this many documents together.
const KEYS: usize = 400;
const COUNTED: u64 = 400_000;
/// The time limit for one key, and for all.
const KEY_TIME: Duration = Duration::from_millis(500);
const KEYS_TIME: Duration = Duration::from_secs(5);

impl Ask<'_> {
    /// Samples documents, at random if there are many. `None`: none could be read, and a note was
    /// recorded.
    pub(in crate::advisor) async fn sample(
        &mut self,
        database: &Database,
        facts: &CollectionStats,
        most: u64,
    ) -> Option<Sample> {
        let wanted = if facts.data <= SCANNED_BYTES {
            most
        } else {
            most.min(facts.documents / PART)
        };
        let is_random = facts.data <= SCANNED_BYTES || facts.documents > RANDOM_AT_LEAST;
        let (name, size) = (facts.collection(), i64::try_from(wanted.max(1)).unwrap_or(i64::MAX));
        let command = if is_random {
            let stages = [doc! { "$sample": { "size": size } }];
            doc! {
                "aggregate": name, "pipeline": stages.to_vec(), "cursor": { "batchSize": 500 },
                "maxTimeMS": milliseconds(SAMPLE_TIME),
            }
        } else {
            self.note(
                "its few documents are large: only the first ones were inspected",
                &facts.namespace,
            );
            doc! { "find": name, "limit": size.max(10), "batchSize": 1, "maxTimeMS": milliseconds(SAMPLE_TIME) }
        };
        let mut documents = Vec::new();
        if let Err(error) = read(database, command, &mut documents).await {
            self.note(
                format!("its documents cannot be sampled: {}", reason(&error)),
                &facts.namespace,
            );
            if documents.is_empty() {
                return None;
            }
        }
        let is_whole = count(documents.len()) >= facts.documents;
        Some(Sample::new(documents, is_whole))
    }

    /// The number of documents per key of a candidate.
    pub(in crate::advisor) async fn sizes(
        &mut self,
        database: &Database,
        Evidence { facts, sample, .. }: Evidence<'_>,
        candidate: &Candidate,
    ) -> Sizes {
        let groups = sample.groups(&candidate.key);
        if sample.is_whole {
            return Sizes::whole(&groups);
        }
        let counted = match &candidate.index {
            Some(index) => {
                let filters = sample.key_filters(&candidate.key, KEYS);
                self.count(database, facts, index, &filters).await
            }
            None => Vec::new(),
        };
        if counted.is_empty() {
            Sizes::guessed(&groups, facts.documents)
        } else {
            Sizes::counted(&counted)
        }
    }

    /// Counts the documents of some keys by an index.
    async fn count(
        &mut self,
        database: &Database,
        facts: &CollectionStats,
        index: &str,
        filters: &[RawDocumentBuf],
    ) -> Vec<u64> {
        let mut counted = Vec::new();
        let end = Instant::now() + KEYS_TIME;
        for filter in filters {
            let mut command = single("count", facts.collection());
            command.append(cstr!("query"), filter.as_ref());
            command.append(cstr!("hint"), index);
            command.append(cstr!("limit"), i64::try_from(Sizes::COUNTED).unwrap_or(i64::MAX));
            command.append(cstr!("maxTimeMS"), milliseconds(KEY_TIME));
            let answer = database.run_raw_command(command).selection_criteria(sampled()).await;
            let number = match answer.map(RawDocumentBuf::try_from) {
                Ok(Ok(answer)) => get(&answer, "n").and_then(as_whole_number),
                Ok(Err(_)) => None,
                Err(error) => {
                    self.note(format!("keys cannot be counted: {}", reason(&error)), &facts.namespace);
                    None
                }
            };
            // Keys that exceed the time limit are the largest, so the other counts alone would be
            // biased.
            let Some(number) = number.and_then(|number| u64::try_from(number).ok()) else {
                return Vec::new();
            };
            counted.push(number);
            if Instant::now() > end || counted.iter().sum::<u64>() >= COUNTED {
                break;
            }
        }
        counted
    }
}

/// Reads documents up to the byte limit. Documents read before an error are kept.
async fn read(database: &Database, command: Document, documents: &mut Vec<RawDocumentBuf>) -> Result<(), Error> {
    let cursor = database
        .run_cursor_command(command)
        .selection_criteria(sampled())
        .await?;
    let mut cursor = cursor.with_type::<RawDocumentBuf>();
    let mut bytes = 0;
    while let Some(document) = cursor.try_next().await? {
        bytes += count(document.as_bytes().len());
        documents.push(document);
        if bytes >= SAMPLE_BYTES {
            break;
        }
    }
    Ok(())
}
