//! What the commands that write several statements have in common.

use std::ops::Range;

use bson::raw::RawDocument;

use super::arguments::{CommandField, is_unacknowledged};
use super::document::get;
use super::error::{CommandError, ErrorCode};
use super::header::CommandHeader;
use super::statement_ids::StatementIds;
use super::time_limit;

/// The most statements one command may carry: hello's `maxWriteBatchSize`.
pub const MAX_WRITE_BATCH_SIZE: usize = 100_000;
/// Bytes of statements in one command that the proxy makes, with room for the rest of a message of
/// 48,000,000.
const MAX_COMMAND_BYTES: usize = 40_000_000;

/// The ranges of statements, or of documents to insert, that fit one command each. `sizes` are their sizes in
/// bytes.
#[must_use]
pub fn command_ranges(sizes: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0_usize;
    for (position, size) in sizes.into_iter().enumerate() {
        bytes = bytes.saturating_add(size);
        let end = position.saturating_add(1);
        match ranges.last_mut() {
            Some(last) if bytes <= MAX_COMMAND_BYTES && last.len() < MAX_WRITE_BATCH_SIZE => last.end = end,
            _ => {
                ranges.push(position..end);
                bytes = size;
            }
        }
    }
    ranges
}

/// A command of several statements, read against the list of fields that mongod knows.
#[derive(Clone, Debug)]
pub struct WriteBatch<'a> {
    /// Its statements, from the body or from a sequence, in order.
    pub statements: Vec<&'a RawDocument>,
    /// Whether the first failure ends it.
    pub ordered: bool,
    /// Whether the client asked for no acknowledgement (`w: 0`).
    pub unacknowledged: bool,
    /// By what mongod remembers the statements of a retryable write.
    pub statement_ids: StatementIds,
}

impl<'a> WriteBatch<'a> {
    /// Reads the command of that name, whose statements, or documents, are in that field: `delete`,
    /// `delete.deletes`. What not all such commands have is for `read_own`, which says whether it knows the
    /// field.
    ///
    /// # Errors
    /// A field that it does not have, one of the wrong type, no or too many statements, a read concern that
    /// writes do not support, with mongod's codes.
    pub fn parse(
        head: &CommandHeader<'a>,
        command: &'static str,
        path: &'static str,
        mut read_own: impl FnMut(&str, CommandField<'a>) -> Result<bool, CommandError>,
    ) -> Result<Self, CommandError> {
        let own = path.rsplit('.').next().unwrap_or(path);
        let mut batch = Self {
            statements: Vec::new(),
            ordered: true,
            unacknowledged: get(head.body(), "writeConcern").is_some_and(is_unacknowledged),
            statement_ids: StatementIds::default(),
        };
        let mut given = false;
        for field in CommandField::all(command, head.body()) {
            let (name, field) = field?;
            match name {
                name if name == own => {
                    given = true;
                    for element in field.array()?.into_iter().flatten() {
                        let element = element.map_err(|error| CommandError::invalid_bson(&error.to_string()))?;
                        let kind = super::document::type_name(element);
                        let wrong = || CommandError::wrong_type(path, kind, "object");
                        batch.statements.push(element.as_document().ok_or_else(wrong)?);
                    }
                }
                "ordered" => batch.ordered = field.flag()?,
                "stmtId" => batch.statement_ids = StatementIds::From(field.statement_id()?),
                "stmtIds" => batch.statement_ids = StatementIds::Given(field.statement_ids()?),
                name if read_own(name, field)? => {}
                _ => return Err(field.unknown()),
            }
        }
        for sequence in &head.message.sequences {
            if sequence.identifier != own {
                return Err(CommandError::unknown_field(command, sequence.identifier));
            }
            if std::mem::replace(&mut given, true) {
                return Err(CommandError::new(ErrorCode::BadValue, format!("{path} is given twice")));
            }
            for statement in sequence.documents() {
                batch
                    .statements
                    .push(statement.map_err(|error| CommandError::invalid_bson(&error.to_string()))?);
            }
        }
        if !given {
            return Err(missing(path));
        }
        let count = batch.statements.len();
        if !(1..=MAX_WRITE_BATCH_SIZE).contains(&count) {
            let message =
                format!("Write batch sizes must be between 1 and {MAX_WRITE_BATCH_SIZE}. Got {count} operations.");
            return Err(CommandError::new(ErrorCode::InvalidLength, message));
        }
        batch.statement_ids.check(command, count)?;
        time_limit::check(head.body())?;
        Ok(batch)
    }
}

/// The error for a field that must be there.
#[must_use]
pub fn missing(field: &str) -> CommandError {
    let message = format!("BSON field '{field}' is missing but a required field");
    CommandError::new(ErrorCode::MissingField, message)
}
