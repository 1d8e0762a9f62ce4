//! Writes an `OP_MSG`. Does not interpret the command in the body.

use bson::RawDocument;

use super::flags::OpMsgFlags;
use super::{BODY_KIND, SEQUENCE_KIND};
use crate::wire::{
    Frame, OpCode, WireError,
    checksum::{self, CHECKSUM_BYTES},
    header::HEADER_BYTES,
    limits::{MAX_DOCUMENT_SEQUENCES, MAX_MESSAGE_BYTES},
    writer::FrameWriter,
};

/// An `OP_MSG` that is being written. Its sections are in the order in which they are added.
///
/// After the first mistake nothing more is copied, and [`OpMsgBuilder::build`] returns the mistake.
#[derive(Debug)]
#[must_use]
pub struct OpMsgBuilder {
    flags: OpMsgFlags,
    has_body: bool,
    identifiers: Vec<String>,
    writer: Result<FrameWriter, WireError>,
}

impl OpMsgBuilder {
    /// A message without flags or sections.
    pub fn new(request_id: i32, response_to: i32) -> Self {
        let mut writer = FrameWriter::new(request_id, response_to, OpCode::Msg);
        // Placeholder for the flags, which are known at the end.
        let writer = writer.put_u32(0).map(|()| writer);
        Self {
            flags: OpMsgFlags::empty(),
            has_body: false,
            identifiers: Vec::new(),
            writer,
        }
    }

    /// The bytes before the body in a message with only a body. With them a long body can be sent
    /// without copying it.
    ///
    /// # Errors
    /// [`WireError::TooLong`].
    pub fn before_body(request_id: i32, response_to: i32, body: &RawDocument) -> Result<Vec<u8>, WireError> {
        let mut writer = FrameWriter::new(request_id, response_to, OpCode::Msg);
        writer.put_u32(OpMsgFlags::empty().bits())?;
        writer.put(&[BODY_KIND])?;
        let bytes = body.as_bytes().len();
        if writer.len().saturating_add(bytes) > MAX_MESSAGE_BYTES {
            return Err(WireError::TooLong { max: MAX_MESSAGE_BYTES });
        }
        writer.set_message_length(bytes)?;
        Ok(writer.written().to_vec())
    }

    /// Sets all flags. With [`OpMsgFlags::CHECKSUM_PRESENT`] the checksum is computed.
    pub fn flags(mut self, flags: OpMsgFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Adds the body. A message has exactly one.
    pub fn body(mut self, body: &RawDocument) -> Self {
        let is_second = std::mem::replace(&mut self.has_body, true);
        self.write(|writer| {
            if is_second {
                return Err(WireError::DuplicateBody);
            }
            writer.put(&[BODY_KIND])?;
            writer.put_document(body)
        })
    }

    /// Adds a document sequence. Its identifier must not be a field of the body, which is not checked here.
    pub fn sequence<'d>(mut self, identifier: &str, documents: impl IntoIterator<Item = &'d RawDocument>) -> Self {
        let is_duplicate = self.identifiers.iter().any(|other| other == identifier);
        let is_one_too_many = self.identifiers.len() >= MAX_DOCUMENT_SEQUENCES;
        self.identifiers.push(identifier.to_owned());
        self.write(|writer| {
            if is_duplicate {
                return Err(WireError::DuplicateSequence);
            }
            if is_one_too_many {
                return Err(WireError::TooManySequences);
            }
            put_sequence(writer, identifier, documents)
        })
    }

    /// Ends the message.
    ///
    /// # Errors
    /// [`WireError::TooLong`] if it is over
    /// [`MAX_MESSAGE_BYTES`](crate::wire::limits::MAX_MESSAGE_BYTES); [`WireError::MissingBody`],
    /// [`WireError::DuplicateBody`], [`WireError::DuplicateSequence`],
    /// [`WireError::TooManySequences`], [`WireError::UnknownFlags`], [`WireError::ZeroByteInName`].
    pub fn build(self) -> Result<Frame, WireError> {
        let mut writer = self.writer?;
        if !self.has_body {
            return Err(WireError::MissingBody);
        }
        self.flags.check_required()?;
        writer.set_u32(HEADER_BYTES, self.flags.bits())?;
        if self.flags.contains(OpMsgFlags::CHECKSUM_PRESENT) {
            // The checksum covers the final length, which includes the checksum's own four bytes.
            writer.set_message_length(CHECKSUM_BYTES)?;
            writer.put_u32(checksum::compute(writer.written()))?;
        }
        writer.finish()
    }

    fn write(mut self, part: impl FnOnce(&mut FrameWriter) -> Result<(), WireError>) -> Self {
        self.writer = self.writer.and_then(|mut writer| part(&mut writer).map(|()| writer));
        self
    }
}

fn put_sequence<'d>(
    writer: &mut FrameWriter,
    identifier: &str,
    documents: impl IntoIterator<Item = &'d RawDocument>,
) -> Result<(), WireError> {
    writer.put(&[SEQUENCE_KIND])?;
    let start = writer.len();
    writer.put_i32(0)?;
    writer.put_c_string(identifier, "document sequence's identifier")?;
    for document in documents {
        writer.put_document(document)?;
    }
    writer.set_length(start, writer.len().saturating_sub(start))
}
