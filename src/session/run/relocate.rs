//! An item that goes to another page: under another key, or to where its new time belongs. It is taken out of the one page and
//! inserted anew, in one transaction: the client's, or one of [our own](super::own_transaction).

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::delete::{Target, take};
use super::own_transaction::{Before, OwnTransaction, insert_of, is_spent, is_transient, unlabelled};
use super::statements::{Part, lost_too_often};
use super::{MAX_ATTEMPTS, Run, insert, pause};
use crate::command::document::get;
use crate::command::error::{CommandError, WriteError};
use crate::command::head::Head;
use crate::session::error::RunError;
use crate::session::upstream::UpstreamKind;

/// What came of it.
#[derive(Debug)]
pub(super) enum Relocated {
    /// It lies there now; mongod's answer to the last command.
    Now(RawDocumentBuf),
    /// An earlier attempt at the client's statement has relocated one.
    Before,
    /// It is not as it was found.
    Missed,
}

/// Takes the item out and inserts `item`, which is what becomes of it as the application knows it.
pub(super) async fn relocate(
    run: &mut Run<'_>,
    target: &Target,
    item: &RawDocument,
    id: Option<i32>,
) -> Result<Relocated, RunError> {
    if run.head.in_transaction() {
        return within(run, None, target, item).await.map(|done| match done {
            Some(answer) => Relocated::Now(answer),
            None => Relocated::Missed,
        });
    }
    may_relocate(run)?;
    let mut attempt = 0;
    for tries in 0..MAX_ATTEMPTS {
        pause(tries).await;
        let transaction = match id {
            None => OwnTransaction::unnumbered(run),
            Some(id) => match next_attempt(run, id, &mut attempt).await? {
                Some(transaction) => transaction,
                None => return Ok(Relocated::Before),
            },
        };
        match in_own(run, &transaction, target, item).await {
            Ok(Some(answer)) => return Ok(Relocated::Now(answer)),
            Ok(None) => return Ok(Relocated::Missed),
            // Another attempt at the client's statement may have begun it, ended ours, or go on where we are.
            Err(RunError::Command(error)) if is_transient(&error) || (id.is_some() && is_spent(&error)) => {
                if transaction.abort(run).await? == Before::Committed {
                    return Ok(Relocated::Before);
                }
            }
            Err(RunError::Command(error)) => {
                transaction.abort(run).await?;
                return Err(unlabelled(error).into());
            }
            Err(error) => return Err(error),
        }
        attempt += 1;
    }
    Err(lost_too_often().into())
}

/// Refuses it where there are no transactions.
pub(super) fn may_relocate(run: &Run<'_>) -> Result<(), CommandError> {
    if run.upstream == UpstreamKind::Standalone {
        let what = "an update that moves an item to another page, of another key, which takes a transaction and so a \
                    replica set,";
        return Err(run.unsupported(what));
    }
    Ok(())
}

/// Whether an earlier attempt at the client's statement has relocated an item.
pub(super) async fn was_relocated(run: &mut Run<'_>, id: i32) -> Result<bool, RunError> {
    Ok(next_attempt(run, id, &mut 0).await?.is_none())
}

/// The first transaction of the client's statement, from an attempt on, that was not begun before; `None` where one was
/// committed.
async fn next_attempt(run: &mut Run<'_>, id: i32, attempt: &mut u32) -> Result<Option<OwnTransaction>, RunError> {
    while *attempt < MAX_ATTEMPTS {
        let transaction = OwnTransaction::of_statement(run, id, *attempt);
        let transaction = transaction.ok_or_else(|| run.unsupported("a move in such a session"))?;
        match transaction.abort(run).await? {
            Before::Committed => return Ok(None),
            Before::Nothing => return Ok(Some(transaction)),
            Before::Spent => *attempt += 1,
        }
    }
    Err(lost_too_often().into())
}

async fn in_own(
    run: &mut Run<'_>,
    transaction: &OwnTransaction,
    target: &Target,
    item: &RawDocument,
) -> Result<Option<RawDocumentBuf>, RunError> {
    if within(run, Some(transaction), target, item).await?.is_none() {
        transaction.abort(run).await?;
        return Ok(None);
    }
    transaction.commit(run).await.map(Some)
}

/// Both statements, in a transaction.
async fn within(
    run: &mut Run<'_>,
    transaction: Option<&OwnTransaction>,
    target: &Target,
    item: &RawDocument,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let body = insert_of(run, transaction, item, true);
    let head = Head::of_body(&body)?;
    // The client's own has begun when its item was looked for.
    let mut inner = run.in_place(&head, transaction.is_none());
    if take(&mut inner, target, Part::Own(None)).await?.is_none() {
        return Ok(None);
    }
    let reply = insert::run(&mut inner).await?;
    let errors = get(&reply, "writeErrors").and_then(RawBsonRef::as_array);
    let error = errors.and_then(|errors| WriteError::parse(errors.into_iter().next()?.ok()?.as_document()?));
    match error {
        Some((_, error)) => Err(error.into_command_error().into()),
        None => Ok(Some(reply)),
    }
}
