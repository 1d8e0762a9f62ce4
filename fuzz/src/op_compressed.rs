//! A compressed message is inflated to what it announces or not at all, and what is compressed is inflated.

use mongoshape::wire::{Compressor, Inflated, OpCode, OpCompressed};

use crate::message::message;

/// The limit for originals: low, so that a fuzzer does not spend its time on large ones.
const MAX_MESSAGE_BYTES: usize = 1_000_000;
/// How much is read of an original to begin with.
const HEAD_BYTES: usize = 100;

/// The input is a message without its header: a compressed one, and one to compress.
pub fn op_compressed(data: &[u8]) {
    let frame = message(OpCode::Compressed, data);
    if let Ok(compressed) = OpCompressed::parse(&frame, MAX_MESSAGE_BYTES) {
        check(&compressed);
    }
    let original = message(OpCode::Msg, data);
    for compressor in Compressor::ALL {
        let frame = OpCompressed::compress(&original, compressor).expect("a short message can be compressed");
        let compressed = OpCompressed::parse(&frame, usize::MAX).expect("what was written is read");
        let inflated = compressed.inflate().expect("what was compressed is inflated");
        assert_eq!(inflated, original);
    }
}

fn check(compressed: &OpCompressed<'_>) {
    let whole = compressed.inflate();
    if let Ok(frame) = &whole {
        assert_eq!(frame.payload().len(), compressed.uncompressed_bytes);
        assert_eq!(frame.header().op_code, compressed.original_op_code);
    }
    match (compressed.inflate_head(HEAD_BYTES), whole) {
        (Ok(Inflated::Whole(frame)), whole) => assert_eq!(Some(frame), whole.ok()),
        (Ok(Inflated::Head(head)), Ok(frame)) => {
            assert_eq!(frame.payload().get(..HEAD_BYTES), Some(&head[..]));
        }
        // What is wrong comes after the head.
        (Ok(Inflated::Head(head)), Err(_)) => assert_eq!(head.len(), HEAD_BYTES),
        (Err(_), whole) => assert!(whole.is_err()),
    }
}
