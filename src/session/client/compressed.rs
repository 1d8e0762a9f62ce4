//! OP_COMPRESSED: opened as far as it takes to know where it goes.

use super::{Closed, Message, Session};
use crate::command::error::{CommandError, ErrorCode};
use crate::session::relay::Sent;
use crate::wire::{Frame, Inflated, OpCode, OpCompressed};

/// So much of a message is opened at first; its command, without documents in a sequence, is hardly ever longer.
const HEAD_BYTES: usize = 64 * 1024;

impl Session<'_> {
    /// Answers an OP_COMPRESSED, and the answer is compressed alike.
    pub(super) async fn compressed(&mut self, frame: &Frame) -> Result<(), Closed> {
        let limit = self.settings.load().limits.max_message_bytes;
        let compressed = OpCompressed::parse(frame, limit).map_err(Closed::Compressed)?;
        if !self.agreed.contains(compressed.compressor) {
            let message = format!(
                "the compressor {} was not agreed on in the handshake",
                compressed.compressor
            );
            self.reply_in_kind(frame, CommandError::new(ErrorCode::BadValue, &message))
                .await?;
            return Err(Closed::Protocol(message));
        }
        match compressed.original_op_code {
            OpCode::Msg => {}
            OpCode::Query => {
                let opened = compressed.inflate().map_err(Closed::Compressed)?;
                return self.query(&opened).await;
            }
            other => return Err(Closed::Protocol(format!("a compressed {other}, which no client sends"))),
        }
        let opened = match compressed.inflate_head(HEAD_BYTES).map_err(Closed::Compressed)? {
            Inflated::Whole(opened) => opened,
            Inflated::Head(beginning) => {
                if let Some(command) = self.beginning_to_relay(&beginning) {
                    return self.relay_beginning(Sent::Whole(frame), &command).await;
                }
                compressed.inflate().map_err(Closed::Compressed)?
            }
        };
        self.compressor = Some(compressed.compressor);
        let message = Message {
            received: frame,
            opened: &opened,
        };
        self.message(message).await
    }
}
