//! `getMore` on cursors that this proxy opened.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::BucketCommand;
use super::cursor_source::CursorSource;
use super::find::item_cursor::{BatchLimit, BatchStatus};
use crate::command::batch::BatchKind;
use crate::command::cursor::{GetMore, not_found};
use crate::command::document::get;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::reply::{CursorReply, copy_cluster_time};
use crate::session::cursor::{BorrowedCursor, CursorLookup, OpenCursor, Owner};
use crate::session::error::RunError;

pub(super) async fn get_more(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let more = GetMore::parse(run.context.head.body())?;
    // Before it is taken: what ends while a stream is taken, as when its client goes away, ends the stream.
    if let Some(owner) = run.context.shared.cursors.owner(more.id) {
        check(run, &more, &owner).await?;
    }
    match run.context.shared.cursors.take(more.id) {
        CursorLookup::Missing => Err(not_found(more.id).into()),
        CursorLookup::InUse => {
            let message = format!("cursor id {} is already in use", more.id);
            Err(CommandError::new(ErrorCode::CursorInUse, message).into())
        }
        CursorLookup::Upstream => of_upstream(run, more.id).await,
        CursorLookup::Stream(borrowed) => of_stream(run, &more, borrowed).await,
    }
}

async fn of_upstream(run: &mut BucketCommand<'_>, id: i64) -> Result<RawDocumentBuf, RunError> {
    // Sent without `exhaustAllowed`: one plain reply is always a legal answer.
    let reply = run.context.link.run(run.context.head.body()).await?;
    if CursorReply::parse(&reply).is_some_and(|cursor| cursor.id == 0) {
        run.context.shared.cursors.closed(id);
    }
    Ok(reply)
}

async fn of_stream(
    run: &mut BucketCommand<'_>,
    more: &GetMore,
    mut borrowed: BorrowedCursor<'_>,
) -> Result<RawDocumentBuf, RunError> {
    let measure = BatchLimit::of(more.batch_size);
    let Some(kept) = borrowed.kept() else {
        return Err(not_found(more.id).into());
    };
    let (batch, filled) = kept.source.fill(run, &kept.shape, (BatchKind::Next, measure)).await?;
    let gossip = kept.source.gossip().to_owned();
    let id = match filled {
        BatchStatus::More => {
            if let Some(mut killed) = borrowed.give_back() {
                killed.source.close(run).await?;
            }
            more.id
        }
        BatchStatus::All | BatchStatus::OutOfOrder => 0,
    };
    let mut reply = batch.into_reply(run.namespace, id);
    copy_cluster_time(&mut reply, &gossip);
    Ok(reply)
}

/// What mongod checks of a `getMore` (`getmore_cmd.cpp`), in its order and its words. It does so itself, too,
/// where it is asked for more.
async fn check(run: &mut BucketCommand<'_>, more: &GetMore, owner: &Owner) -> Result<(), RunError> {
    let id = more.id;
    if run.context.link.users(run.context.head.body()).await? != owner.users {
        let message = format!("cursor id {id} was not created by the authenticated user");
        return Err(CommandError::new(ErrorCode::Unauthorized, message).into());
    }
    let wrong_session = match (&owner.session, session_of(run.context.head.body())) {
        (None, Some(_)) => Some((50736, "which was not created in a session, in a session")),
        (Some(_), None) => Some((50737, "which was created in a session, without an lsid")),
        (Some(of), Some(by)) if *of != by => Some((50738, "which was created in a session, in another session")),
        _ => None,
    };
    if let Some((code, how)) = wrong_session {
        let message = format!("Cannot run getMore on cursor {id}, {how}");
        return Err(CommandError::malformed(code, &message).into());
    }
    if run.context.head.in_transaction() {
        let message =
            format!("Cannot run getMore on cursor {id}, which was not created in a transaction, in a transaction");
        return Err(CommandError::malformed(50739, &message).into());
    }
    Ok(owner.check_request(run.namespace, more)?)
}

/// The id of the session that a command runs in.
fn session_of(body: &RawDocument) -> Option<Vec<u8>> {
    let session = get(body, "lsid")?.as_document()?;
    match get(session, "id")? {
        RawBsonRef::Binary(id) => Some(id.bytes.to_vec()),
        _ => None,
    }
}

impl BucketCommand<'_> {
    /// Keeps what is not at its end, and gives the id of its cursor: the upstream's, so that whoever looks
    /// there finds it.
    pub(super) async fn keep(&mut self, source: CursorSource) -> Result<i64, RunError> {
        let body = self.context.head.body();
        let owner = Owner {
            namespace: self.namespace.to_string(),
            session: session_of(body),
            users: self.context.link.users(body).await?,
            never_times_out: get(body, "noCursorTimeout") == Some(RawBsonRef::Boolean(true)),
        };
        let id = source.upstream_id().unwrap_or_else(|| rand::random_range(1..i64::MAX));
        let kept = OpenCursor {
            owner,
            shape: self.shape.clone(),
            source,
        };
        self.context.shared.cursors.keep(id, Box::new(kept));
        Ok(id)
    }
}
