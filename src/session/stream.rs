//! A socket as a stream of wire protocol messages.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::codec::Decoder as _;
use tokio_util::io::poll_read_buf;

use super::socket::Socket;
use crate::wire::{Frame, FrameCodec, HEADER_BYTES, MessageHeader, WireError};

/// Bytes requested from the socket at once.
const READ_BYTES: usize = 16 * 1024;
/// Bytes from which a frame can be passed on in pieces, so that a slow reader's data stays in the
/// sockets' buffers.
const LONG_BYTES: usize = 256 * 1024;
/// Bytes of a long frame that must have arrived before it is handled, and bytes passed on at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Bytes that a client may send ahead during a command. More stays in the kernel's buffer.
const READ_AHEAD_BYTES: usize = 64 * 1024;
/// Bytes of buffer that an idle connection keeps.
const IDLE_BUFFER_BYTES: usize = 1024;
/// The longest pause of a sender within a message while other sessions wait for the message's memory.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes per second that the sender must reach on average in that case.
const LEAST_RATE: usize = 1024 * 1024;
/// A message may take its `frame_timeout` for each started part of this many bytes.
const TIMED_BYTES: usize = 1024 * 1024;

/// The reason why a stream ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    /// The peer sent bytes that are not a message, or the socket failed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A message was not complete in time.
    #[error("a message was not complete after {} ms", .0.as_millis())]
    Stalled(Duration),
    /// No message began in time.
    #[error("no message for {} ms", .0.as_millis())]
    Idle(Duration),
    /// The peer read nothing in time.
    #[error("the peer read no data for {} ms", .0.as_millis())]
    Unread(Duration),
}

/// Time limits for a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// To complete a message, for each MiB.
    pub(super) frame: Duration,
    /// To read any byte of what is sent.
    pub(super) send: Duration,
}

/// A frame or its beginning.
#[derive(Debug)]
pub(super) enum Arrived {
    Whole(Frame),
    /// The beginning of a long frame.
    Long(LongFrame),
}

/// The beginning of a frame whose rest has not arrived. It must be
/// [completed](FrameStream::complete), [discarded](FrameStream::discard) or [passed
/// on](FrameStream::pass_on) before the next use of the stream.
#[derive(Debug)]
pub(super) struct LongFrame {
    header: MessageHeader,
    beginning: Bytes,
}

impl LongFrame {
    pub(super) fn header(&self) -> MessageHeader {
        self.header
    }

    /// The available bytes after the header.
    pub(super) fn payload(&self) -> Bytes {
        self.beginning.slice(HEADER_BYTES.min(self.beginning.len())..)
    }
}

/// The side that failed while a frame was passed on.
#[derive(Debug)]
pub(super) enum PassError {
    From(StreamError),
    To(StreamError),
}

/// A socket that sends and receives frames.
#[derive(Debug)]
pub(super) struct FrameStream {
    socket: Socket,
    codec: FrameCodec,
    max_message_bytes: usize,
    received: BytesMut,
    /// When the current message began. Kept if [`FrameStream::next`] is cancelled.
    began: Option<Instant>,
    patience: Patience,
}

impl FrameStream {
    pub(super) fn new(socket: Socket, max_message_bytes: usize, patience: Patience) -> Self {
        // Commands are answered one by one, so waiting for a full packet only adds latency.
        if let Err(error) = socket.tcp().set_nodelay(true) {
            tracing::debug!(%error, "could not set TCP_NODELAY");
        }
        Self {
            socket,
            codec: FrameCodec::new(max_message_bytes),
            max_message_bytes,
            received: BytesMut::new(),
            began: None,
            patience,
        }
    }

    /// The next frame. `None`: the peer closed the connection between two frames. Waits without
    /// limit for a frame to begin.
    ///
    /// Cancel safe: what was read stays in the buffer.
    pub(super) async fn next(&mut self) -> Result<Option<Frame>, StreamError> {
        loop {
            if let Some(frame) = self.codec.decode(&mut self.received)? {
                self.began = None;
                return Ok(Some(frame));
            }
            if self.receive().await? == 0 {
                return Ok(self.codec.decode_eof(&mut self.received)?);
            }
        }
    }

    /// Like [`FrameStream::next`], but returns only the beginning of a long frame, and waits at
    /// most `idle` for a frame to begin. Cancel safe.
    pub(super) async fn arrive(&mut self, idle: Option<Duration>) -> Result<Option<Arrived>, StreamError> {
        loop {
            if self.received.len() >= PIECE_BYTES
                && let Some(header) = MessageHeader::of_beginning(&self.received)
                && (LONG_BYTES..=self.max_message_bytes).contains(&header.message_length)
                && header.message_length > self.received.len()
            {
                let beginning = self.received.split().freeze();
                return Ok(Some(Arrived::Long(LongFrame { header, beginning })));
            }
            if let Some(frame) = self.codec.decode(&mut self.received)? {
                self.began = None;
                return Ok(Some(Arrived::Whole(frame)));
            }
            let read = match idle {
                Some(limit) if self.received.is_empty() => {
                    let read = timeout(limit, self.read()).await;
                    read.map_err(|_| StreamError::Idle(limit))??
                }
                _ => self.receive().await?,
            };
            if read == 0 {
                return Ok(self.codec.decode_eof(&mut self.received)?.map(Arrived::Whole));
            }
        }
    }

    /// Reads a long frame to its end. While other sessions wait for its memory, the peer must send
    /// something each [`GRACE`], and [`LEAST_RATE`] on average. Not cancel safe.
    pub(super) async fn complete(
        &mut self,
        long: LongFrame,
        is_waited_for: impl Fn() -> bool,
    ) -> Result<Option<Frame>, StreamError> {
        let behind = std::mem::take(&mut self.received);
        self.received = long.beginning.into();
        self.received.unsplit(behind);
        let (begun, first) = (Instant::now(), self.received.len());
        let (mut progressed, mut last) = (begun, first);
        loop {
            if let Ok(frame) = timeout(GRACE / 10, self.next()).await {
                return frame;
            }
            let now = self.received.len();
            if now > last {
                (progressed, last) = (Instant::now(), now);
            }
            let seconds = now.saturating_sub(first) / LEAST_RATE;
            let allowed = GRACE + Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX));
            let is_slow = progressed.elapsed() > GRACE || begun.elapsed() > allowed;
            if is_slow && is_waited_for() {
                return Err(StreamError::Stalled(begun.elapsed()));
            }
        }
    }

    /// Reads the rest of a long frame and drops it. Not cancel safe.
    pub(super) async fn discard(&mut self, long: LongFrame) -> Result<(), StreamError> {
        let mut missing = long.header.message_length.saturating_sub(long.beginning.len());
        drop(long);
        let mut timed = 0;
        while missing > 0 {
            if self.received.is_empty() {
                self.received.reserve(PIECE_BYTES);
                if self.read_more().await? == 0 {
                    return Err(WireError::UnexpectedEof { received: 0 }.into());
                }
            }
            let piece = self.received.split_to(missing.min(self.received.len()));
            missing = missing.saturating_sub(piece.len());
            timed += piece.len();
            if timed >= TIMED_BYTES {
                (timed, self.began) = (0, None);
            }
        }
        self.began = None;
        Ok(())
    }

    /// Sends a long frame to another peer while it arrives, at the speed of the slower side. Not
    /// cancel safe.
    pub(super) async fn pass_on(&mut self, long: LongFrame, to: &mut Self) -> Result<(), PassError> {
        let mut missing = long.header.message_length.saturating_sub(long.beginning.len());
        to.write(&long.beginning).await.map_err(PassError::To)?;
        drop(long);
        let mut timed = 0;
        while missing > 0 {
            if self.received.is_empty() {
                self.received.reserve(PIECE_BYTES);
                if self.read_more().await.map_err(PassError::From)? == 0 {
                    let received = self.received.len();
                    return Err(PassError::From(WireError::UnexpectedEof { received }.into()));
                }
            }
            let piece = self.received.split_to(missing.min(self.received.len()));
            to.write(&piece).await.map_err(PassError::To)?;
            missing = missing.saturating_sub(piece.len());
            timed += piece.len();
            if timed >= TIMED_BYTES {
                // Each part has its own time limit, which excludes the time for writing to the other
                // side.
                (timed, self.began) = (0, None);
            }
        }
        self.began = None;
        Ok(())
    }

    /// Reads more bytes. The time limit applies only within a frame. Cancel safe.
    async fn receive(&mut self) -> Result<usize, StreamError> {
        if self.received.is_empty() {
            Ok(self.read().await?)
        } else {
            self.read_more().await
        }
    }

    /// Reads more bytes of a frame. Cancel safe.
    async fn read_more(&mut self) -> Result<usize, StreamError> {
        let began = *self.began.get_or_insert_with(Instant::now);
        let parts = u32::try_from(self.received.len() / TIMED_BYTES).unwrap_or(u32::MAX);
        let allowed = self.patience.frame.saturating_mul(parts.saturating_add(1));
        let read = timeout_at(began + allowed, self.read()).await;
        Ok(read.map_err(|_| StreamError::Stalled(allowed))??)
    }

    /// Reads the available bytes. Cancel safe.
    async fn read(&mut self) -> io::Result<usize> {
        if self.began.is_none() && self.received.is_empty() && self.received.capacity() > IDLE_BUFFER_BYTES {
            // Frees the buffer, because thousands of connections may be idle.
            self.received = BytesMut::new();
        }
        poll_fn(|context| self.poll_read(context)).await
    }

    /// Reads through a buffer on the stack, so that an idle connection needs none and a short
    /// message one of its length. The rest of a long message is read directly into the buffer that
    /// the codec has reserved.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.received.capacity().saturating_sub(self.received.len()) >= READ_BYTES {
            return poll_read_buf(Pin::new(&mut self.socket), context, &mut self.received);
        }
        let mut scratch = [const { MaybeUninit::<u8>::uninit() }; READ_BYTES];
        let mut read = ReadBuf::uninit(&mut scratch);
        ready!(Pin::new(&mut self.socket).poll_read(context, &mut read))?;
        self.received.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }

    /// Sends a frame. Not cancel safe: a part may have been sent.
    pub(super) async fn send(&mut self, frame: &Frame) -> Result<(), StreamError> {
        self.write(frame.as_bytes()).await
    }

    /// Sends a frame in two parts. Not cancel safe: a part may have been sent.
    pub(super) async fn send_parts(&mut self, parts: [&[u8]; 2]) -> Result<(), StreamError> {
        for part in parts {
            self.write(part).await?;
        }
        Ok(())
    }

    /// Sends frames in one write. Not cancel safe: a part may have been sent.
    pub(super) async fn send_all(&mut self, frames: &[Frame]) -> Result<(), StreamError> {
        if let [frame] = frames {
            return self.send(frame).await;
        }
        let parts: Vec<&[u8]> = frames.iter().map(|frame| frame.as_bytes().as_ref()).collect();
        self.write(&parts.concat()).await
    }

    /// Writes all bytes. The time limit applies to each write without progress.
    async fn write(&mut self, mut bytes: &[u8]) -> Result<(), StreamError> {
        let patience = self.patience.send;
        let unread = |_| StreamError::Unread(patience);
        while !bytes.is_empty() {
            let written = timeout(patience, self.socket.write(bytes)).await.map_err(unread)??;
            if written == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
            bytes = bytes.get(written..).unwrap_or_default();
        }
        if let Socket::Tls(stream) = &mut self.socket {
            timeout(patience, stream.flush()).await.map_err(unread)??;
        }
        Ok(())
    }

    /// Returns when the peer has closed the socket or the socket failed. Cancel safe: bytes that
    /// the peer sends ahead are kept.
    pub(super) async fn closed(&mut self) {
        while self.received.len() < READ_AHEAD_BYTES {
            match self.read().await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        std::future::pending::<()>().await;
    }
}
