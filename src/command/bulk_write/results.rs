//! The reply to `bulkWrite`.

use std::collections::BTreeMap;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::operation::OperationKind;
use super::{BulkWrite, Part};
use crate::command::document::{append_fields, array_of, as_whole_number, get, single};
use crate::command::error::{ErrorCode, WriteError};
use crate::command::header::CommandHeader;
use crate::command::write_reply::{append_end, append_retried};

/// The most bytes of results. A reply has no cursor for further ones. mongod also ends a command whose
/// results exceed a limit.
const MAX_BYTES: usize = 15 << 20;
/// The namespace of mongod's cursor over the results.
const CURSOR: &str = "admin.$cmd.bulkWrite";

/// The results of the operations so far.
#[derive(Debug, Default)]
pub struct BulkWriteResults {
    results: Vec<RawDocumentBuf>,
    bytes: usize,
    errors: i32,
    inserted: i32,
    matched: i32,
    modified: i32,
    upserted: i32,
    deleted: i32,
    retried: Vec<i32>,
    write_concern_error: Option<RawDocumentBuf>,
    last_answer: RawDocumentBuf,
}

/// The counts of a reply to `insert`, `update` or `delete`.
struct PartCounts {
    n: i32,
    modified: i32,
    upserted: i32,
}

impl BulkWriteResults {
    /// Whether an operation has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.errors > 0
    }

    /// Whether the reply has no room for further results.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes >= MAX_BYTES
    }

    /// Adds the reply to a part.
    pub fn add(&mut self, bulk: &BulkWrite<'_>, part: &Part<'_>, reply: RawDocumentBuf) {
        let number = |name| get(&reply, name).and_then(as_whole_number).unwrap_or_default();
        let upserted = elements(&reply, "upserted");
        let counts = PartCounts {
            n: i32::try_from(number("n")).unwrap_or(i32::MAX),
            modified: i32::try_from(number("nModified")).unwrap_or(i32::MAX),
            upserted: i32::try_from(upserted.len()).unwrap_or(i32::MAX),
        };
        let errors: BTreeMap<usize, WriteError> = elements(&reply, "writeErrors")
            .into_iter()
            .filter_map(WriteError::parse)
            .collect();
        self.count(part.kind, &counts);
        for place in 0..part.operations.len() {
            let position = part.operations.start.saturating_add(place);
            match errors.get(&place) {
                Some(error) => {
                    self.fail(part.kind, position, error);
                    if bulk.ends_with_first_failure {
                        break;
                    }
                }
                None if bulk.errors_only => {}
                None => self.succeed(part.kind, position, &counts, upserted.first().copied()),
            }
        }
        let retried = get(&reply, "retriedStmtIds").and_then(RawBsonRef::as_array);
        let retried = retried.into_iter().flatten().flatten().filter_map(as_whole_number);
        self.retried.extend(retried.filter_map(|id| i32::try_from(id).ok()));
        if let Some(error) = get(&reply, "writeConcernError").and_then(RawBsonRef::as_document) {
            self.write_concern_error = Some(error.to_owned());
        }
        self.last_answer = reply;
    }

    /// Adds the failure of a whole part: of its first operation, and of the others if they are executed
    /// independently.
    pub fn add_failure(&mut self, bulk: &BulkWrite<'_>, part: &Part<'_>, error: &WriteError) {
        for position in part.operations.clone() {
            self.fail(part.kind, position, error);
            if bulk.ends_with_first_failure {
                break;
            }
        }
    }

    /// Adds the failure of a part that is not executed because the reply is full.
    pub fn add_too_many(&mut self, part: &Part<'_>) {
        let message = "the results of this bulkWrite exceed 15 MiB: send fewer operations at once, or set errorsOnly";
        let error = WriteError::new(ErrorCode::ExceededMemoryLimit, message);
        self.fail(part.kind, part.operations.start, &error);
    }

    fn count(&mut self, kind: OperationKind, counts: &PartCounts) {
        let add = |sum: &mut i32, number: i32| *sum = sum.saturating_add(number);
        match kind {
            OperationKind::Insert => add(&mut self.inserted, counts.n),
            OperationKind::Delete => add(&mut self.deleted, counts.n),
            OperationKind::Update => {
                add(&mut self.matched, counts.n.saturating_sub(counts.upserted));
                add(&mut self.modified, counts.modified);
                add(&mut self.upserted, counts.upserted);
            }
        }
    }

    fn succeed(&mut self, kind: OperationKind, position: usize, counts: &PartCounts, upserted: Option<&RawDocument>) {
        let mut result = result(true, position);
        match kind {
            OperationKind::Insert => result.append(cstr!("n"), 1),
            OperationKind::Delete => result.append(cstr!("n"), counts.n),
            OperationKind::Update => {
                result.append(cstr!("n"), counts.n);
                result.append(cstr!("nModified"), counts.modified);
                if let Some(id) = upserted.and_then(|upserted| get(upserted, "_id")) {
                    result.append(cstr!("upserted"), single("_id", id));
                }
            }
        }
        self.push(result);
    }

    fn fail(&mut self, kind: OperationKind, position: usize, error: &WriteError) {
        let mut result = result(false, position);
        result.append(cstr!("code"), error.code);
        append_fields(&mut result, &error.detail);
        result.append(cstr!("errmsg"), error.message.as_str());
        result.append(cstr!("n"), 0);
        if kind == OperationKind::Update {
            result.append(cstr!("nModified"), 0);
        }
        self.errors = self.errors.saturating_add(1);
        self.push(result);
    }

    fn push(&mut self, result: RawDocumentBuf) {
        self.bytes = self.bytes.saturating_add(result.as_bytes().len());
        self.results.push(result);
    }

    /// The reply, with its fields in mongod's order.
    #[must_use]
    pub fn into_document(self, head: &CommandHeader<'_>) -> RawDocumentBuf {
        let mut cursor = RawDocumentBuf::new();
        cursor.append(cstr!("id"), 0_i64);
        cursor.append(cstr!("firstBatch"), array_of(&self.results));
        cursor.append(cstr!("ns"), CURSOR);
        let mut reply = single("cursor", cursor);
        reply.append(cstr!("nErrors"), self.errors);
        reply.append(cstr!("nInserted"), self.inserted);
        reply.append(cstr!("nMatched"), self.matched);
        reply.append(cstr!("nModified"), self.modified);
        reply.append(cstr!("nUpserted"), self.upserted);
        reply.append(cstr!("nDeleted"), self.deleted);
        append_retried(&mut reply, self.retried);
        if let Some(error) = &self.write_concern_error {
            reply.append(cstr!("writeConcernError"), error);
        }
        append_end(&mut reply, head, &self.last_answer, self.write_concern_error.as_deref());
        reply
    }
}

fn result(is_well: bool, position: usize) -> RawDocumentBuf {
    let mut result = single("ok", f64::from(u8::from(is_well)));
    result.append(cstr!("idx"), i32::try_from(position).unwrap_or(i32::MAX));
    result
}

/// The documents of an array in a reply.
fn elements<'a>(reply: &'a RawDocument, field: &str) -> Vec<&'a RawDocument> {
    let elements = get(reply, field)
        .and_then(RawBsonRef::as_array)
        .into_iter()
        .flatten()
        .flatten();
    elements.filter_map(RawBsonRef::as_document).collect()
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::command::write_batch::MAX_WRITE_BATCH_SIZE;

    /// An unordered `bulkWrite` of this many inserts into one collection.
    fn inserts(count: usize) -> RawDocumentBuf {
        let operations = vec![rawdoc! { "insert": 0, "document": { "_id": 1 } }; count];
        rawdoc! {
            "bulkWrite": 1,
            "ops": array_of(&operations),
            "nsInfo": [{ "ns": "d.c" }],
            "ordered": false,
            "$db": "admin",
        }
    }

    #[test]
    fn the_errors_of_a_full_part_are_joined_in_one_pass() {
        // Operations that are compared with each error would take minutes here.
        const LAST: usize = MAX_WRITE_BATCH_SIZE - 1;
        let body = inserts(MAX_WRITE_BATCH_SIZE);
        let head = CommandHeader::of_body(&body).unwrap();
        let bulk = BulkWrite::parse(&head).unwrap();
        let parts = bulk.parts();
        assert_eq!(parts.len(), 1);
        let errors: Vec<RawDocumentBuf> = (0..LAST)
            .map(|index| rawdoc! { "index": i32::try_from(index).unwrap(), "code": 11000, "errmsg": "" })
            .collect();
        let answer = rawdoc! { "n": 1, "writeErrors": array_of(&errors), "ok": 1.0 };
        let mut results = BulkWriteResults::default();
        results.add(&bulk, &parts[0], answer);
        let reply = results.into_document(&head);
        assert_eq!(reply.get_i32("nErrors").unwrap(), i32::try_from(LAST).unwrap());
        assert_eq!(reply.get_i32("nInserted").unwrap(), 1);
        let results = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        for (index, result) in results.into_iter().enumerate() {
            let result = result.unwrap().as_document().unwrap();
            assert_eq!(result.get_i32("idx").unwrap(), i32::try_from(index).unwrap());
            assert_eq!(result.get_f64("ok").unwrap() < 1.0, index < LAST);
        }
    }
}
