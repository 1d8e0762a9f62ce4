//! `hello` and `isMaster`: how the server is introduced to the client, as far as a proxy between them changes it.
//!
//! * A member of a replica set is shown as what the listener [presents](Presentation): its own `hosts` would lead
//!   drivers round the proxy, to where a shaped collection shows raw buckets. A standalone or a mongos names no hosts and
//!   is shown as it is.
//! * Authentication by X.509 is not begun: mongod would see the proxy's certificate, not the client's.

mod presentation;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

pub use self::presentation::{AddressMap, Presentation};
use crate::command::arguments::with_replaced;
use crate::command::document::get;
use crate::command::error::{CommandError, ErrorCode};
use crate::wire::{Frame, OpMsg, OpMsgBuilder, OpMsgFlags, OpQuery, OpReply, WireError};

/// The mechanism that rests on the client's own TLS connection to mongod.
const X509: &str = "MONGODB-X509";

/// The field with which a client offers compressors.
const COMPRESSION: &str = "compression";

/// What a mongos gives drivers, so that another one may finish their transaction.
const RECOVERY_TOKEN: &str = "recoveryToken";

/// The first step of authentication, sent along with the handshake.
const SPECULATIVE: &str = "speculativeAuthenticate";

/// The client's OP_MSG handshake as mongod is to see it; `None`: as it is.
pub(super) fn edit_message(frame: &Frame, message: &OpMsg<'_>) -> Result<Option<Frame>, WireError> {
    let Some(body) = edit_request(message.body) else {
        return Ok(None);
    };
    rebuilt(frame, message.flags, &body).map(Some)
}

/// The client's OP_QUERY handshake as mongod is to see it; `None`: as it is.
pub(super) fn edit_query(frame: &Frame, query: &OpQuery<'_>) -> Result<Option<Frame>, WireError> {
    let Some(body) = edit_request(query.query) else {
        return Ok(None);
    };
    let header = frame.header();
    let edited = OpQuery { query: &body, ..*query };
    edited.encode(header.request_id, header.response_to).map(Some)
}

/// What becomes of a reply.
#[derive(Debug)]
pub(super) enum Shown {
    /// It is passed on as it is.
    AsIs,
    /// This is passed on instead.
    Edited(Frame),
    /// It is not passed on: the server is no primary, and the client would stay with it.
    NotPrimary,
}

/// What the client is to see of a reply to a handshake.
pub(super) fn show(reply: &Frame, presentation: &Presentation) -> Result<Shown, WireError> {
    if let Ok(legacy) = OpReply::parse(reply) {
        let Some(hello) = legacy.documents.first() else {
            return Ok(Shown::AsIs);
        };
        let header = reply.header();
        return match presentation.of(hello) {
            presentation::Hello::AsIs => Ok(Shown::AsIs),
            presentation::Hello::NotPrimary => Ok(Shown::NotPrimary),
            presentation::Hello::Edited(body) => {
                let edited = OpReply {
                    documents: vec![&body],
                    ..legacy
                };
                edited.encode(header.request_id, header.response_to).map(Shown::Edited)
            }
        };
    }
    let message = OpMsg::parse_unverified(reply)?;
    Ok(match presentation.of(message.body) {
        presentation::Hello::AsIs => Shown::AsIs,
        presentation::Hello::NotPrimary => Shown::NotPrimary,
        presentation::Hello::Edited(body) => Shown::Edited(rebuilt(reply, message.flags, &body)?),
    })
}

/// The end of a transaction without the token of a mongos; `None`: it has none.
pub(super) fn without_recovery_token(frame: &Frame, message: &OpMsg<'_>) -> Result<Option<Frame>, WireError> {
    if get(message.body, RECOVERY_TOKEN).is_none() {
        return Ok(None);
    }
    let body = with_replaced(message.body, &[(RECOVERY_TOKEN, None)]);
    rebuilt(frame, message.flags, &body).map(Some)
}

/// Refuses authentication that cannot succeed through a proxy, in words that say why.
pub(super) fn check_mechanism(command: &str, body: &RawDocument) -> Result<(), CommandError> {
    if matches!(command, "authenticate" | "saslStart") && names_x509(body) {
        let message = "MONGODB-X509 does not work through mongoshape: mongod would see the proxy's certificate, not the \
                       client's. Use SCRAM-SHA-256 or SCRAM-SHA-1";
        return Err(CommandError::new(ErrorCode::AuthenticationFailed, message));
    }
    Ok(())
}

/// The same message with another body and no checksum.
fn rebuilt(frame: &Frame, mut flags: OpMsgFlags, body: &RawDocument) -> Result<Frame, WireError> {
    flags.remove(OpMsgFlags::CHECKSUM_PRESENT);
    let header = frame.header();
    OpMsgBuilder::new(header.request_id, header.response_to)
        .flags(flags)
        .body(body)
        .build()
}

fn edit_request(hello: &RawDocument) -> Option<RawDocumentBuf> {
    let mut edits = Vec::new();
    if get(hello, COMPRESSION).is_some() {
        edits.push((COMPRESSION, None));
    }
    let speculative = get(hello, SPECULATIVE).and_then(RawBsonRef::as_document);
    if speculative.is_some_and(names_x509) {
        edits.push((SPECULATIVE, None));
    }
    (!edits.is_empty()).then(|| with_replaced(hello, &edits))
}

fn names_x509(body: &RawDocument) -> bool {
    get(body, "mechanism") == Some(RawBsonRef::String(X509))
}
