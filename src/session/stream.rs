//! A socket as a stream of frames.

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

/// Bytes asked of the socket at once.
const READ_BYTES: usize = 16 * 1024;
/// A longer frame can be passed on piece by piece, so that what peers are slow to read stays in their
/// sockets.
const LONG_BYTES: usize = 256 * 1024;
/// So much of a long frame is there before anything is done with it, and so much is passed on at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Bytes that a client may send ahead while its command is being answered; the rest waits in the kernel.
const READ_AHEAD_BYTES: usize = 64 * 1024;
/// What a buffer may keep while its connection is idle.
const IDLE_BUFFER_BYTES: usize = 1024;
/// While others wait for the memory that a message takes, its sender may send nothing for so long.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes a second that it is to send on the average.
const LEAST_RATE: usize = 1024 * 1024;
/// A message may take its `frame_timeout` for each of these that have begun.
const TIMED_BYTES: usize = 1024 * 1024;

/// What ended a stream.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    /// The peer's bytes are no messages, or the socket failed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer began a message and took too long over it.
    #[error("a message was not complete after {} ms", .0.as_millis())]
    Stalled(Duration),
    /// The peer began no message for as long as it may.
    #[error("no message for {} ms", .0.as_millis())]
    Idle(Duration),
    /// The peer took nothing of what was sent to it.
    #[error("the other side read nothing for {} ms", .0.as_millis())]
    Unread(Duration),
}

/// How long a peer may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For a message that it has begun, for each MiB of it.
    pub(super) frame: Duration,
    /// Without reading anything of what it is sent.
    pub(super) send: Duration,
}

/// What has arrived.
#[derive(Debug)]
pub(super) enum Arrived {
    /// A frame.
    Whole(Frame),
    /// The beginning of a long one.
    Long(LongFrame),
}

/// The beginning of a frame, the rest of which is still to come from its stream. Before anything else is
/// asked of that, the frame is to be [completed](FrameStream::complete) or [passed on](FrameStream::pass_on).
#[derive(Debug)]
pub(super) struct LongFrame {
    header: MessageHeader,
    beginning: Bytes,
}

impl LongFrame {
    pub(super) fn header(&self) -> MessageHeader {
        self.header
    }

    /// The beginning of what follows the header.
    pub(super) fn payload(&self) -> Bytes {
        self.beginning.slice(HEADER_BYTES.min(self.beginning.len())..)
    }
}

/// Which side of a passage failed.
#[derive(Debug)]
pub(super) enum PassError {
    From(StreamError),
    To(StreamError),
}

/// Frames from and to one peer.
#[derive(Debug)]
pub(super) struct FrameStream {
    socket: Socket,
    codec: FrameCodec,
    max_message_bytes: usize,
    received: BytesMut,
    /// When the message that is being received began; lives through a cancelled [`FrameStream::next`].
    began: Option<Instant>,
    patience: Patience,
}

impl FrameStream {
    pub(super) fn new(socket: Socket, max_message_bytes: usize, patience: Patience) -> Self {
        // Commands are answered one by one; waiting to fill a packet would only delay them.
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

    /// The next frame; `None` when the peer closed between two. Waits for ever for a frame to begin.
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

    /// The next frame, or the beginning of a long one; otherwise as [`FrameStream::next`]. Waits for it to
    /// begin for as long as `idle`. Cancel safe.
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

    /// All of a long frame. Where others wait for the memory that it takes, the peer is to send something
    /// each [`GRACE`], and [`LEAST_RATE`] on the average. Not cancel safe.
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

    /// Reads the rest of a long frame and forgets it. Not cancel safe.
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

    /// Sends a long frame to another peer as it comes in, no faster than that takes it. Not cancel safe.
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
                // Each part has its own time, which does not count what the other side was waited for.
                (timed, self.began) = (0, None);
            }
        }
        self.began = None;
        Ok(())
    }

    /// Reads on, for as long as may be waited where the stream is. Cancel safe.
    async fn receive(&mut self) -> Result<usize, StreamError> {
        if self.received.is_empty() {
            Ok(self.read().await?)
        } else {
            self.read_more().await
        }
    }

    /// Reads on in the middle of a frame. Cancel safe.
    async fn read_more(&mut self) -> Result<usize, StreamError> {
        let began = *self.began.get_or_insert_with(Instant::now);
        let parts = u32::try_from(self.received.len() / TIMED_BYTES).unwrap_or(u32::MAX);
        let allowed = self.patience.frame.saturating_mul(parts.saturating_add(1));
        let read = timeout_at(began + allowed, self.read()).await;
        Ok(read.map_err(|_| StreamError::Stalled(allowed))??)
    }

    /// Reads what there is. Cancel safe.
    async fn read(&mut self) -> io::Result<usize> {
        if self.began.is_none() && self.received.is_empty() && self.received.capacity() > IDLE_BUFFER_BYTES {
            // Thousands of connections are idle at a time.
            self.received = BytesMut::new();
        }
        poll_fn(|context| self.poll_read(context)).await
    }

    /// Through a buffer on the stack: an idle connection needs none of its own, and a short message one of
    /// its length. What is left of a long one goes straight into the buffer that the codec has made for it.
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

    /// Sends a frame. Not cancel safe: a part of it may have gone out.
    pub(super) async fn send(&mut self, frame: &Frame) -> Result<(), StreamError> {
        self.write(frame.as_bytes()).await
    }

    /// Sends a frame that lies in two parts. Not cancel safe: a part of it may have gone out.
    pub(super) async fn send_parts(&mut self, parts: [&[u8]; 2]) -> Result<(), StreamError> {
        for part in parts {
            self.write(part).await?;
        }
        Ok(())
    }

    /// Sends frames in one write. Not cancel safe: a part of them may have gone out.
    pub(super) async fn send_all(&mut self, frames: &[Frame]) -> Result<(), StreamError> {
        if let [frame] = frames {
            return self.send(frame).await;
        }
        let parts: Vec<&[u8]> = frames.iter().map(|frame| frame.as_bytes().as_ref()).collect();
        self.write(&parts.concat()).await
    }

    /// Writes all of it; the peer may take as long as it likes as long as it takes something.
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

    /// Returns when the peer has closed the socket or it failed. Cancel safe: what the peer sends ahead is
    /// kept.
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
