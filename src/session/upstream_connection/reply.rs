//! Reads replies of the upstream.

use bson::raw::RawDocumentBuf;

use super::LinkError;
use crate::wire::limits::MAX_MESSAGE_BYTES;
use crate::wire::{Frame, MessageHeader, OpCode, OpCompressed, OpMsg};

/// Bytes of a frame with this header, and of its decompressed content.
pub(super) fn whole_bytes(header: MessageHeader, beginning: &[u8]) -> usize {
    match header.op_code {
        OpCode::Compressed => header
            .message_length
            .saturating_add(OpCompressed::declared_bytes(beginning)),
        _ => header.message_length,
    }
}

/// The body of the reply to a request.
pub(super) fn body_of_reply(frame: Frame, request_id: i32) -> Result<RawDocumentBuf, LinkError> {
    if frame.header().response_to != request_id {
        return Err(LinkError::OutOfStep);
    }
    if frame.header().op_code == OpCode::Compressed {
        let opened = OpCompressed::parse(&frame, MAX_MESSAGE_BYTES)?.inflate()?;
        return Ok(OpMsg::into_body(opened)?);
    }
    Ok(OpMsg::into_body(frame)?)
}
