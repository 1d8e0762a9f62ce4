//! The commands of a swap. Each names the UUIDs of its collections, because a command that was sent
//! may arrive late.

use std::time::Duration;

use bson::raw::{RawDocumentBuf, cstr};
use bson::{Binary, Bson, Document, doc, rawdoc};
use mongodb::error::{Error, ErrorKind};
use mongodb::{Client, Database};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::halt::Halt;
use super::kind::NAMESPACE_NOT_FOUND;
use super::kind::{REPLICATION_TIMEOUT_MS, SwapKind, uuid_of};
use crate::command::document::{put, single};
use crate::maintenance::upstream::{ShapedCollection, description};

/// The longest time that mongod may wait for a transaction on the collection, in milliseconds. All other
/// operations on the collection wait, too.
const MAX_TIME_MS: i64 = 1000;
/// Attempts, and the pause in which other operations can run.
const ATTEMPTS: u32 = 120;
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// The longest time for which a restoring command is repeated while the server does not reply.
const MAX_SILENCE: Duration = Duration::from_mins(1);
/// mongod's code for a command that has reached its `maxTimeMS`.
const MAX_TIME_EXPIRED: i32 = 50;
/// mongod's codes for failures that may be temporary: `LockTimeout`, `MaxTimeMSExpired`, and an
/// index build in progress.
const BUSY: [i32; 3] = [24, MAX_TIME_EXPIRED, 12587];
/// mongod's codes for a missing index, and for a collection with another UUID.
pub(super) const INDEX_NOT_FOUND: i32 = 27;
pub(super) const UUID_MISMATCH: i32 = 361;

/// The command that swaps, and the collection.
#[derive(Clone, Copy)]
pub(crate) struct Freezing<'a> {
    pub(crate) client: &'a Client,
    pub(crate) target: &'a ShapedCollection,
    pub(crate) work: SwapKind,
}

/// A rename of a collection.
#[derive(Clone, Copy)]
pub(crate) struct CollectionRename<'a> {
    pub(crate) from: &'a str,
    pub(crate) uuid: &'a Binary,
    pub(crate) to: &'a str,
    /// UUID of the collection with the new name, which is dropped. `None`: the name must be free.
    pub(crate) dropped: Option<&'a Binary>,
}

impl Freezing<'_> {
    /// Renames a collection within its database, in one step. mongod checks the UUIDs.
    pub(crate) async fn rename(&self, renamed: CollectionRename<'_>) -> Result<(), Halt> {
        let database = self.target.database.name();
        let mut command = single("renameCollection", format!("{database}.{}", renamed.from));
        put(&mut command, "to", format!("{database}.{}", renamed.to));
        command.append(cstr!("collectionUUID"), renamed.uuid);
        if let Some(dropped) = renamed.dropped {
            command.append(cstr!("dropTarget"), dropped);
        }
        self.run(&self.client.database("admin"), command, None).await
    }

    /// Drops the collection with that name, and UUID if given. Late commands that name the dropped
    /// collection fail after this.
    pub(crate) async fn drop(&self, name: &str, uuid: Option<&Binary>) -> Result<(), Halt> {
        let mut command = single("drop", name);
        if let Some(uuid) = uuid {
            command.append(cstr!("collectionUUID"), uuid);
        }
        match self.insist(&self.target.database, command).await {
            Err(Halt::Failed(error)) if has_code(&error, &[NAMESPACE_NOT_FOUND, UUID_MISMATCH]) => Ok(()),
            dropped => dropped,
        }
    }

    /// Whether the collection's name denotes the collection with that UUID.
    pub(crate) async fn is_replaced(&self, by: &Binary) -> Result<bool, Halt> {
        let target = self.target;
        let described = description(&target.database, &target.collection).await?;
        let uuid = described.and_then(|described| uuid_of(&described).ok());
        Ok(uuid.as_ref() == Some(by))
    }

    /// Executes a `collMod`.
    pub(crate) async fn modify(&self, command: RawDocumentBuf, stop: &CancellationToken) -> Result<(), Halt> {
        self.run(&self.target.database, command, Some(stop)).await
    }

    /// Sends a command, which must be safe to repeat, until it is answered.
    pub(super) async fn insist(&self, database: &Database, command: RawDocumentBuf) -> Result<(), Halt> {
        let begun = Instant::now();
        loop {
            let done = self.run(database, command.clone(), None).await;
            let is_silent = matches!(&done, Err(Halt::Failed(error)) if !is_answer(error));
            if !is_silent || begun.elapsed() > MAX_SILENCE {
                return done;
            }
            sleep(PAUSE).await;
        }
    }

    pub(super) async fn run(
        &self,
        database: &Database,
        mut command: RawDocumentBuf,
        stop: Option<&CancellationToken>,
    ) -> Result<(), Halt> {
        append_concern(&mut command);
        command.append(cstr!("maxTimeMS"), MAX_TIME_MS);
        let mut attempt = 0;
        loop {
            attempt += 1;
            match database.run_raw_command(command.clone()).await {
                Ok(reply) => return self.wait_for_majority(&reply).await,
                Err(error) if attempt < ATTEMPTS && has_code(&error, &BUSY) => {}
                Err(error) => return Err(error.into()),
            }
            if stop.is_some_and(CancellationToken::is_cancelled) {
                return Err(Halt::Stopped);
            }
            sleep(PAUSE).await;
        }
    }

    /// [`MAX_TIME_MS`] also ends the wait for the majority. Then a read waits for it.
    async fn wait_for_majority(&self, reply: &Document) -> Result<(), Halt> {
        let error = reply.get("writeConcernError").and_then(Bson::as_document);
        let is_over = error.is_some_and(|error| error.get_i32("code").ok() == Some(MAX_TIME_EXPIRED));
        let Some(time) = reply.get_timestamp("operationTime").ok().filter(|_| is_over) else {
            return concern_kept(reply);
        };
        let find = doc! {
            "find": &self.target.collection, "limit": 1, "singleBatch": true, "maxTimeMS": REPLICATION_TIMEOUT_MS,
            "readConcern": { "level": "majority", "afterClusterTime": time },
        };
        self.target.database.run_command(find).await?;
        Ok(())
    }
}

/// Waits for the majority, so that the change survives a change of the primary.
pub(super) fn append_concern(command: &mut RawDocumentBuf) {
    command.append(
        cstr!("writeConcern"),
        rawdoc! { "w": "majority", "wtimeout": REPLICATION_TIMEOUT_MS },
    );
}

/// Fails if the write concern was not satisfied, because the change may be rolled back.
pub(crate) fn concern_kept(reply: &Document) -> Result<(), Halt> {
    match reply.get("writeConcernError").and_then(Bson::as_document) {
        Some(error) => Err(Halt::Words(error.get_str("errmsg").unwrap_or_default().to_owned())),
        None => Ok(()),
    }
}

/// Whether the error is a reply of mongod. If not, the command may still arrive.
fn is_answer(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(_))
}

pub(super) fn has_code(error: &Error, codes: &[i32]) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if codes.contains(&command.code))
}
