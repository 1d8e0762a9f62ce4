//! The sixteen bytes before every message. Does not depend on the rest of the message.

use super::error::WireError;
use super::op_code::OpCode;
use super::reader::Reader;

/// The length of a message header, in bytes.
pub const HEADER_BYTES: usize = 16;

/// The header of a message. All numbers are little-endian on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHeader {
    /// The length of the whole message, in bytes, including the header.
    pub message_length: usize,
    /// The sender's number for this message. Neither unique nor increasing in general.
    pub request_id: i32,
    /// The `request_id` that this message answers; 0 in a request.
    pub response_to: i32,
    /// The kind of the message.
    pub op_code: OpCode,
}

impl MessageHeader {
    /// Reads the length of a message from its first four bytes. `None` if they have not arrived
    /// yet.
    ///
    /// # Errors
    /// [`WireError::MessageLength`] if the length is not between 16 and `max` bytes.
    pub(super) fn declared_length(bytes: &[u8], max: usize) -> Result<Option<usize>, WireError> {
        let Some(first) = bytes.first_chunk() else {
            return Ok(None);
        };
        let length = i32::from_le_bytes(*first);
        match usize::try_from(length) {
            Ok(declared) if (HEADER_BYTES..=max).contains(&declared) => Ok(Some(declared)),
            _ => Err(WireError::MessageLength { length, max }),
        }
    }

    /// Reads the header of a message that may have arrived only in part. `None` if the part is
    /// shorter than a header, or if the announced length is.
    #[must_use]
    pub fn of_beginning(beginning: &[u8]) -> Option<Self> {
        let message_length = Self::declared_length(beginning, usize::MAX).ok()??;
        let header: &[u8; HEADER_BYTES] = beginning.first_chunk()?;
        Self::parse_fields(message_length, header).ok()
    }

    /// Reads the header of one whole message.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there is no header, [`WireError::MessageLength`] if the length
    /// is invalid, and [`WireError::LengthMismatch`] if it is not that of `bytes`.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        const PART: &str = "header";
        let declared = Self::declared_length(bytes, usize::MAX)?.ok_or(WireError::Truncated { part: PART })?;
        if declared != bytes.len() {
            return Err(WireError::LengthMismatch {
                declared,
                found: bytes.len(),
            });
        }
        Self::parse_fields(declared, bytes)
    }

    fn parse_fields(message_length: usize, bytes: &[u8]) -> Result<Self, WireError> {
        const PART: &str = "header";
        let mut reader = Reader::new(bytes);
        reader.i32(PART)?;
        Ok(Self {
            message_length,
            request_id: reader.i32(PART)?,
            response_to: reader.i32(PART)?,
            op_code: OpCode::from(reader.i32(PART)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn op_codes_keep_their_numbers() {
        for number in [i32::MIN, -1, 0, 1, 2001, 2004, 2012, 2013, i32::MAX] {
            assert_eq!(i32::from(OpCode::from(number)), number);
        }
        assert_eq!(OpCode::from(2012), OpCode::Compressed);
        assert_eq!(OpCode::from(2001).to_string(), "op code 2001");
    }
}
