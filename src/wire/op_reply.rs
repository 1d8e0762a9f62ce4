//! `OP_REPLY`: the reply to `OP_QUERY`. Independent of the request.

use bson::RawDocument;

use super::error::WireError;
use super::frame::Frame;
use super::op_code::OpCode;
use super::reader::Reader;
use super::writer::FrameWriter;

/// A view of one `OP_REPLY`.
#[derive(Clone, Debug, PartialEq)]
pub struct OpReply<'a> {
    /// Legacy flags; mongod sets 8 (`AwaitCapable`), and 2 (`QueryFailure`) on an error.
    pub response_flags: i32,
    /// The cursor; 0 after a command.
    pub cursor_id: i64,
    /// The position of the first document in the cursor; 0 after a command.
    pub starting_from: i32,
    /// The documents; one after a command. Only their lengths and terminators are checked.
    pub documents: Vec<&'a RawDocument>,
}

impl<'a> OpReply<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// [`WireError::WrongOpCode`], [`WireError::Truncated`], [`WireError::DocumentLength`],
    /// [`WireError::MalformedDocument`], and [`WireError::DocumentCount`] if the announced number
    /// of documents is wrong.
    pub fn parse(frame: &'a Frame) -> Result<Self, WireError> {
        let mut reader = Reader::new(frame.payload_of(OpCode::Reply)?);
        let response_flags = reader.i32("flags")?;
        let cursor_id = reader.i64("cursor id")?;
        let starting_from = reader.i32("starting point")?;
        let declared = reader.i32("number of documents")?;
        // Not sized by the announced number, which the sender controls.
        let mut documents = Vec::new();
        while !reader.is_empty() {
            documents.push(reader.document()?);
        }
        if usize::try_from(declared).ok() != Some(documents.len()) {
            return Err(WireError::DocumentCount { declared });
        }
        Ok(Self {
            response_flags,
            cursor_id,
            starting_from,
            documents,
        })
    }

    /// Writes a message.
    ///
    /// # Errors
    /// [`WireError::TooLong`].
    pub fn encode(&self, request_id: i32, response_to: i32) -> Result<Frame, WireError> {
        let mut writer = FrameWriter::new(request_id, response_to, OpCode::Reply);
        writer.put_i32(self.response_flags)?;
        writer.put_i64(self.cursor_id)?;
        writer.put_i32(self.starting_from)?;
        writer.put_length(self.documents.len())?;
        for document in &self.documents {
            writer.put_document(document)?;
        }
        writer.finish()
    }
}
