//! The collection while it is replaced: frozen by a validator, which any number of proxies meet.

use std::time::Duration;

use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use bson::{Binary, Bson, Document, rawdoc};
use mongodb::Client;
use mongodb::error::{Error, ErrorKind};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::copy::{Copy, uuid_of};
use super::halt::Halt;
use crate::cli::upstream::{Target, description};
use crate::command::document::{put, single};
use crate::pattern::bucket::compact;

/// How long mongod may wait for a transaction that has touched the collection. Everybody else waits with it.
const MAX_TIME_MS: i64 = 1000;
/// How often it is tried, and how long others have in between.
const ATTEMPTS: u32 = 120;
const PAUSE: Duration = Duration::from_millis(500);
/// How long a set's members may take to have it.
const REPLICATION_TIMEOUT_MS: i64 = 60_000;
/// mongod's codes for what may be tried again: `LockTimeout`, `MaxTimeMSExpired`, and an index that is being built.
const BUSY: [i32; 3] = [24, 50, 12587];

/// A collection to be replaced.
pub(super) struct Frozen<'a> {
    client: &'a Client,
    target: &'a Target,
    uuid: Binary,
}

impl<'a> Frozen<'a> {
    pub(super) fn of(client: &'a Client, target: &'a Target, described: &Document) -> Result<Self, Halt> {
        let uuid = uuid_of(described)?;
        Ok(Self { client, target, uuid })
    }

    /// Lets nothing be inserted nor updated. mongod has done whatever it had begun when this returns.
    pub(super) async fn freeze(&self, stop: &CancellationToken) -> Result<(), Halt> {
        self.validate(&compact::freeze(), Some(stop)).await
    }

    /// Takes that back.
    pub(super) async fn thaw(&self) -> Result<(), Halt> {
        const NAMESPACE_NOT_FOUND: i32 = 26;
        let thawed = self.validate(&RawDocumentBuf::new(), None).await;
        if let Err(Halt::Failed(error)) = &thawed
            && has_code(error, &[NAMESPACE_NOT_FOUND])
        {
            return Ok(());
        }
        thawed.map_err(|halt| match halt {
            Halt::Failed(error) => Halt::Words(format!(
                "{}; it is still frozen, and nothing can be written to it until `mongoshape compact` is run again",
                crate::cli::upstream::explain(&error)
            )),
            other => other,
        })
    }

    async fn validate(&self, validator: &RawDocument, stop: Option<&CancellationToken>) -> Result<(), Halt> {
        let mut command = single("collMod", self.target.collection.as_str());
        command.append(cstr!("validator"), validator);
        command.append(cstr!("validationLevel"), "strict");
        command.append(cstr!("validationAction"), "error");
        self.run(&self.target.database, command, stop).await
    }

    /// Lets the copy take the collection's place, in one step. mongod looks whether it is still the collection that was
    /// frozen.
    pub(super) async fn replace(&self, copy: &Copy<'_>) -> Result<(), Halt> {
        let database = self.target.database.name();
        let mut command = single("renameCollection", format!("{database}.{}", copy.name()));
        put(&mut command, "to", self.target.namespace().as_str());
        command.append(cstr!("dropTarget"), &self.uuid);
        let replaced = self.run(&self.client.database("admin"), command, None).await;
        match replaced {
            Err(_) if self.is_replaced(copy).await => Ok(()),
            replaced => replaced,
        }
    }

    /// Whether the copy has the collection's name.
    pub(super) async fn is_replaced(&self, copy: &Copy<'_>) -> bool {
        let described = description(&self.target.database, &self.target.collection).await;
        let uuid = described.ok().flatten().and_then(|described| uuid_of(&described).ok());
        uuid.as_ref() == Some(copy.uuid())
    }

    async fn run(
        &self,
        database: &mongodb::Database,
        mut command: RawDocumentBuf,
        stop: Option<&CancellationToken>,
    ) -> Result<(), Halt> {
        command.append(
            cstr!("writeConcern"),
            rawdoc! { "w": "majority", "wtimeout": REPLICATION_TIMEOUT_MS },
        );
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

/// What a set's members do not have may be rolled back.
pub(super) fn concern_kept(reply: &Document) -> Result<(), Halt> {
    match reply.get("writeConcernError").and_then(Bson::as_document) {
        Some(error) => Err(Halt::Words(error.get_str("errmsg").unwrap_or_default().to_owned())),
        None => Ok(()),
    }
}

fn has_code(error: &Error, codes: &[i32]) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if codes.contains(&command.code))
}
