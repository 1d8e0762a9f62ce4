//! Relays a client's message and the replies to it.

use bson::raw::RawDocument;

use super::handshake::{self, HandshakeReply, Presentation};
use super::metrics::{ByteDirection, SessionMetrics};
use super::stream::{Arrived, FrameStream, LongFrame, PassError, StreamError};
use super::upstream::Upstream;
use super::upstream_connection::{LinkError, UpstreamConnection};
use crate::command::document::{as_flag, get};
use crate::command::reply::says_not_primary;
use crate::wire::limits::MAX_MESSAGE_BYTES;
use crate::wire::{Compressors, Frame, Inflated, OpCode, OpCompressed, OpMsg, OpMsgFlags, OpMsgHead, WireError};

/// Maximum bytes of a compressed reply that is decompressed to check whether it is an error. If a
/// longer reply contains many write errors and a write concern error "not primary", the next
/// command detects that the primary is gone.
const ERROR_BYTES: usize = 16 * 1024;
/// Bytes of the flags at the beginning of an OP_MSG.
const FLAGS_BYTES: usize = 4;

/// The reason why a relay ended before the last reply was passed on.
#[derive(Debug, thiserror::Error)]
pub(super) enum RelayError {
    /// The upstream side failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The client disconnected while it waited.
    #[error("the client closed the connection during the command")]
    ClientClosed,
    /// The upstream was retired, and the client loses nothing that it waits for.
    #[error("the proxy is switching to another upstream server")]
    Retired,
    /// The client's side failed.
    #[error(transparent)]
    Client(#[from] StreamError),
    /// The server is not the primary. Nothing was passed on.
    #[error("the upstream is not the primary")]
    NotPrimary,
}

/// A client's message to relay.
#[derive(Debug)]
pub(super) struct RelayedRequest<'a> {
    /// As it is sent, compressed or not.
    pub(super) sent: RequestBytes<'a>,
    pub(super) flags: OpMsgFlags,
}

/// The bytes of a message to relay.
#[derive(Debug)]
pub(super) enum RequestBytes<'a> {
    Whole(&'a Frame),
    /// Its beginning. The client is still sending the rest.
    Long(LongFrame),
}

/// The checks of a reply before it is passed on.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReplyInspection<'a> {
    /// Only whether more replies follow.
    Passing,
    /// Also whether the server is no longer the primary.
    ForPrimary,
    /// Also whether the server has executed the command, or is no longer the primary.
    ForAnswer,
    /// A handshake: the reply is edited for this presentation.
    Handshake(&'a Presentation),
}

/// The result of a complete relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyFinding {
    Nothing,
    /// The server has executed the command.
    Answered,
    /// The server is no longer the primary.
    NotPrimary,
}

/// The two sides of a relay.
pub(super) struct Relay<'a> {
    pub(super) client: &'a mut FrameStream,
    pub(super) link: &'a mut UpstreamConnection,
    pub(super) metrics: &'a SessionMetrics,
    pub(super) upstream: &'a Upstream,
    /// The compressors negotiated with both sides. A handshake sets them.
    pub(super) agreed: &'a mut Compressors,
}

impl Relay<'_> {
    /// Sends the message upstream and passes replies back until the last one: one for most
    /// commands, none after `moreToCome`, any number for an exhaust cursor or a streaming `hello`.
    /// Not cancel safe.
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
        // A reply that is edited must be complete. A long reply is not an error.
        let in_pieces = !exhaust && !matches!(look, ReplyInspection::Handshake(_));
        // A `hello` of a driver waits for changes of the server, and a stream may be endless, so
        // neither may delay the end of the connection.
        let mut may_end = matches!(look, ReplyInspection::Handshake(_));
        loop {
            let reply = tokio::select! {
                biased;
                reply = arrive(self.link, in_pieces) => reply?,
                // mongod cancels the client's command when the upstream connection is closed.
                () = self.client.closed() => return Err(RelayError::ClientClosed),
                () = self.upstream.retired(), if may_end => return Err(RelayError::Retired),
            };
            let reply = match reply {
                Arrived::Whole(reply) => reply,
                Arrived::Long(long) => {
                    let found = match look {
                        ReplyInspection::ForAnswer => ReplyFinding::Answered,
                        _ => ReplyFinding::Nothing,
                    };
                    return self.pass_on(long).await.map(|()| found);
                }
            };
            let (reply, seen) = self.look(reply, look)?;
            // Checked only for an exhaust command, because other replies need not be decompressed.
            let last = !exhaust || !more_to_come(&reply).map_err(LinkError::from)?;
            self.metrics.bytes(ByteDirection::Sent, reply.len());
            self.client.send(&reply).await?;
            if last || seen == ReplyFinding::NotPrimary {
                return Ok(seen);
            }
            may_end = true;
        }
    }

    async fn pass_on(&mut self, long: LongFrame) -> Result<(), RelayError> {
        self.metrics.bytes(ByteDirection::Sent, long.header().message_length);
        let passed = self.link.pass_on(long, self.client).await;
        passed.map_err(|error| match error {
            PassError::From(error) => RelayError::Link(error.into()),
            PassError::To(error) => RelayError::Client(error),
        })
    }

    /// The reply to pass on, and the finding.
    fn look(&mut self, reply: Frame, look: ReplyInspection<'_>) -> Result<(Frame, ReplyFinding), RelayError> {
        match look {
            ReplyInspection::Passing => Ok((reply, ReplyFinding::Nothing)),
            ReplyInspection::ForPrimary => {
                let found = found_in(&reply, ReplyFinding::Nothing, of_primary).map_err(LinkError::from)?;
                Ok((reply, found))
            }
            ReplyInspection::ForAnswer => {
                let found = found_in(&reply, ReplyFinding::Answered, of_answer).map_err(LinkError::from)?;
                Ok((reply, found))
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

/// The decompressed message. `None`: it is not compressed.
pub(super) fn opened(frame: &Frame) -> Result<Option<Frame>, WireError> {
    if frame.header().op_code != OpCode::Compressed {
        return Ok(None);
    }
    OpCompressed::parse(frame, MAX_MESSAGE_BYTES)?.inflate().map(Some)
}

/// Examines the body of a reply. `of_long`: the finding in a reply that is too long for an error, and is not
/// decompressed.
fn found_in(
    reply: &Frame,
    of_long: ReplyFinding,
    examine: fn(&RawDocument) -> ReplyFinding,
) -> Result<ReplyFinding, WireError> {
    let opened = match reply.header().op_code {
        OpCode::Compressed => {
            let compressed = OpCompressed::parse(reply, MAX_MESSAGE_BYTES)?;
            if compressed.uncompressed_bytes > ERROR_BYTES {
                return Ok(of_long);
            }
            Some(compressed.inflate()?)
        }
        _ => None,
    };
    let message = OpMsg::parse_unverified(opened.as_ref().unwrap_or(reply));
    Ok(message.map_or(ReplyFinding::Nothing, |message| examine(message.body)))
}

fn of_primary(body: &RawDocument) -> ReplyFinding {
    if says_not_primary(body) {
        ReplyFinding::NotPrimary
    } else {
        ReplyFinding::Nothing
    }
}

fn of_answer(body: &RawDocument) -> ReplyFinding {
    if get(body, "ok").and_then(as_flag).unwrap_or(false) {
        ReplyFinding::Answered
    } else {
        of_primary(body)
    }
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
