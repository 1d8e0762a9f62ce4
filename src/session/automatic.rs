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
//! command on plain documents, [`held`] one that mongod cannot fence by itself, [`stable_api`] prepares a
//! write under `apiStrict`, and [`merged_write`] joins the parts of a write that was executed in both
//! layouts.

pub(super) mod guarded_cursors;
mod held;
mod merged_write;
pub(super) mod plain;
pub(super) mod stable_api;
pub(super) mod stored;
pub(super) mod touched;

pub(super) use self::merged_write::{MergedWrite, not_executed};
use self::stored::CollectionObserver;

use super::error::RunError;
use super::fence::is_strict;
use super::upstream_connection::{UpstreamConnection, UpstreamRequest};
use crate::command::arguments::InheritedOptions;
use crate::command::document::put;
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

/// Checks after a command that the name still denotes the collection. `uuid`: `None` for a missing
/// collection. If that cannot be checked, the reply of the command is an error for the same reason.
pub(super) async fn identity(
    link: &mut UpstreamConnection,
    head: &CommandHeader<'_>,
    namespace: Namespace<'_>,
    uuid: Option<&Binary>,
) -> Result<Identity, RunError> {
    let Some(uuid) = uuid else {
        return listed_identity(link, head, namespace, None).await;
    };
    if is_strict(head.body()) && head.in_transaction() {
        return listed_identity(link, head, namespace, Some(uuid)).await;
    }
    let check = identity_check(head, namespace, uuid);
    let reply = link.call(UpstreamRequest::plain(&check)).await?;
    Ok(identity_of(reply))
}

/// The command that fails if the name denotes another collection. In a transaction it is part of it.
fn identity_check(head: &CommandHeader<'_>, namespace: Namespace<'_>, uuid: &Binary) -> RawDocumentBuf {
    let mut check = stored::identity_find(namespace.collection, uuid);
    let mut carried = InheritedOptions::of(head.body()).begun(true);
    if !head.in_transaction() {
        carried = carried.without_api_strict();
    }
    if namespace.database == head.database {
        carried.append_to_internal_read(&mut check);
        return check;
    }
    let mut options = RawDocumentBuf::new();
    carried.append_to_inspect(&mut options);
    for (name, value) in options.iter().flatten().filter(|(name, _)| *name != "$db") {
        check.append(name, value);
    }
    put(&mut check, "$db", namespace.database);
    check
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
    Ok(if now.is_some_and(|now| now.stored.uuid.as_ref() == uuid) {
        Identity::Same
    } else {
        Identity::Changed
    })
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
