//! Limits of sizes and numbers on the wire.

/// The longest message either side may send, in bytes, header included: mongod's `maxMessageSizeBytes`.
pub const MAX_MESSAGE_BYTES: usize = 48_000_000;

/// The most document sequences in one `OP_MSG`. mongod closes the connection on a third.
pub const MAX_DOCUMENT_SEQUENCES: usize = 2;

/// The shortest BSON document, in bytes: its length and its terminator.
pub const MIN_DOCUMENT_BYTES: usize = 5;
