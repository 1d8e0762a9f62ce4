//! `OP_QUERY`: the legacy request with which some drivers still open a connection. Does not interpret the
//! query.

use bson::RawDocument;

use super::error::WireError;
use super::frame::Frame;
use super::op_code::OpCode;
use super::reader::Reader;
use super::writer::FrameWriter;

const COLLECTION_PART: &str = "collection name";

/// A view of one `OP_QUERY`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpQuery<'a> {
    /// Legacy flags; not those of `OP_MSG`.
    pub flags: i32,
    /// `database.collection`; a command goes to the collection `$cmd`.
    pub full_collection_name: &'a str,
    /// The number of documents to skip; 0 for a command.
    pub number_to_skip: i32,
    /// The number of documents to return; 1 or -1 for a command.
    pub number_to_return: i32,
    /// The query or command, perhaps wrapped in `$query`. Only its length and terminator are
    /// checked.
    pub query: &'a RawDocument,
    /// The projection, if there is one.
    pub return_fields: Option<&'a RawDocument>,
}

impl<'a> OpQuery<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// [`WireError::WrongOpCode`], [`WireError::Truncated`], [`WireError::NotUtf8`],
    /// [`WireError::DocumentLength`], [`WireError::MalformedDocument`], [`WireError::TrailingBytes`].
    pub fn parse(frame: &'a Frame) -> Result<Self, WireError> {
        let mut reader = Reader::new(frame.payload_of(OpCode::Query)?);
        let query = Self {
            flags: reader.i32("flags")?,
            full_collection_name: reader.c_string(COLLECTION_PART)?,
            number_to_skip: reader.i32("number to skip")?,
            number_to_return: reader.i32("number to return")?,
            query: reader.document()?,
            return_fields: if reader.is_empty() {
                None
            } else {
                Some(reader.document()?)
            },
        };
        reader.finish()?;
        Ok(query)
    }

    /// Writes a message.
    ///
    /// # Errors
    /// [`WireError::TooLong`], [`WireError::ZeroByteInName`].
    pub fn encode(&self, request_id: i32, response_to: i32) -> Result<Frame, WireError> {
        let mut writer = FrameWriter::new(request_id, response_to, OpCode::Query);
        writer.put_i32(self.flags)?;
        writer.put_c_string(self.full_collection_name, COLLECTION_PART)?;
        writer.put_i32(self.number_to_skip)?;
        writer.put_i32(self.number_to_return)?;
        writer.put_document(self.query)?;
        if let Some(fields) = self.return_fields {
            writer.put_document(fields)?;
        }
        writer.finish()
    }
}
