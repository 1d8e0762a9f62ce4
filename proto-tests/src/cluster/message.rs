//! Requests of clients and the frames of replies: `OP_MSG`, and `OP_QUERY` for old handshakes.

use anyhow::{Context as _, Result, bail, ensure};
use bson::{Bson, Document};

use crate::frame::{self, CHECKSUM_PRESENT, HEADER_LENGTH, MORE_TO_COME, OP_MSG, OP_QUERY, OP_REPLY, header_field};

/// Flag of an `OP_REPLY`: the server supports await data.
const AWAIT_CAPABLE: i32 = 8;

/// A request.
pub(super) struct Request {
    id: i32,
    op_code: i32,
    /// The command. Documents of sequences are in it, as arrays.
    pub(super) command: Document,
    /// No reply is wanted.
    pub(super) is_unacknowledged: bool,
}

impl Request {
    /// Parses a frame.
    pub(super) fn parse(frame: &[u8]) -> Result<Self> {
        let (id, op_code) = (header_field(frame, 1), header_field(frame, 3));
        match op_code {
            OP_MSG => Ok(Self {
                id,
                op_code,
                command: command(frame)?,
                is_unacknowledged: frame::flags(frame) & MORE_TO_COME != 0,
            }),
            OP_QUERY => Ok(Self {
                id,
                op_code,
                command: query(frame)?,
                is_unacknowledged: false,
            }),
            other => bail!("the model of a router does not read messages of kind {other}"),
        }
    }

    /// The frame of the reply.
    pub(super) fn reply(&self, reply: &Document) -> Result<Vec<u8>> {
        let mut frame = if self.op_code == OP_MSG {
            frame::command(self.id, 0, reply)?
        } else {
            let mut payload = AWAIT_CAPABLE.to_le_bytes().to_vec();
            payload.extend(0_i64.to_le_bytes());
            payload.extend(0_i32.to_le_bytes());
            payload.extend(1_i32.to_le_bytes());
            payload.extend(reply.to_vec()?);
            frame::of(OP_REPLY, self.id, &payload)
        };
        let response_to = frame.get_mut(8..12).context("a short frame")?;
        response_to.copy_from_slice(&self.id.to_le_bytes());
        Ok(frame)
    }
}

/// The command of an `OP_MSG`.
fn command(frame: &[u8]) -> Result<Document> {
    ensure!(frame.len() > HEADER_LENGTH + 4, "an OP_MSG of {} bytes", frame.len());
    let end = match frame::flags(frame) & CHECKSUM_PRESENT {
        0 => frame.len(),
        _ => frame.len() - 4,
    };
    let mut rest = frame.get(HEADER_LENGTH + 4..end).context("a short OP_MSG")?;
    let mut command = Document::new();
    let mut sequences = Document::new();
    while let Some((kind, section)) = rest.split_first() {
        rest = section;
        match kind {
            0 => command = Document::from_reader(&mut rest)?,
            1 => {
                let length = usize::try_from(i32::from_le_bytes(first_four(rest)?))?;
                let sequence = rest.get(4..length).context("a short sequence")?;
                let zero = sequence.iter().position(|byte| *byte == 0).context("no name")?;
                let (name, mut documents) = sequence.split_at(zero);
                documents = documents.get(1..).unwrap_or_default();
                let mut values = Vec::new();
                while !documents.is_empty() {
                    values.push(Bson::Document(Document::from_reader(&mut documents)?));
                }
                sequences.insert(std::str::from_utf8(name)?, values);
                rest = rest.get(length..).unwrap_or_default();
            }
            other => bail!("a section of kind {other}"),
        }
    }
    command.extend(sequences);
    Ok(command)
}

/// The command of an `OP_QUERY`.
fn query(frame: &[u8]) -> Result<Document> {
    let rest = frame.get(HEADER_LENGTH + 4..).context("a short OP_QUERY")?;
    let zero = rest.iter().position(|byte| *byte == 0).context("no namespace")?;
    let (namespace, rest) = rest.split_at(zero);
    let mut document = rest.get(1 + 8..).context("a short OP_QUERY")?;
    let mut command = Document::from_reader(&mut document)?;
    let database = std::str::from_utf8(namespace)?.split('.').next().unwrap_or_default();
    command.insert("$db", database);
    Ok(command)
}

fn first_four(bytes: &[u8]) -> Result<[u8; 4]> {
    Ok(bytes.get(..4).context("a short section")?.try_into()?)
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn sequences_become_arrays() {
        let sections = [
            frame::body_section(&doc! { "insert": "c", "$db": "d" }).unwrap(),
            frame::sequence_section("documents", &[doc! { "_id": 1 }, doc! { "_id": 2 }]).unwrap(),
        ];
        let frame = frame::with_checksum(&frame::message(7, 0, &sections));
        let request = Request::parse(&frame).unwrap();
        let expected = doc! { "insert": "c", "$db": "d", "documents": [{ "_id": 1 }, { "_id": 2 }] };
        assert_eq!(request.command, expected);
        let reply = request.reply(&doc! { "ok": 1 }).unwrap();
        assert_eq!(header_field(&reply, 2), 7);
    }

    #[test]
    fn query_is_parsed() {
        let frame = frame::query(3, "admin", &doc! { "isMaster": 1 }).unwrap();
        let request = Request::parse(&frame).unwrap();
        assert_eq!(request.command, doc! { "isMaster": 1, "$db": "admin" });
        let reply = request.reply(&doc! { "ok": 1 }).unwrap();
        assert_eq!(frame::reply_document(&reply).unwrap(), doc! { "ok": 1 });
    }
}
