//! Relays a client's frame, and its replies.

use super::handshake::{self, HandshakeReply, Presentation};
use super::metrics::{ByteDirection, SessionMetrics};
use super::stream::{Arrived, FrameStream, LongFrame, PassError, StreamError};
use super::upstream::Upstream;
use super::upstream_connection::{LinkError, UpstreamConnection};
use crate::command::reply::says_not_primary;
use crate::wire::limits::MAX_MESSAGE_BYTES;
use crate::wire::{Compressors, Frame, Inflated, OpCode, OpCompressed, OpMsg, OpMsgFlags, OpMsgHead, WireError};

/// A compressed reply of more than this is not opened to see whether it is an error. Should one hold so many
/// write errors that it is longer, and also a write concern's that there is no primary, the next command will
/// tell.
const ERROR_BYTES: usize = 16 * 1024;
/// The length of the flags, with which a message begins.
const FLAGS_BYTES: usize = 4;

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

/// A client's message on its way up.
#[derive(Debug)]
pub(super) struct RelayedRequest<'a> {
    /// As it is sent, compressed or not.
    pub(super) sent: RequestBytes<'a>,
    /// Its flags.
    pub(super) flags: OpMsgFlags,
}

/// What there is of a message to be sent.
#[derive(Debug)]
pub(super) enum RequestBytes<'a> {
    /// All of it.
    Whole(&'a Frame),
    /// Its beginning; the client is still sending the rest.
    Long(LongFrame),
}

/// What the proxy wants to know of a reply on its way.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReplyInspection<'a> {
    /// Whether more follow.
    Passing,
    /// Also whether the server is no longer the primary.
    ForPrimary,
    /// It introduces the server to the client, as this.
    Handshake(&'a Presentation),
}

/// What a relay that ended well has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyFinding {
    /// Nothing that matters.
    Nothing,
    /// That the server is no longer the primary.
    NotPrimary,
}

/// The two sides of a relay.
pub(super) struct Relay<'a> {
    pub(super) client: &'a mut FrameStream,
    pub(super) link: &'a mut UpstreamConnection,
    pub(super) metrics: &'a SessionMetrics,
    pub(super) upstream: &'a Upstream,
    /// The compressors that both ends have agreed on, which a handshake settles.
    pub(super) agreed: &'a mut Compressors,
}

impl Relay<'_> {
    /// Sends the frame upstream and passes replies back until the last: one for most commands, none for one
    /// that waits for none (`moreToCome`), any number for an exhaust cursor or a streaming `hello`. Not
    /// cancel safe.
    pub(super) async fn run(
        &mut self,
        request: RelayedRequest<'_>,
        look: ReplyInspection<'_>,
    ) -> Result<ReplyFinding, RelayError> {
        match request.sent {
            RequestBytes::Whole(frame) => self.link.forward(frame).await?,
            RequestBytes::Long(long) => {
                self.link
                    .forward_long(long, self.client)
                    .await
                    .map_err(|error| match error {
                        PassError::From(error) => RelayError::Client(error),
                        PassError::To(error) => RelayError::Link(error.into()),
                    })?;
            }
        }
        if request.flags.contains(OpMsgFlags::MORE_TO_COME) {
            return Ok(ReplyFinding::Nothing);
        }
        let exhaust = request.flags.contains(OpMsgFlags::EXHAUST_ALLOWED);
        // What is looked at for more than an error is looked at whole. An error is never long.
        let in_pieces = !exhaust && !matches!(look, ReplyInspection::Handshake(_));
        // Drivers keep a `hello` waiting for news all the time, and a stream may have no end: to wait would
        // be in vain.
        let mut may_end = matches!(look, ReplyInspection::Handshake(_));
        loop {
            let reply = tokio::select! {
                biased;
                reply = arrive(self.link, in_pieces) => reply?,
                // mongod ends a command whose client is gone, once its own connection is closed.
                () = self.client.closed() => return Err(RelayError::ClientClosed),
                () = self.upstream.retired(), if may_end => return Err(RelayError::Retired),
            };
            let reply = match reply {
                Arrived::Whole(reply) => reply,
                Arrived::Long(long) => return self.pass_on(long).await,
            };
            let (reply, seen) = self.look(reply, look)?;
            // Only where the client has asked for it: another reply need not be opened.
            let last = !exhaust || !more_to_come(&reply).map_err(LinkError::from)?;
            self.metrics.bytes(ByteDirection::Sent, reply.len());
            self.client.send(&reply).await?;
            if last || seen == ReplyFinding::NotPrimary {
                return Ok(seen);
            }
            may_end = true;
        }
    }

    async fn pass_on(&mut self, long: LongFrame) -> Result<ReplyFinding, RelayError> {
        self.metrics.bytes(ByteDirection::Sent, long.header().message_length);
        let passed = self.link.pass_on(long, self.client).await;
        passed.map(|()| ReplyFinding::Nothing).map_err(|error| match error {
            PassError::From(error) => RelayError::Link(error.into()),
            PassError::To(error) => RelayError::Client(error),
        })
    }

    /// The reply as it is passed on, and what it says.
    fn look(&mut self, reply: Frame, look: ReplyInspection<'_>) -> Result<(Frame, ReplyFinding), RelayError> {
        match look {
            ReplyInspection::Passing => Ok((reply, ReplyFinding::Nothing)),
            ReplyInspection::ForPrimary => {
                let gone = is_not_primary(&reply).map_err(LinkError::from)?;
                Ok((
                    reply,
                    if gone {
                        ReplyFinding::NotPrimary
                    } else {
                        ReplyFinding::Nothing
                    },
                ))
            }
            ReplyInspection::Handshake(presentation) => {
                let opened = opened(&reply).map_err(LinkError::from)?;
                let hello = opened.as_ref().unwrap_or(&reply);
                let (shown, agreed) = handshake::show(hello, presentation).map_err(LinkError::from)?;
                if let Some(agreed) = agreed {
                    *self.agreed = agreed;
                }
                match shown {
                    HandshakeReply::AsIs => Ok((reply, ReplyFinding::Nothing)),
                    HandshakeReply::Edited(edited) => Ok((edited, ReplyFinding::Nothing)),
                    HandshakeReply::NotPrimary => Err(RelayError::NotPrimary),
                }
            }
        }
    }
}

/// The next reply. Cancel safe.
async fn arrive(link: &mut UpstreamConnection, in_pieces: bool) -> Result<Arrived, LinkError> {
    if in_pieces {
        link.arrive().await
    } else {
        link.receive().await.map(Arrived::Whole)
    }
}

/// The message inside a compressed one; `None`: it is not compressed.
pub(super) fn opened(frame: &Frame) -> Result<Option<Frame>, WireError> {
    if frame.header().op_code != OpCode::Compressed {
        return Ok(None);
    }
    OpCompressed::parse(frame, MAX_MESSAGE_BYTES)?.inflate().map(Some)
}

fn is_not_primary(reply: &Frame) -> Result<bool, WireError> {
    let opened = match reply.header().op_code {
        OpCode::Compressed => {
            let compressed = OpCompressed::parse(reply, MAX_MESSAGE_BYTES)?;
            if compressed.uncompressed_bytes > ERROR_BYTES {
                return Ok(false);
            }
            Some(compressed.inflate()?)
        }
        _ => None,
    };
    let reply = opened.as_ref().unwrap_or(reply);
    Ok(OpMsg::parse_unverified(reply).is_ok_and(|message| says_not_primary(message.body)))
}

/// Whether another reply follows.
fn more_to_come(reply: &Frame) -> Result<bool, WireError> {
    let flags = match reply.header().op_code {
        OpCode::Msg => OpMsg::flags_of(reply),
        OpCode::Compressed => match OpCompressed::parse(reply, MAX_MESSAGE_BYTES)?.inflate_head(FLAGS_BYTES)? {
            Inflated::Whole(reply) => OpMsg::flags_of(&reply),
            Inflated::Head(beginning) => OpMsgHead::flags_of_beginning(&beginning),
        },
        _ => None,
    };
    Ok(flags.is_some_and(|flags| flags.contains(OpMsgFlags::MORE_TO_COME)))
}
