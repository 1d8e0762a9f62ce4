//! The changes of the converted collection: the `_id`s of documents that applications insert, change or
//! delete. The server returns changes of pages, whose [events](page_event) name the items.

mod page_event;

use std::time::{Duration, Instant};

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Binary, Timestamp, doc};
use futures_util::TryStreamExt;
use mongodb::action::{Action as _, Watch};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ResumeToken;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::FullDocumentBeforeChangeType;
use mongodb::{Client, Database};

use self::page_event::{concerned_items, projection};
use super::ids::Ids;
use super::mirror::side::majority;
use crate::command::document::{get, single};
use crate::maintenance::swap::Halt;
use crate::pattern::shapes::BucketShape;

/// The longest wait for events.
const WAIT: Duration = Duration::from_millis(50);
/// The longest time for which events are read before their changes are applied.
pub(super) const MAX_READ: Duration = Duration::from_millis(300);
/// The most changed documents that are applied at once. A document that changes often is applied once.
pub(super) const MAX_IDS: usize = 5000;
/// mongod's codes for a position that the oplog no longer contains, and for a pre-image that was deleted
/// together with it.
const LOST: [i32; 3] = [136, 286, 47];
/// The beginning of a timestamp in a `KeyString`, in hexadecimal.
const TIMESTAMP: &str = "82";

/// The stored collection whose changes are read.
#[derive(Clone)]
pub(super) struct StreamSource {
    /// On the server itself.
    pub(super) database: Database,
    pub(super) collection: String,
    pub(super) uuid: Binary,
    /// The shape of its pages. `None`: it contains plain documents.
    pub(super) pages: Option<BucketShape>,
}

/// The open stream.
pub(super) struct Changes {
    source: StreamSource,
    stream: ChangeStream<RawDocumentBuf>,
}

/// The limits of one read of changes.
#[derive(Clone, Copy)]
pub(super) struct ReadLimits {
    /// The time up to which changes are read. Without it, requests would return single changes while
    /// applications write.
    pub(super) until: Option<Timestamp>,
    pub(super) duration: Duration,
}

impl ReadLimits {
    /// Any changes.
    pub(super) const NONE: Self = Self {
        until: None,
        duration: MAX_READ,
    };
}

/// Consecutive changes.
#[derive(Debug, Default)]
pub(super) struct ChangeBatch {
    pub(super) ids: Ids,
    /// The cluster time of the last one.
    pub(super) last: Option<Timestamp>,
    pub(super) progress: Progress,
    /// Whether the collection was renamed after these changes.
    pub(super) is_renamed: bool,
}

/// Whether further changes may exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Progress {
    #[default]
    MoreMayExist,
    NoneLeft,
}

impl Changes {
    /// Opens a stream behind a position. `None`: at the current time. mongod must store images of pages.
    pub(super) async fn open(source: StreamSource, behind: Option<ResumeToken>) -> Result<Self, Halt> {
        let collection = source.database.collection::<RawDocumentBuf>(&source.collection);
        let (parts, image) = match &source.pages {
            // Documents are read when the change is applied, so an event needs none.
            None => (
                doc! { "$project": { "operationType": 1, "documentKey": 1, "clusterTime": 1 } },
                None,
            ),
            Some(shape) => (projection(shape), Some(FullDocumentBeforeChangeType::Required)),
        };
        let stream = collection
            .watch()
            .pipeline([parts])
            .optional(image, Watch::full_document_before_change)
            .resume_after(behind)
            .max_await_time(WAIT)
            .await?;
        let stream = stream.with_type();
        Ok(Self { source, stream })
    }

    /// The position behind all changes that were read.
    pub(super) fn position(&self) -> Option<ResumeToken> {
        self.stream.resume_token()
    }

    /// A time before which all changes were read. `None`: the position does not contain one.
    pub(super) fn read_until(&self) -> Option<Timestamp> {
        time_of_position(&self.position()?)
    }

    /// Whether all changes before a time were read. `None`: any time. The server may return no event because
    /// it has not read so far yet.
    pub(super) fn has_passed(&self, time: Option<Timestamp>) -> bool {
        self.read_until().is_none_or(|until| Some(until) >= time)
    }

    /// The next changes: those that exist, or arrive within a short time.
    pub(super) async fn next(&mut self, limits: ReadLimits) -> Result<ChangeBatch, Halt> {
        let ReadLimits { until, duration } = limits;
        let begun = Instant::now();
        let mut batch = ChangeBatch::default();
        // The changes of a transaction have the same time.
        let is_read = |last: Option<Timestamp>| until.is_some() && last > until;
        while batch.ids.len() < MAX_IDS && begun.elapsed() < duration && !is_read(batch.last) {
            let Some(event) = self.stream.next_if_any().await.map_err(lost_or_failed)? else {
                batch.progress = Progress::NoneLeft;
                break;
            };
            if let Some(RawBsonRef::Timestamp(time)) = get(&event, "clusterTime") {
                batch.last = Some(time);
            }
            match get(&event, "operationType").and_then(RawBsonRef::as_str) {
                Some("rename") => {
                    batch.is_renamed = true;
                    break;
                }
                Some("drop" | "dropDatabase" | "invalidate") => {
                    let words = "another program dropped or renamed the collection";
                    return Err(Halt::Words(words.to_owned()));
                }
                _ => batch.ids.extend(self.source.changed(&event).await?),
            }
        }
        Ok(batch)
    }
}

impl StreamSource {
    /// The documents that an event concerns.
    async fn changed(&self, event: &RawDocument) -> Result<Ids, Halt> {
        let Some(shape) = &self.pages else {
            let mut ids = Ids::default();
            if let Some(key) = get(event, "documentKey").and_then(RawBsonRef::as_document) {
                ids.add_of(key);
            }
            return Ok(ids);
        };
        let mut items = concerned_items(shape, event);
        if let Some(page) = &items.page {
            let since = get(event, "clusterTime").and_then(RawBsonRef::as_timestamp);
            items.ids.extend(self.items_of(shape, page, since).await?);
        }
        Ok(items.ids)
    }

    /// The items that a page contains now. If it has lost an item since the event, a later event names it.
    async fn items_of(&self, shape: &BucketShape, page: &RawBson, since: Option<Timestamp>) -> Result<Ids, Halt> {
        let mut find = single("find", self.collection.as_str());
        find.append(cstr!("filter"), single("_id", single("$eq", page.as_raw_bson_ref())));
        find.append(cstr!("projection"), single(&format!("{}._id", shape.items()), 1));
        find.append(cstr!("readConcern"), majority(since));
        find.append(cstr!("collectionUUID"), &self.uuid);
        let cursor = self.database.run_raw_cursor_command(find).await?;
        let mut pages = cursor.with_type::<RawDocumentBuf>();
        let mut ids = Ids::default();
        while let Some(page) = pages.try_next().await? {
            let items = get(&page, shape.items()).and_then(RawBsonRef::as_array);
            let items = items.into_iter().flatten().flatten();
            items
                .filter_map(RawBsonRef::as_document)
                .for_each(|item| ids.add_of(item));
        }
        Ok(ids)
    }
}

/// The time before which a change stream at this position has returned all changes. `None`: the position is
/// not one of mongod.
pub(crate) fn time_of_position(position: &ResumeToken) -> Option<Timestamp> {
    let position = bson::serialize_to_bson(position).ok()?;
    time_of(position.as_document()?.get_str("_data").ok()?)
}

/// The time in a position of mongod: a `KeyString` in hexadecimal, which begins with a timestamp. There may
/// be further changes of this time, in the same transaction.
fn time_of(position: &str) -> Option<Timestamp> {
    let of_time = position.strip_prefix(TIMESTAMP)?.get(..16)?;
    let (time, increment) = of_time.split_at_checked(8)?;
    Some(Timestamp {
        time: u32::from_str_radix(time, 16).ok()?,
        increment: u32::from_str_radix(increment, 16).ok()?,
    })
}

/// The server's current cluster time. `None`: the server has none.
pub(super) async fn cluster_time(client: &Client) -> Result<Option<Timestamp>, Halt> {
    let reply = client.database("admin").run_command(doc! { "ping": 1 }).await?;
    Ok(reply.get_timestamp("operationTime").ok())
}

/// Whether the oplog no longer contains the position of the stream.
pub(super) fn is_lost(halt: &Halt) -> bool {
    matches!(halt, Halt::Failed(error) if has_lost(error))
}

fn has_lost(error: &Error) -> bool {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => LOST.contains(&command.code),
        _ => false,
    }
}

fn lost_or_failed(error: Error) -> Halt {
    if !has_lost(&error) {
        return error.into();
    }
    let words = "the oplog no longer contains the changes that applications have made meanwhile: increase it (`replSetResizeOplog`), and \
                 run again";
    Halt::Words(words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_begins_with_a_time() {
        // Of mongod 6.0: after an event, and without one.
        for position in [
            "826566A1C7000000022B022C0100296E5A1004",
            "826566A1C7000000022B0429296E1404",
        ] {
            let (time, increment) = (0x6566_A1C7, 2);
            assert_eq!(time_of(position), Some(Timestamp { time, increment }));
        }
        for other in [
            "",
            "82",
            "8265",
            "mongoshape:82:end",
            "82zz66A1C700000002",
            "826566A1C\u{e9}000002",
        ] {
            assert_eq!(time_of(other), None, "{other}");
        }
    }
}
