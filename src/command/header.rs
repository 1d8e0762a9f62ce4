//! Reads the head of a message in one pass: the command, its namespace, and whether it expects a
//! reply.

use bson::raw::{RawBsonRef, RawDocument};

use super::concerns;
use super::document::{as_name, fields, first_field, get, validate};
use super::error::{CommandError, ErrorCode};
use super::namespace::Namespace;
use super::registry::{Command, names_user_or_role};
use super::time_limit;
use super::value_text::{MAX_OBJECT_BYTES, too_large_text};
use crate::wire::{DocumentSequence, OpMsg, OpMsgFlags};

/// The head of one command. Nested documents are skipped by their length, not read.
#[derive(Clone, Debug)]
pub struct CommandHeader<'a> {
    /// The command's name as the client sent it: the first key of the body.
    pub name: &'a str,
    /// The command of that name.
    pub command: Command,
    /// The database: `$db`.
    pub database: &'a str,
    /// The first value if it is a string: for most commands the collection.
    pub target: Option<&'a str>,
    /// Whether the client expects no reply.
    pub expects_no_reply: bool,
    /// The message.
    pub message: OpMsg<'a>,
}

impl<'a> CommandHeader<'a> {
    /// Reads the head of an `OP_MSG`.
    ///
    /// # Errors
    /// Errors of mongod itself: no fields, no `$db`, malformed BSON.
    pub fn of(message: OpMsg<'a>) -> Result<Self, CommandError> {
        let body = message.body;
        let Some(first) = fields(body).next() else {
            // The error that mongod returns first.
            return Err(missing_database());
        };
        let (name, value) = first?;
        let target = as_name(value);
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

    /// The head of a command that was not received as a message.
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

    /// The body: all fields except the document sequences.
    #[must_use]
    pub fn body(&self) -> &'a RawDocument {
        self.message.body
    }

    /// Checks the whole message with all nested documents, before the command is parsed.
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

    /// Checks the size of the body. A client may put documents there that belong in sequences.
    fn check_size(&self) -> Result<(), CommandError> {
        if self.body().as_bytes().len() <= MAX_OBJECT_BYTES {
            return Ok(());
        }
        Err(CommandError::new(
            ErrorCode::BsonObjectTooLarge,
            too_large_text(self.body()),
        ))
    }

    /// Checks options that mongod checks before it begins the command's transaction or parses its
    /// own fields. Not checked here: writes, whose fields are parsed first; `maxTimeMS` of
    /// `getMore`, for the same reason; and that of `aggregate`, which mongod checks.
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

    /// The namespace of the command: the first value, or for a few commands another field.
    #[must_use]
    pub fn namespace(&self) -> Option<Namespace<'a>> {
        let collection = match self.command {
            Command::GetMore => self.body().get_str("collection").ok(),
            // The namespace of the explained command.
            Command::Explain => {
                let (_, explained) = first_field(self.body().get_document("explain").ok()?)?;
                as_name(explained)
            }
            Command::DataSize => {
                let namespace = Namespace::parse(self.target?)?;
                return (namespace.database == self.database).then_some(namespace);
            }
            Command::Other if names_user_or_role(self.name) => None,
            _ => self.target,
        };
        collection.map(|collection| Namespace::new(self.database, collection))
    }

    /// Whether the command is part of a transaction.
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        matches!(self.body().get("autocommit"), Ok(Some(_)))
    }

    /// Whether the read concern is `snapshot`, also outside of transactions.
    #[must_use]
    pub fn wants_snapshot(&self) -> bool {
        let concern = self.body().get_document("readConcern");
        concern.is_ok_and(|concern| concern.get_str("level").is_ok_and(|level| level == "snapshot"))
    }

    /// Whether mongod chooses the time of the snapshot, so that each of several queries reads another one.
    #[must_use]
    pub fn wants_new_snapshot(&self) -> bool {
        let concern = self.body().get_document("readConcern");
        let has_time = concern.is_ok_and(|concern| get(concern, "atClusterTime").is_some());
        self.wants_snapshot() && !self.in_transaction() && !has_time
    }

    /// Whether the command begins a transaction with another read concern than `local`.
    #[must_use]
    pub fn begins_with_read_concern(&self) -> bool {
        let level = self
            .body()
            .get_document("readConcern")
            .and_then(|concern| concern.get_str("level"));
        matches!(self.body().get("startTransaction"), Ok(Some(_))) && level.is_ok_and(|level| level != "local")
    }

    /// Whether the command writes nothing, so that it can be abandoned when its client disconnects.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        match self.command {
            Command::Aggregate => {
                let last = self.last_stage().and_then(first_field);
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

    /// Whether the command writes documents: an `insert`, `update`, `delete` or `findAndModify`.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(
            self.command,
            Command::Insert | Command::Update | Command::Delete | Command::FindAndModify
        )
    }

    /// The last stage of the command's pipeline.
    #[must_use]
    pub fn last_stage(&self) -> Option<&'a RawDocument> {
        let stages = get(self.body(), "pipeline").and_then(RawBsonRef::as_array)?;
        stages.into_iter().flatten().last()?.as_document()
    }

    /// Whether the command is a retryable write.
    #[must_use]
    pub fn is_retryable_write(&self) -> bool {
        matches!(self.body().get("txnNumber"), Ok(Some(_))) && !self.in_transaction()
    }
}

fn database(body: &RawDocument) -> Result<&str, CommandError> {
    // `$db` is usually near the end of the body.
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
