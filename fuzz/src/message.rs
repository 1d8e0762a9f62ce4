//! Arbitrary bytes as a message, so that a fuzzer need not find out how to write a header.

use bytes::Bytes;
use mongoshape::wire::{Frame, HEADER_BYTES, OpCode};

/// A message of this kind and payload.
pub(crate) fn message(op_code: OpCode, payload: &[u8]) -> Frame {
    let length = i32::try_from(HEADER_BYTES + payload.len()).expect("fuzzers write short inputs");
    let numbers = [length, 7, 8, op_code.into()];
    let header = numbers.into_iter().flat_map(i32::to_le_bytes);
    let bytes: Bytes = header.chain(payload.iter().copied()).collect();
    Frame::from_bytes(bytes).expect("the length is right")
}
