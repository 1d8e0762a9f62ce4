//! `getMore` on cursors that this proxy opened.

use std::time::Duration;

use bson::Binary;
use bson::raw::RawDocumentBuf;

use super::bucket_cursor::in_terms_of_cursor;
use super::command::BucketCommand;
use super::cursor_source::CursorSource;
use super::find::item_cursor::{BatchLimit, BatchRequest, BatchStatus};
use crate::command::arguments::InheritedOptions;
use crate::command::batch::{BatchKind, ReplyBatch};
use crate::command::cursor::{GetMore, in_use, not_found};
use crate::command::reply::{CursorReply, copy_cluster_time};
use crate::session::automatic::stored::identity_find;
use crate::session::change_stream::cursor::ChangeStreamCursor;
use crate::session::cursor::{BorrowedCursor, CursorLookup, OpenCursor};
use crate::session::error::RunError;

pub(super) async fn get_more(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let more = GetMore::parse(run.context.head.body())?;
    // The owner is checked before the cursor is taken: if a command ends while it has the cursor,
    // for example because its client disconnected, the cursor is closed.
    if let Some(owner) = run.context.shared.cursors.owner(more.id) {
        owner.check(&run.context.cursor_owner(run.namespace).await?, &more)?;
    }
    match run.context.shared.cursors.take(more.id) {
        CursorLookup::Missing => Err(not_found(more.id).into()),
        CursorLookup::InUse => Err(in_use(more.id).into()),
        CursorLookup::Upstream => of_upstream(run, more.id).await,
        CursorLookup::Stream(borrowed) => of_stream(run, &more, borrowed).await,
    }
}

async fn of_upstream(run: &mut BucketCommand<'_>, id: i64) -> Result<RawDocumentBuf, RunError> {
    // Sent without `exhaustAllowed`: a single plain reply is always a valid reply.
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
    let wanted = BatchRequest {
        kind: BatchKind::Next,
        limit: BatchLimit::of(more.batch_size),
    };
    let Some(kept) = borrowed.kept() else {
        return Err(not_found(more.id).into());
    };
    if !kept.source.is_of_term(run.context.term) {
        return Err(not_found(more.id).into());
    }
    let (batch, filled) = kept.source.fill(run, wanted, more.time_limit).await?;
    let cluster_time = kept.source.cluster_time().to_owned();
    let token = kept.source.resume_token();
    let id = match filled {
        BatchStatus::More => {
            if let Some(mut killed) = borrowed.give_back() {
                killed.source.close(run).await?;
            }
            more.id
        }
        BatchStatus::All | BatchStatus::NotAnswered => 0,
    };
    let mut reply = match token {
        Some(token) => batch.into_reply_with_token(run.namespace, id, &token),
        None => batch.into_reply(run.namespace, id),
    };
    copy_cluster_time(&mut reply, &cluster_time);
    Ok(reply)
}

/// Checks that the cursor's collection still has the name.
async fn check_collection(run: &mut BucketCommand<'_>, uuid: &Binary) -> Result<(), RunError> {
    let mut find = identity_find(run.namespace.collection, uuid);
    InheritedOptions::of(run.context.head.body()).append_to_inspect(&mut find);
    let found = run.context.link.run(&find).await;
    let ended = |error| in_terms_of_cursor(run.namespace, error);
    found.map(drop).map_err(|error| error.map_command(ended))
}

impl BucketCommand<'_> {
    /// Stores a cursor that has more items, and returns its id. If the upstream cursor is open, its
    /// id is used, so that upstream tools show the same id.
    pub(super) async fn keep(&mut self, source: CursorSource) -> Result<i64, RunError> {
        let owner = self.context.cursor_owner(self.namespace).await?;
        let id = source.upstream_id().unwrap_or_else(|| rand::random_range(1..i64::MAX));
        let kept = OpenCursor { owner, source };
        self.context.shared.cursors.keep(id, Box::new(kept));
        Ok(id)
    }
}

impl CursorSource {
    /// Fills one batch of the reply. `time_limit`: the longest wait for data.
    pub(super) async fn fill(
        &mut self,
        run: &mut BucketCommand<'_>,
        wanted: BatchRequest,
        time_limit: Option<Duration>,
    ) -> Result<(ReplyBatch, BatchStatus), RunError> {
        match self {
            Self::Buckets(cursor) => cursor.fill(run, wanted).await,
            Self::Listed(listed) => {
                if let Some(uuid) = &listed.collection {
                    check_collection(run, uuid).await?;
                }
                Ok(listed.fill(wanted))
            }
            Self::Changes(changes) => {
                let deadline = ChangeStreamCursor::deadline(time_limit);
                changes.fill(&mut run.context, run.namespace, wanted, deadline).await
            }
        }
    }

    /// Closes the upstream cursor if it is open.
    pub(super) async fn close(&mut self, run: &mut BucketCommand<'_>) -> Result<(), RunError> {
        match self {
            Self::Buckets(cursor) => cursor.items.close(run).await,
            Self::Listed(_) => Ok(()),
            Self::Changes(changes) => changes.close(&mut run.context, run.namespace).await,
        }
    }
}
