//! Passing a client's frame on, and its replies back, untouched.

use super::handshake::{self, Presentation, Shown};
use super::link::{Link, LinkError};
use super::metrics::{Direction, SessionMetrics};
use super::stream::{FrameStream, StreamError};
use super::upstream::Upstream;
use crate::command::reply::says_not_primary;
use crate::wire::{Frame, OpCode, OpMsg, OpMsgFlags};

/// Why a relay ended before its reply was passed on.
#[derive(Debug, thiserror::Error)]
pub(super) enum RelayError {
    /// The upstream side failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The client went away while it was waiting.
    #[error("the client closed the connection while it was waiting")]
    ClientClosed,
    /// The upstream is being left, and nothing is lost with what is still to come.
    #[error("the upstream is being left")]
    Retired,
    /// The client's side failed.
    #[error(transparent)]
    Client(#[from] StreamError),
    /// The upstream is not the primary that the client was promised; nothing was passed on.
    #[error("the upstream is not the primary")]
    NotPrimary,
}

/// What the proxy wants to know of a reply on its way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look<'a> {
    /// Whether more follow.
    Passing,
    /// Also whether the server is no longer the primary.
    ForPrimary,
    /// It introduces the server to the client, as this.
    Handshake(&'a Presentation),
}

/// What a relay that ended well has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing that matters.
    Nothing,
    /// That the server is no longer the primary.
    NotPrimary,
}

/// The two sides of a relay.
pub(super) struct Relay<'a> {
    pub(super) client: &'a mut FrameStream,
    pub(super) link: &'a mut Link,
    pub(super) metrics: &'a SessionMetrics,
    pub(super) upstream: &'a Upstream,
}

impl Relay<'_> {
    /// Sends the frame upstream and passes replies back until the last: one for most commands, none for one that waits for
    /// none (`moreToCome`), any number for an exhaust cursor or a streaming `hello`. Not cancel safe.
    pub(super) async fn run(&mut self, frame: &Frame, look: Look<'_>) -> Result<Seen, RelayError> {
        self.link.forward(frame).await?;
        if more_to_come(frame) {
            return Ok(Seen::Nothing);
        }
        // Drivers keep a `hello` waiting for news all the time, and a stream may have no end: to wait would be in vain.
        let mut may_end = matches!(look, Look::Handshake(_));
        loop {
            let reply = tokio::select! {
                biased;
                reply = self.link.receive() => reply?,
                // mongod ends a command whose client is gone, once its own connection is closed.
                () = self.client.closed() => return Err(RelayError::ClientClosed),
                () = self.upstream.retired(), if may_end => return Err(RelayError::Retired),
            };
            let (reply, seen) = look.at(reply)?;
            self.metrics.bytes(Direction::Sent, reply.len());
            self.client.send(&reply).await?;
            if seen == Seen::NotPrimary || !more_to_come(&reply) {
                return Ok(seen);
            }
            may_end = true;
        }
    }
}

impl Look<'_> {
    /// The reply as it is passed on, and what it says.
    fn at(self, reply: Frame) -> Result<(Frame, Seen), RelayError> {
        match self {
            Self::Passing => Ok((reply, Seen::Nothing)),
            Self::ForPrimary => {
                let gone = OpMsg::parse_unverified(&reply).is_ok_and(|message| says_not_primary(message.body));
                Ok((reply, if gone { Seen::NotPrimary } else { Seen::Nothing }))
            }
            Self::Handshake(presentation) => match handshake::show(&reply, presentation).map_err(LinkError::from)? {
                Shown::AsIs => Ok((reply, Seen::Nothing)),
                Shown::Edited(edited) => Ok((edited, Seen::Nothing)),
                Shown::NotPrimary => Err(RelayError::NotPrimary),
            },
        }
    }
}

/// Whether another message follows: on a request that the client waits for no reply, on a reply that it is not the last.
pub(super) fn more_to_come(frame: &Frame) -> bool {
    let flags = OpMsg::flags_of(frame);
    frame.header().op_code == OpCode::Msg && flags.is_some_and(|flags| flags.contains(OpMsgFlags::MORE_TO_COME))
}
