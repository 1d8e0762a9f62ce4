//! Passing a client's frame on, and its replies back, untouched.

use bson::raw::RawDocument;
use tokio_util::sync::CancellationToken;

use super::link::{Link, LinkError};
use super::metrics::{Direction, SessionMetrics};
use super::stream::{FrameStream, StreamError};
use crate::command::error::CommandError;
use crate::wire::{Frame, OpCode, OpMsg, OpMsgFlags, OpReply};

/// Why a relay ended before its reply was passed on.
#[derive(Debug, thiserror::Error)]
pub(super) enum RelayError {
    /// The upstream side failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The client went away while it was waiting.
    #[error("the client closed the connection while it was waiting")]
    ClientClosed,
    /// The proxy is draining, and nothing is lost with what is still to come.
    #[error("the proxy is draining")]
    Drained,
    /// The client's side failed.
    #[error(transparent)]
    Client(#[from] StreamError),
    /// A reply may not reach the client.
    #[error("a reply was withheld")]
    Withheld(CommandError),
}

/// What is done with each reply before it is passed on.
pub(super) type Check = fn(&RawDocument) -> Result<(), CommandError>;

/// The two sides of a relay.
pub(super) struct Relay<'a> {
    pub(super) client: &'a mut FrameStream,
    pub(super) link: &'a mut Link,
    pub(super) metrics: &'a SessionMetrics,
    pub(super) drain: &'a CancellationToken,
}

impl Relay<'_> {
    /// Sends the frame upstream and passes replies back until the last: one for most commands, none for one that waits for
    /// none (`moreToCome`), any number for an exhaust cursor or a streaming `hello`. Not cancel safe.
    pub(super) async fn run(&mut self, frame: &Frame, check: Option<Check>) -> Result<(), RelayError> {
        self.link.forward(frame).await?;
        if more_to_come(frame) {
            return Ok(());
        }
        // Drivers keep a `hello` waiting for news all the time, and a stream may have no end: a drain would wait in vain.
        let mut may_end = check.is_some();
        loop {
            let reply = tokio::select! {
                biased;
                reply = self.link.receive() => reply?,
                // mongod ends a command whose client is gone, once its own connection is closed.
                () = self.client.closed() => return Err(RelayError::ClientClosed),
                () = self.drain.cancelled(), if may_end => return Err(RelayError::Drained),
            };
            if let Some(check) = check {
                look(&reply, check)?;
            }
            self.metrics.bytes(Direction::Sent, reply.len());
            self.client.send(&reply).await.map_err(StreamError::Io)?;
            if !more_to_come(&reply) {
                return Ok(());
            }
            may_end = true;
        }
    }
}

fn look(reply: &Frame, check: Check) -> Result<(), RelayError> {
    let checked = match reply.header().op_code {
        OpCode::Reply => {
            let reply = OpReply::parse(reply).map_err(LinkError::from)?;
            reply.documents.iter().try_for_each(|document| check(document))
        }
        _ => check(OpMsg::parse_unverified(reply).map_err(LinkError::from)?.body),
    };
    checked.map_err(RelayError::Withheld)
}

/// Whether another message follows: on a request that the client waits for no reply, on a reply that it is not the last.
pub(super) fn more_to_come(frame: &Frame) -> bool {
    let flags = OpMsg::flags_of(frame);
    frame.header().op_code == OpCode::Msg && flags.is_some_and(|flags| flags.contains(OpMsgFlags::MORE_TO_COME))
}
