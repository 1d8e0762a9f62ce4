//! What can be wrong with bytes or with a message to be written. Does not know who sent them, nor how to
//! reply.

use super::compressor::Compressor;
use super::op_code::OpCode;

/// A message that cannot be read or written. Holds no contents of the message, so it may be logged.
///
/// Where mongod answers a malformed message instead of closing the connection, [`WireError::server_code`]
/// gives its code.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The header announces fewer bytes than a header has, or more than the limit.
    #[error("the message length {length} is not between 16 and {max}")]
    MessageLength {
        /// What the header announces, in bytes.
        length: i32,
        /// The limit, in bytes.
        max: usize,
    },
    /// Bytes that were said to be one whole message are more or fewer than its header announces.
    #[error("the header announces {announced} bytes where there are {found}")]
    LengthMismatch {
        /// What the header announces, in bytes.
        announced: usize,
        /// What there is, in bytes.
        found: usize,
    },
    /// The stream ended inside a message.
    #[error("the connection ended inside a message, after {received} of its bytes")]
    UnexpectedEof {
        /// How much of the message had arrived, in bytes.
        received: usize,
    },
    /// The message is of another kind than the one asked for.
    #[error("expected {expected}, found {found}")]
    WrongOpCode {
        /// The kind asked for.
        expected: OpCode,
        /// The kind in the header.
        found: OpCode,
    },
    /// The message ends before a part that must be there.
    #[error("the message ends inside its {part}")]
    Truncated {
        /// The part, for a person.
        part: &'static str,
    },
    /// There are bytes after the last part of the message.
    #[error("{count} bytes follow the end of the message's contents")]
    TrailingBytes {
        /// How many.
        count: usize,
    },
    /// A flag among bits 0 to 15 that this version does not know, and therefore must refuse.
    #[error("unknown required flag bits {bits:#06x}")]
    UnknownFlags {
        /// The unknown bits.
        bits: u32,
    },
    /// The checksum in the message is not that of its bytes.
    #[error("the checksum is {found:#010x}, the bytes give {computed:#010x}")]
    ChecksumMismatch {
        /// The checksum in the message.
        found: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// A section that is neither a body (kind 0) nor a document sequence (kind 1).
    #[error("unknown section kind {kind}")]
    UnknownSectionKind {
        /// The kind byte.
        kind: u8,
    },
    /// No section of kind 0.
    #[error("the message has no body section")]
    MissingBody,
    /// More than one section of kind 0.
    #[error("the message has more than one body section")]
    DuplicateBody,
    /// More document sequences than [`MAX_DOCUMENT_SEQUENCES`](super::limits::MAX_DOCUMENT_SEQUENCES).
    #[error("the message has too many document sequences")]
    TooManySequences,
    /// Two document sequences of one identifier.
    #[error("two document sequences have the same identifier")]
    DuplicateSequence,
    /// A document sequence whose identifier is also a field of the body.
    #[error("a document sequence has the identifier of a field in the body")]
    SequenceInBody,
    /// A document sequence that announces a size that it cannot have.
    #[error("a document sequence announces {size} bytes where {remaining} remain")]
    SequenceSize {
        /// What it announces, in bytes.
        size: i32,
        /// What remains of the message, the size itself included, in bytes.
        remaining: usize,
    },
    /// A document that announces a length that it cannot have.
    #[error("a document announces {length} bytes where {remaining} remain")]
    DocumentLength {
        /// What it announces, in bytes.
        length: i32,
        /// What remains of the message or section, in bytes.
        remaining: usize,
    },
    /// A document of a right length whose bytes are not BSON.
    #[error("a document is not BSON")]
    MalformedDocument,
    /// An `OP_REPLY` that announces another number of documents than it carries.
    #[error("the reply announces {announced} documents")]
    DocumentCount {
        /// What it announces.
        announced: i32,
    },
    /// A name that is not UTF-8.
    #[error("the {part} is not UTF-8")]
    NotUtf8 {
        /// The part, for a person.
        part: &'static str,
    },
    /// A name that holds a zero byte cannot be written.
    #[error("the {part} holds a zero byte")]
    ZeroByteInName {
        /// The part, for a person.
        part: &'static str,
    },
    /// A compressed message inside a compressed message.
    #[error("a compressed message holds another one")]
    NestedCompression,
    /// A compressor that is none of [`Compressor`].
    #[error("unknown compressor {id}")]
    UnknownCompressor {
        /// Its number in the message.
        id: u8,
    },
    /// A compressed message whose original would be over the limit, or of less than no length.
    #[error("the uncompressed size {size} is not between 0 and {max}")]
    UncompressedSize {
        /// What the message announces, in bytes, without the header.
        size: i32,
        /// The limit, in bytes, without the header.
        max: usize,
    },
    /// A compressed message that announces more than its data can possibly stand for.
    #[error("{compressed} bytes of {compressor} cannot stand for the {announced} that are announced")]
    ImplausibleSize {
        /// How it is compressed.
        compressor: Compressor,
        /// What it announces, in bytes.
        announced: usize,
        /// The compressed data, in bytes.
        compressed: usize,
    },
    /// The data of a compressed message are malformed, or do not stand for as many bytes as it announces.
    #[error("the compressed message is not {compressor} of {announced} bytes")]
    MalformedCompression {
        /// How it is said to be compressed.
        compressor: Compressor,
        /// What it announces, in bytes.
        announced: usize,
    },
    /// A message that was to be written is over the limit.
    #[error("the message would be over {max} bytes")]
    TooLong {
        /// The limit, in bytes.
        max: usize,
    },
    /// The stream failed, for `tokio_util`'s codecs, whose errors must hold it; nothing on this floor reads
    /// one. Or there is no memory to compress a message.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl WireError {
    /// The code of the error that mongod replies with, after which the connection lives on. `None` where it
    /// closes the connection without a reply. As seen on mongod 6.0.5.
    #[must_use]
    pub fn server_code(&self) -> Option<i32> {
        match self {
            Self::DuplicateBody => Some(40430),
            Self::DuplicateSequence => Some(40431),
            Self::UnknownSectionKind { .. } => Some(40432),
            Self::SequenceInBody => Some(40433),
            Self::MissingBody => Some(40587),
            _ => None,
        }
    }
}
