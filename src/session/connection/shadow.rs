//! Relays a read that is compared in shadow mode.

use super::{Closed, Session};
use crate::command::header::CommandHeader;
use crate::session::metrics::CommandOutcome;
use crate::session::relay::{RelayedRequest, ReplyFinding, ReplyInspection};
use crate::session::shadow::{self, ChosenRead};

impl Session<'_> {
    /// Chooses a read. `None`: the command is only relayed.
    pub(super) fn chosen(&mut self, head: &CommandHeader<'_>) -> Option<ChosenRead> {
        self.shared.shadow_reads.as_ref()?;
        shadow::choose(self.settings.load(), head)
    }

    /// Relays a command. Afterwards puts it into the queue of the task that compares, if the server has
    /// answered it: the task reads with other rights than the client's, and must not read for a client that
    /// may not.
    pub(super) async fn relay_chosen(
        &mut self,
        request: RelayedRequest<'_>,
        head: &CommandHeader<'_>,
        chosen: ChosenRead,
    ) -> Result<CommandOutcome, Closed> {
        let found = self.relay_and_find(request, ReplyInspection::ForAnswer).await?;
        if let (ReplyFinding::Answered, Some(queue)) = (found, &self.shared.shadow_reads) {
            chosen.send(head, queue, &self.shared.metrics);
        }
        Ok(CommandOutcome::Relayed)
    }
}
