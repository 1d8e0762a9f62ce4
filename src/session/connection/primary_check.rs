//! Checks whether the server is still the primary.

use bson::raw::{RawDocumentBuf, cstr};
use tokio::time::timeout;

use super::{Closed, Session};
use crate::command::header::CommandHeader;
use crate::command::registry::Command;
use crate::session::error::RunError;
use crate::session::handshake;
use crate::session::relay::ReplyInspection;
use crate::session::upstream::UpstreamKind;
use crate::session::upstream_connection::LinkError;
use crate::wire::Frame;

impl Session<'_> {
    /// The inspection of relayed replies.
    pub(super) fn look(&self) -> ReplyInspection<'static> {
        if self.presentation.promises_primary() {
            ReplyInspection::ForPrimary
        } else {
            ReplyInspection::Passing
        }
    }

    /// Called after a reply "not primary". Sends `hello`, and closes the connection unless the
    /// server is the primary. The reply alone is not enough: the server may be the primary again,
    /// or a fail point may have caused it.
    pub(super) async fn see_to_primary(&mut self) -> Result<(), Closed> {
        let mut hello = RawDocumentBuf::new();
        hello.append(cstr!("hello"), 1);
        hello.append(cstr!("$db"), "admin");
        let deadline = self.settings.load().limits.connect_timeout;
        match timeout(deadline, self.link.run(&hello)).await {
            Ok(Ok(reply)) if handshake::is_writable(&reply) => Ok(()),
            Ok(Err(RunError::Link(error))) => Err(error.into()),
            _ => Err(self.leave()),
        }
    }

    /// Retires the server, which closes all its sessions, because it is no longer the primary.
    pub(super) fn leave(&self) -> Closed {
        self.upstream.retire();
        Closed::Retired
    }

    /// Removes the recovery token, with which a driver can finish a transaction on another mongos.
    /// A mongod refuses it.
    pub(super) fn without_recovery_token(
        &self,
        frame: &Frame,
        head: &CommandHeader<'_>,
    ) -> Result<Option<Frame>, Closed> {
        if self.upstream.kind() == UpstreamKind::Mongos
            || !matches!(head.command, Command::CommitTransaction | Command::AbortTransaction)
        {
            return Ok(None);
        }
        let edited = handshake::without_recovery_token(frame, &head.message);
        Ok(edited.map_err(LinkError::from)?)
    }
}
