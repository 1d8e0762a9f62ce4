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
