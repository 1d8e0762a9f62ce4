//! Plans how a command is sent. Most commands are relayed.

use super::find::{self, FindPlan};
use super::insert;
use crate::command::error::CommandError;
use crate::command::find::Find;
use crate::command::header::CommandHeader;
use crate::command::insert::Insert;
use crate::command::registry::Command;
use crate::command::update::Update;
use crate::pattern::outlier::classify::{UpdateEffect, depends_on_array};
use crate::pattern::shapes::OutlierShape;
use crate::session::upstream::UpstreamKind;
use crate::wire::OpMsgFlags;

/// The handling of a command and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum OutlierRoute {
    /// Both are relayed.
    PassThrough,
    /// The command is relayed. The reply is relayed unless it contains outliers.
    InspectReply,
    /// The proxy executes the command.
    Rewrite,
}

/// Plans one command.
///
/// # Errors
/// If the message's bytes are malformed.
pub(in crate::session) fn passage(
    shape: &OutlierShape,
    head: &CommandHeader<'_>,
    upstream: UpstreamKind,
) -> Result<OutlierRoute, CommandError> {
    head.validate()?;
    // A malformed command is not relayed: the proxy reports its error.
    let is_relayed = match head.command {
        _ if matches!(upstream, UpstreamKind::Mongos | UpstreamKind::Unknown) => false,
        Command::Insert => Insert::parse(head).is_ok_and(|insert| insert::is_plain(shape, &insert)),
        Command::Update => Update::parse(head).is_ok_and(|update| leaves_array(shape, &update)),
        Command::Find | Command::GetMore => return Ok(of_read(shape, head)),
        _ => false,
    };
    Ok(if is_relayed {
        OutlierRoute::PassThrough
    } else {
        OutlierRoute::Rewrite
    })
}

/// Whether no statement depends on the array or changes it.
fn leaves_array(shape: &OutlierShape, update: &Update<'_>) -> bool {
    update.statements.iter().all(|statement| {
        UpdateEffect::of_statement(shape, statement) == UpdateEffect::LeavesArray
            && !depends_on_array(shape, statement.filter)
            && !statement.order().is_some_and(|sort| depends_on_array(shape, sort))
    })
}

fn of_read(shape: &OutlierShape, head: &CommandHeader<'_>) -> OutlierRoute {
    // With an exhaust cursor, mongod would send several replies, and each would have to be
    // inspected.
    let flags = head.message.flags;
    if flags.contains(OpMsgFlags::EXHAUST_ALLOWED) || head.expects_no_reply {
        return OutlierRoute::Rewrite;
    }
    let is_complete = head.command == Command::GetMore
        || Find::parse(head.body())
            .map(|find| find::way(shape, &find))
            .is_ok_and(|plan| matches!(plan, Ok(FindPlan::Complete(None))));
    if is_complete {
        OutlierRoute::InspectReply
    } else {
        OutlierRoute::Rewrite
    }
}
