//! HTTP on the MongoDB port: a probe of a load balancer, or a browser. It gets mongod's response.

use crate::session::stream::{FrameStream, StreamError};
use crate::wire::WireError;

/// The beginning of a GET request, read as the length of a message. mongod recognises no other method.
const GET: i32 = i32::from_le_bytes(*b"GET ");
const HEADERS: &[u8] =
    b"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 85\r\n\r\n";
const TEXT: &[u8; 85] = b"It looks like you are trying to access MongoDB over HTTP on the native driver port.\r\n";

/// Whether the bytes that could not be read as a message are an HTTP request.
pub(super) fn is_request(error: &StreamError) -> bool {
    matches!(error, StreamError::Wire(WireError::MessageLength { length: GET, .. }))
}

pub(super) async fn respond(client: &mut FrameStream) -> Result<(), StreamError> {
    client.send_parts([HEADERS, TEXT]).await
}
