//! Helpers for the tests of `wire`, and properties for arbitrary bytes.

use bson::{RawDocument, RawDocumentBuf};
use bytes::Bytes;
use proptest::prelude::*;

use super::*;

/// A frame of this payload, valid or not.
pub(super) fn frame(op_code: OpCode, payload: &[u8]) -> Frame {
    let length = i32::try_from(HEADER_BYTES + payload.len()).unwrap();
    let mut bytes = Vec::new();
    for number in [length, 7, 8, op_code.into()] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(payload);
    Frame::from_bytes(Bytes::from(bytes)).unwrap()
}

/// A document of a few fields with lower-case names.
pub(super) fn any_document() -> impl Strategy<Value = RawDocumentBuf> {
    prop::collection::vec(("[a-z]{1,8}", "[ -~]{0,40}"), 0..5).prop_map(|fields| {
        let document: bson::Document = fields.into_iter().map(|(key, value)| (key, value.into())).collect();
        RawDocumentBuf::try_from(document).unwrap()
    })
}

fn raw(documents: &[RawDocumentBuf]) -> Vec<&RawDocument> {
    documents.iter().map(AsRef::as_ref).collect()
}

/// Bytes that often look like a message in their first parts.
fn plausible_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(vec![0]),
        Just(vec![1]),
        (0..40_i32).prop_map(|number| number.to_le_bytes().to_vec()),
        any::<[u8; 4]>().prop_map(|bytes| bytes.to_vec()),
        Just(b"name\0".to_vec()),
        any_document().prop_map(RawDocumentBuf::into_bytes),
        any::<u8>().prop_map(|byte| vec![byte]),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn read_everything(frame: &Frame) {
    let _ = OpMsg::flags_of(frame);
    let _ = OpMsg::parse(frame);
    if let Ok(message) = OpMsg::parse_unverified(frame) {
        for sequence in &message.sequences {
            let bytes: usize = sequence
                .documents()
                .flatten()
                .map(|document| document.as_bytes().len())
                .sum();
            assert!(bytes <= sequence.documents.len());
        }
    }
    let _ = OpMsgHead::of_beginning(frame.payload());
    let _ = OpQuery::parse(frame);
    let _ = OpReply::parse(frame);
}

proptest! {
    #[test]
    fn arbitrary_payloads_never_panic(
        number in prop_oneof![Just(1), Just(2004), Just(2012), Just(2013), any::<i32>()],
        payload in prop_oneof![plausible_bytes(), prop::collection::vec(any::<u8>(), 0..200)],
    ) {
        read_everything(&frame(number.into(), &payload));
    }

    #[test]
    fn messages_with_broken_bytes_never_panic(
        body in any_document(),
        documents in prop::collection::vec(any_document(), 0..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let message = OpMsgBuilder::new(1, 0).body(&body).sequence("D", raw(&documents)).build().unwrap();
        let mut payload = message.payload().to_vec();
        for (index, byte) in changes {
            let place = index.index(payload.len());
            payload[place] = byte;
        }
        read_everything(&frame(OpCode::Msg, &payload));
    }

    #[test]
    fn op_query_is_read_as_written(
        numbers in any::<(i32, i32, i32, i32, i32)>(),
        name in "[a-z.$]{0,20}",
        query in any_document(),
        fields in prop::option::of(any_document()),
    ) {
        let written = OpQuery {
            flags: numbers.0,
            full_collection_name: &name,
            number_to_skip: numbers.1,
            number_to_return: numbers.2,
            query: &query,
            return_fields: fields.as_deref(),
        };
        let frame = written.encode(numbers.3, numbers.4).unwrap();
        prop_assert_eq!(frame.header().request_id, numbers.3);
        prop_assert_eq!(frame.header().response_to, numbers.4);
        prop_assert_eq!(OpQuery::parse(&frame).unwrap(), written);
    }

    #[test]
    fn op_reply_is_read_as_written(
        numbers in any::<(i32, i64, i32, i32, i32)>(),
        documents in prop::collection::vec(any_document(), 0..4),
    ) {
        let written = OpReply {
            response_flags: numbers.0,
            cursor_id: numbers.1,
            starting_from: numbers.2,
            documents: raw(&documents),
        };
        let frame = written.encode(numbers.3, numbers.4).unwrap();
        prop_assert_eq!(frame.header().request_id, numbers.3);
        prop_assert_eq!(frame.header().response_to, numbers.4);
        prop_assert_eq!(OpReply::parse(&frame).unwrap(), written);
    }
}

/// The parts of a legacy message, and a document of no fields.
fn numbers(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

#[test]
fn malformed_op_query_is_refused() {
    let check = |parts: &[&[u8]], expected: &str| {
        let error = OpQuery::parse(&frame(OpCode::Query, &parts.concat())).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    let (flags, rest) = (&numbers(&[0])[..], &numbers(&[0, -1])[..]);
    check(&[], "the message ends inside its flags");
    check(&[flags, b"admin.$cmd"], "the message ends inside its collection name");
    check(&[flags, b"\xff\0"], "the collection name is not UTF-8");
    check(
        &[flags, b"a.b\0", flags],
        "the message ends inside its number to return",
    );
    check(&[flags, b"a.b\0", rest], "the message ends inside its document");
    check(
        &[flags, b"a.b\0", rest, &[6, 0, 0, 0, 0]],
        "a document announces 6 bytes, but 5 remain",
    );
    check(
        &[flags, b"a.b\0", rest, EMPTY, &[5, 0, 0, 0, 1]],
        "a document is not valid BSON",
    );
    check(
        &[flags, b"a.b\0", rest, EMPTY, EMPTY, &[0]],
        "1 bytes follow the end of the message's contents",
    );

    let error = OpQuery::parse(&frame(OpCode::Msg, b"")).unwrap_err();
    assert_eq!(error.to_string(), "expected OP_QUERY, found OP_MSG");
    let document = bson::rawdoc! {};
    let query = OpQuery {
        flags: 0,
        full_collection_name: "a\0b",
        number_to_skip: 0,
        number_to_return: 1,
        query: &document,
        return_fields: None,
    };
    assert_eq!(
        query.encode(1, 0).unwrap_err().to_string(),
        "the collection name holds a zero byte"
    );
}

#[test]
fn malformed_op_reply_is_refused() {
    let check = |declared: i32, documents: &[&[u8]], expected: &str| {
        let payload = [&numbers(&[8, 0, 0, 0, declared])[..], &documents.concat()].concat();
        let error = OpReply::parse(&frame(OpCode::Reply, &payload)).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(0, &[EMPTY], "the reply announces 0 documents");
    check(-1, &[], "the reply announces -1 documents");
    check(i32::MAX, &[EMPTY], "the reply announces 2147483647 documents");
    check(2, &[EMPTY, b"\x05"], "the message ends inside its document");
    check(1, &[&[4, 0, 0, 0, 0]], "a document announces 4 bytes, but 5 remain");

    let error = OpReply::parse(&frame(OpCode::Reply, &[0; 19])).unwrap_err();
    assert_eq!(error.to_string(), "the message ends inside its number of documents");
    let error = OpReply::parse(&frame(OpCode::Other(5), b"")).unwrap_err();
    assert_eq!(error.to_string(), "expected OP_REPLY, found op code 5");
}
