//! A stream in pieces is the frames that it is in one piece, in memory that what arrived bounds.

use bytes::{BufMut, BytesMut};
use mongoshape::wire::{Frame, FrameCodec, limits::MAX_MESSAGE_BYTES};
use tokio_util::codec::{Decoder, Encoder};

/// How much larger the codec's buffer may be than its input, in bytes.
const SLACK_BYTES: usize = 32 * 1024;

/// The first byte is how large the pieces are, the rest is the stream.
pub fn frame(data: &[u8]) {
    let Some((&size, stream)) = data.split_first() else {
        return;
    };
    let whole = decode(stream, stream.len());
    let pieces = decode(stream, usize::from(size));
    assert_eq!(whole.0, pieces.0);
    assert_eq!(whole.1, pieces.1);

    let mut written = BytesMut::new();
    for frame in whole.0 {
        FrameCodec::new(MAX_MESSAGE_BYTES)
            .encode(frame, &mut written)
            .expect("a frame that was read is written");
    }
    assert!(stream.starts_with(&written));
    assert!(whole.1.is_some() || written.len() == stream.len());
}

/// The frames of a stream that arrives in pieces of this size, and the error that it ends with.
fn decode(stream: &[u8], size: usize) -> (Vec<Frame>, Option<String>) {
    let mut codec = FrameCodec::new(MAX_MESSAGE_BYTES);
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    let mut given = 0;
    for piece in stream.chunks(size.max(1)) {
        buffer.put_slice(piece);
        given += piece.len();
        loop {
            match codec.decode(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error.to_string())),
            }
        }
        assert!(buffer.capacity() <= 4 * given + SLACK_BYTES);
    }
    match codec.decode_eof(&mut buffer) {
        Ok(rest) => {
            assert!(rest.is_none(), "a frame was held back");
            (frames, None)
        }
        Err(error) => (frames, Some(error.to_string())),
    }
}
