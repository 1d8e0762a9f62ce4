//! The loop of one client connection.
//!
//! ```text
//!            a frame            its reply is sent
//!   Idle ───────────────▶ Busy ───────────────────▶ Idle
//!    │                      │
//!    │ drain, either side   │ either side fails,
//!    ▼ closed, stall        ▼ bytes that are no message
//!  Closed ◀───────────────Closed
//! ```
//!
//! While idle, draining or the upstream's going ends the connection at once; while busy, the command is finished first,
//! unless it is one that waits for news and would never finish (see [`relay`](super::relay)). One upstream connection serves the client as long as it lives, so that authentication, sessions and cursors are its own;
//! when that breaks the client's is closed too, and its driver tries again by its own rules.

use std::net::SocketAddr;
use std::time::Instant;

use bson::raw::RawDocumentBuf;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::error::RunError;
use super::link::{Link, LinkError};
use super::metrics::{Direction, Outcome};
use super::relay::{Check, Relay, RelayError};
use super::route::{self, Route};
use super::run::Run;
use super::stream::{FrameStream, StreamError};
use super::{Shared, handshake, relay};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::head::Head;
use crate::wire::{Frame, OpCode, OpMsg, OpMsgBuilder, OpQuery, OpReply, WireError};

/// Bit 3 of an OP_REPLY's flags, which mongod always sets.
const AWAIT_CAPABLE: i32 = 8;

/// Commands that mongod still takes as OP_QUERY (`checkAllowedOpQueryCommand`).
const LEGACY_COMMANDS: &[&str] = &[
    "_isSelf",
    "authenticate",
    "buildInfo",
    "buildinfo",
    "hello",
    "isMaster",
    "ismaster",
    "saslContinue",
    "saslStart",
];

/// Why a connection ended.
#[derive(Debug)]
enum Closed {
    /// The client closed it between two messages, or while it was waiting for an answer.
    ByClient,
    /// The proxy is draining.
    Drained,
    /// The client's bytes are no messages that may be answered.
    Protocol(String),
    /// The client's socket failed.
    Client(StreamError),
    /// The upstream is gone.
    Upstream(LinkError),
    /// The upstream is one that must not be shown.
    Withheld,
}

impl From<LinkError> for Closed {
    fn from(error: LinkError) -> Self {
        Self::Upstream(error)
    }
}

/// Serves a client until either side closes or `drain` is cancelled. `upstream` is a host and a port.
pub async fn serve(socket: TcpStream, peer: SocketAddr, upstream: &str, shared: &Shared, drain: &CancellationToken) {
    let limits = shared.limits;
    let link = Link::connect(upstream, limits.connect_timeout, limits.max_message_bytes);
    let closed = match link.await {
        Ok(link) => {
            let client = FrameStream::new(socket, limits.max_message_bytes);
            let mut session = Session {
                client,
                link,
                shared,
                drain,
            };
            loop {
                if let Err(closed) = session.turn().await {
                    break closed;
                }
            }
        }
        Err(error) => Closed::Upstream(error),
    };
    report(peer, &closed);
}

/// Says why a connection ended, once, at the level of whom it concerns.
fn report(peer: SocketAddr, closed: &Closed) {
    match closed {
        Closed::ByClient | Closed::Drained => tracing::debug!(%peer, ?closed, "connection closed"),
        Closed::Client(
            error @ (StreamError::Io(_) | StreamError::Wire(WireError::Io(_) | WireError::UnexpectedEof { .. })),
        ) => {
            tracing::debug!(%peer, %error, "the client went away");
        }
        Closed::Client(error) => {
            tracing::warn!(%peer, %error, "closed a connection: the client does not keep to the protocol");
        }
        Closed::Protocol(reason) => {
            tracing::warn!(%peer, %reason, "closed a connection: the client does not keep to the protocol");
        }
        Closed::Upstream(error) => tracing::warn!(%peer, %error, "closed a connection: the upstream is gone"),
        Closed::Withheld => {
            tracing::error!(%peer, "the upstream is a member of a replica set, which is not supported yet");
        }
    }
}

struct Session<'a> {
    client: FrameStream,
    link: Link,
    shared: &'a Shared,
    drain: &'a CancellationToken,
}

impl Session<'_> {
    /// Waits for a frame and answers it.
    async fn turn(&mut self) -> Result<(), Closed> {
        let frame = tokio::select! {
            biased;
            () = self.drain.cancelled() => return Err(Closed::Drained),
            frame = self.client.next(self.shared.limits.frame_timeout) => frame.map_err(Closed::Client)?,
            () = self.link.closed() => return Err(Closed::Upstream(LinkError::Closed)),
        };
        let Some(frame) = frame else {
            return Err(Closed::ByClient);
        };
        self.shared.metrics.bytes(Direction::Received, frame.len());
        match frame.header().op_code {
            OpCode::Msg => self.message(&frame).await,
            OpCode::Query => self.query(&frame).await,
            OpCode::Compressed => Err(Closed::Protocol(
                "OP_COMPRESSED, although no compressor was agreed on".to_owned(),
            )),
            other => Err(Closed::Protocol(format!(
                "a message of kind {other:?}, which no client sends"
            ))),
        }
    }

    async fn message(&mut self, frame: &Frame) -> Result<(), Closed> {
        let begun = Instant::now();
        let head = match OpMsg::parse_unverified(frame) {
            Ok(message) => Head::of(message),
            // mongod answers some mistakes, and closes the connection for the others.
            Err(error) => match error.server_code() {
                Some(code) => Err(CommandError::malformed(code, &error.to_string())),
                None => return Err(Closed::Protocol(error.to_string())),
            },
        };
        let head = match head {
            Ok(head) => head,
            Err(_) if relay::more_to_come(frame) => return Ok(()),
            Err(error) => return self.reply(frame, error.into_reply()).await,
        };
        let done = self.dispatch(frame, &head).await;
        let outcome = *done.as_ref().unwrap_or(&Outcome::Failed);
        self.shared
            .metrics
            .command(head.name, outcome, begun.elapsed().as_secs_f64());
        done.map(|_| ())
    }

    async fn dispatch(&mut self, frame: &Frame, head: &Head<'_>) -> Result<Outcome, Closed> {
        match route::decide(self.shared, head) {
            Route::Relay => self.relay(frame, None).await,
            Route::Handshake => {
                let edited = handshake::edit_message(frame, &head.message).map_err(LinkError::from)?;
                self.relay(&edited, Some(handshake::check_reply)).await
            }
            Route::Refuse(error) => {
                if !head.unanswered {
                    self.reply(frame, error.into_reply()).await?;
                }
                Ok(Outcome::Rejected)
            }
            Route::Run(shape, namespace) => {
                let Some(shape) = route::bucket(&shape) else {
                    let error = CommandError::unsupported(namespace, "the outlier pattern");
                    self.reply(frame, error.into_reply()).await?;
                    return Ok(Outcome::Rejected);
                };
                // The one place where a checksum matters to the proxy: what is relayed is verified by mongod.
                OpMsg::parse(frame).map_err(|error| Closed::Protocol(error.to_string()))?;
                let run = Run {
                    shared: self.shared,
                    link: &mut self.link,
                    head,
                    shape,
                    namespace,
                };
                let answer = if Run::only_reads(head.name) {
                    tokio::select! {
                        biased;
                        answer = run.run() => answer,
                        () = self.client.closed() => return Err(Closed::ByClient),
                    }
                } else {
                    run.run().await
                };
                self.finish(frame, head, answer).await
            }
        }
    }

    async fn finish(
        &mut self,
        frame: &Frame,
        head: &Head<'_>,
        answer: Result<RawDocumentBuf, RunError>,
    ) -> Result<Outcome, Closed> {
        let (reply, outcome) = match answer {
            // An error of mongod's own is an answer like any other.
            Ok(reply) | Err(RunError::Command(CommandError::Upstream(reply))) => (reply, Outcome::Rewritten),
            Err(RunError::Command(error)) => (error.into_reply(), Outcome::Rejected),
            Err(RunError::Link(error)) => return Err(error.into()),
        };
        if !head.unanswered {
            self.reply(frame, reply).await?;
        }
        Ok(outcome)
    }

    async fn relay(&mut self, frame: &Frame, check: Option<Check>) -> Result<Outcome, Closed> {
        let mut relay = Relay {
            client: &mut self.client,
            link: &mut self.link,
            metrics: &self.shared.metrics,
            drain: self.drain,
        };
        match relay.run(frame, check).await {
            Ok(()) => Ok(Outcome::Relayed),
            Err(RelayError::Link(error)) => Err(error.into()),
            Err(RelayError::ClientClosed) => Err(Closed::ByClient),
            Err(RelayError::Drained) => Err(Closed::Drained),
            Err(RelayError::Client(error)) => Err(Closed::Client(error)),
            Err(RelayError::Withheld(error)) => {
                self.reply_in_kind(frame, error).await?;
                Err(Closed::Withheld)
            }
        }
    }

    /// A legacy message: the handshake, or nothing that is answered with success.
    async fn query(&mut self, frame: &Frame) -> Result<(), Closed> {
        let query = OpQuery::parse(frame).map_err(|error| Closed::Protocol(error.to_string()))?;
        let name = legacy_command(&query).unwrap_or_default();
        if !query.full_collection_name.ends_with(".$cmd") || !LEGACY_COMMANDS.contains(&name) {
            let message = format!("Unsupported OP_QUERY command: {name}. The client driver may require an upgrade.");
            return self
                .reply_in_kind(frame, CommandError::new(ErrorCode::UnsupportedOpQueryCommand, message))
                .await;
        }
        let begun = Instant::now();
        let done = if route::is_handshake(name) {
            let edited = handshake::edit_query(frame, &query).map_err(LinkError::from)?;
            self.relay(&edited, Some(handshake::check_reply)).await
        } else {
            self.relay(frame, None).await
        };
        let outcome = *done.as_ref().unwrap_or(&Outcome::Failed);
        self.shared
            .metrics
            .command(name, outcome, begun.elapsed().as_secs_f64());
        done.map(|_| ())
    }

    async fn reply(&mut self, request: &Frame, body: RawDocumentBuf) -> Result<(), Closed> {
        let reply = OpMsgBuilder::new(0, request.header().request_id).body(&body).build();
        self.send(&reply.map_err(LinkError::from)?).await
    }

    /// Answers OP_QUERY with OP_REPLY and OP_MSG with OP_MSG, as a client expects.
    async fn reply_in_kind(&mut self, request: &Frame, error: CommandError) -> Result<(), Closed> {
        let body = error.into_reply();
        if request.header().op_code != OpCode::Query {
            return self.reply(request, body).await;
        }
        let reply = OpReply {
            response_flags: AWAIT_CAPABLE,
            cursor_id: 0,
            starting_from: 0,
            documents: vec![&body],
        };
        let reply = reply.encode(0, request.header().request_id).map_err(LinkError::from)?;
        self.send(&reply).await
    }

    async fn send(&mut self, reply: &Frame) -> Result<(), Closed> {
        self.shared.metrics.bytes(Direction::Sent, reply.len());
        self.client
            .send(reply)
            .await
            .map_err(|error| Closed::Client(StreamError::Io(error)))
    }
}

/// The name of the command in an OP_QUERY, which may be wrapped in `$query`.
fn legacy_command<'a>(query: &OpQuery<'a>) -> Option<&'a str> {
    let (name, value) = crate::command::document::first_field(query.query)?;
    match (name, value.as_document()) {
        ("$query" | "query", Some(wrapped)) => crate::command::document::first_field(wrapped).map(|(name, _)| name),
        _ => Some(name),
    }
}
