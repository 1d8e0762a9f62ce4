//! A socket as a stream of frames.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::codec::Decoder as _;

use crate::wire::{Frame, FrameCodec, WireError};

/// The sockets that sessions run on. TLS will make this an enum of both kinds.
pub(super) type Socket = TcpStream;

/// Bytes asked of the socket at once.
const READ_BYTES: usize = 16 * 1024;
/// Bytes that a client may send ahead while its command is being answered; the rest waits in the kernel.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// What ended a stream.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    /// The peer's bytes are no messages, or the socket failed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer paused for too long in the middle of a message.
    #[error("no byte for {} ms in the middle of a message", .0.as_millis())]
    Stalled(Duration),
}

/// Frames from and to one peer.
#[derive(Debug)]
pub(super) struct FrameStream {
    socket: Socket,
    codec: FrameCodec,
    received: BytesMut,
}

impl FrameStream {
    pub(super) fn new(socket: Socket, max_message_bytes: usize) -> Self {
        // Commands are answered one by one; waiting to fill a packet would only delay them.
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "could not set TCP_NODELAY");
        }
        Self {
            socket,
            codec: FrameCodec::new(max_message_bytes),
            received: BytesMut::new(),
        }
    }

    /// The next frame; `None` when the peer closed between two. A pause is only borne for `stall` once a frame began.
    ///
    /// Cancel safe: what was read stays in the buffer.
    pub(super) async fn next(&mut self, stall: Duration) -> Result<Option<Frame>, StreamError> {
        loop {
            if let Some(frame) = self.codec.decode(&mut self.received)? {
                return Ok(Some(frame));
            }
            let read = if self.received.is_empty() {
                self.read().await?
            } else {
                timeout(stall, self.read())
                    .await
                    .map_err(|_| StreamError::Stalled(stall))??
            };
            if read == 0 {
                return Ok(self.codec.decode_eof(&mut self.received)?);
            }
        }
    }

    /// Reads what there is. Cancel safe.
    async fn read(&mut self) -> io::Result<usize> {
        if self.received.capacity() == self.received.len() {
            self.received.reserve(READ_BYTES);
        }
        self.socket.read_buf(&mut self.received).await
    }

    /// Sends a frame. Not cancel safe: a part of it may have gone out.
    pub(super) async fn send(&mut self, frame: &Frame) -> io::Result<()> {
        self.socket.write_all(frame.as_bytes()).await
    }

    /// Sends frames in one write. Not cancel safe: a part of them may have gone out.
    pub(super) async fn send_all(&mut self, frames: &[Frame]) -> io::Result<()> {
        if let [frame] = frames {
            return self.send(frame).await;
        }
        let parts: Vec<&[u8]> = frames.iter().map(|frame| frame.as_bytes().as_ref()).collect();
        self.socket.write_all(&parts.concat()).await
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
