//! The commands by which a collection is replaced. Each names the UUIDs of the collections that it is about:
//! whatever was once sent may still arrive.

use std::time::Duration;

use bson::raw::{RawDocumentBuf, cstr};
use bson::{Binary, Bson, Document, rawdoc};
use mongodb::error::{Error, ErrorKind};
use mongodb::{Client, Database};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::halt::Halt;
use super::kind::NAMESPACE_NOT_FOUND;
use super::kind::{REPLICATION_TIMEOUT_MS, SwapKind, uuid_of};
use crate::command::document::{put, single};
use crate::maintenance::upstream::{ShapedCollection, description};

/// How long mongod may wait for a transaction that has touched the collection. Everybody else waits with it.
const MAX_TIME_MS: i64 = 1000;
/// How often it is tried, and how long others have in between.
const ATTEMPTS: u32 = 120;
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// How long it is tried to take something back while the server does not answer.
const MAX_SILENCE: Duration = Duration::from_mins(1);
/// mongod's codes for what may be tried again: `LockTimeout`, `MaxTimeMSExpired`, and an index that is being
/// built.
const BUSY: [i32; 3] = [24, 50, 12587];
/// mongod's codes for an index that is not there, and for a UUID that the collection does not have.
pub(super) const INDEX_NOT_FOUND: i32 = 27;
pub(super) const UUID_MISMATCH: i32 = 361;

/// Who freezes a collection, and which.
#[derive(Clone, Copy)]
pub(crate) struct Freezing<'a> {
    pub(crate) client: &'a Client,
    pub(crate) target: &'a ShapedCollection,
    pub(crate) work: SwapKind,
}

/// A collection that gets another name.
#[derive(Clone, Copy)]
pub(crate) struct CollectionRename<'a> {
    pub(crate) from: &'a str,
    pub(crate) uuid: &'a Binary,
    pub(crate) to: &'a str,
    /// The collection that has that name, and is dropped; `None` where there must be none.
    pub(crate) dropped: Option<&'a Binary>,
}

impl Freezing<'_> {
    /// Gives a collection of the same database another name, in one step. mongod looks whether both are still
    /// those that are meant.
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

    /// Drops the collection of that name and UUID, or whichever has the name. Nothing that names what was
    /// dropped does anything after this.
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

    /// Whether the collection of that UUID has its name.
    pub(crate) async fn is_replaced(&self, by: &Binary) -> Result<bool, Halt> {
        let target = self.target;
        let described = description(&target.database, &target.collection).await?;
        let uuid = described.and_then(|described| uuid_of(&described).ok());
        Ok(uuid.as_ref() == Some(by))
    }

    /// Sends what may arrive more than once, until it is answered.
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
                Ok(reply) => return concern_kept(&reply),
                Err(error) if attempt < ATTEMPTS && has_code(&error, &BUSY) => {}
                Err(error) => return Err(error.into()),
            }
            if stop.is_some_and(CancellationToken::is_cancelled) {
                return Err(Halt::Stopped);
            }
            sleep(PAUSE).await;
        }
    }
}

/// What a command changes is to outlive a change of the primary.
pub(super) fn append_concern(command: &mut RawDocumentBuf) {
    command.append(
        cstr!("writeConcern"),
        rawdoc! { "w": "majority", "wtimeout": REPLICATION_TIMEOUT_MS },
    );
}

/// What a set's members do not have may be rolled back.
pub(crate) fn concern_kept(reply: &Document) -> Result<(), Halt> {
    match reply.get("writeConcernError").and_then(Bson::as_document) {
        Some(error) => Err(Halt::Words(error.get_str("errmsg").unwrap_or_default().to_owned())),
        None => Ok(()),
    }
}

/// Whether mongod has answered that it did nothing; if not, the command may still arrive.
fn is_answer(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(_))
}

pub(super) fn has_code(error: &Error, codes: &[i32]) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if codes.contains(&command.code))
}
