//! OP_COMPRESSED: decompressed as far as routing needs it.

use bytes::Bytes;
use tokio::task::spawn_blocking;

use super::{Closed, Message, Session};
use crate::command::error::{CommandError, ErrorCode};
use crate::session::relay::RequestBytes;
use crate::wire::{Frame, Inflated, OpCode, OpCompressed, WireError};

/// So much of a message is opened at first; its command, without documents in a sequence, is hardly ever
/// longer.
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
        let original = compressed.original_op_code;
        if !matches!(original, OpCode::Msg | OpCode::Query) {
            return Err(Closed::Protocol(format!(
                "a compressed {original}, which no client sends"
            )));
        }
        if compressed.uncompressed_bytes <= HEAD_BYTES {
            let opened = compressed.inflate().map_err(Closed::Compressed)?;
            return self.opened(frame, &opened, &compressed).await;
        }
        // Until it is answered. A long one has it already.
        let is_short = self.request_memory.bytes() == 0;
        if is_short && self.reserve_request(compressed.uncompressed_bytes).await?.is_some() {
            return Err(Closed::NoRoom);
        }
        if original == OpCode::Msg {
            let beginning = apart(frame.clone(), limit, beginning).await?;
            if let Some(command) = self.beginning_to_relay(&beginning) {
                self.request_memory.shrink(frame.len());
                return self.relay_beginning(RequestBytes::Whole(frame), &command).await;
            }
        }
        let opened = apart(frame.clone(), limit, whole).await?;
        self.opened(frame, &opened, &compressed).await
    }

    async fn opened(&mut self, frame: &Frame, opened: &Frame, compressed: &OpCompressed<'_>) -> Result<(), Closed> {
        if compressed.original_op_code == OpCode::Query {
            return self.query(opened).await;
        }
        self.compressor = Some(compressed.compressor);
        let received = frame;
        self.message(Message { received, opened }).await
    }
}

/// The beginning of a long message. Of one that must be opened whole for that it is a copy: the whole is not
/// kept while the message is relayed.
fn beginning(compressed: &OpCompressed<'_>) -> Result<Bytes, WireError> {
    Ok(match compressed.inflate_head(HEAD_BYTES)? {
        Inflated::Head(beginning) => beginning,
        Inflated::Whole(opened) => {
            let payload = opened.payload();
            Bytes::copy_from_slice(payload.get(..HEAD_BYTES).unwrap_or(payload))
        }
    })
}

fn whole(compressed: &OpCompressed<'_>) -> Result<Frame, WireError> {
    compressed.inflate()
}

/// Opens a long message on another thread: other sessions live on this one.
async fn apart<T: Send + 'static>(
    frame: Frame,
    limit: usize,
    open: fn(&OpCompressed<'_>) -> Result<T, WireError>,
) -> Result<T, Closed> {
    let opened = spawn_blocking(move || open(&OpCompressed::parse(&frame, limit)?)).await;
    // The threads end with the proxy.
    let opened = opened.map_err(|_| Closed::Retired)?;
    opened.map_err(Closed::Compressed)
}
