//! The complete result of a read, in a form that can be compared.

use std::time::{Duration, Instant};

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use futures_util::TryStreamExt;
use mongodb::Database;
use mongodb::error::{Error, ErrorKind};
use tokio::time::timeout;

use super::command::MAX_TIME_MS;
use super::defined_result::defines_types;
use crate::command::document::{as_whole_number, get, single};
use crate::command::registry::Command;
use crate::pattern::bucket::key::{canonical, value_identity};

/// The most documents of a result, and the most bytes.
const MAX_DOCUMENTS: usize = 1000;
const MAX_BYTES: usize = 4 << 20;
/// mongod's code for a command that took too long.
const TIME_LIMIT: i32 = 50;
/// mongod's codes for a server that stops, is not the primary, or has ended the query for another reason than
/// the command.
const TRANSIENT: [i32; 15] = [
    6, 7, 43, 89, 91, 175, 189, 237, 262, 9001, 10107, 11600, 11602, 13435, 13436,
];

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReadAnswer {
    /// The documents or values in a form that is equal for equal results: the order of the documents, and
    /// that of the fields in a document, do not count.
    Result(Vec<Vec<u8>>),
    /// The code of an error.
    Refused(i32),
    /// More than can be compared, or it took too long.
    TooLarge,
}

/// A result, and the time that it took.
#[derive(Debug)]
pub(super) struct Timed {
    pub(super) answer: ReadAnswer,
    pub(super) took: Duration,
}

/// Executes a command and reads its result completely.
///
/// # Errors
/// If the server cannot execute commands at present.
pub(super) async fn of(database: &Database, command: Command, body: RawDocumentBuf) -> Result<Timed, Error> {
    let begun = Instant::now();
    let limit = Duration::from_millis(u64::from(MAX_TIME_MS)) * 2;
    let answer = match timeout(limit, read(database, command, body)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => failed(error)?,
        Err(_) => ReadAnswer::TooLarge,
    };
    Ok(Timed {
        answer,
        took: begun.elapsed(),
    })
}

async fn read(database: &Database, command: Command, body: RawDocumentBuf) -> Result<ReadAnswer, Error> {
    if !matches!(command, Command::Find | Command::Aggregate) {
        let reply = database.run_raw_command(body).await?;
        let reply = RawDocumentBuf::try_from(&reply).map_err(Error::custom)?;
        return Ok(of_reply(command, &reply));
    }
    let form = if defines_types(command, &body) {
        with_sorted_fields
    } else {
        with_equal_numbers
    };
    let mut cursor = database
        .run_raw_cursor_command(body)
        .await?
        .with_type::<RawDocumentBuf>();
    let (mut documents, mut bytes) = (Vec::new(), 0_usize);
    while let Some(document) = cursor.try_next().await? {
        bytes = bytes.saturating_add(document.as_bytes().len());
        if documents.len() == MAX_DOCUMENTS || bytes > MAX_BYTES {
            return Ok(ReadAnswer::TooLarge);
        }
        documents.push(form(&document));
    }
    documents.sort_unstable();
    Ok(ReadAnswer::Result(documents))
}

/// The result of `count` or `distinct`.
fn of_reply(command: Command, reply: &RawDocument) -> ReadAnswer {
    if command == Command::Count {
        let count = get(reply, "n").and_then(as_whole_number).unwrap_or_default();
        return ReadAnswer::Result(vec![count.to_le_bytes().to_vec()]);
    }
    let values = get(reply, "values").and_then(RawBsonRef::as_array);
    if reply.as_bytes().len() > MAX_BYTES {
        return ReadAnswer::TooLarge;
    }
    // Of several equal values of other types, the command returns any.
    let mut values: Vec<_> = values.into_iter().flatten().flatten().map(value_identity).collect();
    values.sort_unstable();
    ReadAnswer::Result(values)
}

/// The same with equal bytes for numbers that are equal, whatever their types.
fn with_equal_numbers(document: &RawDocument) -> Vec<u8> {
    let fields = document.iter().flatten();
    let fields = fields.map(|(name, value)| (name, canonical(value)));
    with_sorted_fields(&fields.collect::<RawDocumentBuf>())
}

/// The bytes of a document, with its fields in the order of their names: key fields of an item come first.
fn with_sorted_fields(document: &RawDocument) -> Vec<u8> {
    let fields = document.iter().flatten();
    let mut fields: Vec<Vec<u8>> = fields
        .map(|(name, value)| single(name.as_str(), value).into_bytes())
        .collect();
    fields.sort_unstable();
    fields.concat()
}

/// The result that an error stands for.
fn failed(error: Error) -> Result<ReadAnswer, Error> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) if command.code == TIME_LIMIT => Ok(ReadAnswer::TooLarge),
        ErrorKind::Command(command) if !TRANSIENT.contains(&command.code) => Ok(ReadAnswer::Refused(command.code)),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn order_of_fields_is_ignored_and_types_are_not() {
        let of = |document: RawDocumentBuf| with_sorted_fields(&document);
        let one = of(rawdoc! { "_id": 1, "k": 2, "x": { "a": 1, "b": 2 } });
        assert_eq!(one, of(rawdoc! { "k": 2, "_id": 1, "x": { "a": 1, "b": 2 } }));
        assert_ne!(one, of(rawdoc! { "_id": 1, "k": 2, "x": { "b": 2, "a": 1 } }));
        assert_ne!(one, of(rawdoc! { "_id": 1, "k": 2_i64, "x": { "a": 1, "b": 2 } }));
        assert_ne!(one, of(rawdoc! { "_id": 1, "k": 2 }));
        let of = |document: RawDocumentBuf| with_equal_numbers(&document);
        assert_eq!(
            of(rawdoc! { "_id": { "k": 1 }, "n": 2.0 }),
            of(rawdoc! { "n": 2, "_id": { "k": 1_i64 } })
        );
        assert_ne!(of(rawdoc! { "_id": 1 }), of(rawdoc! { "_id": "1" }));
    }

    #[test]
    fn counts_are_numbers_and_distinct_values_have_no_order() {
        let count = |n: RawDocumentBuf| of_reply(Command::Count, &n);
        assert_eq!(count(rawdoc! { "n": 3 }), count(rawdoc! { "n": 3.0 }));
        assert_ne!(count(rawdoc! { "n": 3 }), count(rawdoc! { "n": 4 }));
        let distinct = |values: RawDocumentBuf| of_reply(Command::Distinct, &values);
        let one = distinct(rawdoc! { "values": [1, "a", { "x": 1 }] });
        assert_eq!(one, distinct(rawdoc! { "values": ["a", { "x": 1 }, 1_i64] }));
        assert_ne!(one, distinct(rawdoc! { "values": ["a", 1, 1, { "x": 1 }] }));
    }
}
