//! The collection while it is replaced: frozen by a validator, which any number of proxies meet.

use std::time::Duration;

use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use bson::{Binary, Bson, Document, rawdoc};
use mongodb::Client;
use mongodb::error::{Error, ErrorKind};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Halt, NAMESPACE_NOT_FOUND, REPLICATION_TIMEOUT_MS, Work, uuid_of};
use crate::cli::upstream::Target;
use crate::cli::upstream::{description, explain};
use crate::command::document::{put, single};
use crate::pattern::bucket::{compact, pack};

/// How long mongod may wait for a transaction that has touched the collection. Everybody else waits with it.
const MAX_TIME_MS: i64 = 1000;
/// How often it is tried, and how long others have in between.
const ATTEMPTS: u32 = 120;
const PAUSE: Duration = Duration::from_millis(500);
/// mongod's codes for what may be tried again: `LockTimeout`, `MaxTimeMSExpired`, and an index that is being built.
const BUSY: [i32; 3] = [24, 50, 12587];

/// Who freezes a collection, and which.
#[derive(Clone, Copy)]
pub(in crate::cli) struct Freezing<'a> {
    pub(in crate::cli) client: &'a Client,
    pub(in crate::cli) target: &'a Target,
    pub(in crate::cli) work: Work,
}

/// A collection to be replaced.
pub(in crate::cli) struct Frozen<'a> {
    by: Freezing<'a>,
    uuid: Binary,
}

impl<'a> Frozen<'a> {
    pub(in crate::cli) fn of(by: Freezing<'a>, described: &Document) -> Result<Self, Halt> {
        let uuid = uuid_of(described)?;
        Ok(Self { by, uuid })
    }

    pub(in crate::cli) fn target(&self) -> &'a Target {
        self.by.target
    }

    pub(in crate::cli) fn uuid(&self) -> &Binary {
        &self.uuid
    }

    /// Lets nothing be inserted nor updated. mongod has done whatever it had begun when this returns.
    pub(in crate::cli) async fn freeze(&self, stop: &CancellationToken) -> Result<(), Halt> {
        let validator = match self.by.work {
            Work::Compact => compact::freeze(),
            Work::Pack => pack::freeze(),
        };
        self.validate(&validator, Some(stop)).await
    }

    /// Takes that back.
    pub(in crate::cli) async fn thaw(&self) -> Result<(), Halt> {
        let thawed = self.validate(&RawDocumentBuf::new(), None).await;
        if let Err(Halt::Failed(error)) = &thawed
            && has_code(error, &[NAMESPACE_NOT_FOUND])
        {
            return Ok(());
        }
        thawed.map_err(|halt| match halt {
            Halt::Failed(error) => Halt::Words(format!(
                "{}; it is still frozen, and nothing can be written to it until `{}` is run again",
                explain(&error),
                self.by.work.command()
            )),
            other => other,
        })
    }

    async fn validate(&self, validator: &RawDocument, stop: Option<&CancellationToken>) -> Result<(), Halt> {
        let mut command = single("collMod", self.by.target.collection.as_str());
        command.append(cstr!("validator"), validator);
        command.append(cstr!("validationLevel"), "strict");
        command.append(cstr!("validationAction"), "error");
        self.run(&self.by.target.database, command, stop).await
    }

    /// Lets the copy of that name and UUID take the collection's place, in one step. mongod looks whether it is still the
    /// collection that was frozen.
    pub(in crate::cli) async fn replace(&self, (name, uuid): (&str, &Binary)) -> Result<(), Halt> {
        let to = self.by.target.collection.as_str();
        let replaced = self.rename((name, to), Some(&self.uuid)).await;
        match replaced {
            Err(_) if self.is_replaced(uuid).await => Ok(()),
            replaced => replaced,
        }
    }

    /// Gives a collection of the same database another name, which nobody has but the collection to be dropped for it.
    pub(in crate::cli) async fn rename(&self, (from, to): (&str, &str), dropped: Option<&Binary>) -> Result<(), Halt> {
        let database = self.by.target.database.name();
        let mut command = single("renameCollection", format!("{database}.{from}"));
        put(&mut command, "to", format!("{database}.{to}"));
        if let Some(dropped) = dropped {
            command.append(cstr!("dropTarget"), dropped);
        }
        self.run(&self.by.client.database("admin"), command, None).await
    }

    /// Whether the collection of that UUID has its name.
    pub(in crate::cli) async fn is_replaced(&self, by: &Binary) -> bool {
        let target = self.by.target;
        let described = description(&target.database, &target.collection).await;
        let uuid = described.ok().flatten().and_then(|described| uuid_of(&described).ok());
        uuid.as_ref() == Some(by)
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
pub(in crate::cli) fn concern_kept(reply: &Document) -> Result<(), Halt> {
    match reply.get("writeConcernError").and_then(Bson::as_document) {
        Some(error) => Err(Halt::Words(error.get_str("errmsg").unwrap_or_default().to_owned())),
        None => Ok(()),
    }
}

fn has_code(error: &Error, codes: &[i32]) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if codes.contains(&command.code))
}
