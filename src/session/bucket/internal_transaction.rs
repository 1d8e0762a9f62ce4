//! A transaction of the proxy for a change of two documents, in a session other than the client's.
//!
//! For a retryable command the session and number are derived from the client's, so that another attempt,
//! perhaps through another proxy, can determine the outcome: `abortTransaction` reports that the first was
//! committed (256), or ends it. See `docs/decisions/0014-moves-are-transactions.md`.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::BucketCommand;
use super::invalid_item;
use crate::command::arguments::{append_no_wait, with_replaced};
use crate::command::document::{array_of, as_whole_number, get, put, single};
use crate::command::error::{CommandError, TRANSIENT_TRANSACTION};
use crate::command::reply::succeeded;
use crate::session::error::RunError;
use crate::session::upstream_connection::{SessionNumber, UpstreamRequest};

/// Mask for the ids of internal sessions, so that they differ from the ids of client sessions.
const MASK: u128 = 0x6d6f_6e67_6f73_6861_7065_2072_656c_6f63;
/// Attempts for one statement in the numbering of transactions.
const ATTEMPTS: i64 = 1 << 8;
/// Statements for one `txnNumber` of the client in that numbering. More than one command may have.
const STATEMENTS: i64 = 1 << 17;

/// The session and number of an internal transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnTransaction(SessionNumber);

/// State of a transaction that an earlier attempt may have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// It was committed.
    Committed,
    /// It was begun and aborted.
    Spent,
    /// A transaction with a greater number was begun in the session, so mongod has no record of
    /// this one.
    Superseded,
    /// It was never begun, or it was aborted. mongod distinguishes these only when the transaction
    /// is begun again.
    Nothing,
}

impl OwnTransaction {
    /// A transaction that no retry needs to find.
    pub(super) fn unnumbered(run: &mut BucketCommand<'_>) -> Self {
        Self(run.context.link.own_transaction())
    }

    /// A transaction that is never committed. It may be begun while one of [`Self::unnumbered`] is in
    /// progress.
    pub(super) fn to_be_aborted(run: &mut BucketCommand<'_>) -> Self {
        let SessionNumber { session, number } = run.context.link.own_transaction();
        Self(SessionNumber {
            session: session ^ MASK,
            number,
        })
    }

    /// A retryable write of the client under this session and number. This is a single write, not a
    /// transaction.
    pub(super) fn numbered(&self, body: &RawDocument) -> RawDocumentBuf {
        let mut numbered = with_replaced(body, &[("lsid", None)]);
        self.0.append_to(&mut numbered);
        numbered
    }

    /// The transaction for one attempt of a client's statement. All internal transactions of a
    /// client's session share one session. They are ordered by the client's `txnNumber`, then
    /// statement, then attempt. `None` if the client's session has no usable id, or the numbers
    /// exceed their range.
    pub(super) fn of_statement(run: &BucketCommand<'_>, statement: i32, attempt: u32) -> Option<Self> {
        let body = run.context.head.body();
        let session = get(body, "lsid")?.as_document()?;
        let RawBsonRef::Binary(id) = get(session, "id")? else {
            return None;
        };
        let id = u128::from_be_bytes(id.bytes.try_into().ok()?);
        let statement = i64::from(statement);
        if !(0..STATEMENTS).contains(&statement) {
            return None;
        }
        let number = get(body, "txnNumber").and_then(as_whole_number)?;
        let number = number.checked_mul(STATEMENTS)?.checked_add(statement)?;
        let number = number.checked_mul(ATTEMPTS)?.checked_add(i64::from(attempt))?;
        Some(Self(SessionNumber {
            session: id ^ MASK,
            number,
        }))
    }

    /// Appends the client's inherited fields and the transaction's fields. `begins`: appends
    /// `startTransaction`.
    pub(super) fn append_to(&self, run: &BucketCommand<'_>, command: &mut RawDocumentBuf, begins: bool) {
        let kept = [
            "$clusterTime",
            "apiVersion",
            "apiStrict",
            "apiDeprecationErrors",
            "comment",
            "$db",
        ];
        for (name, value) in run.context.head.body().iter().flatten() {
            if kept.contains(&name.as_str()) {
                command.append(name, value);
            }
        }
        self.append_number(command);
        if begins {
            command.append(cstr!("startTransaction"), true);
        }
    }

    fn append_number(&self, command: &mut RawDocumentBuf) {
        self.0.append_to(command);
        command.append(cstr!("autocommit"), false);
    }

    /// Begins and aborts the transaction, so that no other attempt can begin it. Returns its state.
    pub(super) async fn burn(&self, run: &mut BucketCommand<'_>) -> Result<Before, RunError> {
        let mut find = single("find", run.namespace.collection);
        find.append(cstr!("limit"), 1);
        find.append(cstr!("projection"), single("_id", 1));
        self.append_to(run, &mut find, true);
        match succeeded(run.context.link.call(UpstreamRequest::plain(&find)).await?) {
            Err(error) if !is_spent(&error) => Err(error.into()),
            _ => self.abort(run).await,
        }
    }

    /// Commits with the client's write concern. Returns mongod's reply.
    pub(super) async fn commit(&self, run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
        let mut command = self.ending(run, "commitTransaction");
        if let Some(concern) = get(run.context.head.body(), "writeConcern") {
            put(&mut command, "writeConcern", concern);
        }
        Ok(succeeded(
            run.context.link.call(UpstreamRequest::plain(&command)).await?,
        )?)
    }

    /// Aborts the transaction if it is in progress. Returns its state before the abort.
    pub(super) async fn abort(&self, run: &mut BucketCommand<'_>) -> Result<Before, RunError> {
        const TRANSACTION_TOO_OLD: i32 = 225;
        const NO_SUCH_TRANSACTION: i32 = 251;
        const TRANSACTION_COMMITTED: i32 = 256;
        let mut command = self.ending(run, "abortTransaction");
        append_no_wait(&mut command);
        match succeeded(run.context.link.call(UpstreamRequest::plain(&command)).await?) {
            Ok(_) => Ok(Before::Spent),
            Err(CommandError::Upstream(reply)) => match reply.get_i32("code") {
                Ok(TRANSACTION_COMMITTED) => Ok(Before::Committed),
                Ok(TRANSACTION_TOO_OLD) => Ok(Before::Superseded),
                Ok(NO_SUCH_TRANSACTION) => Ok(Before::Nothing),
                _ => Err(CommandError::Upstream(reply).into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    fn ending(&self, run: &BucketCommand<'_>, name: &str) -> RawDocumentBuf {
        let mut command = single(name, 1);
        for field in ["$clusterTime", "apiVersion", "apiStrict", "apiDeprecationErrors"] {
            if let Some(value) = get(run.context.head.body(), field) {
                put(&mut command, field, value);
            }
        }
        self.append_number(&mut command);
        put(&mut command, "$db", "admin");
        command
    }
}

/// Whether a transaction could not begin because one with the same or a greater number was begun
/// before.
pub(super) fn is_spent(error: &CommandError) -> bool {
    const TRANSACTION_TOO_OLD: i32 = 225;
    const CONFLICTING_OPERATION_IN_PROGRESS: i32 = 117;
    let CommandError::Upstream(reply) = error else {
        return false;
    };
    let code = reply.get_i32("code");
    code.is_ok_and(|code| matches!(code, TRANSACTION_TOO_OLD | CONFLICTING_OPERATION_IN_PROGRESS))
}

/// Whether the failed transaction may be tried again.
pub(super) fn is_transient(error: &CommandError) -> bool {
    let CommandError::Upstream(reply) = error else {
        return false;
    };
    let labels = get(reply, "errorLabels").and_then(RawBsonRef::as_array);
    let labels = labels.into_iter().flatten().flatten();
    let is_conflict = reply
        .get_i32("code")
        .is_ok_and(|code| matches!(code, 112 | 251 | 24 | 246));
    is_conflict
        && labels
            .filter_map(RawBsonRef::as_str)
            .any(|label| label == TRANSIENT_TRANSACTION)
}

/// Removes the labels of a transaction, because the client's command is not in one.
pub(super) fn unlabelled(error: CommandError) -> CommandError {
    match error {
        CommandError::Upstream(reply) => CommandError::Upstream(with_replaced(&reply, &[("errorLabels", None)])),
        own @ CommandError::Own { .. } => own,
    }
}

/// The `insert` of one document in the transaction. A `CommandHeader` can be parsed from it.
pub(super) fn insert_of(
    run: &BucketCommand<'_>,
    transaction: Option<&OwnTransaction>,
    document: &RawDocument,
    begins: bool,
) -> RawDocumentBuf {
    let mut body = single("insert", run.namespace.collection);
    body.append(cstr!("documents"), array_of(&[document.to_owned()]));
    invalid_item::append_bypass(run, &mut body);
    match transaction {
        Some(transaction) => transaction.append_to(run, &mut body, begins),
        None => run.context.inherited().append_to_write(&mut body),
    }
    body
}
