//! Estimates a conversion from statistics and a small sample: the number of documents, the time, and the
//! room.

use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use mongodb::Database;
use mongodb::error::Error;

use crate::maintenance::convert::pace::PaceLimits;
use crate::maintenance::convert::progress::{as_float, span_text};
use crate::maintenance::upstream::as_integer;
use crate::pattern::shapes::BucketShape;

/// Pages whose numbers of items are averaged.
const PAGES: i32 = 100;
/// The most stored documents, and the longest time, for the measurement of a dry run.
const MAX_READ: u32 = 2000;
const MAX_TIME: Duration = Duration::from_secs(1);

/// A collection as the server stores it.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::maintenance::convert) struct StoredSize {
    /// Documents or pages.
    pub(in crate::maintenance::convert) count: u64,
    /// Bytes of documents, before compression.
    pub(in crate::maintenance::convert) bytes: u64,
    /// Bytes of indexes on disk.
    pub(in crate::maintenance::convert) index_bytes: u64,
}

impl StoredSize {
    /// The statistics that the server keeps. No document is read.
    pub(in crate::maintenance::convert) async fn of(database: &Database, collection: &str) -> Result<Self, Error> {
        let stats = database.run_command(doc! { "collStats": collection }).await?;
        let number = |field| whole(stats.get(field)).unwrap_or_default();
        Ok(Self {
            count: number("count"),
            bytes: number("size"),
            index_bytes: number("totalIndexSize"),
        })
    }
}

/// The number of documents that applications see. `pages`: the shape of the collection's pages.
pub(in crate::maintenance::convert) async fn documents(
    database: &Database,
    collection: &str,
    pages: Option<&BucketShape>,
) -> Result<u64, Error> {
    let stored = StoredSize::of(database, collection).await?.count;
    let Some(shape) = pages else {
        return Ok(stored);
    };
    let count = shape.count();
    let sample = doc! { "find": collection, "limit": PAGES, "projection": { "_id": 0, count: 1 } };
    let sample: Vec<Document> = database.run_cursor_command(sample).await?.try_collect().await?;
    let items: u64 = sample.iter().filter_map(|page| whole(page.get(count))).sum();
    let pages = u64::try_from(sample.len()).unwrap_or(u64::MAX).max(1);
    Ok(rounded(as_float(stored) * as_float(items) / as_float(pages)))
}

/// Reads some documents. Returns the time for all.
///
/// # Errors
/// If the collection cannot be read.
pub(in crate::maintenance::convert) async fn reading_time(
    database: &Database,
    collection: &str,
    count: u64,
) -> Result<Duration, Error> {
    let find = doc! { "find": collection, "limit": i64::from(MAX_READ) };
    let begun = Instant::now();
    let mut found = database.run_cursor_command(find).await?;
    let mut read = 0_u64;
    while begun.elapsed() < MAX_TIME && found.advance().await? {
        read += 1;
    }
    let part = as_float(count) / as_float(read.max(1));
    let whole = Duration::try_from_secs_f64(begun.elapsed().as_secs_f64() * part);
    Ok(whole.unwrap_or(Duration::MAX))
}

/// The estimate of a dry run.
pub(in crate::maintenance::convert) struct CopyEstimate {
    pub(in crate::maintenance::convert) size: StoredSize,
    /// The time for reading all documents.
    pub(in crate::maintenance::convert) reading: Duration,
    /// The number of documents that applications see.
    pub(in crate::maintenance::convert) documents: u64,
    /// Whether the copy has pages. A plain document has fields that a page has once for all its items.
    pub(in crate::maintenance::convert) is_to_pages: bool,
    pub(in crate::maintenance::convert) limits: PaceLimits,
}

impl CopyEstimate {
    /// The texts for the operator.
    pub(in crate::maintenance::convert) fn texts(&self) -> [String; 2] {
        let least = match self.limits.rate {
            Some(rate) if rate > 0 => self.reading.max(Duration::from_secs(self.documents / u64::from(rate))),
            _ => self.reading,
        };
        let time = if least < Duration::from_secs(1) {
            "less than 1 s".to_owned()
        } else {
            span_text(least)
        };
        let StoredSize { bytes, index_bytes, .. } = self.size;
        let bound = if self.is_to_pages { "at most" } else { "about" };
        [
            format!(
                "reading {} documents takes {time}, measured by a sample; copying takes longer, because documents are written, and the \
                 command pauses",
                self.documents
            ),
            format!(
                "the copy needs {bound} {} MiB for documents, before compression, and about {} MiB for indexes",
                mebibytes(bytes),
                mebibytes(index_bytes)
            ),
        ]
    }
}

/// Rounded up.
fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

fn whole(value: Option<&Bson>) -> Option<u64> {
    value.and_then(as_integer).and_then(|number| u64::try_from(number).ok())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate of documents; a cast saturates"
)]
fn rounded(number: f64) -> u64 {
    number.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_tells_time_and_room() {
        let mut estimate = CopyEstimate {
            size: StoredSize {
                count: 10,
                bytes: (3 << 20) + 1,
                index_bytes: 1,
            },
            reading: Duration::from_millis(20),
            documents: 1000,
            is_to_pages: true,
            limits: PaceLimits::default(),
        };
        let [time, room] = estimate.texts();
        assert!(
            time.starts_with("reading 1000 documents takes less than 1 s, "),
            "{time}"
        );
        let expected = "the copy needs at most 4 MiB for documents, before compression, and about 1 MiB for indexes";
        assert_eq!(room, expected);
        estimate.limits.rate = Some(10);
        estimate.is_to_pages = false;
        let [time, room] = estimate.texts();
        assert!(time.starts_with("reading 1000 documents takes 100 s, "), "{time}");
        assert!(room.starts_with("the copy needs about 4 MiB"), "{room}");
    }
}
