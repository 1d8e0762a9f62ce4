//! A socket as a stream of frames.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::codec::Decoder as _;
use tokio_util::io::poll_read_buf;

use super::socket::Socket;
use crate::wire::{Frame, FrameCodec, WireError};

/// Bytes asked of the socket at once.
const READ_BYTES: usize = 16 * 1024;
/// Bytes that a client may send ahead while its command is being answered; the rest waits in the kernel.
const READ_AHEAD_BYTES: usize = 64 * 1024;
/// What a buffer may keep while its connection is idle.
const IDLE_BUFFER_BYTES: usize = 1024;
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

/// Frames from and to one peer.
#[derive(Debug)]
pub(super) struct FrameStream {
    socket: Socket,
    codec: FrameCodec,
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
            let read = if self.received.is_empty() {
                self.read().await?
            } else {
                self.read_more().await?
            };
            if read == 0 {
                return Ok(self.codec.decode_eof(&mut self.received)?);
            }
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
        if self.received.is_empty() && self.received.capacity() > IDLE_BUFFER_BYTES {
            // Thousands of connections are idle at a time.
            self.received = BytesMut::new();
        }
        poll_fn(|context| self.poll_read(context)).await
    }

    /// Through a buffer on the stack: an idle connection needs none of its own, and a short message one of its length.
    /// What is left of a long one goes straight into the buffer that the codec has made for it.
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

    /// Returns when the peer has closed the socket or it failed. Cancel safe: what the peer sends ahead is kept.
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
