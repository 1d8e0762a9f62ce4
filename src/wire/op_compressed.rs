//! `OP_COMPRESSED`: another message, compressed. Accepts every compressor; the session checks the negotiated
//! ones.
//!
//! A message is inflated only as far as it must be read. [`OpCompressed::inflate_head`] returns its
//! beginning, which [`OpMsgHead`](super::OpMsgHead) reads. A message that touches no shaped
//! collection is then relayed as the compressed frame it came in. Only a message that must be
//! parsed is inflated by [`OpCompressed::inflate`].

mod compress;
mod inflate;

pub(crate) use self::compress::compress;
use super::compressor::Compressor;

use bytes::Bytes;

use super::error::WireError;
use super::frame::Frame;
use super::header::HEADER_BYTES;
use super::limits::MAX_MESSAGE_BYTES;
use super::op_code::OpCode;
use super::reader::Reader;

/// A view of one `OP_COMPRESSED`.
///
/// Invariants: the original message is not itself compressed. Its length, header included, is
/// within the limit that the view was parsed with, and not more than `compressed` can expand to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpCompressed<'a> {
    /// The ids in the header, which are those of the original message.
    request_id: i32,
    response_to: i32,
    /// The kind of the original message.
    pub original_op_code: OpCode,
    /// The announced length of the original message's payload, in bytes, without its header.
    pub uncompressed_bytes: usize,
    /// The compressor of the payload.
    pub compressor: Compressor,
    /// The compressed payload. Not checked.
    pub compressed: &'a [u8],
}

/// The result of [`OpCompressed::inflate_head`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inflated {
    /// The whole original message, checked as by [`OpCompressed::inflate`].
    Whole(Frame),
    /// The beginning of the original message's payload. The rest is neither read nor checked.
    Head(Bytes),
}

impl<'a> OpCompressed<'a> {
    /// Reads a message whose original may have up to `max_message_bytes`, header included. Inflates
    /// nothing.
    ///
    /// # Errors
    /// [`WireError::WrongOpCode`], [`WireError::Truncated`], [`WireError::NestedCompression`],
    /// [`WireError::UnknownCompressor`]; [`WireError::UncompressedSize`] if the announced size is
    /// over the limit, and [`WireError::ImplausibleSize`] if the data cannot expand to it.
    pub fn parse(frame: &'a Frame, max_message_bytes: usize) -> Result<Self, WireError> {
        let mut reader = Reader::new(frame.payload_of(OpCode::Compressed)?);
        let original_op_code = OpCode::from(reader.i32("original op code")?);
        if original_op_code == OpCode::Compressed {
            return Err(WireError::NestedCompression);
        }
        let size = reader.i32("uncompressed size")?;
        let max = max_message_bytes.saturating_sub(HEADER_BYTES);
        let uncompressed_bytes = usize::try_from(size)
            .ok()
            .filter(|&size| size <= max)
            .ok_or(WireError::UncompressedSize { size, max })?;
        let id = reader.u8("compressor")?;
        let compressor = Compressor::from_id(id).ok_or(WireError::UnknownCompressor { id })?;
        let compressed = reader.into_rest();
        if uncompressed_bytes > compressor.most_expanded(compressed.len()) {
            return Err(WireError::ImplausibleSize {
                compressor,
                declared: uncompressed_bytes,
                compressed: compressed.len(),
            });
        }
        let header = frame.header();
        Ok(Self {
            request_id: header.request_id,
            response_to: header.response_to,
            original_op_code,
            uncompressed_bytes,
            compressor,
            compressed,
        })
    }

    /// The uncompressed size that the beginning of a payload announces. Not checked. 0 if it has
    /// not arrived yet.
    #[must_use]
    pub fn declared_bytes(beginning: &[u8]) -> usize {
        let mut reader = Reader::new(beginning);
        let size = reader
            .i32("original op code")
            .and_then(|_| reader.i32("uncompressed size"));
        size.ok()
            .and_then(|size| usize::try_from(size).ok())
            .unwrap_or_default()
    }

    /// The original message: with the same ids, and its own op code and length in the header. Its
    /// checksum stays valid.
    ///
    /// Allocates as the output grows, not much more than the announced size. The work is
    /// proportional to the output and is done in this call. For a large message it blocks the
    /// thread for long.
    ///
    /// # Errors
    /// [`WireError::MalformedCompression`] if the data are malformed, expand to more or fewer bytes
    /// than announced, or are followed by other data.
    pub fn inflate(&self) -> Result<Frame, WireError> {
        let length = HEADER_BYTES.saturating_add(self.uncompressed_bytes);
        let mut bytes = Vec::new();
        put_header(
            &mut bytes,
            length,
            self.request_id,
            self.response_to,
            self.original_op_code,
        )?;
        inflate::inflate(self.compressor, self.compressed, self.uncompressed_bytes, &mut bytes)
            .map_err(|inflate::Malformed| self.malformed())?;
        Frame::from_bytes(bytes.into())
    }

    /// At least the first `count` bytes of the original message's payload. Exactly these if the
    /// payload has more and the rest need not be inflated, otherwise the whole message.
    ///
    /// zlib and zstd can stop early. Snappy inflates faster than its data arrive, so it is always
    /// read whole. So is a zstd stream with a window so large that keeping it would take more
    /// memory than the message.
    ///
    /// # Errors
    /// Those of [`OpCompressed::inflate`], as far as the data were read.
    pub fn inflate_head(&self, count: usize) -> Result<Inflated, WireError> {
        if count < self.uncompressed_bytes
            && let Some(head) = inflate::inflate_head(self.compressor, self.compressed, self.uncompressed_bytes, count)
        {
            return Ok(Inflated::Head(head.into()));
        }
        self.inflate().map(Inflated::Whole)
    }

    /// Compresses a message. [`OpCompressed::inflate`] restores it byte for byte. The new message
    /// has the same ids.
    ///
    /// A checksum stays in the message and is that of the original: mongod 6.0.5, too, computes it
    /// before it compresses, and verifies it after it has inflated. The work is as with
    /// [`OpCompressed::inflate`], and several times as much with zlib.
    ///
    /// # Errors
    /// [`WireError::NestedCompression`] if the message is compressed already.
    /// [`WireError::TooLong`] if the compressed message is over the limit, because the original is
    /// near the limit and does not get shorter. It can then be sent uncompressed.
    pub fn compress(frame: &Frame, compressor: Compressor) -> Result<Frame, WireError> {
        let header = frame.header();
        if header.op_code == OpCode::Compressed {
            return Err(WireError::NestedCompression);
        }
        let mut bytes = Vec::new();
        put_header(&mut bytes, 0, header.request_id, header.response_to, OpCode::Compressed)?;
        bytes.extend(i32::from(header.op_code).to_le_bytes());
        bytes.extend(length_number(frame.payload().len())?.to_le_bytes());
        bytes.push(compressor.id());
        compress(compressor, frame.payload(), &mut bytes)?;
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(WireError::TooLong { max: MAX_MESSAGE_BYTES });
        }
        let length = length_number(bytes.len())?;
        if let Some(place) = bytes.first_chunk_mut() {
            *place = length.to_le_bytes();
        }
        // Frees the memory that was reserved for incompressible input.
        bytes.shrink_to_fit();
        Frame::from_bytes(bytes.into())
    }

    fn malformed(&self) -> WireError {
        WireError::MalformedCompression {
            compressor: self.compressor,
            declared: self.uncompressed_bytes,
        }
    }
}

/// Appends `count` zero bytes and returns them. New memory comes from the system as zeros, so none
/// are written.
fn append_zeros(bytes: &mut Vec<u8>, count: usize) -> &mut [u8] {
    let start = bytes.len();
    let mut whole = vec![0; start.saturating_add(count)];
    if let Some(place) = whole.get_mut(..start) {
        place.copy_from_slice(bytes);
    }
    *bytes = whole;
    bytes.get_mut(start..).unwrap_or_default()
}

fn put_header(
    bytes: &mut Vec<u8>,
    length: usize,
    request_id: i32,
    response_to: i32,
    op_code: OpCode,
) -> Result<(), WireError> {
    for number in [length_number(length)?, request_id, response_to, op_code.into()] {
        bytes.extend(number.to_le_bytes());
    }
    Ok(())
}

fn length_number(length: usize) -> Result<i32, WireError> {
    i32::try_from(length).map_err(|_| WireError::TooLong { max: MAX_MESSAGE_BYTES })
}

#[cfg(test)]
mod tests;
