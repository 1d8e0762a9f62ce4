//! Replies of the proxy itself.

use bson::raw::RawDocumentBuf;

use super::{Closed, Session, legacy};
use crate::command::error::CommandError;
use crate::session::metrics::ByteDirection;
use crate::session::upstream_connection::LinkError;
use crate::wire::{Frame, OpCode, OpCompressed, OpMsgBuilder};

/// Longer replies are sent without a copy into one frame.
const LONG_BYTES: usize = 64 * 1024;

/// The recipient of the replies that the proxy makes.
#[derive(Debug, Default)]
pub(super) enum ReplyTarget {
    #[default]
    Client,
    /// The command that the current one is a part of.
    Whole(Option<RawDocumentBuf>),
}

impl Session<'_> {
    pub(super) async fn reply(&mut self, request: &Frame, body: RawDocumentBuf) -> Result<(), Closed> {
        if let ReplyTarget::Whole(reply) = &mut self.reply_target {
            *reply = Some(body);
            return Ok(());
        }
        if body.as_bytes().len() > LONG_BYTES && self.compressor.is_none() {
            let before = OpMsgBuilder::before_body(0, request.header().request_id, &body).map_err(LinkError::from)?;
            let bytes = before.len().saturating_add(body.as_bytes().len());
            self.shared.metrics.bytes(ByteDirection::Sent, bytes);
            return Ok(self.client.send_parts([&before, body.as_bytes()]).await?);
        }
        let reply = OpMsgBuilder::new(0, request.header().request_id).body(&body).build();
        self.send(&reply.map_err(LinkError::from)?).await
    }

    /// Replies with an error to OP_QUERY by OP_REPLY, and to OP_MSG by OP_MSG.
    pub(super) async fn reply_in_kind(&mut self, request: &Frame, error: CommandError) -> Result<(), Closed> {
        if let ReplyTarget::Whole(reply) = &mut self.reply_target {
            *reply = Some(error.into_reply());
            return Ok(());
        }
        self.send(&error_reply(request, error)?).await
    }

    pub(super) async fn send(&mut self, reply: &Frame) -> Result<(), Closed> {
        let compressed = self
            .compressor
            .map(|compressor| OpCompressed::compress(reply, compressor));
        let compressed = compressed.transpose().map_err(LinkError::from)?;
        let reply = compressed.as_ref().unwrap_or(reply);
        self.shared.metrics.bytes(ByteDirection::Sent, reply.len());
        Ok(self.client.send(reply).await?)
    }
}

/// Encodes an error in the message kind of its request.
pub(super) fn error_reply(request: &Frame, error: CommandError) -> Result<Frame, LinkError> {
    if request.header().op_code == OpCode::Query {
        return legacy::error_reply(request, error);
    }
    let body = error.into_reply();
    let reply = OpMsgBuilder::new(0, request.header().request_id).body(&body).build();
    Ok(reply?)
}
