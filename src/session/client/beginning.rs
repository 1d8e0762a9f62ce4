//! Messages of which the beginning is enough to know that they are none of the proxy's business.

use tokio::sync::SemaphorePermit;

use super::counted::Awaited;
use super::{Closed, Session};
use crate::command::head::Head;
use crate::session::metrics::Direction;
use crate::session::relay::{Request, Sent};
use crate::session::route::{self, Route};
use crate::session::stream::LongFrame;
use crate::wire::{Frame, OpCode, OpMsgFlags, OpMsgHead};

/// Commands that are never told by their beginning: namespaces may stand in a sequence of the first, and the others may
/// have to be edited.
const READ_WHOLE: &[&str] = &["abortTransaction", "bulkWrite", "commitTransaction"];

/// A command that is to be relayed.
pub(super) struct Beginning<'a> {
    name: &'a str,
    flags: OpMsgFlags,
}

impl<'a> Session<'a> {
    /// Passes a long message on while it comes in. Gives it back, whole and with the room that it takes, when its beginning
    /// does not say that it may.
    pub(super) async fn relay_long(
        &mut self,
        long: LongFrame,
    ) -> Result<Option<(Frame, Option<SemaphorePermit<'a>>)>, Closed> {
        let header = long.header();
        let beginning = long.payload();
        if header.op_code == OpCode::Msg
            && let Some(command) = self.beginning_to_relay(&beginning)
        {
            self.shared.metrics.bytes(Direction::Received, header.message_length);
            self.relay_beginning(Sent::Long(long), &command).await?;
            return Ok(None);
        }
        // A compressed one takes room once, when it is opened: two steps could wait for each other.
        let room = match header.op_code {
            OpCode::Compressed => None,
            _ => Some(
                self.shared
                    .room
                    .take(header.message_length)
                    .await
                    .ok_or(Closed::NoRoom)?,
            ),
        };
        let whole = self.client.complete(long).await?.ok_or(Closed::ByClient)?;
        Ok(Some((whole, room)))
    }

    /// The command that begins so, if it is to be relayed for sure. `beginning` is what follows a header.
    pub(super) fn beginning_to_relay<'b>(&mut self, beginning: &'b [u8]) -> Option<Beginning<'b>> {
        let opened = OpMsgHead::of_beginning(beginning)?;
        let flags = opened.flags;
        let head = Head::of(opened.without_sequences()).ok()?;
        if READ_WHOLE.contains(&head.name) {
            return None;
        }
        let settings = self.settings.load();
        let route = route::decide(settings, &head);
        // What is observed is read whole.
        let is_observed = settings
            .observer
            .as_ref()
            .is_some_and(|observer| observer.concerns(&head));
        (matches!(route, Route::Relay) && !is_observed).then_some(Beginning { name: head.name, flags })
    }

    pub(super) async fn relay_beginning(&mut self, sent: Sent<'_>, command: &Beginning<'_>) -> Result<(), Closed> {
        let begun = self.begin(command.name, Awaited::Answer);
        let flags = command.flags;
        let relayed = self.relay(Request { sent, flags }, self.look()).await;
        self.count(&begun, relayed)
    }
}
