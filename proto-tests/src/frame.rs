//! Reads frames, and builds valid and invalid ones byte by byte, for [`raw`](crate::raw). No driver sends the invalid ones.

use std::io::{self, Read};

use anyhow::Result;
use bson::Document;

/// The kind of the legacy handshake's reply.
pub const OP_REPLY: i32 = 1;
/// The kind of the legacy handshake.
pub const OP_QUERY: i32 = 2004;
/// The kind of a compressed message.
pub const OP_COMPRESSED: i32 = 2012;
/// The kind of everything else.
pub const OP_MSG: i32 = 2013;

/// Flag bit: the message ends with a CRC-32C.
pub const CHECKSUM_PRESENT: u32 = 1;
/// Flag bit: no reply is wanted, or another reply follows.
pub const MORE_TO_COME: u32 = 1 << 1;
/// Flag bit: several replies may come.
pub const EXHAUST_ALLOWED: u32 = 1 << 16;

/// The header's length in bytes.
pub const HEADER_LENGTH: usize = 16;

/// A frame of any kind.
#[must_use]
pub fn of(op_code: i32, request_id: i32, payload: &[u8]) -> Vec<u8> {
    announcing(length(HEADER_LENGTH + payload.len()), op_code, request_id, payload)
}

/// A frame whose header declares this length, right or wrong.
#[must_use]
pub fn announcing(length: i32, op_code: i32, request_id: i32, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER_LENGTH + payload.len());
    for field in [length, request_id, 0, op_code] {
        frame.extend_from_slice(&field.to_le_bytes());
    }
    frame.extend_from_slice(payload);
    frame
}

/// An `OP_MSG` of these sections, each with its kind byte.
#[must_use]
pub fn message(request_id: i32, flags: u32, sections: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = flags.to_le_bytes().to_vec();
    payload.extend(sections.concat());
    of(OP_MSG, request_id, &payload)
}

/// An `OP_MSG` of one body.
pub fn command(request_id: i32, flags: u32, body: &Document) -> Result<Vec<u8>> {
    Ok(message(request_id, flags, &[body_section(body)?]))
}

/// A section of kind 0.
pub fn body_section(body: &Document) -> Result<Vec<u8>> {
    Ok([vec![0], body.to_vec()?].concat())
}

/// A section of kind 1.
pub fn sequence_section(identifier: &str, documents: &[Document]) -> Result<Vec<u8>> {
    let mut contents = identifier.as_bytes().to_vec();
    contents.push(0);
    for document in documents {
        contents.extend(document.to_vec()?);
    }
    let size = length(4 + contents.len()).to_le_bytes();
    Ok([vec![1], size.to_vec(), contents].concat())
}

/// An `OP_QUERY` on a database's `$cmd`.
pub fn query(request_id: i32, database: &str, body: &Document) -> Result<Vec<u8>> {
    let mut payload = vec![0; 4];
    payload.extend(format!("{database}.$cmd").as_bytes());
    payload.push(0);
    payload.extend(0_i32.to_le_bytes());
    payload.extend((-1_i32).to_le_bytes());
    payload.extend(body.to_vec()?);
    Ok(of(OP_QUERY, request_id, &payload))
}

/// The document of an `OP_REPLY` that carries one.
pub fn reply_document(frame: &[u8]) -> Result<Document> {
    let documents = frame.get(HEADER_LENGTH + 20..).unwrap_or_default();
    Ok(Document::from_reader(documents)?)
}

/// The same `OP_MSG` with its checksum.
#[must_use]
pub fn with_checksum(frame: &[u8]) -> Vec<u8> {
    let mut summed = frame.to_vec();
    summed[..4].copy_from_slice(&length(frame.len() + 4).to_le_bytes());
    let flags = flags(frame) | CHECKSUM_PRESENT;
    summed[HEADER_LENGTH..HEADER_LENGTH + 4].copy_from_slice(&flags.to_le_bytes());
    let checksum = crc32c(&summed);
    summed.extend(checksum.to_le_bytes());
    summed
}

/// The flags of an `OP_MSG`.
#[must_use]
pub fn flags(frame: &[u8]) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|byte| frame[HEADER_LENGTH + byte]))
}

/// Reads one frame.
pub fn read(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; HEADER_LENGTH];
    stream.read_exact(&mut frame)?;
    let length = usize::try_from(header_field(&frame, 0)).unwrap_or_default();
    frame.resize(length.max(HEADER_LENGTH), 0);
    stream.read_exact(frame.split_at_mut(HEADER_LENGTH).1)?;
    Ok(frame)
}

/// The header's field at this position: 0 is the length, 1 the request id, 2 the id it responds to, 3 the
/// kind.
#[must_use]
pub fn header_field(frame: &[u8], position: usize) -> i32 {
    i32::from_le_bytes(std::array::from_fn(|byte| frame[4 * position + byte]))
}

/// Computed bit by bit: the proxy uses a crate, and the tested code must not check itself.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| (sum >> 1) ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
    let byte = |sum: u32, byte: &u8| (0..8).fold(sum ^ u32::from(*byte), step);
    !bytes.iter().fold(!0, byte)
}

fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).expect("no message is that long")
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn checksum_is_crc32c() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
