//! An OP_MSG is read the same in every way of reading it, and written as it was read.

use bson::RawDocument;
use mongoshape::wire::{DocumentSequence, OpCode, OpMsg, OpMsgBuilder, OpMsgFlags, OpMsgHead};

use crate::message::message;

/// The input is a message without its header.
pub fn op_msg(data: &[u8]) {
    let frame = message(OpCode::Msg, data);
    let verified = OpMsg::parse(&frame);
    let head = OpMsgHead::of_beginning(data);
    let Ok(read) = OpMsg::parse_unverified(&frame) else {
        assert!(verified.is_err());
        return;
    };
    assert_eq!(OpMsg::flags_of(&frame), Some(read.flags));
    let has_checksum = read.flags.contains(OpMsgFlags::CHECKSUM_PRESENT);
    assert!(verified.is_ok() || has_checksum);
    if let Some(head) = head {
        assert_eq!((head.flags, head.body), (read.flags, read.body));
    }

    let documents: Result<Vec<Vec<&RawDocument>>, _> = read
        .sequences
        .iter()
        .map(|sequence| sequence.documents().collect())
        .collect();
    let Ok(documents) = documents else { return };
    let mut builder = OpMsgBuilder::new(7, 8).flags(read.flags).body(read.body);
    for (sequence, documents) in read.sequences.iter().zip(documents) {
        builder = builder.sequence(sequence.identifier, documents);
    }
    let written = builder.build().expect("a message that was read is written");
    let again = OpMsg::parse(&written).expect("a message that was written is read");
    assert_eq!((again.flags, again.body), (read.flags, read.body));
    assert_eq!(parts(&again.sequences), parts(&read.sequences));
}

fn parts<'a>(sequences: &[DocumentSequence<'a>]) -> Vec<(&'a str, &'a [u8])> {
    sequences
        .iter()
        .map(|sequence| (sequence.identifier, sequence.documents))
        .collect()
}
