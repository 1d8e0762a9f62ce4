//! The upstream connection of one client: relayed frames and internal commands, in order.

mod link_error;
mod reply;
mod session_number;
mod timer;

use std::time::Duration;

use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

pub(super) use self::link_error::LinkError;
use self::reply::{body_of_reply, whole_bytes};
pub(super) use self::session_number::SessionNumber;
use self::timer::UpstreamTimer;
use super::command_trace::CommandTrace;
use super::error::RunError;
use super::fence::UuidFence;
use super::memory::{LARGEST_REPLY, Reservation};
use super::socket::Socket;
use super::stream::{Arrived, FrameStream, LongFrame, PassError, Patience};
use crate::command::document::{as_whole_number, get, put, single};
use crate::command::error::{ErrorCode, record_labels};
use crate::command::namespace::Namespace;
use crate::command::reply::succeeded;
use crate::command::server_version::{FieldSince, ServerVersion};
use crate::wire::{Compressor, Frame, OpCompressed, OpMsgBuilder};

/// Commands that are sent before their replies are read.
const MAX_IN_FLIGHT: usize = 64;
/// Bytes of such commands. They must fit in the sockets' buffers: if mongod blocks on sending a
/// long reply while the proxy blocks on sending commands, both would wait forever.
const MAX_BYTES_IN_FLIGHT: usize = 64 * 1024;

/// Time limits for the upstream to complete a message, and to read one. The duration of a command
/// is limited by mongod (`maxTimeMS`).
const PATIENCE: Patience = Patience {
    frame: Duration::from_mins(1),
    send: Duration::from_mins(10),
};

#[derive(Debug)]
pub(super) struct UpstreamConnection {
    stream: FrameStream,
    waiting: UpstreamTimer,
    /// Whether internal commands are not sent.
    is_dry_run: bool,
    last_request_id: i32,
    compressor: Option<Compressor>,
    /// The authenticated users, after they were requested.
    users: Option<Vec<u8>>,
    /// Whether the client has not authenticated although mongod requires it, after it was checked.
    is_stranger: Option<bool>,
    /// The server's version, after it was requested.
    version: Option<ServerVersion>,
    /// The session of internal transactions, and the number of the last one.
    own: SessionNumber,
    /// The collection of the current command, if its layout may change.
    fence: Option<UuidFence>,
    /// The trace of the current command, if commands are traced.
    trace: Option<Box<CommandTrace>>,
}

/// An internal command: its body, and documents in a sequence.
#[derive(Clone, Debug)]
pub(super) struct UpstreamRequest<'a> {
    pub(super) body: &'a RawDocument,
    pub(super) sequence: Option<(&'static str, &'a [&'a RawDocument])>,
}

/// An internal command whose reply was not read yet.
#[derive(Debug)]
#[must_use]
pub(super) struct PendingReply(i32);

impl<'a> UpstreamRequest<'a> {
    /// A command without a sequence.
    pub(super) fn plain(body: &'a RawDocument) -> Self {
        Self { body, sequence: None }
    }

    /// Whether mongod executes the command as a retryable write, and so decides which labels an error has.
    fn is_retryable_write(&self) -> bool {
        get(self.body, "txnNumber").is_some() && get(self.body, "autocommit").is_none()
    }
}

impl UpstreamConnection {
    /// Uses a new connection.
    pub(super) fn new(socket: Socket, max_message_bytes: usize) -> Self {
        Self {
            stream: FrameStream::new(socket, max_message_bytes, PATIENCE),
            waiting: UpstreamTimer::default(),
            is_dry_run: false,
            last_request_id: 0,
            compressor: None,
            users: None,
            is_stranger: None,
            version: None,
            own: SessionNumber {
                session: rand::random(),
                number: 0,
            },
            fence: None,
            trace: None,
        }
    }

    /// The session and number of a new internal transaction.
    pub(super) fn own_transaction(&mut self) -> SessionNumber {
        self.own.number = self.own.number.saturating_add(1);
        self.own
    }

    /// Sets the compressor of internal commands. The upstream's replies use the same.
    pub(super) fn compress_with(&mut self, compressor: Option<Compressor>) {
        self.compressor = compressor;
    }

    /// If true, internal commands are not sent and fail with [`LinkError::DryRun`].
    pub(super) fn set_dry_run(&mut self, is_dry_run: bool) {
        self.is_dry_run = is_dry_run;
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    /// Sets the collection whose UUID the internal commands on it name. Returns the former one.
    pub(super) fn set_fence(&mut self, fence: Option<UuidFence>) -> Option<UuidFence> {
        std::mem::replace(&mut self.fence, fence)
    }

    /// The fence of this collection.
    pub(super) fn fence_of(&mut self, namespace: Namespace<'_>) -> Option<&mut UuidFence> {
        self.fence.as_mut().filter(|fence| fence.is_of(namespace))
    }

    /// Resets the waiting time for a new command, and begins its trace.
    pub(super) fn begin_command(&mut self, trace: Option<Box<CommandTrace>>) {
        self.waiting = UpstreamTimer::default();
        self.trace = trace;
    }

    /// The trace of the current command, if commands are traced.
    pub(super) fn trace(&mut self) -> Option<&mut CommandTrace> {
        self.trace.as_deref_mut()
    }

    /// Ends the trace of the current command.
    pub(super) fn take_trace(&mut self) -> Option<Box<CommandTrace>> {
        self.trace.take()
    }

    /// The time that the upstream took to read what was sent and to reply, since the reset.
    /// Includes a wait in progress and ends it.
    pub(super) fn waited(&mut self) -> Duration {
        self.waiting.whole()
    }

    /// Sends a client's frame unchanged. Not cancel safe.
    pub(super) async fn forward(&mut self, frame: &Frame) -> Result<(), LinkError> {
        self.waiting.begin();
        Ok(self.stream.send(frame).await?)
    }

    /// Sends a client's long frame while it arrives. Not cancel safe.
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

    /// Sends the upstream's long frame to the client while it arrives. Not cancel safe.
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

    /// Waits for a result that another session gets from the upstream. The upstream's time includes this wait.
    pub(super) async fn waiting_for<T>(&mut self, result: impl Future<Output = T>) -> T {
        self.waiting.begin();
        let result = result.await;
        self.waiting.end();
        result
    }

    /// Returns when the upstream has closed the connection. Cancel safe.
    pub(super) async fn closed(&mut self) {
        self.stream.closed().await;
    }

    /// Executes an internal command and returns its reply, which may have `ok: 0`. Not cancel safe.
    pub(super) async fn call(&mut self, request: UpstreamRequest<'_>) -> Result<RawDocumentBuf, LinkError> {
        let frame = self.encode(&request)?;
        self.waiting.begin();
        self.stream.send(&frame).await?;
        let mut reply = self.answer(frame.header().request_id).await?;
        if request.is_retryable_write() {
            record_labels(&mut reply);
        }
        Ok(reply)
    }

    /// Sends an internal command without waiting for its reply. [`UpstreamConnection::answer_to`] must be
    /// called before anything else is sent. Not cancel safe.
    pub(super) async fn send(&mut self, request: UpstreamRequest<'_>) -> Result<PendingReply, LinkError> {
        let request = self.encode(&request)?;
        self.waiting.begin();
        self.stream.send(&request).await?;
        Ok(PendingReply(request.header().request_id))
    }

    /// The reply to a sent command. Not cancel safe.
    pub(super) async fn answer_to(&mut self, sent: PendingReply) -> Result<RawDocumentBuf, LinkError> {
        self.answer(sent.0).await
    }

    /// Executes a command without a sequence. A reply with `ok: 0` is an error. Not cancel safe.
    pub(super) async fn run(&mut self, body: &RawDocument) -> Result<RawDocumentBuf, RunError> {
        Ok(succeeded(self.call(UpstreamRequest::plain(body)).await?)?)
    }

    /// Has mongod validate a part of the client's command. A dry run needs no validation: the command was
    /// relayed. Not cancel safe.
    pub(super) async fn validate(&mut self, body: &RawDocument) -> Result<(), RunError> {
        if self.is_dry_run {
            return Ok(());
        }
        self.run(body).await.map(drop)
    }

    /// The authenticated users as mongod reports them. `command`: the client's. Cached until
    /// [`UpstreamConnection::forget_users`]. Not cancel safe.
    pub(super) async fn users(&mut self, command: &RawDocument) -> Result<Vec<u8>, RunError> {
        if let Some(users) = &self.users {
            return Ok(users.clone());
        }
        let status = self.connection_status(command, "authenticatedUsers").await?;
        let users = status.as_bytes().to_vec();
        self.users = Some(users.clone());
        Ok(users)
    }

    /// The privileges of these users as mongod reports them, each with `resource` and `actions`.
    /// Not cancel safe.
    pub(super) async fn privileges(&mut self, command: &RawDocument) -> Result<RawArrayBuf, RunError> {
        self.connection_status(command, "authenticatedUserPrivileges").await
    }

    /// A list of `connectionStatus`. `command`: the client's.
    async fn connection_status(&mut self, command: &RawDocument, list: &str) -> Result<RawArrayBuf, RunError> {
        let mut status = single("connectionStatus", 1);
        put(&mut status, "showPrivileges", list == "authenticatedUserPrivileges");
        put(&mut status, "$db", "admin");
        // `connectionStatus` is not in the stable API, but accepted with `apiVersion`, which a server
        // may require.
        if let Some(version) = get(command, "apiVersion") {
            put(&mut status, "apiVersion", version);
        }
        let status = self.run(&status).await?;
        let info = get(&status, "authInfo").and_then(RawBsonRef::as_document);
        let list = info.and_then(|info| get(info, list)).and_then(RawBsonRef::as_array);
        Ok(list.map(RawArray::to_owned).unwrap_or_default())
    }

    /// Whether mongod requires authentication and the client has not authenticated. Checked once
    /// for each login. Not cancel safe.
    pub(super) async fn is_stranger(&mut self) -> Result<bool, LinkError> {
        if let Some(known) = self.is_stranger {
            return Ok(known);
        }
        let ask = |name: &str, value: RawBsonRef<'_>| {
            let mut command = single(name, value);
            put(&mut command, "$db", "admin");
            // A server may require `apiVersion`.
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
            // Without access control, every client may execute `getLog`.
            let answer = self
                .call(UpstreamRequest::plain(&ask("getLog", RawBsonRef::String("*"))))
                .await?;
            get(&answer, "code").and_then(as_whole_number) == Some(i64::from(ErrorCode::Unauthorized.number()))
        };
        self.is_stranger = Some(is_stranger);
        Ok(is_stranger)
    }

    /// The server's version. Costs one round trip in the life of the connection. A dry run does not know it
    /// otherwise. Not cancel safe.
    pub(super) async fn server_version(&mut self) -> Result<ServerVersion, LinkError> {
        match self.version {
            Some(version) => Ok(version),
            None if self.is_dry_run => Ok(ServerVersion::default()),
            None => {
                let reply = self.call(UpstreamRequest::plain(&ServerVersion::request())).await?;
                Ok(*self.version.insert(ServerVersion::of_reply(&reply)))
            }
        }
    }

    /// Checks that the server knows a field of the client's command. In a dry run, the server does it.
    /// Not cancel safe.
    pub(super) async fn check_field(&mut self, field: Option<FieldSince>) -> Result<(), RunError> {
        match field.filter(|_| !self.is_dry_run) {
            Some(field) => Ok(field.check(self.server_version().await?)?),
            None => Ok(()),
        }
    }

    /// Drops the cached users, because they may change.
    pub(super) fn forget_users(&mut self) {
        self.is_stranger = None;
        self.users = None;
    }

    /// Executes commands in order. Short ones are sent back to back, in as few round trips as
    /// possible. Not cancel safe.
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
        for (request, reply) in requests.iter().zip(&mut answers) {
            if request.is_retryable_write() {
                record_labels(reply);
            }
        }
        Ok(answers)
    }

    /// Sends the commands in the window, empties it, and reads the replies.
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
        let fenced = self.fence.as_mut().and_then(|fence| fence.applied(request.body));
        let body = fenced.as_deref().unwrap_or(request.body);
        let mut builder = OpMsgBuilder::new(self.last_request_id, 0).body(body);
        if let Some((identifier, documents)) = request.sequence {
            builder = builder.sequence(identifier, documents.iter().copied());
        }
        let message = builder.build()?;
        if let Some(trace) = &mut self.trace {
            trace.begin_statement(self.last_request_id, body);
        }
        match self.compressor {
            Some(compressor) => Ok(OpCompressed::compress(&message, compressor)?),
            None => Ok(message),
        }
    }

    /// Executes an internal command. `None`: its reply has more than `most_bytes`, compressed and
    /// decompressed together, and was dropped. Not cancel safe.
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
        self.opened(frame, request.header().request_id).map(Some)
    }

    /// Like [`UpstreamConnection::run`]. Reserves memory for a long reply and for the client's
    /// reply made from it. Not cancel safe.
    pub(super) async fn run_reserving(
        &mut self,
        body: &RawDocument,
        memory: &mut Reservation,
    ) -> Result<RawDocumentBuf, RunError> {
        Ok(succeeded(
            self.call_reserving(UpstreamRequest::plain(body), memory).await?,
        )?)
    }

    /// Like [`UpstreamConnection::call`]. Reserves memory for a long reply, and leaves its labels as they
    /// are. Not cancel safe.
    pub(super) async fn call_reserving(
        &mut self,
        request: UpstreamRequest<'_>,
        memory: &mut Reservation,
    ) -> Result<RawDocumentBuf, RunError> {
        let PendingReply(request_id) = self.send(request).await?;
        let arrived = self.arrive().await?;
        let frame = self.reserving(arrived, memory).await?;
        Ok(self.opened(frame, request_id)?)
    }

    /// Reads a reply completely. For a long one, reserves its memory and that of the client's reply
    /// together: a session that waits for the second part would block others with the first. Not
    /// cancel safe.
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

    /// Reads the upstream's long frame to its end. Not cancel safe.
    async fn complete(&mut self, long: LongFrame) -> Result<Frame, LinkError> {
        self.waiting.begin();
        let whole = self.stream.complete(long, || false).await?.ok_or(LinkError::Closed)?;
        self.waiting.end();
        Ok(whole)
    }

    /// Reads the rest of the upstream's long frame and drops it. Not cancel safe.
    async fn discard(&mut self, long: LongFrame) -> Result<(), LinkError> {
        self.waiting.begin();
        self.stream.discard(long).await?;
        self.waiting.end();
        Ok(())
    }

    async fn answer(&mut self, request_id: i32) -> Result<RawDocumentBuf, LinkError> {
        let frame = self.receive().await?;
        self.opened(frame, request_id)
    }

    /// The body of the reply to a request.
    fn opened(&mut self, frame: Frame, request_id: i32) -> Result<RawDocumentBuf, LinkError> {
        let reply = body_of_reply(frame, request_id)?;
        if let Some(trace) = &mut self.trace {
            trace.end_statement(request_id, &reply);
        }
        Ok(reply)
    }
}
