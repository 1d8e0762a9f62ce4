//! `killCursors` on cursors that this proxy opened.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};

use super::command_context::CommandContext;
use super::cursor_owner::Owner;
use super::error::RunError;
use super::upstream_connection::UpstreamConnection;
use crate::command::arguments::with_replaced;
use crate::command::cursor::{killed_ids, may_kill_any};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;

/// Executes `killCursors` on any collection. mongod uses only the ids, and checks the command and the owners
/// of its own cursors. The owners of cursors that exist only in the proxy are checked here in the same way
/// (`checkAuthForKillCursors`).
pub(super) async fn run(context: &mut CommandContext<'_>) -> Result<RawDocumentBuf, RunError> {
    let (shared, head) = (context.shared, context.head);
    let link = &mut *context.link;
    // mongod reports a malformed list.
    let ids = killed_ids(head.body()).unwrap_or_default();
    let owned: Vec<(i64, Owner)> = ids
        .iter()
        .filter_map(|id| Some((*id, shared.cursors.owner_here(*id)?)))
        .collect();
    check_owners(link, head, &owned).await?;
    let later: Vec<i64> = owned
        .iter()
        .filter_map(|(id, _)| shared.cursors.later_upstream_id(*id))
        .collect();
    let reply = link.run(head.body()).await?;
    if !later.is_empty() {
        // The client does not know these ids.
        let later = as_array(&later);
        link.run(&with_replaced(
            head.body(),
            &[("cursors", Some(RawBsonRef::Array(&later)))],
        ))
        .await?;
    }
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
    let (killed, missing) = (as_array(&killed), as_array(&missing));
    Ok(with_replaced(
        &reply,
        &[
            ("cursorsKilled", Some(RawBsonRef::Array(&killed))),
            ("cursorsNotFound", Some(RawBsonRef::Array(&missing))),
        ],
    ))
}

fn as_array(ids: &[i64]) -> RawArrayBuf {
    ids.iter().map(|id| RawBsonRef::Int64(*id)).collect()
}

/// Refuses the command if one of these cursors has another owner, and the user may not kill any
/// cursor.
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
        // mongod validates the rest of the command first.
        let none = RawArrayBuf::new();
        let validated = with_replaced(head.body(), &[("cursors", Some(RawBsonRef::Array(&none)))]);
        link.run(&validated).await?;
        let privileges = link.privileges(head.body()).await?;
        if !may_kill_any(&privileges, &owner.namespace) {
            let message = format!("not authorized to kill cursor on {}", owner.namespace);
            return Err(CommandError::new(ErrorCode::Unauthorized, message).into());
        }
    }
    Ok(())
}
