//! Cuts a stream of bytes into frames, and back. Does not read or write the stream.

use bytes::BytesMut;
use tokio_util::codec::{Decoder, Encoder};

use super::error::WireError;
use super::frame::Frame;
use super::header::MessageHeader;

/// The buffer's free bytes before a message arrives. Then the buffer grows by as many bytes as were received,
/// because a header may announce more bytes than the peer sends.
const RESERVE_BYTES: usize = 8 * 1024;

/// A frame longer than this takes its buffer with it, and the connection starts a new one.
/// Otherwise a connection would keep the memory of its largest message.
const KEEP_BUFFER_BYTES: usize = 64 * 1024;

/// Frames over a byte stream, for `tokio_util`'s `FramedRead`, `FramedWrite` and `Framed`.
///
/// Reading frames through them is cancel safe: received bytes stay in their buffer.
#[derive(Clone, Debug)]
pub struct FrameCodec {
    max_message_bytes: usize,
    wrote_large_frame: bool,
}

impl FrameCodec {
    /// A codec that accepts messages of up to `max_message_bytes`, header included.
    #[must_use]
    pub fn new(max_message_bytes: usize) -> Self {
        Self {
            max_message_bytes,
            wrote_large_frame: false,
        }
    }
}

impl Decoder for FrameCodec {
    type Item = Frame;
    type Error = WireError;

    /// # Errors
    /// [`WireError::MessageLength`], as soon as the length has arrived. The stream cannot be used
    /// after it.
    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, WireError> {
        let Some(length) = MessageHeader::declared_length(buffer, self.max_message_bytes)? else {
            return Ok(None);
        };
        let missing = length.saturating_sub(buffer.len());
        if missing > 0 {
            buffer.reserve(missing.min(buffer.len().max(RESERVE_BYTES)));
            return Ok(None);
        }
        let bytes = buffer.split_to(length).freeze();
        if length > KEEP_BUFFER_BYTES {
            *buffer = BytesMut::from(buffer.as_ref());
        }
        Frame::from_bytes(bytes).map(Some)
    }

    /// # Errors
    /// [`WireError::UnexpectedEof`] if the stream ended inside a message, and those of
    /// [`FrameCodec::decode`].
    fn decode_eof(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, WireError> {
        match self.decode(buffer)? {
            None if !buffer.is_empty() => Err(WireError::UnexpectedEof { received: buffer.len() }),
            frame => Ok(frame),
        }
    }
}

impl Encoder<Frame> for FrameCodec {
    type Error = WireError;

    /// Copies the frame, whose length was checked when it was created.
    ///
    /// The buffer of a large frame is freed when the next frame is written, not before. So a
    /// connection that relays large frames and is then idle should write [`Frame::as_bytes`]
    /// itself.
    fn encode(&mut self, frame: Frame, buffer: &mut BytesMut) -> Result<(), WireError> {
        if self.wrote_large_frame && buffer.is_empty() {
            *buffer = BytesMut::new();
            self.wrote_large_frame = false;
        }
        self.wrote_large_frame |= frame.len() > KEEP_BUFFER_BYTES;
        buffer.extend_from_slice(frame.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
