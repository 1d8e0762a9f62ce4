//! Replies: building the proxy's own, reading mongod's.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::document::as_flag;
use super::error::CommandError;
use super::namespace::Namespace;

/// Fields that a reply built by the proxy repeats from mongod's last one, so that sessions stay causally consistent.
const CARRIED: &[&str] = &[
    "$clusterTime",
    "operationTime",
    "electionId",
    "opTime",
    "topologyVersion",
];

/// A reply of mongod that says `ok: 1`.
///
/// # Errors
/// The reply itself when it says `ok: 0`.
pub fn succeeded(reply: RawDocumentBuf) -> Result<RawDocumentBuf, CommandError> {
    let ok = reply.get("ok").ok().flatten().and_then(as_flag).unwrap_or(false);
    if ok {
        Ok(reply)
    } else {
        Err(CommandError::Upstream(reply))
    }
}

/// Repeats in a reply what must be carried over from mongod's.
pub fn carry(reply: &mut RawDocumentBuf, upstream: &RawDocument) {
    for (name, value) in upstream.iter().flatten() {
        if CARRIED.contains(&name.as_str()) {
            reply.append(name, value);
        }
    }
}

/// A reply with a whole result in its first batch and no cursor left.
#[must_use]
pub fn exhausted_cursor(namespace: Namespace<'_>, batch: &RawArrayBuf) -> RawDocumentBuf {
    let mut cursor = RawDocumentBuf::new();
    cursor.append(cstr!("firstBatch"), batch);
    cursor.append(cstr!("id"), 0_i64);
    cursor.append(cstr!("ns"), namespace.to_string());
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("cursor"), &cursor);
    reply.append(cstr!("ok"), 1.0);
    reply
}

/// The cursor of a reply to `find`, `aggregate` or `getMore`.
#[derive(Clone, Copy, Debug)]
pub struct CursorReply<'a> {
    /// 0 when the result is complete.
    pub id: i64,
    /// The documents.
    pub batch: &'a bson::raw::RawArray,
}

impl<'a> CursorReply<'a> {
    /// Reads it. `None` where the reply has no cursor.
    #[must_use]
    pub fn parse(reply: &'a RawDocument) -> Option<Self> {
        let cursor = reply.get_document("cursor").ok()?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))
            .ok()?;
        Some(Self {
            id: cursor.get_i64("id").ok()?,
            batch,
        })
    }

    /// The batch's documents.
    pub fn documents(&self) -> impl Iterator<Item = &'a RawDocument> {
        self.batch.into_iter().flatten().filter_map(RawBsonRef::as_document)
    }
}

/// The reply with its cursor closed: the same batch, id 0.
#[must_use]
pub fn with_closed_cursor(reply: &RawDocument) -> RawDocumentBuf {
    let mut copy = RawDocumentBuf::new();
    for (name, value) in reply.iter().flatten() {
        match value {
            RawBsonRef::Document(cursor) if name.as_str() == "cursor" => {
                let closed = super::arguments::with_replaced(cursor, &[("id", Some(RawBsonRef::Int64(0)))]);
                copy.append(name, &closed);
            }
            _ => copy.append(name, value),
        }
    }
    copy
}
