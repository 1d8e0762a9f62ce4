//! Whether the server is still the primary that the client was promised.

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
    /// What to look for in replies that are passed on.
    pub(super) fn look(&self) -> ReplyInspection<'static> {
        if self.presentation.promises_primary() {
            ReplyInspection::ForPrimary
        } else {
            ReplyInspection::Passing
        }
    }

    /// After an answer "not primary": asks the server itself. It may be the primary again, or a fail point
    /// may have spoken; drivers keep their connection after such an answer, so it must not end without need.
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

    /// The server is no longer the primary: its other sessions need not find out by themselves.
    pub(super) fn leave(&self) -> Closed {
        self.upstream.retire();
        Closed::Retired
    }

    /// A mongos gives drivers a token with which another one may finish a transaction; a mongod takes none.
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
