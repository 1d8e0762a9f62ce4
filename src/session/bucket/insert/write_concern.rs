//! The client's `writeConcern` of an insert.
//!
//! An insert may take several statements. If each waited for other members, the next writer of the key would
//! wait, too. So statements are written with `w: 1`, and one update that changes nothing waits at the end:
//! mongod makes it wait for the newest write.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::batch::InsertBatch;
use crate::command::document::{as_whole_number, get, put};
use crate::command::error::CommandError;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::write_concern;
use crate::session::error::RunError;
use crate::session::upstream::UpstreamKind;

/// The command that waits for the client's write concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concern {
    /// Each statement waits.
    Each,
    /// A final command waits. Nothing has been written yet.
    AtEnd,
    /// A final command waits. Something has been written.
    Owed,
}

impl Concern {
    /// A standalone has no other members to wait for. A write concern that mongod may reject must
    /// reach mongod before anything is written.
    pub(super) fn of(run: &BucketCommand<'_>) -> Self {
        if run.context.upstream == UpstreamKind::Member && !run.context.head.in_transaction() && is_well_formed(run) {
            Self::AtEnd
        } else {
            Self::Each
        }
    }

    /// Whether a final command must wait.
    pub(super) fn is_owed(self) -> bool {
        self == Self::Owed
    }

    /// Records that a statement has been written without waiting.
    pub(super) fn owe(&mut self) {
        if *self == Self::AtEnd {
            *self = Self::Owed;
        }
    }
}

/// Has mongod validate a write concern that may be malformed, before the collection is created.
/// Costs one round trip in that case, otherwise nothing.
pub(super) async fn check(run: &mut BucketCommand<'_>) -> Result<(), RunError> {
    if !is_well_formed(run) {
        write_concern::wait(run).await?;
    }
    Ok(())
}

/// Whether mongod certainly accepts the write concern.
fn is_well_formed(run: &BucketCommand<'_>) -> bool {
    let concern = match get(run.context.head.body(), "writeConcern") {
        None => return true,
        Some(RawBsonRef::Document(concern)) => concern,
        Some(_) => return false,
    };
    let mut fields = concern.iter();
    fields.all(|field| match field {
        Ok((name, value)) => match (name.as_str(), value) {
            ("w", RawBsonRef::String(mode)) => mode == "majority",
            ("w", value) => as_whole_number(value).is_some_and(|members| (0..=50).contains(&members)),
            ("j", value) => matches!(value, RawBsonRef::Boolean(_)),
            ("wtimeout", value) => as_whole_number(value).is_some_and(|millis| i32::try_from(millis).is_ok()),
            _ => false,
        },
        Err(_) => false,
    })
}

/// Waits for the client's write concern if no statement has waited.
pub(super) async fn settle(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<(), RunError> {
    // If a command stores nothing, mongod waits for the newest write of the server.
    let has_stored_nothing = !batch.has_sent() && !run.context.head.in_transaction();
    let is_named = get(run.context.head.body(), "writeConcern").is_some();
    let is_due = batch.concern == Concern::Owed || (has_stored_nothing && is_named);
    if !is_due || !write_concern::asks_for_more(run) {
        return Ok(());
    }
    batch.last_answer = match write_concern::wait(run).await {
        Ok(answer) => answer,
        // The items are stored, so the command succeeds: mongod also reports a failed wait as
        // `writeConcernError`.
        Err(RunError::Command(CommandError::Upstream(error))) if batch.has_sent() => {
            as_concern_error(&batch.last_answer, &error)
        }
        Err(error) => return Err(error),
    };
    Ok(())
}

fn as_concern_error(answer: &RawDocument, error: &RawDocument) -> RawDocumentBuf {
    let mut concern_error = RawDocumentBuf::new();
    for name in ["code", "codeName", "errmsg"] {
        if let Some(value) = get(error, name) {
            put(&mut concern_error, name, value);
        }
    }
    let mut answer = answer.to_owned();
    answer.append(cstr!("writeConcernError"), &concern_error);
    answer
}
