//! The legacy messages are written as they were read.

use mongoshape::wire::{OpCode, OpQuery, OpReply};

use crate::message::message;

/// The input is a message without its header: an OP_QUERY and an OP_REPLY.
pub fn op_query(data: &[u8]) {
    let frame = message(OpCode::Query, data);
    if let Ok(query) = OpQuery::parse(&frame) {
        let written = query.encode(7, 8).expect("a message that was read is written");
        assert_eq!(written, frame);
    }
    let frame = message(OpCode::Reply, data);
    if let Ok(reply) = OpReply::parse(&frame) {
        let written = reply.encode(7, 8).expect("a message that was read is written");
        assert_eq!(written, frame);
    }
}
