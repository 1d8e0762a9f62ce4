//! OP_COMPRESSED: opened as far as it takes to know where it goes.

use std::time::Instant;

use super::{Closed, Message, Session};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::head::Head;
use crate::session::metrics::Outcome;
use crate::session::relay::Request;
use crate::session::route::{self, Route};
use crate::wire::{Frame, Inflated, OpCode, OpCompressed, OpMsgHead};

/// So much of a message is opened at first; its command, without documents in a sequence, is hardly ever longer.
const HEAD_BYTES: usize = 64 * 1024;

/// The one command whose namespaces may stand in a sequence.
const BULK_WRITE: &str = "bulkWrite";

impl Session<'_> {
    /// Answers an OP_COMPRESSED, and the answer is compressed alike.
    pub(super) async fn compressed(&mut self, frame: &Frame) -> Result<(), Closed> {
        let limit = self.shared.settings().limits.max_message_bytes;
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
                if self.relay_by_head(frame, &beginning).await? {
                    return Ok(());
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

    /// Passes a message on of which only the beginning was opened, if that is enough to know that it is to be.
    async fn relay_by_head(&mut self, frame: &Frame, beginning: &[u8]) -> Result<bool, Closed> {
        let Some(opened) = OpMsgHead::of_beginning(beginning) else {
            return Ok(false);
        };
        let flags = opened.flags;
        let head = match Head::of(opened.without_sequences()) {
            Ok(head) if head.name != BULK_WRITE => head,
            _ => return Ok(false),
        };
        let begun = Instant::now();
        let settings = self.shared.settings();
        if !matches!(route::decide(&settings, &self.shared.metrics, &head), Route::Relay) {
            return Ok(false);
        }
        let relayed = self.relay(Request { frame, flags }, self.look()).await;
        let outcome = *relayed.as_ref().unwrap_or(&Outcome::Failed);
        self.shared
            .metrics
            .command(head.name, outcome, begun.elapsed().as_secs_f64());
        relayed.map(|_| true)
    }
}
