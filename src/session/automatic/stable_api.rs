//! A write under `apiStrict`, in which mongod does not accept `collectionUUID`. mongod first checks the write
//! in a form without effect. Then the write is executed without the option. In a transaction all commands
//! have the same API parameters, so a write in a transaction keeps the option.

use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf};

use super::merged_write::{batch_of, write_errors};
use crate::command::arguments::{is_generic, with_replaced};
use crate::command::document::{as_whole_number, get, put, single};
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::header::CommandHeader;
use crate::command::registry::Command;
use crate::command::write_reply::WriteReply;
use crate::pattern::bucket::insert::no_statement;
use crate::session::error::RunError;
use crate::session::fence::is_strict;
use crate::session::upstream_connection::{LinkError, UpstreamConnection, UpstreamRequest};
use crate::wire::{Frame, OpMsgBuilder};

/// The fields of an `insert` that the stable API has, besides the generic ones.
const OF_INSERT: [&str; 4] = ["insert", "documents", "ordered", "bypassDocumentValidation"];
/// Options of a write that its check does not have: it is acknowledged, and no retry record is kept.
const UNCHECKED: [&str; 5] = ["writeConcern", "lsid", "txnNumber", "stmtId", "stmtIds"];

/// Whether the command is executed without its `apiStrict`.
pub(in crate::session) fn is_strict_write(head: &CommandHeader<'_>) -> bool {
    let is_write = matches!(
        head.command,
        Command::Insert | Command::Update | Command::Delete | Command::FindAndModify
    );
    is_write && is_strict(head.body()) && !head.in_transaction()
}

/// The same message without `apiStrict`.
pub(in crate::session) fn without_strict(frame: &Frame, head: &CommandHeader<'_>) -> Result<Frame, LinkError> {
    let body = with_replaced(head.body(), &[("apiStrict", None)]);
    let message = OpMsgBuilder::new(frame.header().request_id, 0)
        .flags(head.message.flags)
        .body(&body);
    let sequences = head.message.sequences.iter();
    let message = sequences.fold(message, |message, sequence| {
        message.sequence(sequence.identifier, sequence.documents().flatten())
    });
    Ok(message.build()?)
}

/// The reply if the stable API does not allow the write. Sends one command without effect, or none to check
/// an `insert` whose fields are all known.
///
/// # Errors
/// An error for the whole command if one of its statements is not allowed, and others would be executed.
pub(in crate::session) async fn refusal(
    link: &mut UpstreamConnection,
    head: &CommandHeader<'_>,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let is_known = |name: &str| OF_INSERT.contains(&name) || is_generic(name);
    let mut names = head.body().iter().flatten().map(|(name, _)| name.as_str());
    if head.command == Command::Insert && names.all(is_known) {
        return Ok(None);
    }
    let Some(check) = Check::of(head) else {
        // mongod refuses the command anyway.
        return Ok(None);
    };
    let reply = check.send(link).await?;
    // The planner does not use all indexes under `apiStrict`, so a hint may be invalid only there.
    let is_hint = first_error(&reply, ErrorCode::BadValue).is_some()
        && first_error(&check.without_strict().send(link).await?, ErrorCode::BadValue).is_none();
    let code = if is_hint {
        ErrorCode::BadValue
    } else {
        ErrorCode::ApiStrict
    };
    match first_error(&reply, code) {
        None => Ok(None),
        Some(Failed::Command) => Ok(Some(reply)),
        Some(Failed::Statement(index, error)) => {
            let executes_none = index == 0 && (check.is_ordered || check.statements.len() == 1);
            if executes_none {
                return Ok(Some(failed(head, &error)));
            }
            let message = format!(
                "no statement was executed, because `apiStrict` does not allow statement {index}: {}",
                error.message
            );
            Err(CommandError::new(code, message).into())
        }
    }
}

/// A write in a form without effect.
struct Check {
    body: RawDocumentBuf,
    /// The field with the statements.
    field: Option<&'static str>,
    statements: Vec<RawDocumentBuf>,
    /// Whether the client's statements are ordered.
    is_ordered: bool,
}

impl Check {
    /// `None`: the write is malformed.
    fn of(head: &CommandHeader<'_>) -> Option<Self> {
        let without = UNCHECKED.map(|name| (name, None));
        let body = with_replaced(head.body(), &without);
        let Some(field) = head.command.statements_field() else {
            return Some(Self {
                body: on_no_document(&body, "query"),
                field: None,
                statements: Vec::new(),
                is_ordered: true,
            });
        };
        let batch = batch_of(head)?;
        let mut body = with_replaced(&body, &[(field, None), ("ordered", None)]);
        put(&mut body, "ordered", false);
        let statements = if head.command == Command::Insert {
            // mongod checks the fields before it reports that there are no documents.
            put(&mut body, field, RawArrayBuf::new());
            Vec::new()
        } else {
            let statements = batch.statements.iter();
            statements.map(|statement| on_no_document(statement, "q")).collect()
        };
        Some(Self {
            body,
            field: Some(field),
            statements,
            is_ordered: batch.ordered,
        })
    }

    fn without_strict(&self) -> Self {
        Self {
            body: with_replaced(&self.body, &[("apiStrict", None)]),
            field: self.field,
            statements: self.statements.clone(),
            is_ordered: self.is_ordered,
        }
    }

    async fn send(&self, link: &mut UpstreamConnection) -> Result<RawDocumentBuf, LinkError> {
        let statements: Vec<&RawDocument> = self.statements.iter().map(|statement| &**statement).collect();
        let request = UpstreamRequest {
            body: &self.body,
            sequence: self
                .field
                .filter(|_| !statements.is_empty())
                .map(|field| (field, statements.as_slice())),
        };
        link.call(request).await
    }
}

/// The part of a write that failed.
enum Failed {
    Command,
    /// The statement at this position.
    Statement(usize, WriteError),
}

/// The first error with this code in the reply to a write.
fn first_error(reply: &RawDocument, code: ErrorCode) -> Option<Failed> {
    if get(reply, "code").and_then(as_whole_number) == Some(i64::from(code.number())) {
        return Some(Failed::Command);
    }
    let mut errors = write_errors(reply).filter(|(_, error)| error.code == code.number());
    errors.next().map(|(index, error)| Failed::Statement(index, error))
}

/// The reply to a write whose first statement failed, so that none was executed.
fn failed(head: &CommandHeader<'_>, error: &WriteError) -> RawDocumentBuf {
    let mut reply = match head.command {
        Command::Update => WriteReply::of_update(),
        _ => WriteReply::default(),
    };
    reply.fail(0, error);
    reply.into_document(head)
}

/// The same statement, which no document satisfies and which inserts none. mongod examines no key of the
/// index on `_id` for it.
fn on_no_document(statement: &RawDocument, query: &str) -> RawDocumentBuf {
    let nothing = no_statement();
    let own = get(statement, query).filter(|own| own.as_document().is_some());
    let conditions: RawArrayBuf = get(&nothing, "q").into_iter().chain(own).collect();
    let mut changed = with_replaced(statement, &[(query, None), ("upsert", None)]);
    put(&mut changed, query, single("$and", &conditions));
    changed
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::wire::{OpMsg, OpMsgFlags};

    fn check(body: &RawDocument) -> Check {
        Check::of(&CommandHeader::of_body(body).unwrap()).unwrap()
    }

    #[test]
    fn a_check_has_no_effect() {
        let update = rawdoc! { "q": { "a": 1 }, "u": { "$set": { "b": 1 } }, "upsert": true };
        let body = rawdoc! {
            "update": "c", "updates": [update], "lsid": { "id": 1 }, "txnNumber": 1_i64, "writeConcern": { "w": 0 },
            "apiStrict": true, "$db": "d"
        };
        let update = check(&body);
        let nothing = rawdoc! { "_id": { "$in": [] } };
        let expected = rawdoc! { "u": { "$set": { "b": 1 } }, "q": { "$and": [nothing.clone(), { "a": 1 }] } };
        assert_eq!(update.statements, [expected]);
        assert_eq!(
            update.body,
            rawdoc! { "update": "c", "apiStrict": true, "$db": "d", "ordered": false }
        );
        let body = rawdoc! { "findAndModify": "c", "remove": true, "upsert": true, "apiStrict": true, "$db": "d" };
        let expected = rawdoc! {
            "findAndModify": "c", "remove": true, "apiStrict": true, "$db": "d", "query": { "$and": [nothing] }
        };
        assert_eq!(check(&body).body, expected);
        let body = rawdoc! { "insert": "c", "documents": [{ "a": 1 }], "x": 1, "apiStrict": true, "$db": "d" };
        let expected =
            rawdoc! { "insert": "c", "x": 1, "apiStrict": true, "$db": "d", "ordered": false, "documents": [] };
        assert_eq!(check(&body).body, expected);
    }

    #[test]
    fn the_other_message_lacks_only_the_option() {
        let body = rawdoc! { "delete": "c", "apiVersion": "1", "apiStrict": true, "$db": "d" };
        let statement = rawdoc! { "q": {}, "limit": 1 };
        let message = OpMsgBuilder::new(7, 0)
            .flags(OpMsgFlags::CHECKSUM_PRESENT)
            .body(&body)
            .sequence("deletes", [&*statement])
            .build()
            .unwrap();
        let head = CommandHeader::of(OpMsg::parse(&message).unwrap()).unwrap();
        let other = without_strict(&message, &head).unwrap();
        assert_eq!(other.header().request_id, 7);
        let head = CommandHeader::of(OpMsg::parse(&other).unwrap()).unwrap();
        assert_eq!(head.body(), &*rawdoc! { "delete": "c", "apiVersion": "1", "$db": "d" });
        let documents: Vec<_> = head.message.sequences[0].documents().flatten().collect();
        assert_eq!(documents, [&*statement]);
    }
}
