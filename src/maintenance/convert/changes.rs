//! The changes of the converted collection: the `_id`s of documents that applications insert, change or
//! delete.

use std::time::{Duration, Instant};

use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{RawBson, Timestamp, doc};
use mongodb::Client;
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::{ChangeStreamEvent, OperationType, ResumeToken};
use mongodb::error::{Error, ErrorKind};

use super::ids::Ids;
use super::mirror::side::Side;
use crate::maintenance::swap::Halt;

/// The longest wait for events.
const WAIT: Duration = Duration::from_millis(50);
/// The longest time for which events are read before their changes are applied.
const MAX_READ: Duration = Duration::from_millis(300);
/// The most changed documents that are applied at once. A document that changes often is applied once.
pub(super) const MAX_IDS: usize = 5000;
/// mongod's codes for a position that the oplog no longer contains, and for a pre-image that was deleted
/// together with it.
const LOST: [i32; 3] = [136, 286, 47];
/// The beginning of a timestamp in a `KeyString`, in hexadecimal.
const TIMESTAMP: &str = "82";

/// The open stream.
pub(super) struct Changes {
    stream: ChangeStream<ChangeStreamEvent<RawDocumentBuf>>,
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
    /// Opens a stream behind a position. `None`: at the current time.
    pub(super) async fn open(side: &Side, behind: Option<ResumeToken>) -> Result<Self, Halt> {
        let collection = side.database.collection::<RawDocumentBuf>(&side.collection);
        // Documents are read when the change is applied, so an event needs none.
        let parts = doc! { "$project": { "operationType": 1, "documentKey": 1, "clusterTime": 1 } };
        let stream = collection
            .watch()
            .pipeline([parts])
            .resume_after(behind)
            .max_await_time(WAIT)
            .await?;
        Ok(Self { stream })
    }

    /// The position behind all changes that were read.
    pub(super) fn position(&self) -> Option<ResumeToken> {
        self.stream.resume_token()
    }

    /// A time before which all changes were read. `None`: the position does not contain one, as on pages.
    pub(super) fn read_until(&self) -> Option<Timestamp> {
        time_of_position(&self.position()?)
    }

    /// The next changes: those that exist, or arrive within a short time. `until`: the time up to which
    /// changes are read. Without it, requests would return single changes while applications write.
    pub(super) async fn next(&mut self, until: Option<Timestamp>) -> Result<ChangeBatch, Halt> {
        let begun = Instant::now();
        let mut batch = ChangeBatch::default();
        // The changes of a transaction have the same time.
        let is_read = |last: Option<Timestamp>| until.is_some() && last > until;
        while batch.ids.len() < MAX_IDS && begun.elapsed() < MAX_READ && !is_read(batch.last) {
            let Some(event) = self.stream.next_if_any().await.map_err(lost_or_failed)? else {
                batch.progress = Progress::NoneLeft;
                break;
            };
            batch.last = event.cluster_time.or(batch.last);
            match event.operation_type {
                OperationType::Rename => {
                    batch.is_renamed = true;
                    break;
                }
                OperationType::Drop | OperationType::DropDatabase | OperationType::Invalidate => {
                    let words = "another program dropped or renamed the collection";
                    return Err(Halt::Words(words.to_owned()));
                }
                _ => {}
            }
            let key = event.document_key.unwrap_or_default();
            if let Some(id) = key.get("_id").and_then(|id| RawBson::try_from(id.clone()).ok()) {
                batch.ids.add(RawBsonRef::from(&id));
            }
        }
        Ok(batch)
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
