//! One pass over a message: which command it is, on which namespace, and whether it is answered.

use bson::raw::{RawBsonRef, RawDocument};

use super::concerns;
use super::document::{fields, first_field, get, validate};
use super::error::{CommandError, ErrorCode};
use super::namespace::Namespace;
use super::registry::Command;
use super::time_limit;
use super::value_text::value_text;
use crate::wire::{DocumentSequence, OpMsg, OpMsgFlags};

/// Bytes of a body that mongod takes (`BSONObjMaxInternalSize`).
const MAX_BODY_BYTES: usize = (16 << 20) + (16 << 10);

/// The head of one command; the documents it carries are skipped by their length, not read.
#[derive(Clone, Debug)]
pub struct CommandHeader<'a> {
    /// The command's name as the client sent it: the first key of the body.
    pub name: &'a str,
    /// The command of that name.
    pub command: Command,
    /// The database: `$db`.
    pub database: &'a str,
    /// The first value where it is a string, which for most commands is the collection.
    pub target: Option<&'a str>,
    /// Whether the client waits for no reply.
    pub expects_no_reply: bool,
    /// The message it was read from.
    pub message: OpMsg<'a>,
}

impl<'a> CommandHeader<'a> {
    /// Reads the head of an OP_MSG.
    ///
    /// # Errors
    /// What mongod itself would refuse: no fields, no `$db`, bytes that are no BSON.
    pub fn of(message: OpMsg<'a>) -> Result<Self, CommandError> {
        let body = message.body;
        let Some(first) = fields(body).next() else {
            // What mongod misses first.
            return Err(missing_database());
        };
        let (name, value) = first?;
        let target = if let RawBsonRef::String(target) = value {
            Some(target)
        } else {
            None
        };
        let unanswered = message.flags.contains(OpMsgFlags::MORE_TO_COME);
        Ok(Self {
            name,
            command: Command::of(name),
            database: database(body)?,
            target,
            expects_no_reply: unanswered,
            message,
        })
    }

    /// That of a command which was never on its way.
    ///
    /// # Errors
    /// Those of [`CommandHeader::of`].
    pub fn of_body(body: &'a RawDocument) -> Result<Self, CommandError> {
        Self::of(OpMsg {
            flags: OpMsgFlags::empty(),
            body,
            sequences: Vec::new(),
        })
    }

    /// The body: all fields but the document sequences.
    #[must_use]
    pub fn body(&self) -> &'a RawDocument {
        self.message.body
    }

    /// Checks all that the message carries, nested documents too, before it is read.
    ///
    /// # Errors
    /// Those of [`validate`].
    pub fn validate(&self) -> Result<(), CommandError> {
        self.check_size()?;
        validate(self.body())?;
        let sequences = self.message.sequences.iter();
        sequences
            .flat_map(DocumentSequence::documents)
            .try_for_each(|document| {
                validate(document.map_err(|error| CommandError::invalid_bson(&error.to_string()))?)
            })
    }

    /// Checks the size of the body, in which a client may send documents that belong in sequences.
    fn check_size(&self) -> Result<(), CommandError> {
        let size = self.body().as_bytes().len();
        if size <= MAX_BODY_BYTES {
            return Ok(());
        }
        let first = first_field(self.body()).map(|(name, value)| format!("{name}: {}", value_text(value)));
        let message = format!(
            "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and {MAX_BODY_BYTES}(16MB) First element: {}",
            first.unwrap_or_default()
        );
        Err(CommandError::new(ErrorCode::BsonObjectTooLarge, message))
    }

    /// Checks options that mongod checks before it begins the command's transaction, or reads the command's
    /// own fields. Writes are checked after their fields, as is `maxTimeMS` of `getMore`; that of an
    /// `aggregate` is mongod's to check.
    ///
    /// # Errors
    /// Those of [`time_limit::check`] and [`concerns::check_write_concern`].
    pub fn check_options(&self) -> Result<(), CommandError> {
        let body = self.body();
        match self.command {
            Command::Insert | Command::Update | Command::Delete => Ok(()),
            Command::FindAndModify => time_limit::check(body),
            Command::GetMore | Command::Aggregate => concerns::check_write_concern(body),
            _ => {
                concerns::check_write_concern(body)?;
                time_limit::check(body)
            }
        }
    }

    /// The namespace that the command is on: the first value, or for a few commands another field.
    #[must_use]
    pub fn namespace(&self) -> Option<Namespace<'a>> {
        let collection = match self.command {
            Command::GetMore => self.body().get_str("collection").ok(),
            // That of the command which is explained.
            Command::Explain => match first_field(self.body().get_document("explain").ok()?)? {
                (_, RawBsonRef::String(collection)) => Some(collection),
                _ => None,
            },
            Command::DataSize => {
                let namespace = Namespace::parse(self.target?)?;
                return (namespace.database == self.database).then_some(namespace);
            }
            _ => self.target,
        };
        collection.map(|collection| Namespace::new(self.database, collection))
    }

    /// Whether the client runs it in a transaction.
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        matches!(self.body().get("autocommit"), Ok(Some(_)))
    }

    /// Whether it reads one moment of the whole, outside of transactions too.
    #[must_use]
    pub fn wants_snapshot(&self) -> bool {
        let concern = self.body().get_document("readConcern");
        concern.is_ok_and(|concern| concern.get_str("level").is_ok_and(|level| level == "snapshot"))
    }

    /// Whether it begins a transaction that reads by another concern than `local`.
    #[must_use]
    pub fn begins_with_read_concern(&self) -> bool {
        let level = self
            .body()
            .get_document("readConcern")
            .and_then(|concern| concern.get_str("level"));
        matches!(self.body().get("startTransaction"), Ok(Some(_))) && level.is_ok_and(|level| level != "local")
    }

    /// Whether the command changes nothing, so that it may be abandoned when its client is gone.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        match self.command {
            Command::Aggregate => {
                let stages = get(self.body(), "pipeline").and_then(RawBsonRef::as_array);
                let last = stages.and_then(|stages| stages.into_iter().flatten().last());
                let last = last.and_then(|last| first_field(last.as_document()?));
                last.is_none_or(|(name, _)| !matches!(name, "$out" | "$merge"))
            }
            Command::Find
            | Command::Count
            | Command::Distinct
            | Command::Explain
            | Command::GetMore
            | Command::ListCollections
            | Command::ListIndexes
            | Command::CollStats
            | Command::DataSize => true,
            _ => false,
        }
    }

    /// Whether the client may send it again as it is.
    #[must_use]
    pub fn is_retryable_write(&self) -> bool {
        matches!(self.body().get("txnNumber"), Ok(Some(_))) && !self.in_transaction()
    }
}

fn database(body: &RawDocument) -> Result<&str, CommandError> {
    // `$db` is usually near the end, where no document is left to skip.
    match body.get("$db") {
        Ok(Some(RawBsonRef::String(database))) => Ok(database),
        Ok(Some(_)) => Err(CommandError::wrong_type("$db", "other", "string")),
        Ok(None) => Err(missing_database()),
        Err(error) => Err(CommandError::invalid_bson(&error.to_string())),
    }
}

fn missing_database() -> CommandError {
    CommandError::new(ErrorCode::MissingDatabase, "OP_MSG requests require a $db argument")
}
