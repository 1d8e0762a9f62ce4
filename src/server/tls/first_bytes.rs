//! Detects a peer's protocol by its first bytes. Pure.

use crate::wire::limits::MAX_MESSAGE_BYTES;
use crate::wire::{HEADER_BYTES, OpCode};

/// Offset of the op code in a message header, in bytes.
const OP_CODE_OFFSET: usize = 12;

/// Op codes of a client's first message. A reply is never the first.
const OPENING_OP_CODES: [OpCode; 3] = [OpCode::Msg, OpCode::Query, OpCode::Compressed];

/// The protocol of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SniffedProtocol {
    /// TLS: a handshake record.
    Tls,
    /// The wire protocol without TLS.
    Mongo,
    /// Another protocol, or too few bytes.
    Unknown,
}

/// Detects the protocol by the first bytes. [`HEADER_BYTES`] are always enough, four usually.
///
/// A TLS handshake begins with a record of type 22, version 3.1 to 3.4 (RFC 8446, section 5.1). As the
/// first three bytes of a message's length, these would mean 66 kB and more, while a client's first
/// message is shorter than 1 kB. So the peer is assumed to speak TLS unless the op code is that of a
/// message.
#[must_use]
pub fn first_bytes(bytes: &[u8]) -> SniffedProtocol {
    let is_opening = could_be_message(bytes);
    match bytes {
        _ if is_opening && bytes.len() >= HEADER_BYTES => SniffedProtocol::Mongo,
        [0x16, 0x03] | [0x16, 0x03, 1..=4, ..] => SniffedProtocol::Tls,
        _ if is_opening => SniffedProtocol::Mongo,
        _ => SniffedProtocol::Unknown,
    }
}

/// Whether the bytes have the length of a valid message, and the op code, as far as received, of a
/// client's first message.
fn could_be_message(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return false;
    };
    let length = usize::try_from(i32::from_le_bytes(*length));
    let op_code = rest.get(OP_CODE_OFFSET - size_of::<i32>()..).unwrap_or_default();
    length.is_ok_and(|length| (HEADER_BYTES..=MAX_MESSAGE_BYTES).contains(&length))
        && OPENING_OP_CODES.into_iter().any(|known| {
            let known = i32::from(known).to_le_bytes();
            known.iter().zip(op_code).all(|(one, other)| one == other)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(length: i32, op_code: i32) -> Vec<u8> {
        [length, 7, 0, op_code].map(i32::to_le_bytes).concat()
    }

    #[test]
    fn every_beginning_of_a_client_hello_is_tls_from_its_second_byte() {
        // A `ClientHello` of OpenSSL for TLS 1.3: record, handshake, version, random.
        let hello = [
            0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03, 0x8f, 0x3a, 0x11, 0x90, 0x5c, 0x44,
        ];
        assert_eq!(first_bytes(&hello[..1]), SniffedProtocol::Unknown);
        for length in 2..=hello.len() {
            assert_eq!(first_bytes(&hello[..length]), SniffedProtocol::Tls, "{length} bytes");
        }
        // A short record, whose first bytes are also a valid length of a message.
        assert_eq!(first_bytes(&[0x16, 0x03, 0x03, 0x00, 0xc8, 0x01]), SniffedProtocol::Tls);
    }

    #[test]
    fn every_beginning_of_a_message_is_mongo_from_its_fourth_byte() {
        for op_code in [2013, 2004, 2012] {
            // The bytes of 790 begin like a TLS record.
            for length in [16, 333, 790, 48_000_000] {
                let message = [header(length, op_code), vec![0; 5]].concat();
                for there in 4..=message.len() {
                    let spoken = first_bytes(&message[..there]);
                    assert_eq!(spoken, SniffedProtocol::Mongo, "{length}, {op_code}: {there} bytes");
                }
            }
        }
        // Only the op code distinguishes this length from a record of TLS 1.0.
        assert_eq!(first_bytes(&header(0x0101_0316, 2013)), SniffedProtocol::Mongo);
        assert_eq!(first_bytes(&header(0x0101_0316, 2013)[..15]), SniffedProtocol::Tls);
    }

    #[test]
    fn other_first_bytes_are_unknown() {
        let check = |bytes: &[u8]| assert_eq!(first_bytes(bytes), SniffedProtocol::Unknown, "{bytes:02x?}");
        check(b"");
        check(b"\x16");
        check(b"\x4d\x01\x00");
        check(b"GET / HTTP/1.1\r\n\r\n");
        check(b"SSH-2.0-OpenSSH_9.2\r\n");
        check(b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n");
        check(b"\0\0\0\0\0\0\0\0");
        check(&[0xff; 16]);
        check(&header(15, 2013));
        check(&header(48_000_001, 2013));
        check(&header(-1, 2013));
        check(&header(100, 1));
        check(&header(100, 2001));
        check(&header(100, 2001)[..13]);
    }
}
