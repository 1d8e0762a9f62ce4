//! Builds replies of the proxy, and reads mongod's.

use bson::Timestamp;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::arguments::with_replaced;
use super::document::{as_flag, as_whole_number};
use super::error::CommandError;
use super::namespace::Namespace;

/// Fields that a reply of the proxy repeats from mongod's last reply, so that sessions stay
/// causally consistent.
const CARRIED: &[&str] = &[
    "$clusterTime",
    "operationTime",
    "electionId",
    "opTime",
    "topologyVersion",
    "recoveryToken",
];

/// The field of a mongos's reply with the replies of the servers.
const RAW: &str = "raw";

/// Returns a reply with `ok: 1`.
///
/// # Errors
/// The reply itself, if it has `ok: 0`.
pub fn succeeded(reply: RawDocumentBuf) -> Result<RawDocumentBuf, CommandError> {
    let ok = reply.get("ok").ok().flatten().and_then(as_flag).unwrap_or(false);
    if ok {
        Ok(reply)
    } else {
        Err(CommandError::Upstream(reply))
    }
}

/// Whether a reply reports that its server is not primary or no longer primary (Server Discovery
/// and Monitoring, "not writable primary" and "node is recovering"): as the error of the command,
/// of its write concern, or of a statement.
#[must_use]
pub fn says_not_primary(reply: &RawDocument) -> bool {
    const CODES: &[i64] = &[91, 189, 10058, 10107, 11600, 11602, 13435, 13436];
    let code = |of: &RawDocument| super::document::get(of, "code").and_then(as_whole_number);
    let mut succeeded = true;
    let mut codes = [None, None, None];
    // One pass, because the reply to every command is checked.
    for (name, value) in reply.iter().flatten() {
        match name.as_str() {
            "ok" => succeeded = as_flag(value).unwrap_or(false),
            "code" => codes[0] = as_whole_number(value),
            "writeConcernError" => codes[1] = value.as_document().and_then(code),
            // Later statements have the same error, or their errors were detected before.
            "writeErrors" => {
                let first = value.as_array().and_then(|errors| errors.into_iter().next()?.ok());
                codes[2] = first.and_then(RawBsonRef::as_document).and_then(code);
            }
            _ => {}
        }
    }
    let [own, write_concern, statement] = codes;
    let is_one = |code: Option<i64>| code.is_some_and(|code| CODES.contains(&code));
    (!succeeded && is_one(own)) || is_one(write_concern) || is_one(statement)
}

/// Converts the reply of the server that executed an index command. A mongos returns it in `raw`, by the server's
/// name.
#[must_use]
pub fn convert_of_server(reply: &RawDocument, convert: impl Fn(&RawDocument) -> RawDocumentBuf) -> RawDocumentBuf {
    let Some(by_server) = super::document::get(reply, RAW).and_then(RawBsonRef::as_document) else {
        return convert(reply);
    };
    let mut converted = RawDocumentBuf::new();
    for (server, reply) in by_server.iter().flatten() {
        match reply {
            RawBsonRef::Document(reply) => converted.append(server, convert(reply)),
            other => converted.append(server, other),
        }
    }
    with_replaced(reply, &[(RAW, Some(RawBsonRef::Document(&converted)))])
}

/// Copies the fields that a reply of the proxy repeats from mongod's.
pub fn copy_cluster_time(reply: &mut RawDocumentBuf, upstream: &RawDocument) {
    for (name, value) in upstream.iter().flatten() {
        if CARRIED.contains(&name.as_str()) {
            reply.append(name, value);
        }
    }
}

/// A reply with the whole result in its first batch and a closed cursor.
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
    /// 0 if the result is complete.
    pub id: i64,
    /// The documents.
    pub batch: &'a bson::raw::RawArray,
    /// The time of the snapshot, with read concern `snapshot` outside of transactions.
    pub snapshot_time: Option<Timestamp>,
}

impl<'a> CursorReply<'a> {
    /// Parses the cursor of a reply. `None` if the reply has no cursor.
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
            snapshot_time: cursor.get_timestamp("atClusterTime").ok(),
        })
    }

    /// The documents of the batch.
    pub fn documents(&self) -> impl Iterator<Item = &'a RawDocument> {
        self.batch.into_iter().flatten().filter_map(RawBsonRef::as_document)
    }
}

/// The reply with its cursor closed: the same batch, id 0.
#[must_use]
pub fn with_closed_cursor(reply: &RawDocument) -> RawDocumentBuf {
    with_cursor_id(reply, 0)
}

/// The reply with another id of its cursor.
#[must_use]
pub fn with_cursor_id(reply: &RawDocument, id: i64) -> RawDocumentBuf {
    let mut copy = RawDocumentBuf::new();
    for (name, value) in reply.iter().flatten() {
        match value {
            RawBsonRef::Document(cursor) if name.as_str() == "cursor" => {
                let cursor = super::arguments::with_replaced(cursor, &[("id", Some(RawBsonRef::Int64(id)))]);
                copy.append(name, &cursor);
            }
            _ => copy.append(name, value),
        }
    }
    copy
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use super::*;

    #[test]
    fn not_primary_error_is_recognised_in_three_places() {
        let check = |reply: Document, expected| {
            let raw = RawDocumentBuf::try_from(&reply).unwrap();
            assert_eq!(says_not_primary(&raw), expected, "{reply}");
        };
        check(doc! { "ok": 0.0, "code": 10107 }, true);
        check(doc! { "ok": 0.0, "code": 13435, "topologyVersion": {} }, true);
        check(doc! { "n": 1, "writeConcernError": { "code": 91 }, "ok": 1.0 }, true);
        check(
            doc! { "n": 1, "writeErrors": [{ "index": 1, "code": 189 }], "ok": 1.0 },
            true,
        );
        check(doc! { "ok": 0.0, "code": 11000 }, false);
        check(doc! { "n": 0, "writeErrors": [{ "code": 11000 }], "ok": 1.0 }, false);
        check(doc! { "code": 10107, "ok": 1.0 }, false);
        check(doc! { "cursor": { "code": 10107 }, "ok": 1.0 }, false);
    }
}
