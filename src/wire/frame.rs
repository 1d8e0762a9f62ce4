//! One whole message as the bytes it came in. Does not read beyond the header.

use bytes::Bytes;

use super::error::WireError;
use super::header::{HEADER_BYTES, MessageHeader};
use super::op_code::OpCode;

/// One whole message. Cheap to clone: clones share the bytes.
///
/// Invariant: the number of bytes is the length in the header, and at least that of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    bytes: Bytes,
    header: MessageHeader,
}

impl Frame {
    /// Creates a frame from the bytes of one whole message.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::MessageLength`] or [`WireError::LengthMismatch`] if
    /// the bytes are not one whole message.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, WireError> {
        let header = MessageHeader::parse(&bytes)?;
        Ok(Self { bytes, header })
    }

    /// The header, as it is in the bytes.
    #[must_use]
    pub fn header(&self) -> MessageHeader {
        self.header
    }

    /// The bytes after the header.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.bytes.get(HEADER_BYTES..).unwrap_or_default()
    }

    /// The bytes after the header, of a message that must have the op code `expected`.
    pub(super) fn payload_of(&self, expected: OpCode) -> Result<&[u8], WireError> {
        let found = self.header.op_code;
        if found == expected {
            Ok(self.payload())
        } else {
            Err(WireError::WrongOpCode { expected, found })
        }
    }

    /// All bytes, header first.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// All bytes, header first.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The length in bytes, header included.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a frame holds at least a header")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: i32, size: usize) -> Bytes {
        let mut bytes = length.to_le_bytes().to_vec();
        for number in [7, 8, 2013_i32] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.resize(size, 0xaa);
        bytes.into()
    }

    #[test]
    fn takes_exactly_one_message() {
        let frame = Frame::from_bytes(message(18, 18)).unwrap();
        let expected = MessageHeader {
            message_length: 18,
            request_id: 7,
            response_to: 8,
            op_code: OpCode::Msg,
        };
        assert_eq!(frame.header(), expected);
        assert_eq!(frame.payload(), [0xaa, 0xaa]);
        assert_eq!(frame.len(), 18);
        assert_eq!(Frame::from_bytes(message(16, 16)).unwrap().payload(), b"");
    }

    #[test]
    fn refuses_more_or_less_than_one_message() {
        for (length, size) in [(16, 17), (17, 16), (i32::MAX, 16), (16, 4), (16, 15)] {
            let error = Frame::from_bytes(message(length, size)).unwrap_err();
            assert!(
                matches!(error, WireError::LengthMismatch { .. }),
                "{length} {size}: {error}"
            );
        }
        for length in [0, -1, 15, i32::MIN] {
            let error = Frame::from_bytes(message(length, 16)).unwrap_err();
            assert!(matches!(error, WireError::MessageLength { .. }), "{length}: {error}");
        }
        for size in 0..4 {
            let error = Frame::from_bytes(message(16, size)).unwrap_err();
            assert!(
                matches!(error, WireError::Truncated { part: "header" }),
                "{size}: {error}"
            );
        }
    }
}
