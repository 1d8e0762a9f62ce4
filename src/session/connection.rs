//! The loop of one client connection.
//!
//! ```text
//!            a frame            its reply is sent
//!   Idle ───────────────▶ Busy ───────────────────▶ Idle
//!    │                      │
//!    │ drain, either side   │ either side fails, bytes that are
//!    ▼ closed, a limit      ▼ no message, "not the primary"
//!  Closed ◀───────────────Closed
//! ```
//!
//! While idle, the connection is closed at once when the upstream is retired: the proxy drains, or another
//! server is the primary. After some milliseconds it runs deferred spills. While busy, the command is
//! finished first, unless it waits for news and would never finish (see [`relay`](super::relay)).
//!
//! One upstream connection serves the client for its whole life, so authentication, sessions and cursors are
//! the client's. When it breaks, the client's connection is closed, and the driver reconnects. The same
//! happens after a reply that the server is not the primary, because drivers keep such a connection.

mod automatic;
mod bulk_write;
mod close_reason;
mod command_timer;
mod compressed;
mod execute;
mod guarded_cursor;
mod http_request;
mod legacy;
mod outlier;
mod primary_check;
mod reply;
mod session_commands;
mod shadow;
mod streaming_relay;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::close_reason::Closed;
use self::command_timer::Awaited;
use self::reply::{ReplyTarget, error_reply};
use self::session_commands::is_on_sessions;
use super::automatic::guarded_cursors::kill_by_mongod_ids;
use super::automatic::hidden_formers::HiddenFormers;
use super::automatic::touched::touched;
use super::command_trace::CommandTrace;
use super::handshake::{self, Presentation};
use super::memory::Reservation;
use super::metrics::{ByteDirection, CommandOutcome};
use super::outlier::DeferredSpills;
use super::refusal::RefusalRecorder;
use super::relay::{Relay, RelayError, RelayedRequest, ReplyFinding, ReplyInspection, RequestBytes};
use super::route::{self, Route};
use super::shared::{Settings, Shared};
use super::socket::Socket;
use super::stream::{Arrived, FrameStream, Patience};
use super::upstream::{Upstream, Upstreams};
use super::upstream_connection::{LinkError, UpstreamConnection};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::pattern::shapes::Shape;
use crate::wire::{Compressor, Compressors, Frame, OpCode, OpMsg, OpMsgFlags};

/// A client connection that was accepted.
#[derive(Debug)]
pub struct Client {
    /// Its socket.
    pub socket: Socket,
    /// The client's address.
    pub peer: SocketAddr,
    /// How a member of a replica set is presented to the client.
    pub presentation: Presentation,
    /// A text that the client's first message must contain. `None`: any client may connect.
    pub secret: Option<Arc<str>>,
}

/// Serves a client until either side closes or the upstream is retired. `drain` cancels the wait
/// for an upstream.
pub async fn serve(client: Client, upstreams: &Upstreams, shared: &Shared, drain: &CancellationToken) {
    let limits = shared.settings().limits;
    let patience = Patience {
        frame: limits.frame_timeout,
        send: limits.send_timeout,
    };
    let mut stream = FrameStream::new(client.socket, limits.max_message_bytes, patience);
    let connected = tokio::select! {
        biased;
        () = drain.cancelled() => return Closed::Retired.report(client.peer, None, &shared.metrics),
        connected = upstreams.connect(limits.connect_timeout) => connected,
        () = stream.closed() => return Closed::ByClient.report(client.peer, None, &shared.metrics),
    };
    let (upstream, link) = match connected {
        Ok(Some(connected)) => connected,
        Ok(None) => {
            let _ = timeout(limits.frame_timeout, refuse(&mut stream)).await;
            return Closed::NoPrimary.report(client.peer, None, &shared.metrics);
        }
        Err(error) => return Closed::Upstream(error).report(client.peer, None, &shared.metrics),
    };
    let mut session = Session {
        client: stream,
        link,
        upstream: &upstream,
        presentation: &client.presentation,
        shared,
        settings: Cache::new(&shared.settings),
        agreed: Compressors::NONE,
        compressor: None,
        tails: DeferredSpills::default(),
        request_memory: Reservation::of(&shared.memory.requests),
        reply_memory: Reservation::of(&shared.memory.replies),
        secret: client.secret,
        reply_target: ReplyTarget::default(),
        has_bulk_write: false,
        hidden_formers: HiddenFormers::default(),
    };
    let closed = loop {
        if let Err(closed) = session.turn().await {
            break closed;
        }
    };
    match closed {
        Closed::Upstream(_) => session.settings.load().hints.clear(),
        // The client may have closed the connection already.
        Closed::HttpRequest => drop(http_request::respond(&mut session.client).await),
        _ => {}
    }
    closed.report(client.peer, Some(&upstream), &shared.metrics);
}

/// Replies to the client's first message that there is no primary.
async fn refuse(client: &mut FrameStream) -> Result<(), Closed> {
    let Some(frame) = client.next().await? else {
        return Err(Closed::ByClient);
    };
    let message = "no primary is available upstream";
    let error = CommandError::new(ErrorCode::NotWritablePrimary, message);
    Ok(client.send(&error_reply(&frame, error)?).await?)
}

struct Session<'a> {
    client: FrameStream,
    link: UpstreamConnection,
    upstream: &'a Upstream,
    presentation: &'a Presentation,
    shared: &'a Shared,
    settings: Cache<&'a ArcSwap<Settings>, Arc<Settings>>,
    /// The compressors that were negotiated with both sides.
    agreed: Compressors,
    /// The compressor of the current message. The reply uses the same, as in mongod.
    compressor: Option<Compressor>,
    /// Spills of outliers' tails, deferred until the connection is idle.
    tails: DeferredSpills,
    /// Memory reserved for the current message.
    request_memory: Reservation,
    /// Memory reserved for its reply.
    reply_memory: Reservation,
    /// A text that the next message must contain.
    secret: Option<Arc<str>>,
    reply_target: ReplyTarget,
    /// Whether the server is known to have the command `bulkWrite`.
    has_bulk_write: bool,
    hidden_formers: HiddenFormers,
}

#[derive(Clone, Copy, Debug)]
struct Message<'a> {
    /// As received, compressed or not.
    received: &'a Frame,
    /// Decompressed: an OP_MSG.
    opened: &'a Frame,
}

impl<'a> Message<'a> {
    fn plain(frame: &'a Frame) -> Self {
        Self {
            received: frame,
            opened: frame,
        }
    }
}

impl Session<'_> {
    /// Waits for a frame and handles it.
    async fn turn(&mut self) -> Result<(), Closed> {
        let idle = self.settings.load().limits.idle_timeout;
        let arrived = tokio::select! {
            biased;
            arrived = self.client.arrive(idle) => match arrived {
                Ok(Some(arrived)) => Ok(arrived),
                Ok(None) => Err(Closed::ByClient),
                Err(error) => Err(error.into()),
            },
            () = self.link.closed() => Err(Closed::Upstream(LinkError::Closed)),
            () = self.upstream.retired() => Err(Closed::Retired),
            () = self.tails.paused() => return self.move_tails().await,
        };
        let arrived = match arrived {
            Ok(arrived) => arrived,
            Err(closed) => {
                // The reason for closing is reported. The result of the spills is ignored.
                let _ = self.move_tails().await;
                return Err(closed);
            }
        };
        self.compressor = None;
        let done = self.arrived(arrived).await;
        self.request_memory.release();
        self.reply_memory.release();
        done
    }

    /// Handles a message. The caller releases the reserved memory.
    async fn arrived(&mut self, arrived: Arrived) -> Result<(), Closed> {
        if let Some(secret) = self.secret.take()
            && !matches!(&arrived, Arrived::Whole(frame) if contains(frame, &secret))
        {
            return Err(Closed::Protocol(
                "the listener is reserved for the proxy's own tasks".to_owned(),
            ));
        }
        let frame = match arrived {
            Arrived::Whole(frame) => frame,
            Arrived::Long(long) => match self.relay_long(long).await? {
                Some(whole) => whole,
                None => return Ok(()),
            },
        };
        self.shared.metrics.bytes(ByteDirection::Received, frame.len());
        match frame.header().op_code {
            OpCode::Compressed => self.compressed(&frame).await,
            OpCode::Msg => self.message(Message::plain(&frame)).await,
            OpCode::Query => self.query(&frame).await,
            other => Err(Closed::Protocol(format!(
                "clients do not send messages of kind {other}"
            ))),
        }
    }

    async fn message(&mut self, message: Message<'_>) -> Result<(), Closed> {
        let frame = message.opened;
        let head = match OpMsg::parse_unverified(frame) {
            Ok(message) => CommandHeader::of(message),
            // mongod replies to some malformed messages, and closes the connection after others.
            Err(error) => match error.server_code() {
                Some(code) => Err(CommandError::malformed(code, &error.to_string())),
                None => return Err(Closed::Protocol(error.to_string())),
            },
        };
        let head = match head {
            Ok(head) => head,
            Err(_) if is_unanswered(frame) => return Ok(()),
            Err(error) => return self.reply_in_kind(frame, error).await,
        };
        let trace = self.trace(&head);
        let begun = self.begin(head.command, Awaited::by(head.command, head.body()), trace);
        self.delay_write(&head).await;
        let guard = self.guard_of(&head);
        let settings = self.settings.load();
        let observing = settings.observer.is_some().then(|| Arc::clone(settings));
        let touched = touched(&settings.shapes, &head);
        let kill = kill_by_mongod_ids(&head);
        let done = if let Some(guard) = guard {
            Box::pin(self.guarded(message, &head, guard)).await
        } else if let Some(kill) = kill {
            Box::pin(self.kill_guarded(message, &head, &kill)).await
        } else if bulk_write::is_on_shapes(&settings.shapes, &head) {
            Box::pin(self.bulk_write(message, &head)).await
        } else if touched.is_empty() {
            let route = route::decide(settings, &head);
            self.dispatch(message, &head, route).await
        } else {
            Box::pin(self.automatic(message, &head, &touched)).await
        };
        if let Ok(CommandOutcome::Rewritten) = done {
            self.record_of_shape(&begun, &head);
        }
        self.count(&begun, done)?;
        if let Some(observer) = observing.as_ref().and_then(|settings| settings.observer.as_ref()) {
            observer.observe(&head, &mut self.link, self.upstream).await;
        }
        Ok(())
    }

    /// Waits if writers of the collection have to be slower than they are.
    async fn delay_write(&self, head: &CommandHeader<'_>) {
        let delay = self.shared.write_delays.of(head, Instant::now());
        if delay > Duration::ZERO {
            sleep(delay).await;
        }
    }

    async fn dispatch(
        &mut self,
        message: Message<'_>,
        head: &CommandHeader<'_>,
        route: Route<'_>,
    ) -> Result<CommandOutcome, Closed> {
        let frame = message.opened;
        match route {
            Route::Relay => {
                let edited = self.without_recovery_token(frame, head)?;
                let request = RelayedRequest {
                    sent: RequestBytes::Whole(edited.as_ref().unwrap_or(message.received)),
                    flags: head.message.flags,
                };
                match self.chosen(head) {
                    Some(chosen) => Box::pin(self.relay_chosen(request, head, chosen)).await,
                    None if is_on_sessions(head) => Box::pin(self.relay_on_sessions(request, head)).await,
                    None => self.relay(request, self.look()).await,
                }
            }
            Route::Handshake => {
                let edited = handshake::edit_message(frame, &head.message).map_err(LinkError::from)?;
                let request = RelayedRequest {
                    sent: RequestBytes::Whole(edited.as_ref().unwrap_or(message.received)),
                    flags: head.message.flags,
                };
                self.relay(request, ReplyInspection::Handshake(self.presentation)).await
            }
            Route::Reject(error, refused) => {
                // The refusal may end a transaction, so the message's checksum is verified.
                OpMsg::parse(frame).map_err(|error| Closed::Protocol(error.to_string()))?;
                if let Some((namespace, reason)) = &refused {
                    let (metrics, command) = (&self.shared.metrics, head.command);
                    RefusalRecorder { metrics, command }.record(namespace, *reason, error.message());
                }
                self.link.compress_with(self.compressor);
                self.finish(frame, head, Err(error.into())).await
            }
            Route::Shaped(to) => {
                // mongod verifies the checksum of a relayed message. For a rewritten message, the proxy
                // does.
                OpMsg::parse(frame).map_err(|error| Closed::Protocol(error.to_string()))?;
                match to.shape() {
                    Shape::Bucket(shape) => self.bucket(message, head, &to, shape).await,
                    Shape::Outlier(shape) => self.outlier(message, head, &to, shape).await,
                }
            }
            Route::Merge(into) => self.merge(message, head, &into).await,
            Route::CrossCollection(settings) => Box::pin(self.rewrite_across(frame, head, &settings)).await,
        }
    }

    async fn relay(
        &mut self,
        request: RelayedRequest<'_>,
        look: ReplyInspection<'_>,
    ) -> Result<CommandOutcome, Closed> {
        self.relay_and_find(request, look)
            .await
            .map(|_| CommandOutcome::Relayed)
    }

    async fn relay_and_find(
        &mut self,
        request: RelayedRequest<'_>,
        look: ReplyInspection<'_>,
    ) -> Result<ReplyFinding, Closed> {
        let span = self.link.trace().and_then(CommandTrace::relay);
        let mut relay = Relay {
            client: &mut self.client,
            link: &mut self.link,
            metrics: &self.shared.metrics,
            upstream: self.upstream,
            agreed: &mut self.agreed,
        };
        let found = relay.run(request, look).await;
        drop(span);
        match found {
            Ok(ReplyFinding::NotPrimary) if self.presentation.promises_primary() => {
                self.see_to_primary().await.map(|()| ReplyFinding::NotPrimary)
            }
            Ok(found) => Ok(found),
            Err(RelayError::NotPrimary) => Err(self.leave()),
            Err(RelayError::Link(error)) => Err(error.into()),
            Err(RelayError::ClientClosed) => Err(Closed::ByClient),
            Err(RelayError::Retired) => Err(Closed::Retired),
            Err(RelayError::Client(error)) => Err(Closed::Client(error)),
        }
    }
}

/// Whether the bytes of a message contain a text.
fn contains(frame: &Frame, text: &str) -> bool {
    let text = text.as_bytes();
    frame.as_bytes().windows(text.len()).any(|part| part == text)
}

/// Whether the client expects no reply (`moreToCome`).
fn is_unanswered(frame: &Frame) -> bool {
    OpMsg::flags_of(frame).is_some_and(|flags| flags.contains(OpMsgFlags::MORE_TO_COME))
}
