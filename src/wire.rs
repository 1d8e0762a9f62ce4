//! Bytes to frames and back. Must not depend on commands, patterns or sockets.
//!
//! A [`Frame`] is one whole message, still the bytes it came in. [`OpMsg`], [`OpQuery`],
//! [`OpReply`] and [`OpCompressed`] are borrowed views of a frame. [`OpMsgBuilder`] and the
//! `encode` functions make new frames. [`FrameCodec`] cuts a stream of bytes into frames. No input
//! causes a panic, or an allocation of more than a small multiple of the input's size. Inflating a
//! compressed frame allocates up to the limit for messages, as the output grows.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod checksum;
mod codec;
mod compressor;
mod error;
mod frame;
mod header;
pub mod limits;
mod op_code;
mod op_compressed;
mod op_msg;
mod op_query;
mod op_reply;
mod reader;
mod writer;

pub use codec::FrameCodec;
pub use compressor::{Compressor, Compressors};
pub use error::WireError;
pub use frame::Frame;
pub use header::{HEADER_BYTES, MessageHeader};
pub use op_code::OpCode;
pub(crate) use op_compressed::compress;
pub use op_compressed::{Inflated, OpCompressed};
pub use op_msg::{DocumentSequence, Documents, OpMsg, OpMsgBuilder, OpMsgFlags, OpMsgHead};
pub use op_query::OpQuery;
pub use op_reply::OpReply;

#[cfg(test)]
mod tests;
