//! Reads the beginning of an `OP_MSG`. Does not interpret the command in the body.

use bson::RawDocument;

use super::flags::OpMsgFlags;
use super::{BODY_KIND, OpMsg};
use crate::wire::reader::Reader;

/// The flags and body of an `OP_MSG` that was perhaps not read completely.
///
/// Contains nothing of what follows the body: sequences, a checksum, or parts that mongod would
/// refuse. That is enough to decide whether a message can be relayed unchanged. A message that is
/// executed must be parsed completely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpMsgHead<'a> {
    /// The flags, unknown optional ones included. No unknown required one is set.
    pub flags: OpMsgFlags,
    /// The body. Only its length and terminator are checked.
    pub body: &'a RawDocument,
}

impl<'a> OpMsgHead<'a> {
    /// Reads the beginning of a message's payload, from the flags on.
    ///
    /// `None` if the message must be read completely, to decide or to report its error: the body is
    /// not its first section, or not completely in `beginning`, or these bytes are not the
    /// beginning of a well-formed message.
    #[must_use]
    pub fn of_beginning(beginning: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(beginning);
        let flags = OpMsgFlags::from_bits(reader.u32("flags").ok()?);
        flags.check_required().ok()?;
        if reader.u8("section kind").ok()? != BODY_KIND {
            return None;
        }
        let body = reader.document().ok()?;
        Some(Self { flags, body })
    }

    /// Reads only the flags. Needs four bytes.
    #[must_use]
    pub fn flags_of_beginning(beginning: &[u8]) -> Option<OpMsgFlags> {
        Reader::new(beginning).u32("flags").ok().map(OpMsgFlags::from_bits)
    }

    /// A message with this body and without sequences, although the original may have some.
    ///
    /// For readers of the body: a command's name and its namespace. Not for readers of arguments
    /// that may be in a sequence, such as the `nsInfo` of `bulkWrite`.
    #[must_use]
    pub fn without_sequences(self) -> OpMsg<'a> {
        OpMsg {
            flags: self.flags,
            body: self.body,
            sequences: Vec::new(),
        }
    }
}
