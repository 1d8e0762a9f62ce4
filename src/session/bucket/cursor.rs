//! `getMore` and `killCursors` on cursors that this proxy opened.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::BucketCommand;
use super::cursor_source::CursorSource;
use super::find::item_cursor::{BatchLimit, BatchStatus};
use crate::command::arguments::with_replaced;
use crate::command::batch::BatchKind;
use crate::command::cursor::{GetMore, killed_ids, may_kill_any, not_found};
use crate::command::document::get;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::reply::{CursorReply, copy_cluster_time};
use crate::session::Shared;
use crate::session::cursor::{BorrowedCursor, CursorLookup, OpenCursor, Owner};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamConnection;

pub(super) async fn get_more(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let more = GetMore::parse(run.head.body())?;
    // Before it is taken: what ends while a stream is taken, as when its client goes away, ends the stream.
    if let Some(owner) = run.shared.cursors.owner(more.id) {
        check(run, &more, &owner).await?;
    }
    match run.shared.cursors.take(more.id) {
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
    let reply = run.link.run(run.head.body()).await?;
    if CursorReply::parse(&reply).is_some_and(|cursor| cursor.id == 0) {
        run.shared.cursors.closed(id);
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
    if run.link.users(run.head.body()).await? != owner.users {
        let message = format!("cursor id {id} was not created by the authenticated user");
        return Err(CommandError::new(ErrorCode::Unauthorized, message).into());
    }
    let wrong_session = match (&owner.session, session_of(run.head.body())) {
        (None, Some(_)) => Some((50736, "which was not created in a session, in a session")),
        (Some(_), None) => Some((50737, "which was created in a session, without an lsid")),
        (Some(of), Some(by)) if *of != by => Some((50738, "which was created in a session, in another session")),
        _ => None,
    };
    if let Some((code, how)) = wrong_session {
        let message = format!("Cannot run getMore on cursor {id}, {how}");
        return Err(CommandError::malformed(code, &message).into());
    }
    if run.head.in_transaction() {
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
        let body = self.head.body();
        let owner = Owner {
            namespace: self.namespace.to_string(),
            session: session_of(body),
            users: self.link.users(body).await?,
            never_times_out: get(body, "noCursorTimeout") == Some(RawBsonRef::Boolean(true)),
        };
        let id = source.upstream_id().unwrap_or_else(|| rand::random_range(1..i64::MAX));
        let kept = OpenCursor {
            owner,
            shape: self.shape.clone(),
            source,
        };
        self.shared.cursors.keep(id, Box::new(kept));
        Ok(id)
    }
}

/// `killCursors`, on whatever collection: mongod goes by the numbers alone, and judges the command and the
/// owners of its own cursors. Of those that are only here it knows nothing, so they are judged here as it
/// does (`checkAuthForKillCursors`).
pub(super) async fn kill(
    shared: &Shared,
    link: &mut UpstreamConnection,
    head: &CommandHeader<'_>,
) -> Result<RawDocumentBuf, RunError> {
    // What is wrong with the list is mongod's to say.
    let ids = killed_ids(head.body()).unwrap_or_default();
    let owned: Vec<(i64, Owner)> = ids
        .iter()
        .filter_map(|id| Some((*id, shared.cursors.owner_here(*id)?)))
        .collect();
    check_owners(link, head, &owned).await?;
    let reply = link.run(head.body()).await?;
    let listed = |name: &str| {
        let ids = reply.get_array(name).ok().into_iter().flatten().flatten();
        ids.filter_map(RawBsonRef::as_i64).collect::<Vec<i64>>()
    };
    let mut killed = listed("cursorsKilled");
    for id in &killed {
        shared.cursors.closed(*id);
    }
    let mut missing = listed("cursorsNotFound");
    missing.retain(|id| {
        let was_here = owned.iter().any(|(owned, _)| owned == id) && shared.cursors.closed(*id);
        if was_here {
            killed.push(*id);
        }
        !was_here
    });
    let as_array = |ids: &[i64]| -> RawArrayBuf { ids.iter().map(|id| RawBsonRef::Int64(*id)).collect() };
    let (killed, missing) = (as_array(&killed), as_array(&missing));
    Ok(with_replaced(
        &reply,
        &[
            ("cursorsKilled", Some(RawBsonRef::Array(&killed))),
            ("cursorsNotFound", Some(RawBsonRef::Array(&missing))),
        ],
    ))
}

/// Refuses the command where one of these is another's, and its user may not kill any.
async fn check_owners(
    link: &mut UpstreamConnection,
    head: &CommandHeader<'_>,
    owned: &[(i64, Owner)],
) -> Result<(), RunError> {
    if owned.is_empty() {
        return Ok(());
    }
    let users = link.users(head.body()).await?;
    for (_, owner) in owned.iter().filter(|(_, owner)| owner.users != users) {
        // mongod judges the rest of the command first.
        let none = RawArrayBuf::new();
        let judged = with_replaced(head.body(), &[("cursors", Some(RawBsonRef::Array(&none)))]);
        link.run(&judged).await?;
        let privileges = link.privileges(head.body()).await?;
        if !may_kill_any(&privileges, &owner.namespace) {
            let message = format!("not authorized to kill cursor on {}", owner.namespace);
            return Err(CommandError::new(ErrorCode::Unauthorized, message).into());
        }
    }
    Ok(())
}
