//! The frames are the same however a stream is split, and memory follows the received bytes.

use bytes::{BufMut, Bytes};
use proptest::prelude::*;

use super::*;
use crate::wire::header::HEADER_BYTES;
use crate::wire::op_code::OpCode;
use crate::wire::{limits::MAX_MESSAGE_BYTES, tests::frame};

fn codec() -> FrameCodec {
    FrameCodec::new(MAX_MESSAGE_BYTES)
}

/// The start of a stream: a length, and as many zero bytes as make `size` bytes.
fn start(length: i32, size: usize) -> BytesMut {
    let mut buffer = BytesMut::from(&length.to_le_bytes()[..]);
    buffer.resize(size, 0);
    buffer
}

#[test]
fn lengths_are_checked_before_the_rest_of_the_frame_arrives() {
    for length in [i32::MIN, -1, 0, 15, 48_000_001, i32::MAX] {
        let error = codec().decode(&mut start(length, 4)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the message length {length} is not between 16 and 48000000")
        );
        assert!(
            codec()
                .decode(&mut BytesMut::from(&length.to_le_bytes()[..3]))
                .unwrap()
                .is_none()
        );
    }
    for length in [16, 48_000_000] {
        assert!(codec().decode(&mut start(length, 4)).unwrap().is_none(), "{length}");
    }
    assert!(FrameCodec::new(16).decode(&mut start(17, 4)).is_err());
    assert!(FrameCodec::new(16).decode(&mut start(16, 16)).unwrap().is_some());
}

#[test]
fn the_end_of_the_stream_is_an_error_inside_a_message_only() {
    assert!(codec().decode_eof(&mut BytesMut::new()).unwrap().is_none());
    for size in [1, 3, 4, 15, 16, 19] {
        let error = codec().decode_eof(&mut start(20, size)).unwrap_err();
        assert!(
            matches!(error, WireError::UnexpectedEof { received } if received == size),
            "{size}: {error}"
        );
    }
    let mut buffer = start(20, 21);
    assert_eq!(codec().decode_eof(&mut buffer).unwrap().unwrap().len(), 20);
    assert!(matches!(
        codec().decode_eof(&mut buffer),
        Err(WireError::UnexpectedEof { received: 1 })
    ));
}

#[test]
fn a_declared_length_does_not_grow_the_buffer() {
    let mut codec = codec();
    let mut buffer = start(48_000_000, HEADER_BYTES);
    for _ in 0..100 {
        assert!(codec.decode(&mut buffer).unwrap().is_none());
    }
    assert!(buffer.capacity() <= 2 * RESERVE_BYTES, "{}", buffer.capacity());
}

#[test]
fn a_large_frame_takes_its_buffer_with_it() {
    let size = 4 * 1024 * 1024;
    let mut buffer = start(i32::try_from(size).unwrap(), size);
    buffer.extend_from_slice(b"\x10\0\0\0");
    assert_eq!(codec().decode(&mut buffer).unwrap().unwrap().len(), size);
    assert_eq!(buffer.as_ref(), b"\x10\0\0\0");
    // The rest grows without the memory of the large frame.
    buffer.reserve(64);
    assert!(buffer.capacity() < 1024, "{}", buffer.capacity());
}

#[test]
fn the_buffer_of_a_large_frame_is_let_go_with_the_next_one() {
    let mut codec = codec();
    let mut buffer = BytesMut::new();
    codec
        .encode(frame(OpCode::Msg, &vec![0; 4 * 1024 * 1024]), &mut buffer)
        .unwrap();
    // A large frame that is not yet written is not lost.
    codec.encode(frame(OpCode::Msg, b"a"), &mut buffer).unwrap();
    assert_eq!(buffer.len(), 4 * 1024 * 1024 + 16 + 17);
    buffer.clear();
    codec.encode(frame(OpCode::Msg, b"b"), &mut buffer).unwrap();
    assert!(buffer.capacity() < 1024, "{}", buffer.capacity());
}

/// Decodes a stream that arrives in pieces of these sizes, repeatedly, and checks after each piece
/// that memory is bounded.
fn decode_in_pieces(stream: &[u8], sizes: &[usize]) -> Result<Vec<Frame>, WireError> {
    let mut codec = codec();
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    let mut sizes = sizes.iter().cycle();
    let mut rest = stream;
    let mut given = 0;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
        rest = after;
        given += piece.len();
        buffer.put_slice(piece);
        while let Some(frame) = codec.decode(&mut buffer)? {
            frames.push(frame);
        }
        assert!(
            buffer.capacity() <= 4 * given + 4 * RESERVE_BYTES,
            "{} after {given}",
            buffer.capacity()
        );
    }
    while let Some(frame) = codec.decode_eof(&mut buffer)? {
        frames.push(frame);
    }
    Ok(frames)
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let size = prop_oneof![4 => 0..100_usize, 2 => 0..20_000_usize, 1 => 0..600_000_usize];
    (size, any::<i32>(), any::<u8>()).prop_map(|(size, op_code, byte)| frame(op_code.into(), &vec![byte; size]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn frames_do_not_depend_on_how_the_stream_is_split(
        frames in prop::collection::vec(any_frame(), 0..6),
        sizes in prop::collection::vec(prop_oneof![1..40_usize, 1..100_000_usize], 1..20),
    ) {
        let mut stream = BytesMut::new();
        for frame in &frames {
            codec().encode(frame.clone(), &mut stream).unwrap();
        }
        let whole: Vec<Bytes> = frames.into_iter().map(Frame::into_bytes).collect();
        let read: Vec<Bytes> =
            decode_in_pieces(&stream, &sizes).unwrap().into_iter().map(Frame::into_bytes).collect();
        prop_assert!(whole == read, "{} frames written, {} read", whole.len(), read.len());
    }

    #[test]
    fn arbitrary_streams_neither_panic_nor_grow_the_buffer(
        length in prop_oneof![0..200_i32, 0..60_000_000_i32, any::<i32>()],
        rest in prop::collection::vec(any::<u8>(), 0..400),
        sizes in prop::collection::vec(1..50_usize, 1..5),
    ) {
        let _ = decode_in_pieces(&[&length.to_le_bytes()[..], &rest].concat(), &sizes);
    }
}
