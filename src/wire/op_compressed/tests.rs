//! Compressed messages are inflated to the original, false sizes are refused, and memory follows
//! the actual size.

use proptest::prelude::*;

use super::*;
use crate::wire::tests::frame;

/// The longest payload within the limit.
const MAX_PAYLOAD_BYTES: usize = MAX_MESSAGE_BYTES - HEADER_BYTES;

fn message(op_code: i32, size: i32, id: u8, compressed: &[u8]) -> Frame {
    let parts = [&op_code.to_le_bytes()[..], &size.to_le_bytes(), &[id], compressed];
    frame(OpCode::Compressed, &parts.concat())
}

fn parse(frame: &Frame) -> Result<OpCompressed<'_>, WireError> {
    OpCompressed::parse(frame, MAX_MESSAGE_BYTES)
}

/// An `OP_MSG` of this payload and announced size, inflated.
fn inflate(compressor: Compressor, size: usize, compressed: &[u8]) -> Result<Frame, WireError> {
    let frame = message(2013, i32::try_from(size).unwrap(), compressor.id(), compressed);
    let inflated = parse(&frame)?.inflate()?;
    assert_eq!(inflated.len(), HEADER_BYTES + size);
    Ok(inflated)
}

/// The compressed payload of an `OP_COMPRESSED`.
fn compressed(compressor: Compressor, payload: &[u8]) -> Vec<u8> {
    let frame = OpCompressed::compress(&frame(OpCode::Msg, payload), compressor).unwrap();
    parse(&frame).unwrap().compressed.to_vec()
}

/// Snappy's variable-length number.
fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 128 {
        bytes.push(u8::try_from(number % 128).unwrap() | 128);
        number /= 128;
    }
    bytes.push(u8::try_from(number).unwrap());
    bytes
}

/// The densest snappy data: one byte, and copies of 64 of it.
fn snappy_bomb(copies: usize) -> (usize, Vec<u8>) {
    let size = 1 + 64 * copies;
    (size, [varint(size), vec![0, 0], [0xfe, 1, 0].repeat(copies)].concat())
}

/// The densest zstd data: blocks of 128 KiB of one byte, without a content size, in a window of
/// `window_log`.
fn zstd_bomb(window_log: u8, blocks: usize) -> (usize, Vec<u8>) {
    const BLOCK_BYTES: u32 = 128 * 1024;
    let head = [0x28, 0xb5, 0x2f, 0xfd, 0, (window_log - 10) << 3];
    let block = |last: u32| [&(BLOCK_BYTES << 3 | 1 << 1 | last).to_le_bytes()[..3], b"a"].concat();
    let bytes = [head.to_vec(), block(0).repeat(blocks - 1), block(1)].concat();
    (blocks * 128 * 1024, bytes)
}

#[test]
fn data_written_elsewhere_are_read() {
    let check = |compressor, data: &[u8], expected: &[u8]| {
        let inflated = inflate(compressor, expected.len(), data).unwrap();
        assert_eq!(inflated.payload(), expected);
        let header = inflated.header();
        assert_eq!(
            (header.request_id, header.response_to, header.op_code),
            (7, 8, OpCode::Msg)
        );
    };
    // By hand: a literal; a literal and a copy.
    check(Compressor::Snappy, b"\x03\x08abc", b"abc");
    check(Compressor::Snappy, b"\x08\x08abc\x05\x03", b"abcabcab");
    check(Compressor::Snappy, b"\x00", b"");
    // Python's `zlib.compress` at levels 9 and 0.
    check(
        Compressor::Zlib,
        b"x\xda\x4b\x4c\x4a\x4e\x44\x45\0\x41\x7c\x06\xe5",
        b"abcabcabcabcabcabc",
    );
    check(Compressor::Zlib, b"x\x01\x01\x03\0\xfc\xffabc\x02\x4d\x01\x27", b"abc");
    // Made by hand: a raw block, and a block of one repeated byte; a frame to skip and two more,
    // which mongod accepts, too.
    check(Compressor::Zstd, b"\x28\xb5\x2f\xfd\x20\x03\x19\0\0abc", b"abc");
    check(Compressor::Zstd, b"\x28\xb5\x2f\xfd\x20\x03\x1b\0\0a", b"aaa");
    check(
        Compressor::Zstd,
        b"\x50\x2a\x4d\x18\x01\0\0\0x\x28\xb5\x2f\xfd\x20\x01\x09\0\0a\x28\xb5\x2f\xfd\x20\x01\x09\0\0b",
        b"ab",
    );
}

#[test]
fn impossible_sizes_are_refused_before_inflating() {
    let check = |message: &Frame, expected: &str| assert_eq!(parse(message).unwrap_err().to_string(), expected);
    let limit = i32::try_from(MAX_PAYLOAD_BYTES).unwrap();
    check(&frame(OpCode::Msg, b""), "expected OP_COMPRESSED, found OP_MSG");
    check(
        &frame(OpCode::Compressed, &[0; 3]),
        "the message ends inside its original op code",
    );
    check(
        &frame(OpCode::Compressed, &[0; 7]),
        "the message ends inside its uncompressed size",
    );
    check(
        &frame(OpCode::Compressed, &[0; 8]),
        "the message ends inside its compressor",
    );
    check(
        &message(2012, 1, 1, b"abc"),
        "a compressed message contains another compressed message",
    );
    check(&message(2013, 1, 0, b"abc"), "unknown compressor 0");
    check(&message(2013, 1, 4, b"abc"), "unknown compressor 4");
    for size in [-1, i32::MIN, limit + 1, i32::MAX] {
        check(
            &message(2013, size, 3, &[0; 2000]),
            &format!("the uncompressed size {size} is not between 0 and 47999984"),
        );
    }
    for (id, bytes, size) in [
        (1, 20, 441),
        (2, 20, 20_641),
        (3, 20, 655_361),
        (3, 0, 1),
        (3, 1464, limit),
    ] {
        let name = Compressor::from_id(id).unwrap().name();
        check(
            &message(2013, size, id, &vec![0; bytes]),
            &format!("{bytes} bytes of {name} cannot decompress to the announced {size} bytes"),
        );
        assert!(parse(&message(2013, size - 1, id, &vec![0; bytes + 1])).is_ok());
    }
    assert!(OpCompressed::parse(&message(2013, 4, 3, b"abc"), 20).is_ok());
    assert!(OpCompressed::parse(&message(2013, 5, 3, b"abc"), 20).is_err());
    assert!(OpCompressed::parse(&message(2013, 0, 3, b"abc"), 0).is_ok());
}

#[test]
fn other_op_codes_round_trip() {
    for op_code in [OpCode::Msg, OpCode::Query, OpCode::Reply, OpCode::Other(7)] {
        let original = frame(op_code, b"abc");
        let compressed = OpCompressed::compress(&original, Compressor::Snappy).unwrap();
        assert_eq!(compressed.header().request_id, 7);
        assert_eq!(compressed.header().response_to, 8);
        assert_eq!(parse(&compressed).unwrap().original_op_code, op_code);
        assert_eq!(parse(&compressed).unwrap().inflate().unwrap(), original);
    }
    let twice = OpCompressed::compress(&frame(OpCode::Compressed, b"abc"), Compressor::Snappy);
    assert!(matches!(twice, Err(WireError::NestedCompression)));
}

#[test]
fn data_of_another_size_are_refused() {
    let payload: Vec<u8> = (0..200_000_u32)
        .flat_map(|number| number.wrapping_mul(number).to_le_bytes())
        .collect();
    for compressor in Compressor::ALL {
        for payload in [&payload[..], &payload[..300], &vec![0; 300_000]] {
            let size = payload.len();
            let data = compressed(compressor, payload);
            let check = |size: usize, data: &[u8]| {
                let error = inflate(compressor, size, data).unwrap_err();
                assert_eq!(
                    error.to_string(),
                    format!("the compressed message does not decompress with {compressor} to {size} bytes")
                );
            };
            assert!(inflate(compressor, size, &data).unwrap().payload() == payload);
            check(size - 1, &data);
            check(size + 1, &data);
            check(size / 2, &data);
            check(0, &data);
            check(size, &data[..data.len() - 1]);
            check(size, &[&data[..], b"\0"].concat());
        }
    }
}

#[test]
fn an_empty_payload_stays_empty() {
    for compressor in Compressor::ALL {
        let data = compressed(compressor, b"");
        assert_eq!(inflate(compressor, 0, &data).unwrap().len(), HEADER_BYTES);
    }
    // For zstd and for mongod, no frame at all is an empty output.
    assert!(inflate(Compressor::Zstd, 0, b"").is_ok());
    assert!(inflate(Compressor::Zlib, 0, b"").is_err());
    assert!(inflate(Compressor::Snappy, 0, b"").is_err());
}

#[test]
fn the_densest_data_are_plausible() {
    let (size, data) = snappy_bomb(500_000);
    assert!(inflate(Compressor::Snappy, size, &data).is_ok());
    let data = compressed(Compressor::Zlib, &vec![0; MAX_PAYLOAD_BYTES]);
    assert!(inflate(Compressor::Zlib, MAX_PAYLOAD_BYTES, &data).is_ok());
    // A stream would need 128 MiB for this window.
    let (size, data) = zstd_bomb(27, 366);
    assert!(inflate(Compressor::Zstd, size, &data).is_ok());
}

#[test]
fn no_more_is_inflated_than_is_declared() {
    /// Inflates data that do not have `size` bytes, and returns the capacity of the output.
    fn capacity(compressor: Compressor, size: usize, data: &[u8]) -> usize {
        let mut output = Vec::new();
        assert!(inflate::inflate(compressor, data, size, &mut output).is_err());
        output.capacity()
    }
    let (_, snappy) = snappy_bomb(500_000);
    let zlib = compressed(Compressor::Zlib, &vec![0; 10_000_000]);
    let (_, zstd) = zstd_bomb(20, 300);
    for size in [0, 1, 1000, 100_000, 1_000_000] {
        assert_eq!(capacity(Compressor::Snappy, size, &snappy), 0, "{size}");
        assert!(capacity(Compressor::Zlib, size, &zlib) <= size + 8, "{size}");
        assert!(capacity(Compressor::Zstd, size, &zstd) <= size + 8, "{size}");
    }
    // Small data that announce the largest possible size.
    let zlib = compressed(
        Compressor::Zlib,
        &[&[0; 100][..], &(0..=255).collect::<Vec<u8>>().repeat(100)].concat(),
    );
    let declared = Compressor::Zlib.most_expanded(zlib.len());
    assert!(declared > 300_000);
    assert!(capacity(Compressor::Zlib, declared, &zlib) <= 64 * 1024);
}

#[test]
fn the_head_of_a_large_message_costs_no_more_than_itself() {
    let check = |compressor: Compressor, size: usize, data: &[u8], is_head: bool| {
        let frame = message(2013, i32::try_from(size).unwrap(), compressor.id(), data);
        match parse(&frame).unwrap().inflate_head(1000).unwrap() {
            Inflated::Head(head) => {
                assert!(is_head);
                assert_eq!(head.len(), 1000);
            }
            Inflated::Whole(frame) => {
                assert!(!is_head);
                assert_eq!(frame.len(), HEADER_BYTES + size);
            }
        }
    };
    let (size, data) = snappy_bomb(5000);
    check(Compressor::Snappy, size, &data, false);
    let data = compressed(Compressor::Zlib, &vec![0; 100_000]);
    check(Compressor::Zlib, 100_000, &data, true);
    check(Compressor::Zlib, 100_000, &data[..100], true);
    // Windows within the message's size, larger than it, and larger than any that is kept.
    let (size, data) = zstd_bomb(20, 300);
    check(Compressor::Zstd, size, &data, true);
    check(Compressor::Zstd, size, &data[..1200], true);
    let (size, data) = zstd_bomb(21, 8);
    check(Compressor::Zstd, size, &data, false);
    let (size, data) = zstd_bomb(27, 300);
    check(Compressor::Zstd, size, &data, false);
    // The format in which the drivers' libraries write a large message.
    let payload: Vec<u8> = (0..1_000_000_u32)
        .flat_map(|number| number.wrapping_mul(number).to_le_bytes())
        .collect();
    check(
        Compressor::Zstd,
        payload.len(),
        &compressed(Compressor::Zstd, &payload),
        true,
    );
}

#[test]
fn incompressible_message_at_the_size_limit_is_refused() {
    let mut state = 1_u64;
    let random: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    })
    .take(100_000)
    .collect();
    // Snappy looks back 64 KiB at most.
    let mut payload = random.repeat(MAX_PAYLOAD_BYTES / random.len() + 1);
    payload.truncate(MAX_PAYLOAD_BYTES);
    let compressed = OpCompressed::compress(&frame(OpCode::Msg, &payload), Compressor::Snappy);
    assert!(matches!(compressed, Err(WireError::TooLong { .. })));
}

/// Payloads that compress well, badly and not at all.
fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    let run = (any::<u8>(), 0..3000_usize).prop_map(|(byte, count)| vec![byte; count]);
    let text = ("[a-z]{1,8}", 0..200_usize).prop_map(|(word, count)| word.repeat(count).into_bytes());
    let random = prop::collection::vec(any::<u8>(), 0..300);
    let part = prop_oneof![run, text, random];
    (prop::collection::vec(part, 0..6), 1..40_usize).prop_map(|(parts, count)| parts.concat().repeat(count))
}

fn any_compressor() -> impl Strategy<Value = Compressor> {
    prop::sample::select(&Compressor::ALL[..])
}

/// Inflates all and the beginning, which must agree, in memory that the announced size bounds.
fn inflate_both_ways(frame: &Frame, count: usize) {
    let Ok(message) = parse(frame) else { return };
    let size = message.uncompressed_bytes;
    let mut output = Vec::new();
    let outcome = inflate::inflate(message.compressor, message.compressed, size, &mut output);
    assert!(output.capacity() <= size + 8, "{} for {size}", output.capacity());
    let whole = message.inflate();
    assert_eq!(whole.is_ok(), outcome.is_ok());
    match (message.inflate_head(count), whole) {
        (Ok(Inflated::Whole(frame)), Ok(whole)) => assert!(frame == whole),
        (Ok(Inflated::Head(head)), Ok(whole)) => assert!(whole.payload().starts_with(&head) && head.len() == count),
        // The malformed part comes after the beginning.
        (Ok(Inflated::Head(head)), Err(_)) => assert!(head.len() == count && count < size),
        (Ok(Inflated::Whole(_)), Err(error)) => panic!("{error}"),
        (Err(error), whole) => assert!(whole.is_err(), "{error}"),
    }
}

/// Beginnings of zlib and zstd data of various lengths.
const STARTS: &[&[u8]] = &[
    b"",
    b"x\x9c",
    b"x\xda\x4b",
    b"\x28\xb5\x2f\xfd",
    b"\x28\xb5\x2f\xfd\0\x58",
];

proptest! {
    #[test]
    fn compressed_messages_round_trip(
        payload in any_payload(),
        op_code in any::<i32>().prop_filter("compressed itself", |&number| number != 2012),
        compressor in any_compressor(),
        count in 0..5000_usize,
    ) {
        let original = frame(op_code.into(), &payload);
        let compressed = OpCompressed::compress(&original, compressor).unwrap();
        prop_assert!(parse(&compressed).unwrap().inflate().unwrap() == original);
        inflate_both_ways(&compressed, count);
    }

    #[test]
    fn broken_data_never_panic(
        payload in any_payload(),
        compressor in any_compressor(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        count in 0..5000_usize,
    ) {
        let mut data = compressed(compressor, &payload);
        for (index, byte) in changes {
            let place = index.index(data.len());
            data[place] = byte;
        }
        let size = i32::try_from(payload.len()).unwrap();
        inflate_both_ways(&message(2013, size, compressor.id(), &data), count);
        data.truncate(cut.index(data.len()));
        inflate_both_ways(&message(2013, size, compressor.id(), &data), count);
    }

    #[test]
    fn arbitrary_data_never_panic(
        size in prop_oneof![0..3000_i32, any::<i32>()],
        compressor in any_compressor(),
        start in prop::sample::select(STARTS),
        data in prop::collection::vec(any::<u8>(), 0..200),
        count in 0..5000_usize,
    ) {
        inflate_both_ways(&message(2013, size, compressor.id(), &[start, &data].concat()), count);
    }

    #[test]
    fn arbitrary_payloads_never_panic(payload in prop::collection::vec(any::<u8>(), 0..100)) {
        inflate_both_ways(&frame(OpCode::Compressed, &payload), 10);
    }
}
