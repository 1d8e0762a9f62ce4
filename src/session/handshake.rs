//! `hello` and `isMaster`: what the two sides agree on, as far as a proxy between them changes it.
//!
//! * Compression is not offered: OP_COMPRESSED is not opened yet, so a shaped collection could be reached inside one.
//! * A member of a replica set must not be introduced as it is: its `hosts` would lead drivers round the proxy, to where a
//!   shaped collection shows raw buckets. Until the reply is edited for that, it is refused.

use bson::raw::RawDocument;

use crate::command::arguments::with_replaced;
use crate::command::error::{CommandError, ErrorCode};
use crate::wire::{Frame, OpMsg, OpMsgBuilder, OpMsgFlags, OpQuery, WireError};

/// The field with which a client offers compressors.
const COMPRESSION: &str = "compression";

/// The client's OP_MSG handshake as mongod is to see it.
pub(super) fn edit_message(frame: &Frame, message: &OpMsg<'_>) -> Result<Frame, WireError> {
    if !offers_compression(message.body) {
        return Ok(frame.clone());
    }
    let header = frame.header();
    let mut flags = message.flags;
    flags.remove(OpMsgFlags::CHECKSUM_PRESENT);
    let body = with_replaced(message.body, &[(COMPRESSION, None)]);
    OpMsgBuilder::new(header.request_id, header.response_to)
        .flags(flags)
        .body(&body)
        .build()
}

/// The client's OP_QUERY handshake as mongod is to see it.
pub(super) fn edit_query(frame: &Frame, query: &OpQuery<'_>) -> Result<Frame, WireError> {
    if !offers_compression(query.query) {
        return Ok(frame.clone());
    }
    let header = frame.header();
    let body = with_replaced(query.query, &[(COMPRESSION, None)]);
    let edited = OpQuery { query: &body, ..*query };
    edited.encode(header.request_id, header.response_to)
}

/// Refuses a reply that would lead the client round the proxy.
pub(super) fn check_reply(reply: &RawDocument) -> Result<(), CommandError> {
    if matches!(reply.get("setName"), Ok(Some(_))) {
        let message = "the upstream is a member of a replica set, which this version of mongoshape does not support: \
                       drivers would connect to its members directly";
        return Err(CommandError::new(ErrorCode::IllegalOperation, message));
    }
    Ok(())
}

fn offers_compression(hello: &RawDocument) -> bool {
    matches!(hello.get(COMPRESSION), Ok(Some(_)))
}
