//! Internal statements on buckets, and their results.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::BucketCommand;
use super::internal_transaction::{OwnTransaction, unlabelled};
use super::retry_on_swap::is_swap_write_error;
use crate::command::arguments::{InheritedOptions, with_replaced};
use crate::command::document::{array_of, as_whole_number, get, put, single};
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::reply::succeeded;
use crate::pattern::bucket::insert::{Failure, failure};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// mongod's code for an update with the `stmtId` of an executed delete (40638).
const RETRY_OF_DELETE: i32 = 40638;

/// The command that contains the statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteCommand {
    /// `update`
    Update,
    /// `delete`
    Delete,
}

/// Whether the statement is the client's or internal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The client's own statement. If the client's command is retryable, mongod keeps a retry
    /// record under this `stmtId`.
    Client(Option<i32>),
    /// Internal: may be executed twice, and does not wait for the write concern.
    Internal,
}

#[derive(Debug)]
pub(super) struct WriteResult {
    /// Documents changed or removed.
    pub(super) n: i64,
    /// Positions of statements whose page has changed since it was read.
    pub(super) missed: Vec<usize>,
    /// Whether mongod has a retry record: the statement was executed before.
    pub(super) resent: bool,
    /// mongod's reply.
    pub(super) answer: RawDocumentBuf,
    /// The error of statements that failed because of a freeze or swap. Their positions are in
    /// `missed`.
    pub(super) replaced: Option<WriteError>,
}

impl WriteResult {
    /// Fails if a freeze or swap stopped a statement.
    pub(super) fn unless_replaced(mut self) -> Result<Self, RunError> {
        match self.replaced.take() {
            Some(error) => Err(error.into_command_error().into()),
            None => Ok(self),
        }
    }
}

/// Sends one statement.
pub(super) async fn send_one(
    run: &mut BucketCommand<'_>,
    kind: WriteCommand,
    statement: &RawDocument,
    part: Origin,
) -> Result<WriteResult, RunError> {
    send(run, kind, &[statement], true, part).await
}

/// Sends statements. `ordered`: stops at the first failure. Any failure that is not a miss fails
/// the command.
pub(super) async fn send(
    run: &mut BucketCommand<'_>,
    kind: WriteCommand,
    statements: &[&RawDocument],
    ordered: bool,
    part: Origin,
) -> Result<WriteResult, RunError> {
    send_counting(run, kind, statements, ordered, part)
        .await?
        .unless_replaced()
}

/// Like [`send`], but returns the counts if a freeze or swap stopped some statements.
pub(super) async fn send_counting(
    run: &mut BucketCommand<'_>,
    kind: WriteCommand,
    statements: &[&RawDocument],
    ordered: bool,
    part: Origin,
) -> Result<WriteResult, RunError> {
    let body = body(run, kind, ordered, part);
    let field = match kind {
        WriteCommand::Update => "updates",
        WriteCommand::Delete => "deletes",
    };
    let request = UpstreamRequest {
        body: &body,
        sequence: Some((field, statements)),
    };
    let answer = run.context.link.call(request).await?;
    parse_result(run, part, answer)
}

/// The result of a command from mongod's reply.
fn parse_result(run: &mut BucketCommand<'_>, part: Origin, answer: RawDocumentBuf) -> Result<WriteResult, RunError> {
    let answer = match succeeded(answer) {
        Ok(answer) => answer,
        Err(CommandError::Upstream(reply)) if is_record_of_delete(&reply) => {
            return Ok(WriteResult {
                n: 1,
                missed: Vec::new(),
                resent: true,
                answer: with_replaced(&reply, &[("ok", Some(RawBsonRef::Double(1.0)))]),
                replaced: None,
            });
        }
        Err(error) => return Err(error.into()),
    };
    if matches!(part, Origin::Client(_)) {
        run.record_executed(&answer);
    }
    let mut missed = Vec::new();
    let mut replaced = None;
    let errors = get(&answer, "writeErrors").and_then(RawBsonRef::as_array);
    let errors = errors.into_iter().flatten().flatten();
    for (position, error) in errors.filter_map(RawBsonRef::as_document).filter_map(WriteError::parse) {
        if is_swap_write_error(&error) {
            missed.push(position);
            replaced = Some(error);
            continue;
        }
        match failure(run.shape, error) {
            Failure::Miss => missed.push(position),
            Failure::TooLarge(error)
            | Failure::Incompatible(error)
            | Failure::Final(error)
            | Failure::Invalid(error)
            | Failure::Violation { error, .. } => {
                return Err(error.into_command_error().into());
            }
            _ => return Err(run.corrupt_bucket_error().into()),
        }
    }
    Ok(WriteResult {
        n: get(&answer, "n").and_then(as_whole_number).unwrap_or_default(),
        missed,
        resent: get(&answer, "retriedStmtIds").is_some(),
        answer,
        replaced,
    })
}

/// The error of a write that one of its reads or statements has failed with. It has retry labels if the command is
/// retryable.
pub(super) fn of_write(error: RunError, retryable: bool) -> RunError {
    error.map_command(|error| {
        let error = error.of_write();
        if retryable { error.labelled() } else { error }
    })
}

/// Sends elements of `updates` with these `stmtId`s in one command, under the client's session and number or
/// those of an internal session. `body`: the command and its own options.
pub(super) async fn send_updates(
    run: &mut BucketCommand<'_>,
    mut body: RawDocumentBuf,
    statements: &[&RawDocument],
    ids: &[i32],
    own: Option<&OwnTransaction>,
) -> Result<RawDocumentBuf, RunError> {
    if own.is_some() || run.context.head.is_retryable_write() {
        body.append(cstr!("stmtIds"), ids.iter().copied().collect::<RawArrayBuf>());
    }
    run.context.inherited().append_to_write(&mut body);
    if let Some(own) = own {
        body = own.numbered(&body);
    }
    let request = UpstreamRequest {
        body: &body,
        sequence: Some(("updates", statements)),
    };
    let answer = succeeded(run.context.link.call(request).await?);
    let answer = answer.map_err(|error| if own.is_some() { unlabelled(error) } else { error })?;
    run.record_executed(&answer);
    Ok(answer)
}

/// The `stmtId`s of the statements that an earlier attempt had executed.
pub(super) fn retried_ids(answer: &RawDocument) -> impl Iterator<Item = i32> {
    let ids = get(answer, "retriedStmtIds").and_then(RawBsonRef::as_array);
    let ids = ids.into_iter().flatten().flatten().filter_map(as_whole_number);
    ids.filter_map(|id| i32::try_from(id).ok())
}

/// Whether mongod has a retry record of a statement as a `delete`.
pub(super) fn is_retry_of_delete(error: &CommandError) -> bool {
    matches!(error, CommandError::Upstream(reply) if is_record_of_delete(reply))
}

fn is_record_of_delete(reply: &RawDocument) -> bool {
    reply.get_i32("code").is_ok_and(|code| code == RETRY_OF_DELETE)
}

/// The body of the command, without the statements, which follow as a document sequence.
fn body(run: &BucketCommand<'_>, kind: WriteCommand, ordered: bool, part: Origin) -> RawDocumentBuf {
    let name = match kind {
        WriteCommand::Update => "update",
        WriteCommand::Delete => "delete",
    };
    let mut body = single(name, run.namespace.collection);
    body.append(cstr!("ordered"), ordered);
    let carried = match part {
        Origin::Client(Some(id)) => {
            body.append(cstr!("stmtIds"), [id].into_iter().collect::<RawArrayBuf>());
            run.context.inherited()
        }
        Origin::Client(None) => run.context.inherited(),
        Origin::Internal => beside(run),
    };
    // Pages are named by `_id`. A collection of the same name may have pages with the same `_id`s
    // and other keys.
    let carried = match run.collection.as_ref().filter(|_| !run.context.head.in_transaction()) {
        Some(collection) => {
            body.append(cstr!("collectionUUID"), &collection.uuid);
            // `apiStrict` does not allow `collectionUUID`. mongod has validated the client's
            // expressions before.
            carried.without_api_strict()
        }
        None => carried,
    };
    carried.append_to_write(&mut body);
    body
}

/// The inherited options of an internal statement. In a transaction it is part of the transaction.
pub(super) fn beside<'a>(run: &BucketCommand<'a>) -> InheritedOptions<'a> {
    let carried = run.context.inherited().not_retryable();
    if run.context.head.in_transaction() {
        carried
    } else {
        carried.without_wait()
    }
}

/// mongod's retry record of the client's statement, if it was executed before. The current
/// documents do not show that.
pub(super) async fn is_remembered(run: &mut BucketCommand<'_>, id: i32) -> Result<Option<WriteResult>, RunError> {
    let query = retry_record_query(run, id, run.no_statement());
    let answer = run.context.link.call(UpstreamRequest::plain(&query)).await?;
    parse_retry_record(run, id, answer)
}

/// The command that asks for mongod's retry record of the client's statement, by a `statement` that changes
/// nothing.
pub(super) fn retry_record_query(run: &BucketCommand<'_>, id: i32, statement: RawDocumentBuf) -> RawDocumentBuf {
    let mut query = body(run, WriteCommand::Update, true, Origin::Client(Some(id)));
    put(&mut query, "updates", array_of(&[statement]));
    query
}

/// The record in the reply to a [`retry_record_query`].
pub(super) fn parse_retry_record(
    run: &mut BucketCommand<'_>,
    id: i32,
    answer: RawDocumentBuf,
) -> Result<Option<WriteResult>, RunError> {
    let result = parse_result(run, Origin::Client(Some(id)), answer)?.unless_replaced()?;
    Ok(result.resent.then_some(result))
}

/// The error after the last lost race with another writer.
pub(super) fn lost_too_often() -> CommandError {
    let message =
        "write conflict: an item was changed by other writers before each attempt; it is unchanged: try again";
    CommandError::new(ErrorCode::WriteConflict, message)
}
