//! Selects how a command is sent: most are passed on.

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

/// How a command gets to mongod, and its reply back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum OutlierRoute {
    /// As they came.
    PassThrough,
    /// The same, but for a reply in which there are outliers.
    InspectReply,
    /// As the proxy makes them.
    Rewrite,
}

/// How this one does.
///
/// # Errors
/// What is wrong with its bytes.
pub(in crate::session) fn passage(
    shape: &OutlierShape,
    head: &CommandHeader<'_>,
    upstream: UpstreamKind,
) -> Result<OutlierRoute, CommandError> {
    head.validate()?;
    // One that is wrong is told so where it is rewritten.
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

/// Whether no statement depends on the array, or changes it.
fn leaves_array(shape: &OutlierShape, update: &Update<'_>) -> bool {
    update.statements.iter().all(|statement| {
        UpdateEffect::of_statement(shape, statement) == UpdateEffect::LeavesArray
            && !depends_on_array(shape, statement.filter)
    })
}

fn of_read(shape: &OutlierShape, head: &CommandHeader<'_>) -> OutlierRoute {
    // A stream of replies would have to be looked at one by one.
    let flags = head.message.flags;
    if flags.contains(OpMsgFlags::EXHAUST_ALLOWED) || head.expects_no_reply {
        return OutlierRoute::Rewrite;
    }
    let is_complete = head.command == Command::GetMore
        || Find::parse(head.body())
            .map(|find| find::way(shape, &find))
            .is_ok_and(|way| matches!(way, Ok(FindPlan::Complete(None))));
    if is_complete {
        OutlierRoute::InspectReply
    } else {
        OutlierRoute::Rewrite
    }
}
