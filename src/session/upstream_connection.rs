//! The upstream connection of one client: relayed frames and internal commands, in order.

mod timer;

use std::io::ErrorKind;
use std::time::Duration;

use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use self::timer::UpstreamTimer;
use super::error::RunError;
use super::memory::{LARGEST_REPLY, Reservation};
use super::socket::Socket;
use super::stream::{Arrived, FrameStream, LongFrame, PassError, Patience, StreamError};
use crate::command::document::{as_whole_number, get, put, single};
use crate::command::error::ErrorCode;
use crate::command::reply::succeeded;
use crate::wire::limits::MAX_MESSAGE_BYTES;
use crate::wire::{Compressor, Frame, MessageHeader, OpCode, OpCompressed, OpMsg, OpMsgBuilder, WireError};

/// Commands that are written before their answers are read.
const MAX_IN_FLIGHT: usize = 64;
/// Bytes of such commands. They fit in the sockets' buffers, whatever the answers' length: else each side
/// could wait for the other one to read.
const MAX_BYTES_IN_FLIGHT: usize = 64 * 1024;

/// How long the upstream may take over a message that it has begun, and to read one. How long a command takes
/// is mongod's to say (`maxTimeMS`).
const PATIENCE: Patience = Patience {
    frame: Duration::from_mins(1),
    send: Duration::from_mins(10),
};

/// Why the upstream connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// It could not be made.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// Where to.
        address: String,
        /// Why not.
        reason: String,
    },
    /// It was closed or broke.
    #[error("the upstream closed the connection")]
    Closed,
    /// Its reply belongs to another request, so no later reply on this connection can be trusted.
    #[error("the upstream replied to another request than the last one; the connection was closed")]
    OutOfStep,
    /// It was closed without the farewell that TLS has.
    #[error(
        "the upstream closed the TLS connection: it ended, or it requires a client certificate (tlsCertificateKeyFile) and got none"
    )]
    BrokenOff,
    /// The upstream was not to be asked: nothing is wrong with it.
    #[error("the command is a dry run")]
    DryRun,
    /// The stream failed.
    #[error("the upstream connection failed: {0}")]
    Stream(StreamError),
    /// A command of ours could not be encoded, or its answer not read.
    #[error("the upstream connection carried what is no message: {0}")]
    Wire(#[from] WireError),
}

impl From<StreamError> for LinkError {
    fn from(error: StreamError) -> Self {
        match error {
            // From rustls, and from nobody else: without TLS this is an end like any other.
            StreamError::Io(error) if error.kind() == ErrorKind::UnexpectedEof => Self::BrokenOff,
            error => Self::Stream(error),
        }
    }
}

/// The upstream connection.
#[derive(Debug)]
pub(super) struct UpstreamConnection {
    stream: FrameStream,
    waiting: UpstreamTimer,
    /// Whether internal commands are planned and not sent.
    is_dry_run: bool,
    last_request_id: i32,
    compressor: Option<Compressor>,
    /// The users that it is authenticated as, once they were asked for.
    users: Option<Vec<u8>>,
    /// Whether nobody has logged in where mongod wants that, once it was asked for.
    is_stranger: Option<bool>,
    /// The session of the proxy's own transactions, and the number of the last.
    own_session: (u128, i64),
}

/// A command of the proxy's own: the body, and documents that go in a sequence beside it.
#[derive(Clone, Debug)]
pub(super) struct UpstreamRequest<'a> {
    pub(super) body: &'a RawDocument,
    pub(super) sequence: Option<(&'static str, &'a [&'a RawDocument])>,
}

/// A command whose answer is still to come.
#[derive(Debug)]
#[must_use]
pub(super) struct PendingReply(i32);

impl<'a> UpstreamRequest<'a> {
    /// A command without a sequence.
    pub(super) fn plain(body: &'a RawDocument) -> Self {
        Self { body, sequence: None }
    }
}

impl UpstreamConnection {
    /// A link over a connection that was just made.
    pub(super) fn new(socket: Socket, max_message_bytes: usize) -> Self {
        Self {
            stream: FrameStream::new(socket, max_message_bytes, PATIENCE),
            waiting: UpstreamTimer::default(),
            is_dry_run: false,
            last_request_id: 0,
            compressor: None,
            users: None,
            is_stranger: None,
            own_session: (rand::random(), 0),
        }
    }

    /// The session and the number of another transaction of the proxy's own.
    pub(super) fn own_transaction(&mut self) -> (u128, i64) {
        let (session, number) = &mut self.own_session;
        *number = number.saturating_add(1);
        (*session, *number)
    }

    /// Compresses commands of the proxy's own from now on, or no longer. The upstream answers alike.
    pub(super) fn compress_with(&mut self, compressor: Option<Compressor>) {
        self.compressor = compressor;
    }

    /// From now on commands of the proxy's own are not sent and fail as [`LinkError::DryRun`], or they are
    /// sent again.
    pub(super) fn set_dry_run(&mut self, is_dry_run: bool) {
        self.is_dry_run = is_dry_run;
    }

    /// Whether nothing is sent.
    pub(super) fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    /// Forgets how long the upstream was waited for: another command begins.
    pub(super) fn begin_command(&mut self) {
        self.waiting = UpstreamTimer::default();
    }

    /// How long the upstream was waited for since, ending with now if it still is: to take what was sent, and
    /// to answer.
    pub(super) fn waited(&mut self) -> Duration {
        self.waiting.whole()
    }

    /// Sends a client's frame as it is. Not cancel safe.
    pub(super) async fn forward(&mut self, frame: &Frame) -> Result<(), LinkError> {
        self.waiting.begin();
        Ok(self.stream.send(frame).await?)
    }

    /// Sends a client's long frame as it comes in. Not cancel safe.
    pub(super) async fn forward_long(&mut self, long: LongFrame, client: &mut FrameStream) -> Result<(), PassError> {
        self.waiting.begin();
        client.pass_on(long, &mut self.stream).await
    }

    /// The next frame from the upstream, or the beginning of a long one. Cancel safe.
    pub(super) async fn arrive(&mut self) -> Result<Arrived, LinkError> {
        self.waiting.begin();
        let arrived = self.stream.arrive(None).await?.ok_or(LinkError::Closed)?;
        self.waiting.end();
        Ok(arrived)
    }

    /// Sends the client the upstream's long frame as it comes in. Not cancel safe.
    pub(super) async fn pass_on(&mut self, long: LongFrame, client: &mut FrameStream) -> Result<(), PassError> {
        self.waiting.begin();
        let passed = self.stream.pass_on(long, client).await;
        self.waiting.end();
        passed
    }

    /// The next frame from the upstream. Cancel safe.
    pub(super) async fn receive(&mut self) -> Result<Frame, LinkError> {
        self.waiting.begin();
        let received = self.stream.next().await?.ok_or(LinkError::Closed)?;
        self.waiting.end();
        Ok(received)
    }

    /// Returns when the upstream has closed the connection. Cancel safe.
    pub(super) async fn closed(&mut self) {
        self.stream.closed().await;
    }

    /// Runs one command of the proxy's own and gives its answer, which may say `ok: 0`. Not cancel safe.
    pub(super) async fn call(&mut self, request: UpstreamRequest<'_>) -> Result<RawDocumentBuf, LinkError> {
        let request = self.encode(&request)?;
        self.waiting.begin();
        self.stream.send(&request).await?;
        self.answer(request.header().request_id).await
    }

    /// Sends one command of the proxy's own, without waiting for its answer:
    /// [`UpstreamConnection::answer_to`] is to be asked for that before anything else is sent. Not cancel
    /// safe.
    pub(super) async fn send(&mut self, request: UpstreamRequest<'_>) -> Result<PendingReply, LinkError> {
        let request = self.encode(&request)?;
        self.waiting.begin();
        self.stream.send(&request).await?;
        Ok(PendingReply(request.header().request_id))
    }

    /// The answer to what was sent. Not cancel safe.
    pub(super) async fn answer_to(&mut self, sent: PendingReply) -> Result<RawDocumentBuf, LinkError> {
        self.answer(sent.0).await
    }

    /// Runs a command without a sequence; an answer that says `ok: 0` is an error. Not cancel safe.
    pub(super) async fn run(&mut self, body: &RawDocument) -> Result<RawDocumentBuf, RunError> {
        Ok(succeeded(self.call(UpstreamRequest::plain(body)).await?)?)
    }

    /// The users that the connection is authenticated as, as mongod tells them; `command` is the client's
    /// that asks. Not cancel safe.
    pub(super) async fn users(&mut self, command: &RawDocument) -> Result<Vec<u8>, RunError> {
        if let Some(users) = &self.users {
            return Ok(users.clone());
        }
        let status = self.connection_status(command, "authenticatedUsers").await?;
        let users = status.as_bytes().to_vec();
        self.users = Some(users.clone());
        Ok(users)
    }

    /// What these users may do, as mongod tells it: `resource` and `actions` each. Not cancel safe.
    pub(super) async fn privileges(&mut self, command: &RawDocument) -> Result<RawArrayBuf, RunError> {
        self.connection_status(command, "authenticatedUserPrivileges").await
    }

    /// A list of `connectionStatus`; `command` is the client's that asks.
    async fn connection_status(&mut self, command: &RawDocument, list: &str) -> Result<RawArrayBuf, RunError> {
        let mut status = single("connectionStatus", 1);
        put(&mut status, "showPrivileges", list == "authenticatedUserPrivileges");
        put(&mut status, "$db", "admin");
        // Not in the stable API; a server that wants every command to name one takes it all the same.
        if let Some(version) = get(command, "apiVersion") {
            put(&mut status, "apiVersion", version);
        }
        let status = self.run(&status).await?;
        let info = get(&status, "authInfo").and_then(RawBsonRef::as_document);
        let list = info.and_then(|info| get(info, list)).and_then(RawBsonRef::as_array);
        Ok(list.map(RawArray::to_owned).unwrap_or_default())
    }

    /// Whether mongod wants the client to log in, and it has not. Asked once for each login. Not cancel safe.
    pub(super) async fn is_stranger(&mut self) -> Result<bool, LinkError> {
        if let Some(known) = self.is_stranger {
            return Ok(known);
        }
        let ask = |name: &str, value: RawBsonRef<'_>| {
            let mut command = single(name, value);
            put(&mut command, "$db", "admin");
            // A server may want every command to name one.
            put(&mut command, "apiVersion", "1");
            command
        };
        let status = self
            .call(UpstreamRequest::plain(&ask("connectionStatus", RawBsonRef::Int32(1))))
            .await?;
        let users = get(&status, "authInfo").and_then(RawBsonRef::as_document);
        let users = users.and_then(|info| get(info, "authenticatedUsers")?.as_array());
        let has_user = users.is_some_and(|users| users.into_iter().next().is_some());
        let is_stranger = !has_user && {
            // Without access control anybody may ask for it.
            let answer = self
                .call(UpstreamRequest::plain(&ask("getLog", RawBsonRef::String("*"))))
                .await?;
            get(&answer, "code").and_then(as_whole_number) == Some(i64::from(ErrorCode::Unauthorized.number()))
        };
        self.is_stranger = Some(is_stranger);
        Ok(is_stranger)
    }

    /// Asks anew for the users next time: they may be others.
    pub(super) fn forget_users(&mut self) {
        self.is_stranger = None;
        self.users = None;
    }

    /// Runs commands one after the other, short ones back to back in as few round trips as can be. Not cancel
    /// safe.
    pub(super) async fn call_all(
        &mut self,
        requests: &[UpstreamRequest<'_>],
    ) -> Result<Vec<RawDocumentBuf>, LinkError> {
        let mut answers = Vec::with_capacity(requests.len());
        let mut window: Vec<Frame> = Vec::new();
        let mut bytes = 0;
        for request in requests {
            let request = self.encode(request)?;
            bytes += request.len();
            if window.len() >= MAX_IN_FLIGHT || bytes > MAX_BYTES_IN_FLIGHT {
                self.exchange(&mut window, &mut answers).await?;
                bytes = request.len();
            }
            window.push(request);
        }
        self.exchange(&mut window, &mut answers).await?;
        Ok(answers)
    }

    /// Sends what is in the window, which is empty afterwards, and reads the answers.
    async fn exchange(&mut self, window: &mut Vec<Frame>, answers: &mut Vec<RawDocumentBuf>) -> Result<(), LinkError> {
        self.waiting.begin();
        self.stream.send_all(window).await?;
        for request in window.drain(..) {
            answers.push(self.answer(request.header().request_id).await?);
        }
        Ok(())
    }

    fn encode(&mut self, request: &UpstreamRequest<'_>) -> Result<Frame, LinkError> {
        if self.is_dry_run {
            return Err(LinkError::DryRun);
        }
        self.last_request_id = self.last_request_id.wrapping_add(1);
        let mut builder = OpMsgBuilder::new(self.last_request_id, 0).body(request.body);
        if let Some((identifier, documents)) = request.sequence {
            builder = builder.sequence(identifier, documents.iter().copied());
        }
        let message = builder.build()?;
        match self.compressor {
            Some(compressor) => Ok(OpCompressed::compress(&message, compressor)?),
            None => Ok(message),
        }
    }

    /// Runs one command of the proxy's own whose answer is to be of at most so many bytes. `None`: it is
    /// longer, and was not kept. Not cancel safe.
    pub(super) async fn call_within(
        &mut self,
        request: UpstreamRequest<'_>,
        most_bytes: usize,
    ) -> Result<Option<RawDocumentBuf>, LinkError> {
        let request = self.encode(&request)?;
        self.waiting.begin();
        self.stream.send(&request).await?;
        let frame = match self.arrive().await? {
            Arrived::Whole(frame) => frame,
            Arrived::Long(long) if whole_bytes(long.header(), &long.payload()) > most_bytes => {
                self.discard(long).await?;
                return Ok(None);
            }
            Arrived::Long(long) => self.complete(long).await?,
        };
        if whole_bytes(frame.header(), frame.payload()) > most_bytes {
            return Ok(None);
        }
        opened(frame, request.header().request_id).map(Some)
    }

    /// Runs a command as [`UpstreamConnection::run`] does, with memory reserved for a long answer and for the
    /// reply that is made of it. Not cancel safe.
    pub(super) async fn run_reserving(
        &mut self,
        body: &RawDocument,
        memory: &mut Reservation,
    ) -> Result<RawDocumentBuf, RunError> {
        let PendingReply(request_id) = self.send(UpstreamRequest::plain(body)).await?;
        let arrived = self.arrive().await?;
        let frame = self.reserving(arrived, memory).await?;
        Ok(succeeded(opened(frame, request_id)?)?)
    }

    /// All of an answer, with memory reserved for it, where it is long, and for the reply that is made of it:
    /// both at once, as nobody is to wait while it holds the half. Not cancel safe.
    pub(super) async fn reserving(&mut self, arrived: Arrived, memory: &mut Reservation) -> Result<Frame, RunError> {
        let long = match arrived {
            Arrived::Whole(frame) => return Ok(frame),
            Arrived::Long(long) => long,
        };
        let bytes = whole_bytes(long.header(), &long.payload()).saturating_add(LARGEST_REPLY);
        if let Err(error) = memory.reserve(bytes).await {
            self.discard(long).await?;
            return Err(error.into());
        }
        Ok(self.complete(long).await?)
    }

    /// All of the upstream's long frame. Not cancel safe.
    async fn complete(&mut self, long: LongFrame) -> Result<Frame, LinkError> {
        self.waiting.begin();
        let whole = self.stream.complete(long, || false).await?.ok_or(LinkError::Closed)?;
        self.waiting.end();
        Ok(whole)
    }

    /// Reads the rest of the upstream's long frame and forgets it. Not cancel safe.
    async fn discard(&mut self, long: LongFrame) -> Result<(), LinkError> {
        self.waiting.begin();
        self.stream.discard(long).await?;
        self.waiting.end();
        Ok(())
    }

    async fn answer(&mut self, request_id: i32) -> Result<RawDocumentBuf, LinkError> {
        opened(self.receive().await?, request_id)
    }
}

/// How many bytes a frame takes that begins so, and what is compressed in it.
fn whole_bytes(header: MessageHeader, beginning: &[u8]) -> usize {
    match header.op_code {
        OpCode::Compressed => header
            .message_length
            .saturating_add(OpCompressed::announced_bytes(beginning)),
        _ => header.message_length,
    }
}

/// The answer to a request.
fn opened(frame: Frame, request_id: i32) -> Result<RawDocumentBuf, LinkError> {
    if frame.header().response_to != request_id {
        return Err(LinkError::OutOfStep);
    }
    if frame.header().op_code == OpCode::Compressed {
        let opened = OpCompressed::parse(&frame, MAX_MESSAGE_BYTES)?.inflate()?;
        return Ok(OpMsg::into_body(opened)?);
    }
    Ok(OpMsg::into_body(frame)?)
}
