//! OP_COMPRESSED: decompressed only as far as routing needs it.

use bytes::Bytes;
use tokio::task::spawn_blocking;

use super::{Closed, Message, Session};
use crate::command::error::{CommandError, ErrorCode};
use crate::session::relay::RequestBytes;
use crate::wire::{Frame, Inflated, OpCode, OpCompressed, WireError};

/// Bytes that are decompressed first. A command without its document sequences is rarely longer.
const HEAD_BYTES: usize = 64 * 1024;

impl Session<'_> {
    /// Handles an OP_COMPRESSED. The reply uses the same compressor.
    pub(super) async fn compressed(&mut self, frame: &Frame) -> Result<(), Closed> {
        let limit = self.settings.load().limits.max_message_bytes;
        let compressed = OpCompressed::parse(frame, limit).map_err(Closed::Compressed)?;
        if !self.agreed.contains(compressed.compressor) {
            let message = format!(
                "the compressor {} was not negotiated in the handshake",
                compressed.compressor
            );
            self.reply_in_kind(frame, CommandError::new(ErrorCode::BadValue, &message))
                .await?;
            return Err(Closed::Protocol(message));
        }
        let original = compressed.original_op_code;
        if !matches!(original, OpCode::Msg | OpCode::Query) {
            return Err(Closed::Protocol(format!("clients do not send compressed {original}")));
        }
        if compressed.uncompressed_bytes <= HEAD_BYTES {
            let opened = compressed.inflate().map_err(Closed::Compressed)?;
            return self.opened(frame, &opened, &compressed).await;
        }
        // Reserved until the reply is sent. For a long message the memory is reserved already.
        let is_short = self.request_memory.bytes() == 0;
        if is_short && self.reserve_request(compressed.uncompressed_bytes).await?.is_some() {
            return Err(Closed::NoRoom);
        }
        if original == OpCode::Msg {
            let beginning = apart(frame.clone(), limit, beginning).await?;
            if let Some(command) = self.beginning_to_relay(&beginning) {
                self.request_memory.shrink(frame.len());
                return self.relay_beginning(RequestBytes::Whole(frame), command).await;
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

/// The first bytes of a long message. If the compressor requires decompressing the whole message,
/// they are copied, so that the whole is not in memory while the message is relayed.
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

/// Decompresses a long message on another thread, because this one serves other sessions.
async fn apart<T: Send + 'static>(
    frame: Frame,
    limit: usize,
    open: fn(&OpCompressed<'_>) -> Result<T, WireError>,
) -> Result<T, Closed> {
    let opened = spawn_blocking(move || open(&OpCompressed::parse(&frame, limit)?)).await;
    // The thread pool ends only with the proxy.
    let opened = opened.map_err(|_| Closed::Retired)?;
    opened.map_err(Closed::Compressed)
}
