//! Errors of messages that are read or written. Independent of the sender, and of the reply to it.

use super::compressor::Compressor;
use super::op_code::OpCode;

/// A message that cannot be read or written. Contains no contents of the message, so it may be
/// logged.
///
/// For some malformed messages mongod replies with an error in place of closing the connection.
/// [`WireError::server_code`] returns its code.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The header announces fewer bytes than a header has, or more than the limit.
    #[error("the message length {length} is not between 16 and {max}")]
    MessageLength {
        /// The announced length, in bytes.
        length: i32,
        /// The limit, in bytes.
        max: usize,
    },
    /// Bytes that should be one whole message have another length than its header announces.
    #[error("the header announces {declared} bytes, but there are {found}")]
    LengthMismatch {
        /// The announced length, in bytes.
        declared: usize,
        /// The actual length, in bytes.
        found: usize,
    },
    /// The stream ended inside a message.
    #[error("the connection ended inside a message, after {received} of its bytes")]
    UnexpectedEof {
        /// The number of bytes of the message that had arrived.
        received: usize,
    },
    /// The message has another op code than expected.
    #[error("expected {expected}, found {found}")]
    WrongOpCode {
        /// The expected op code.
        expected: OpCode,
        /// The op code in the header.
        found: OpCode,
    },
    /// The message ends before a required part.
    #[error("the message ends inside its {part}")]
    Truncated {
        /// The name of the part, for the error message.
        part: &'static str,
    },
    /// There are bytes after the last part of the message.
    #[error("{count} bytes follow the end of the message's contents")]
    TrailingBytes {
        /// The number of bytes.
        count: usize,
    },
    /// An unknown flag among bits 0 to 15, which must be refused.
    #[error("unknown required flag bits {bits:#06x}")]
    UnknownFlags {
        /// The unknown bits.
        bits: u32,
    },
    /// The checksum in the message does not match its bytes.
    #[error("the checksum is {found:#010x}, but the bytes result in {computed:#010x}")]
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
    /// Two document sequences with the same identifier.
    #[error("two document sequences have the same identifier")]
    DuplicateSequence,
    /// A document sequence whose identifier is also a field of the body.
    #[error("a document sequence has the identifier of a field in the body")]
    SequenceInBody,
    /// A document sequence with an impossible size.
    #[error("a document sequence announces {size} bytes, but {remaining} remain")]
    SequenceSize {
        /// The announced size, in bytes.
        size: i32,
        /// The remaining bytes of the message, including the size itself.
        remaining: usize,
    },
    /// A document with an impossible length.
    #[error("a document announces {length} bytes, but {remaining} remain")]
    DocumentLength {
        /// The announced length, in bytes.
        length: i32,
        /// The remaining bytes of the message or section.
        remaining: usize,
    },
    /// A document of the right length whose bytes are not BSON.
    #[error("a document is not valid BSON")]
    MalformedDocument,
    /// An `OP_REPLY` with another number of documents than it announces.
    #[error("the reply announces {declared} documents")]
    DocumentCount {
        /// The announced number.
        declared: i32,
    },
    /// A name that is not UTF-8.
    #[error("the {part} is not UTF-8")]
    NotUtf8 {
        /// The name of the part, for the error message.
        part: &'static str,
    },
    /// A name that contains a zero byte cannot be written.
    #[error("the {part} holds a zero byte")]
    ZeroByteInName {
        /// The name of the part, for the error message.
        part: &'static str,
    },
    /// A compressed message inside a compressed message.
    #[error("a compressed message contains another compressed message")]
    NestedCompression,
    /// An unknown compressor.
    #[error("unknown compressor {id}")]
    UnknownCompressor {
        /// The number in the message.
        id: u8,
    },
    /// A compressed message whose uncompressed size is over the limit, or negative.
    #[error("the uncompressed size {size} is not between 0 and {max}")]
    UncompressedSize {
        /// The announced size, in bytes, without the header.
        size: i32,
        /// The limit, in bytes, without the header.
        max: usize,
    },
    /// A compressed message that announces a size which its data cannot expand to.
    #[error("{compressed} bytes of {compressor} cannot decompress to the announced {declared} bytes")]
    ImplausibleSize {
        /// The compressor.
        compressor: Compressor,
        /// The announced size, in bytes.
        declared: usize,
        /// The size of the compressed data, in bytes.
        compressed: usize,
    },
    /// The data of a compressed message are malformed, or do not expand to the announced size.
    #[error("the compressed message does not decompress with {compressor} to {declared} bytes")]
    MalformedCompression {
        /// The announced compressor.
        compressor: Compressor,
        /// The announced size, in bytes.
        declared: usize,
    },
    /// A message that would be over the limit.
    #[error("the message would exceed {max} bytes")]
    TooLong {
        /// The limit, in bytes.
        max: usize,
    },
    /// The stream failed: required by `tokio_util`'s codecs, nothing in `wire` reads a stream. Or
    /// there is no memory to compress a message.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl WireError {
    /// The code of mongod's error reply, after which the connection continues. `None` if mongod
    /// closes the connection without a reply. Observed on mongod 6.0.5.
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
