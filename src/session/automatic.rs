//! Automatic shapes: a command is relayed while its collection contains plain documents, and rewritten while
//! it contains pages (`docs/decisions/0041-an-automatic-shape-follows-the-stored-layout.md`).
//!
//! ```text
//!            listed: no page index             listed: page index, or missing
//!   Plain ◀──────────────────────── Unknown ────────────────────────▶ Pages
//!     │  the UUID does not match,      ▲     the UUID does not match,    │
//!     └────────────────────────────────┴─────────────────────────────────┘
//!        or frozen: the command waits, and is executed in the new layout
//! ```
//!
//! [`stored`] lists a collection, [`touched`] finds the collections of a command, [`plain`] executes a
//! command on plain documents, [`unfenced`] one that cannot name the UUID, [`held`] a write of documents that
//! cannot, [`stable_api`] prepares a write under `apiStrict`, [`merged_write`] joins the parts of a write
//! that was executed in both layouts, and [`hidden_formers`] knows what a client may not read.

pub(super) mod guarded_cursors;
mod held;
pub(super) mod hidden_formers;
mod merged_write;
pub(super) mod plain;
pub(super) mod stable_api;
pub(super) mod stored;
pub(super) mod touched;
mod unfenced;

pub(super) use self::merged_write::{MergedWrite, not_executed};
use self::stored::{CollectionObserver, ExpectedCollection, StoredCollection};

use super::error::RunError;
use super::fence::is_strict;
use super::upstream_connection::{UpstreamConnection, UpstreamRequest};
use crate::command::arguments::InheritedOptions;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::reply::succeeded;
use bson::Binary;
use bson::raw::RawDocumentBuf;

/// Whether a name denotes the collection that a command was planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    Same,
    Changed,
}

/// Checks after a command that the name still denotes the collection, and has done so since it was listed:
/// the record of the conversion has the same swap number. If that cannot be checked, the reply of the command
/// is an error for the same reason.
pub(super) async fn identity(
    link: &mut UpstreamConnection,
    head: &CommandHeader<'_>,
    namespace: Namespace<'_>,
    expected: ExpectedCollection<'_>,
) -> Result<Identity, RunError> {
    let Some(uuid) = expected.uuid else {
        return listed_identity(link, head, namespace, None).await;
    };
    if is_strict(head.body()) && head.in_transaction() {
        return listed_identity(link, head, namespace, Some(uuid)).await;
    }
    let checks = identity_checks(head, namespace, uuid);
    let requests: Vec<UpstreamRequest<'_>> = checks.iter().map(|check| UpstreamRequest::plain(check)).collect();
    let replies = link.call_all(&requests).await?;
    Ok(identity_in(replies, expected.swap_number))
}

/// The commands that check the collection. In a transaction no swap takes place, and a read of the record
/// could end it.
fn identity_checks(head: &CommandHeader<'_>, namespace: Namespace<'_>, uuid: &Binary) -> Vec<RawDocumentBuf> {
    let mut checks = vec![identity_check(head, namespace, uuid)];
    if !head.in_transaction() {
        checks.push(check_of(
            head,
            namespace,
            stored::swap_number_find(namespace.collection),
        ));
    }
    checks
}

/// The command that fails if the name denotes another collection. In a transaction it is part of it.
fn identity_check(head: &CommandHeader<'_>, namespace: Namespace<'_>, uuid: &Binary) -> RawDocumentBuf {
    let find = stored::identity_find(namespace.collection, uuid);
    check_of(head, namespace, find)
}

fn check_of(head: &CommandHeader<'_>, namespace: Namespace<'_>, mut check: RawDocumentBuf) -> RawDocumentBuf {
    let carried = InheritedOptions::of(head.body()).in_database(namespace.database);
    let mut carried = carried.begun(true);
    if !head.in_transaction() {
        carried = carried.without_api_strict();
    }
    if namespace.database == head.database {
        carried.append_to_internal_read(&mut check);
    } else {
        carried.append_to_inspect(&mut check);
    }
    check
}

/// The result of the replies to [`identity_checks`]. `swap_number`: the expected one.
fn identity_in(replies: impl IntoIterator<Item = RawDocumentBuf>, swap_number: Option<i64>) -> Identity {
    let mut replies = replies.into_iter();
    let identity = identity_of(replies.next().unwrap_or_default());
    let now = replies.next().and_then(|reply| stored::swap_number_of(&reply));
    let is_another = swap_number.is_some_and(|expected| now.is_some_and(|now| now != expected));
    if is_another { Identity::Changed } else { identity }
}

fn identity_of(reply: RawDocumentBuf) -> Identity {
    match succeeded(reply) {
        Err(error) if error.is(ErrorCode::CollectionUuidMismatch) => Identity::Changed,
        _ => Identity::Same,
    }
}

async fn listed_identity(
    link: &mut UpstreamConnection,
    head: &CommandHeader<'_>,
    namespace: Namespace<'_>,
    uuid: Option<&Binary>,
) -> Result<Identity, RunError> {
    let now = listed(link, head, namespace).await?;
    Ok(if now.is_some_and(|now| now.uuid.as_ref() == uuid) {
        Identity::Same
    } else {
        Identity::Changed
    })
}

/// What the name denotes now. `None`: the command is part of a transaction, and a cut-over is between its
/// renamings.
pub(super) async fn listed(
    link: &mut UpstreamConnection,
    head: &CommandHeader<'_>,
    namespace: Namespace<'_>,
) -> Result<Option<StoredCollection>, RunError> {
    let carried = InheritedOptions::of(head.body());
    let mut observer = CollectionObserver {
        link,
        carried,
        namespace,
    };
    let now = if head.in_transaction() {
        observer.stored_at_once().await?
    } else {
        Some(observer.stored().await?)
    };
    Ok(now.map(|now| now.stored))
}

/// Refuses to change the definition of a collection that a conversion copies.
pub(super) async fn refuse_during_conversion(
    link: &mut UpstreamConnection,
    head: &CommandHeader<'_>,
    namespace: Namespace<'_>,
) -> Result<(), RunError> {
    let carried = InheritedOptions::of(head.body());
    let mut observer = CollectionObserver {
        link,
        carried,
        namespace,
    };
    if !observer.stored().await?.is_converting {
        return Ok(());
    }
    let message = format!(
        "`mongoshape convert` is converting {namespace}: {} is not possible until it has ended",
        head.name
    );
    Err(CommandError::new(ErrorCode::IllegalOperation, message).into())
}

/// The error of a merge that was executed while its source or its target was exchanged.
pub(super) fn merge_interrupted(namespace: Namespace<'_>) -> CommandError {
    let message = format!(
        "`mongoshape convert` exchanged {namespace} during the merge: some documents may have been merged; try again if that is safe"
    );
    CommandError::new(ErrorCode::WriteConflict, message)
}
