//! Every way in which an `OP_MSG` can be malformed, and that a written message is read unchanged.

use bson::{RawDocumentBuf, rawdoc};
use proptest::prelude::*;

use super::*;
use crate::wire::{
    HEADER_BYTES,
    limits::MAX_MESSAGE_BYTES,
    tests::{any_document, frame},
};

const INSERT: &[u8] = b"\x00\x12\0\0\0\x02insert\0\x02\0\0\0x\0\0";

/// A body section of one field.
fn body() -> Vec<u8> {
    let mut section = INSERT.to_vec();
    section[1] = u8::try_from(section.len() - 1).unwrap();
    section
}

/// A sequence section of these documents' bytes, which announces `extra` more bytes than it has.
fn sequence(identifier: &[u8], documents: &[u8], extra: i32) -> Vec<u8> {
    let size = i32::try_from(4 + identifier.len() + documents.len()).unwrap() + extra;
    [&[1][..], &size.to_le_bytes(), identifier, documents].concat()
}

/// Parses a message of these flags and sections with and without verification. Both must agree if
/// there is no checksum.
fn check(flags: u32, sections: &[&[u8]], expected: Result<usize, &str>) {
    let frame = frame(OpCode::Msg, &[&flags.to_le_bytes()[..], &sections.concat()].concat());
    for parsed in [OpMsg::parse(&frame), OpMsg::parse_unverified(&frame)] {
        let outcome = parsed
            .map(|message| message.sequences.len())
            .map_err(|error| error.to_string());
        assert_eq!(
            outcome,
            expected.map_err(str::to_owned),
            "flags {flags:#x}, sections {sections:x?}"
        );
    }
}

#[test]
fn sections_come_in_any_order() {
    let (a, b) = (sequence(b"a\0", b"\x05\0\0\0\0", 0), sequence(b"b\0", b"", 0));
    check(0, &[&body()], Ok(0));
    check(0, &[&body(), &a, &b], Ok(2));
    check(0, &[&a, &body(), &b], Ok(2));
    check(0, &[&a, &b, &body()], Ok(2));
}

#[test]
fn unknown_required_flags_are_refused_and_optional_ones_ignored() {
    for bit in [2, 5, 15] {
        check(
            1 << bit,
            &[&body()],
            Err(&format!("unknown required flag bits {:#06x}", 1 << bit)),
        );
    }
    for bit in [1, 16, 17, 31] {
        check(1 << bit, &[&body()], Ok(0));
    }
}

#[test]
fn wrong_sections_are_refused() {
    let [a, b, c] = [b"a\0", b"b\0", b"c\0"].map(|identifier| sequence(identifier, b"", 0));
    check(0, &[], Err("the message has no body section"));
    check(0, &[&a], Err("the message has no body section"));
    check(
        0,
        &[&body(), &body()],
        Err("the message has more than one body section"),
    );
    check(
        0,
        &[&body(), &a, &a],
        Err("two document sequences have the same identifier"),
    );
    check(
        0,
        &[&a, &b, &c, &body()],
        Err("the message has too many document sequences"),
    );
    check(0, &[&body(), &[2]], Err("unknown section kind 2"));
    check(0, &[&[255]], Err("unknown section kind 255"));
    for sections in [
        [body(), sequence(b"insert\0", b"", 0)],
        [sequence(b"insert\0", b"", 0), body()],
    ] {
        let sections = sections.each_ref().map(Vec::as_slice);
        check(
            0,
            &sections,
            Err("a document sequence has the identifier of a field in the body"),
        );
    }
}

#[test]
fn wrong_lengths_are_refused() {
    check(0, &[&[0]], Err("the message ends inside its document"));
    check(0, &[&[0, 5, 0, 0]], Err("the message ends inside its document"));
    check(0, &[&[0, 5, 0, 0, 0, 9]], Err("a document is not valid BSON"));
    for length in [i32::MIN, -1, 0, 4, 6, i32::MAX] {
        let section = [&[0][..], &length.to_le_bytes(), &[0]].concat();
        check(
            0,
            &[&section],
            Err(&format!("a document announces {length} bytes, but 5 remain")),
        );
    }
    check(
        0,
        &[&body(), &[1, 9, 0, 0]],
        Err("the message ends inside its document sequence"),
    );
    for size in [i32::MIN, -1, 0, 3, 7, i32::MAX] {
        let section = [&[1][..], &size.to_le_bytes(), b"a\0"].concat();
        check(
            0,
            &[&body(), &section],
            Err(&format!("a document sequence announces {size} bytes, but 6 remain")),
        );
    }
    let identifier = "the message ends inside its document sequence's identifier";
    check(0, &[&body(), &sequence(b"", b"", 0)], Err(identifier));
    check(0, &[&body(), &sequence(b"a\0", b"", -1), b"\0"], Err(identifier));
    check(
        0,
        &[&body(), &sequence(b"\xff\0", b"", 0)],
        Err("the document sequence's identifier is not UTF-8"),
    );
    // The last byte of the sequence is then read as the kind of a section.
    check(
        0,
        &[&body(), &sequence(b"a\0", b"\x09", -1)],
        Err("unknown section kind 9"),
    );
}

#[test]
fn a_payload_too_short_for_flags_or_checksum_is_refused() {
    let error = OpMsg::parse(&frame(OpCode::Msg, &[0; 3])).unwrap_err();
    assert_eq!(error.to_string(), "the message ends inside its flags");
    check(1, &[&[0; 3]], Err("the message ends inside its checksum"));
    let error = OpMsg::parse(&frame(OpCode::Compressed, &[0; 9])).unwrap_err();
    assert_eq!(error.to_string(), "expected OP_MSG, found OP_COMPRESSED");
}

#[test]
fn any_changed_byte_breaks_the_checksum() {
    let message = OpMsgBuilder::new(7, 8)
        .flags(OpMsgFlags::CHECKSUM_PRESENT)
        .body(&rawdoc! { "ping": 1 });
    let message = message.build().unwrap();
    assert!(OpMsg::parse(&message).is_ok());
    // The ids come after the length; the checksum covers them, too.
    for place in 4..message.len() {
        let mut bytes = message.as_bytes().to_vec();
        bytes[place] ^= 0x80;
        let changed = Frame::from_bytes(bytes.into()).unwrap();
        assert!(OpMsg::parse(&changed).is_err(), "byte {place}");
        if place >= message.len() - CHECKSUM_BYTES {
            assert!(matches!(
                OpMsg::parse(&changed),
                Err(WireError::ChecksumMismatch { .. })
            ));
            assert!(OpMsg::parse_unverified(&changed).is_ok(), "byte {place}");
        }
    }
}

#[test]
fn documents_are_checked_as_they_are_reached() {
    let documents = b"\x05\0\0\0\0\x06\0\0\0\0\x05\0\0\0\0";
    let frame = frame(
        OpCode::Msg,
        &[&[0; 4][..], &body(), &sequence(b"a\0", documents, 0)].concat(),
    );
    let message = OpMsg::parse(&frame).unwrap();
    let outcomes: Vec<bool> = message.sequences[0]
        .documents()
        .map(|document| document.is_ok())
        .collect();
    // The second document takes the first byte of the third, which is not a terminator. Nothing is
    // read after it.
    assert_eq!(outcomes, [true, false]);
}

#[test]
fn flags_of_reads_only_the_flags() {
    let payload = [3, 0, 1, 0x80, 0xff];
    assert_eq!(
        OpMsg::flags_of(&frame(OpCode::Msg, &payload)).map(OpMsgFlags::bits),
        Some(0x8001_0003)
    );
    assert_eq!(OpMsg::flags_of(&frame(OpCode::Msg, &payload[..3])), None);
    assert_eq!(OpMsg::flags_of(&frame(OpCode::Reply, &payload)), None);
}

#[test]
fn errors_that_mongod_answers_have_its_code() {
    let check = |error: WireError, expected| assert_eq!(error.server_code(), expected, "{error}");
    check(WireError::DuplicateBody, Some(40430));
    check(WireError::DuplicateSequence, Some(40431));
    check(WireError::UnknownSectionKind { kind: 3 }, Some(40432));
    check(WireError::SequenceInBody, Some(40433));
    check(WireError::MissingBody, Some(40587));
    check(WireError::TooManySequences, None);
    check(WireError::UnknownFlags { bits: 4 }, None);
}

#[test]
fn builder_refuses_messages_that_the_reader_refuses() {
    let new = || OpMsgBuilder::new(1, 0);
    let document = rawdoc! { "a": 1 };
    let check = |builder: OpMsgBuilder, expected: &str| {
        assert_eq!(builder.build().unwrap_err().to_string(), expected);
    };
    check(new(), "the message has no body section");
    check(
        new().body(&document).body(&document),
        "the message has more than one body section",
    );
    check(
        new().sequence("b", []).sequence("b", []),
        "two document sequences have the same identifier",
    );
    check(
        new().sequence("b", []).sequence("c", []).sequence("d", []),
        "the message has too many document sequences",
    );
    check(
        new().sequence("b\0c", []),
        "the document sequence's identifier holds a zero byte",
    );
    check(
        new().body(&document).flags(OpMsgFlags::from_bits(4)),
        "unknown required flag bits 0x0004",
    );
}

#[test]
fn a_message_is_written_up_to_the_limit_and_not_beyond() {
    // Header, flags, kind; and the length, element type, key, string length and two terminators of the
    // document.
    const OVERHEAD: usize = HEADER_BYTES + 4 + 1 + (4 + 1 + 2 + 4 + 1 + 1);
    let build = |size: usize, flags| {
        let document = rawdoc! { "a": "x".repeat(size - OVERHEAD) };
        OpMsgBuilder::new(1, 0).flags(flags).body(&document).build()
    };
    let flags = OpMsgFlags::empty();
    assert_eq!(build(MAX_MESSAGE_BYTES, flags).unwrap().len(), MAX_MESSAGE_BYTES);
    let too_long = |outcome| matches!(outcome, Err(WireError::TooLong { max: MAX_MESSAGE_BYTES }));
    assert!(too_long(build(MAX_MESSAGE_BYTES + 1, flags)));
    assert!(too_long(build(MAX_MESSAGE_BYTES - 3, OpMsgFlags::CHECKSUM_PRESENT)));
}

/// A body and up to two sequences. `body_place` of them come before the body.
#[derive(Debug)]
struct Parts {
    ids: (i32, i32),
    flags: OpMsgFlags,
    body: RawDocumentBuf,
    body_place: usize,
    sequences: Vec<(String, Vec<RawDocumentBuf>)>,
}

prop_compose! {
    fn any_parts()(
        ids in any::<(i32, i32)>(),
        flags in (any::<u16>(), 0..4_u32).prop_map(|(high, low)| OpMsgFlags::from_bits(u32::from(high) << 16 | low)),
        body in any_document(),
        body_place in 0..=2_usize,
        // Upper case, so that none is the name of a field of the body.
        sequences in prop::collection::btree_map("[A-Z]{0,6}", prop::collection::vec(any_document(), 0..5), 0..=2),
    ) -> Parts {
        Parts { ids, flags, body, body_place, sequences: sequences.into_iter().collect() }
    }
}

fn build(parts: &Parts) -> Frame {
    let mut builder = OpMsgBuilder::new(parts.ids.0, parts.ids.1).flags(parts.flags);
    let (before, after) = parts.sequences.split_at(parts.body_place.min(parts.sequences.len()));
    for (identifier, documents) in before {
        builder = builder.sequence(identifier, documents.iter().map(AsRef::as_ref));
    }
    builder = builder.body(&parts.body);
    for (identifier, documents) in after {
        builder = builder.sequence(identifier, documents.iter().map(AsRef::as_ref));
    }
    builder.build().unwrap()
}

proptest! {
    #[test]
    fn messages_round_trip(parts in any_parts()) {
        let frame = build(&parts);
        let header = frame.header();
        prop_assert_eq!((header.request_id, header.response_to), parts.ids);
        prop_assert_eq!((header.message_length, header.op_code), (frame.len(), OpCode::Msg));

        let message = OpMsg::parse(&frame).unwrap();
        prop_assert_eq!(message.flags, parts.flags);
        prop_assert_eq!(OpMsg::flags_of(&frame), Some(parts.flags));
        prop_assert_eq!(message.body, parts.body.as_ref());
        if let Some(head) = OpMsgHead::of_beginning(frame.payload()) {
            prop_assert_eq!((head.flags, head.body), (message.flags, message.body));
        } else {
            prop_assert!(parts.body_place > 0 && !parts.sequences.is_empty());
        }
        prop_assert_eq!(message.sequences.len(), parts.sequences.len());
        for (sequence, (identifier, documents)) in message.sequences.iter().zip(&parts.sequences) {
            prop_assert_eq!(sequence.identifier, identifier);
            let read: Vec<&RawDocument> = sequence.documents().collect::<Result<_, _>>().unwrap();
            let written: Vec<&RawDocument> = documents.iter().map(AsRef::as_ref).collect();
            prop_assert_eq!(read, written);
        }
    }
}

#[test]
fn a_body_is_sent_and_taken_out_without_its_message() {
    let body = rawdoc! { "ok": 1.0, "x": "y" };
    let built = OpMsgBuilder::new(5, 7).body(&body).build().unwrap();
    let before = OpMsgBuilder::before_body(5, 7, &body).unwrap();
    assert_eq!([&before, body.as_bytes()].concat(), *built.as_bytes());
    // With shared and unshared bytes of the frame.
    let other = built.clone();
    assert_eq!(OpMsg::into_body(built).unwrap(), body);
    assert_eq!(OpMsg::into_body(other).unwrap(), body);
}

#[test]
fn a_head_is_read_from_the_beginning_that_holds_the_body() {
    let documents = sequence(b"documents\0", b"\x05\0\0\0\0", 0);
    let whole = [&[2, 0, 1, 0][..], &body(), &documents].concat();
    let end = 4 + body().len();
    for size in 0..=whole.len() {
        let head = OpMsgHead::of_beginning(&whole[..size]);
        assert_eq!(head.is_some(), size >= end, "{size}");
    }
    let head = OpMsgHead::of_beginning(&whole).unwrap();
    assert_eq!(head.flags, OpMsgFlags::MORE_TO_COME | OpMsgFlags::EXHAUST_ALLOWED);
    let frame = frame(OpCode::Msg, &whole);
    let message = OpMsg::parse(&frame).unwrap();
    let without_sequences = head.without_sequences();
    assert_eq!(without_sequences.body, message.body);
    assert_eq!(without_sequences.flags, message.flags);
    assert!(without_sequences.sequences.is_empty());
}

#[test]
fn a_message_that_begins_otherwise_has_no_head() {
    let check = |flags: u32, section: &[u8]| {
        let beginning = [&flags.to_le_bytes()[..], section].concat();
        assert_eq!(OpMsgHead::of_beginning(&beginning), None);
    };
    check(0, &[&sequence(b"a\0", b"", 0)[..], &body()].concat());
    check(1 << 5, &body());
    check(0, &[2]);
    check(0, b"\0\x04\0\0\0\0");
    check(0, b"\0\x05\0\0\0\x01");
}
