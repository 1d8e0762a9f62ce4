//! Writes the parts of a message from front to back, never over the limit. Does not interpret the parts.

use bson::RawDocument;
use bytes::{BufMut, BytesMut};

use super::error::WireError;
use super::frame::Frame;
use super::limits::MAX_MESSAGE_BYTES;
use super::op_code::OpCode;

/// A message that is being written. Its length is filled in at the end.
#[derive(Debug)]
pub(super) struct FrameWriter {
    bytes: BytesMut,
}

impl FrameWriter {
    /// Starts a message with its header.
    pub(super) fn new(request_id: i32, response_to: i32, op_code: OpCode) -> Self {
        let mut bytes = BytesMut::with_capacity(512);
        for number in [0, request_id, response_to, op_code.into()] {
            bytes.put_i32_le(number);
        }
        Self { bytes }
    }

    /// The length so far, in bytes, header included.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Everything so far, header included.
    pub(super) fn written(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// [`WireError::TooLong`], and nothing is added, if the message would be over
    /// [`MAX_MESSAGE_BYTES`].
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        if self.len().saturating_add(bytes.len()) > MAX_MESSAGE_BYTES {
            return Err(WireError::TooLong { max: MAX_MESSAGE_BYTES });
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    pub(super) fn put_u32(&mut self, number: u32) -> Result<(), WireError> {
        self.put(&number.to_le_bytes())
    }

    pub(super) fn put_i32(&mut self, number: i32) -> Result<(), WireError> {
        self.put(&number.to_le_bytes())
    }

    /// Adds a length or count. Every length within a message fits into 32 bits.
    pub(super) fn put_length(&mut self, length: usize) -> Result<(), WireError> {
        self.put_i32(i32::try_from(length).map_err(|_| WireError::TooLong { max: MAX_MESSAGE_BYTES })?)
    }

    pub(super) fn put_i64(&mut self, number: i64) -> Result<(), WireError> {
        self.put(&number.to_le_bytes())
    }

    pub(super) fn put_document(&mut self, document: &RawDocument) -> Result<(), WireError> {
        self.put(document.as_bytes())
    }

    /// Adds a name and its terminating zero byte. `part` names it in an error message.
    pub(super) fn put_c_string(&mut self, name: &str, part: &'static str) -> Result<(), WireError> {
        if name.as_bytes().contains(&0) {
            return Err(WireError::ZeroByteInName { part });
        }
        self.put(name.as_bytes())?;
        self.put(&[0])
    }

    /// Replaces the placeholder at `offset` by a number.
    pub(super) fn set_u32(&mut self, offset: usize, number: u32) -> Result<(), WireError> {
        let place = self.bytes.get_mut(offset..).and_then(<[u8]>::first_chunk_mut);
        // Callers pass the offset of a number that they wrote.
        *place.ok_or(WireError::Truncated { part: "number" })? = number.to_le_bytes();
        Ok(())
    }

    /// Replaces the number at `offset` by a length in bytes.
    pub(super) fn set_length(&mut self, offset: usize, length: usize) -> Result<(), WireError> {
        // No longer message was accepted, so every length fits.
        let number = u32::try_from(length).map_err(|_| WireError::TooLong { max: MAX_MESSAGE_BYTES })?;
        self.set_u32(offset, number)
    }

    /// Fills in the message's length. `more` bytes will be added later.
    pub(super) fn set_message_length(&mut self, more: usize) -> Result<(), WireError> {
        self.set_length(0, self.len().saturating_add(more))
    }

    /// Ends the message.
    pub(super) fn finish(mut self) -> Result<Frame, WireError> {
        self.set_message_length(0)?;
        Frame::from_bytes(self.bytes.freeze())
    }
}
