//! What the beginning of an `OP_MSG` tells of it. Does not know which command it is.

use bson::RawDocument;

use super::flags::OpMsgFlags;
use super::{BODY_KIND, OpMsg};
use crate::wire::reader::Reader;

/// The flags and body of an `OP_MSG`, of which perhaps only the beginning was read.
///
/// Says nothing of what follows the body: sequences, a checksum, or what mongod would refuse. That is enough
/// to tell whose business a message is, and to relay it as it came; whoever acts on a message reads all of
/// it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpMsgHead<'a> {
    /// The flags, unknown optional ones included. No unknown required one is set.
    pub flags: OpMsgFlags,
    /// The body. Only its length and terminator are checked.
    pub body: &'a RawDocument,
}

impl<'a> OpMsgHead<'a> {
    /// Reads the beginning of a message's payload, which is what follows its header, from the flags on.
    ///
    /// `None` when the message must be read whole to know, or to say what is wrong with it: the body is not
    /// its first section, or not wholly in `beginning`, or these bytes are not the beginning of a well-formed
    /// message.
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

    /// The flags alone, of which four bytes are enough.
    #[must_use]
    pub fn flags_of_beginning(beginning: &[u8]) -> Option<OpMsgFlags> {
        Reader::new(beginning).u32("flags").ok().map(OpMsgFlags::from_bits)
    }

    /// A message of this body without sequences, though the original may have some.
    ///
    /// For readers of the body: a command's name and the namespace that it is on. Not for those of arguments
    /// that may come in a sequence, such as `bulkWrite`'s `nsInfo`.
    #[must_use]
    pub fn without_sequences(self) -> OpMsg<'a> {
        OpMsg {
            flags: self.flags,
            body: self.body,
            sequences: Vec::new(),
        }
    }
}
