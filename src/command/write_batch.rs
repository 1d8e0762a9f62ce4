//! Common code of the commands with several write statements.

use std::ops::Range;

use bson::raw::RawDocument;

use super::arguments::{CommandField, is_unacknowledged};
use super::document::get;
use super::error::{CommandError, ErrorCode};
use super::header::CommandHeader;
use super::statement_ids::StatementIds;
use super::time_limit;

/// The most statements of one command: `maxWriteBatchSize` of `hello`.
pub const MAX_WRITE_BATCH_SIZE: usize = 100_000;
/// The most bytes of statements in one internal command that has them in a document sequence. Leaves room for
/// the rest of a message of 48,000,000 bytes.
const MAX_SEQUENCE_BYTES: usize = 40_000_000;
/// The most bytes of values to look up in one command. Its body of 16 MiB can contain them twice.
const MAX_LOOKUP_BYTES: usize = 4 << 20;

/// The ranges of statements, or of documents to insert, that fit one command each, in a document sequence.
/// `sizes` are their sizes in bytes.
#[must_use]
pub fn command_ranges(sizes: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    command_ranges_within(sizes, MAX_SEQUENCE_BYTES)
}

/// Like [`command_ranges`], with at most `most_bytes` of statements in a range, or one statement.
#[must_use]
pub fn command_ranges_within(sizes: impl IntoIterator<Item = usize>, most_bytes: usize) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0_usize;
    for (position, size) in sizes.into_iter().enumerate() {
        bytes = bytes.saturating_add(size);
        let end = position.saturating_add(1);
        match ranges.last_mut() {
            Some(last) if bytes <= most_bytes && last.len() < MAX_WRITE_BATCH_SIZE => last.end = end,
            _ => {
                ranges.push(position..end);
                bytes = size;
            }
        }
    }
    ranges
}

/// Consecutive parts of values to look up, for the body of one command each: at most `most` values, with at
/// most [`MAX_LOOKUP_BYTES`] bytes, or one value. `size` is the size of a value in bytes.
pub fn lookup_parts<T>(values: &[T], most: usize, size: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    let parts = values.chunks(most);
    parts.flat_map(move |part| {
        let ranges = command_ranges_within(part.iter().map(&size), MAX_LOOKUP_BYTES);
        ranges.into_iter().filter_map(|range| part.get(range))
    })
}

/// A parsed command with several statements.
#[derive(Clone, Debug)]
pub struct WriteBatch<'a> {
    /// The statements, from the body or from a sequence, in order.
    pub statements: Vec<&'a RawDocument>,
    /// Whether the first failure ends the command.
    pub ordered: bool,
    /// Whether the write is unacknowledged (`w: 0`).
    pub unacknowledged: bool,
    /// The `stmtId`s of a retryable write.
    pub statement_ids: StatementIds,
}

impl<'a> WriteBatch<'a> {
    /// Parses a command. `command` is its name and `path` the field with its statements or documents:
    /// `delete`, `delete.deletes`. `read_own` parses the fields that not all such commands have, and returns
    /// whether the command has the field.
    ///
    /// # Errors
    /// An unknown field, one of the wrong type, no or too many statements, a read concern that
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

/// The error for a missing field.
#[must_use]
pub fn missing(field: &str) -> CommandError {
    let message = format!("BSON field '{field}' is missing but a required field");
    CommandError::new(ErrorCode::MissingField, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_neither_too_many_bytes_nor_too_many_statements() {
        let check = |sizes: &[usize], expected: &[Range<usize>]| {
            assert_eq!(command_ranges_within(sizes.iter().copied(), 10), expected);
        };
        check(&[], &[]);
        check(&[4, 6, 1], &[0..2, 2..3]);
        check(&[11, 11], &[0..1, 1..2]);
        let most = MAX_WRITE_BATCH_SIZE;
        check(&vec![0; most + 1], &[0..most, most..most + 1]);
    }

    #[test]
    fn a_lookup_has_neither_too_many_values_nor_too_many_bytes() {
        let check = |sizes: &[usize], most: usize, expected: &[usize]| {
            let parts = lookup_parts(sizes, most, |size| *size).map(<[usize]>::len);
            assert_eq!(parts.collect::<Vec<_>>(), expected);
        };
        let quarter = MAX_LOOKUP_BYTES / 4;
        check(&[], 3, &[]);
        check(&[1; 7], 3, &[3, 3, 1]);
        check(&[quarter; 9], 100, &[4, 4, 1]);
        check(&[5 * quarter, quarter, 5 * quarter], 100, &[1, 1, 1]);
    }
}
