//! `OP_MSG`: flags, a body, and sequences of documents. Does not interpret the command in the body.

mod builder;
mod flags;
mod head;
mod sequence;

use bson::{RawDocument, RawDocumentBuf};

pub use builder::OpMsgBuilder;
pub use flags::OpMsgFlags;
pub use head::OpMsgHead;
pub use sequence::{DocumentSequence, Documents};

use super::checksum::{self, CHECKSUM_BYTES};
use super::error::WireError;
use super::frame::Frame;
use super::limits::MAX_DOCUMENT_SEQUENCES;
use super::op_code::OpCode;
use super::reader::Reader;

/// The byte before a body.
const BODY_KIND: u8 = 0;
/// The byte before a document sequence.
const SEQUENCE_KIND: u8 = 1;

/// A view of one `OP_MSG`.
///
/// Invariants: no unknown required flag is set. No two sequences have the same identifier, and none
/// has the name of a field of the body.
#[derive(Clone, Debug)]
pub struct OpMsg<'a> {
    /// The flags, unknown optional ones included.
    pub flags: OpMsgFlags,
    /// The one section of kind 0. Only its length and terminator are checked.
    pub body: &'a RawDocument,
    /// The sections of kind 1, in the order of the message.
    pub sequences: Vec<DocumentSequence<'a>>,
}

impl<'a> OpMsg<'a> {
    /// Parses a message whose sections may come in any order, and checks its checksum if it has
    /// one.
    ///
    /// # Errors
    /// Every [`WireError`] that a whole frame can have.
    pub fn parse(frame: &'a Frame) -> Result<Self, WireError> {
        let (flags, sections) = split_sections(frame)?;
        if flags.contains(OpMsgFlags::CHECKSUM_PRESENT) {
            checksum::verify(frame.as_bytes())?;
        }
        Self::from_sections(flags, sections)
    }

    /// Takes the body out of a message. Copies nothing if the frame's bytes are not shared.
    ///
    /// # Errors
    /// Those of [`OpMsg::parse`].
    pub fn into_body(frame: Frame) -> Result<RawDocumentBuf, WireError> {
        let body = OpMsg::parse(&frame)?.body;
        let bytes = frame.as_bytes().slice_ref(body.as_bytes());
        drop(frame);
        // The bytes were a document before.
        Ok(RawDocumentBuf::from_bytes(bytes.into()).unwrap_or_default())
    }

    /// Parses a message without computing its checksum: for a message that is relayed unchanged,
    /// which mongod verifies.
    ///
    /// # Errors
    /// Those of [`OpMsg::parse`] except [`WireError::ChecksumMismatch`].
    pub fn parse_unverified(frame: &'a Frame) -> Result<Self, WireError> {
        let (flags, sections) = split_sections(frame)?;
        Self::from_sections(flags, sections)
    }

    /// Reads only the flags. `None` if the frame is not an `OP_MSG`, or is too short for flags.
    #[must_use]
    pub fn flags_of(frame: &Frame) -> Option<OpMsgFlags> {
        let payload = frame.payload_of(OpCode::Msg).ok()?;
        payload
            .first_chunk()
            .map(|bits| OpMsgFlags::from_bits(u32::from_le_bytes(*bits)))
    }

    fn from_sections(flags: OpMsgFlags, mut sections: Reader<'a>) -> Result<Self, WireError> {
        let mut body = None;
        let mut sequences: Vec<DocumentSequence<'a>> = Vec::new();
        while !sections.is_empty() {
            match sections.u8("section kind")? {
                BODY_KIND if body.is_some() => return Err(WireError::DuplicateBody),
                BODY_KIND => body = Some(sections.document()?),
                SEQUENCE_KIND if sequences.len() == MAX_DOCUMENT_SEQUENCES => return Err(WireError::TooManySequences),
                SEQUENCE_KIND => {
                    let sequence = DocumentSequence::read(&mut sections)?;
                    if sequences.iter().any(|other| other.identifier == sequence.identifier) {
                        return Err(WireError::DuplicateSequence);
                    }
                    sequences.push(sequence);
                }
                kind => return Err(WireError::UnknownSectionKind { kind }),
            }
        }
        let body = body.ok_or(WireError::MissingBody)?;
        check_not_in_body(body, &sequences)?;
        Ok(Self { flags, body, sequences })
    }
}

/// Splits a message into its flags and its sections, without its checksum.
fn split_sections(frame: &Frame) -> Result<(OpMsgFlags, Reader<'_>), WireError> {
    let mut reader = Reader::new(frame.payload_of(OpCode::Msg)?);
    let flags = OpMsgFlags::from_bits(reader.u32("flags")?);
    flags.check_required()?;
    if !flags.contains(OpMsgFlags::CHECKSUM_PRESENT) {
        return Ok((flags, reader));
    }
    let (sections, _) = reader
        .into_rest()
        .split_last_chunk::<CHECKSUM_BYTES>()
        .ok_or(WireError::Truncated { part: "checksum" })?;
    Ok((flags, Reader::new(sections)))
}

/// An argument is either in the body or in a sequence. If it were in both, a reader of only one of
/// them could be deceived.
fn check_not_in_body(body: &RawDocument, sequences: &[DocumentSequence<'_>]) -> Result<(), WireError> {
    if sequences.is_empty() {
        return Ok(());
    }
    for element in body.iter_elements() {
        let element = element.map_err(|_| WireError::MalformedDocument)?;
        if sequences.iter().any(|sequence| element.key() == sequence.identifier) {
            return Err(WireError::SequenceInBody);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
