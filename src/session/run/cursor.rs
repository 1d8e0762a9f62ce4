//! `getMore` and `killCursors`: on cursors that this proxy has opened, and on no other.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::Run;
use super::find::stream::{Filled, Measure};
use super::source::Source;
use crate::command::arguments::with_replaced;
use crate::command::batch::BatchKind;
use crate::command::cursor::{GetMore, killed_ids, not_found};
use crate::command::document::get;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::reply::{CursorReply, carry};
use crate::session::cursor::{Borrowed, Kept, Owner, Taken};
use crate::session::error::RunError;

pub(super) async fn get_more(run: &mut Run<'_>) -> Result<RawDocumentBuf, RunError> {
    let more = GetMore::parse(run.head.body())?;
    match run.shared.cursors.take(more.id) {
        Taken::Missing => Err(not_found(more.id).into()),
        Taken::InUse => {
            let message = format!("cursor id {} is already in use", more.id);
            Err(CommandError::new(ErrorCode::CursorInUse, message).into())
        }
        Taken::Upstream => of_upstream(run, more.id).await,
        Taken::Stream(borrowed) => of_stream(run, &more, borrowed).await,
    }
}

async fn of_upstream(run: &mut Run<'_>, id: i64) -> Result<RawDocumentBuf, RunError> {
    // Sent without `exhaustAllowed`: one plain reply is always a legal answer.
    let reply = run.link.run(run.head.body()).await?;
    if CursorReply::parse(&reply).is_some_and(|cursor| cursor.id == 0) {
        run.shared.cursors.closed(id);
    }
    Ok(reply)
}

async fn of_stream(run: &mut Run<'_>, more: &GetMore, mut borrowed: Borrowed<'_>) -> Result<RawDocumentBuf, RunError> {
    let measure = Measure::of(more.batch_size);
    if let Some(kept) = borrowed.kept()
        && let Err(error) = check(run, more, kept, measure).await
    {
        // Somebody else's: it stays as it was.
        borrowed.give_back();
        return Err(error);
    }
    let Some(kept) = borrowed.kept() else {
        return Err(not_found(more.id).into());
    };
    let (batch, filled) = kept.source.fill(run, &kept.shape, (BatchKind::Next, measure)).await?;
    let gossip = kept.source.gossip().to_owned();
    let id = match filled {
        Filled::More => {
            if let Some(mut killed) = borrowed.give_back() {
                killed.source.close(run).await?;
            }
            more.id
        }
        Filled::All | Filled::OutOfOrder => 0,
    };
    let mut reply = batch.into_reply(run.namespace, id);
    carry(&mut reply, &gossip);
    Ok(reply)
}

/// What mongod checks of a `getMore` (`getmore_cmd.cpp`), in its order and its words. It does so itself, too, where it is
/// asked for more.
async fn check(run: &mut Run<'_>, more: &GetMore, kept: &Kept, measure: Measure) -> Result<(), RunError> {
    let owner = &kept.owner;
    let id = more.id;
    if kept.source.has(measure) && run.link.users(run.head.body()).await? != owner.users {
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
    let asked = run.namespace.to_string();
    if asked != owner.namespace {
        let message = format!(
            "Requested getMore on namespace '{asked}', but cursor belongs to a different namespace {}",
            owner.namespace
        );
        return Err(CommandError::new(ErrorCode::Unauthorized, message).into());
    }
    if more.has_time_limit {
        let message = "cannot set maxTimeMS on getMore command for a non-awaitData cursor";
        return Err(CommandError::new(ErrorCode::BadValue, message).into());
    }
    Ok(())
}

/// The id of the session that a command runs in.
fn session_of(body: &RawDocument) -> Option<Vec<u8>> {
    let session = get(body, "lsid")?.as_document()?;
    match get(session, "id")? {
        RawBsonRef::Binary(id) => Some(id.bytes.to_vec()),
        _ => None,
    }
}

impl Run<'_> {
    /// Keeps what is not at its end, and gives the id of its cursor: the upstream's, so that whoever looks there finds it.
    pub(super) async fn keep(&mut self, source: Source) -> Result<i64, RunError> {
        let body = self.head.body();
        let owner = Owner {
            namespace: self.namespace.to_string(),
            session: session_of(body),
            users: self.link.users(body).await?,
            never_times_out: get(body, "noCursorTimeout") == Some(RawBsonRef::Boolean(true)),
        };
        let id = source.upstream_id().unwrap_or_else(|| rand::random_range(1..i64::MAX));
        let kept = Kept {
            owner,
            shape: self.shape.clone(),
            source,
        };
        self.shared.cursors.keep(id, Box::new(kept));
        Ok(id)
    }
}

pub(super) async fn kill(run: &mut Run<'_>) -> Result<RawDocumentBuf, RunError> {
    let ids = killed_ids(run.head.body())?;
    let (ours, unknown): (Vec<i64>, Vec<i64>) = ids.into_iter().partition(|id| run.shared.cursors.contains(*id));
    let mut upstream = Vec::new();
    let mut finished = Vec::new();
    for id in ours {
        match run.shared.cursors.closed(id) {
            // All that it had upstream has been read.
            Some(kept) if kept.source.upstream_id().is_none() => finished.push(id),
            _ => upstream.push(id),
        }
    }
    let as_array = |ids: &[i64]| -> RawArrayBuf { ids.iter().map(|id| RawBsonRef::Int64(*id)).collect() };
    // Sent even when none is ours, so that the reply is mongod's own.
    let killed = as_array(&upstream);
    let command = with_replaced(run.head.body(), &[("cursors", Some(RawBsonRef::Array(&killed)))]);
    let reply = run.link.run(&command).await?;
    let listed = |name: &str, more: Vec<i64>| {
        let ids = reply.get_array(name).ok().into_iter().flatten().flatten();
        let ids: Vec<i64> = ids.filter_map(RawBsonRef::as_i64).chain(more).collect();
        as_array(&ids)
    };
    let (killed, missing) = (listed("cursorsKilled", finished), listed("cursorsNotFound", unknown));
    Ok(with_replaced(
        &reply,
        &[
            ("cursorsKilled", Some(RawBsonRef::Array(&killed))),
            ("cursorsNotFound", Some(RawBsonRef::Array(&missing))),
        ],
    ))
}
