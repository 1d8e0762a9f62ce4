//! Relays commands on logical sessions. mongod applies them to its cursors, the proxy to those that it keeps.

use super::{Closed, Session};
use crate::command::header::CommandHeader;
use crate::session::cursor_owner::NamedSessions;
use crate::session::metrics::CommandOutcome;
use crate::session::relay::{RelayedRequest, ReplyFinding, ReplyInspection};

const KILL: &str = "killSessions";

/// Whether the command refreshes or kills sessions. `endSessions` does not end cursors at once: mongod ends
/// them up to five minutes later.
pub(super) fn is_on_sessions(head: &CommandHeader<'_>) -> bool {
    matches!(head.name, "refreshSessions" | KILL)
}

impl Session<'_> {
    /// Relays the command. If mongod has executed it, applies it to the client's cursors. The first time on a
    /// connection this costs one round trip.
    pub(super) async fn relay_on_sessions(
        &mut self,
        request: RelayedRequest<'_>,
        head: &CommandHeader<'_>,
    ) -> Result<CommandOutcome, Closed> {
        let found = self.relay_and_find(request, ReplyInspection::ForAnswer).await?;
        if found != ReplyFinding::Answered {
            return Ok(CommandOutcome::Relayed);
        }
        match self.link.users(head.body()).await {
            Ok(users) => {
                if head.name == KILL {
                    let sessions = NamedSessions::killed(head.body(), users);
                    self.shared.cursors.close_of(&sessions);
                    self.shared.leftovers.close_of(&sessions);
                } else {
                    let sessions = NamedSessions::refreshed(head.body(), users);
                    self.shared.cursors.refresh_of(&sessions);
                    self.shared.leftovers.refresh_of(&sessions);
                }
            }
            Err(error) => {
                // The client has its reply.
                Closed::unless_replied(error)?;
            }
        }
        Ok(CommandOutcome::Relayed)
    }
}
