//! `hello` and `isMaster`: edits the server's description where a proxy requires it.
//!
//! * A member of a replica set is described as the listener [presents](Presentation) it. Its own
//!   `hosts` would let drivers bypass the proxy and read raw buckets. A standalone or a mongos returns
//!   no hosts and is not edited.
//! * Compression is negotiated between both ends, for compressors that the proxy supports.
//! * X.509 authentication is not offered: mongod would see the proxy's certificate.

mod presentation;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use self::presentation::Hello;
pub(super) use self::presentation::is_writable;
pub use self::presentation::{AddressMap, Presentation};
use crate::command::arguments::with_replaced;
use crate::command::document::get;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::registry::Command;
use crate::wire::{
    Compressor, Compressors, Frame, OpCode, OpMsg, OpMsgBuilder, OpMsgFlags, OpQuery, OpReply, WireError,
};

/// The authentication mechanism that needs the client's own TLS connection to mongod.
const X509: &str = "MONGODB-X509";

/// The field with which a client offers compressors.
const COMPRESSION: &str = "compression";

/// The field with which a driver can finish a transaction on another mongos.
const RECOVERY_TOKEN: &str = "recoveryToken";

/// The first step of authentication, sent along with the handshake.
const SPECULATIVE: &str = "speculativeAuthenticate";

/// Whether a command may change the authenticated users of a connection. A handshake may authenticate one
/// (`speculativeAuthenticate`).
pub(super) fn changes_users(command: Command) -> bool {
    matches!(
        command,
        Command::SaslStart
            | Command::SaslContinue
            | Command::Authenticate
            | Command::Logout
            | Command::Hello
            | Command::IsMaster
    )
}

/// The client's OP_MSG handshake as mongod gets it. `None`: unchanged.
///
/// # Errors
/// [`WireError::TooLong`].
pub fn edit_message(frame: &Frame, message: &OpMsg<'_>) -> Result<Option<Frame>, WireError> {
    let Some(body) = edit_request(message.body) else {
        return Ok(None);
    };
    rebuilt(frame, message.flags, &body).map(Some)
}

/// The client's OP_QUERY handshake as mongod gets it. `None`: unchanged. `query`: without the
/// `$query` wrapper.
///
/// # Errors
/// [`WireError::TooLong`].
pub fn edit_query(frame: &Frame, query: &OpQuery<'_>) -> Result<Option<Frame>, WireError> {
    let Some(body) = edit_request(query.query) else {
        return Ok(None);
    };
    let header = frame.header();
    let edited = OpQuery { query: &body, ..*query };
    edited.encode(header.request_id, header.response_to).map(Some)
}

/// The handling of a handshake's reply.
#[derive(Debug)]
pub enum HandshakeReply {
    /// Unchanged.
    AsIs,
    /// This frame replaces it.
    Edited(Frame),
    /// Not passed on: the server is not the primary, and the client would keep using it.
    NotPrimary,
}

/// The reply that the client gets, and the compressors that the reply confirms. `None`: the reply
/// has no list of compressors.
///
/// # Errors
/// If the reply is not a valid message.
pub fn show(reply: &Frame, presentation: &Presentation) -> Result<(HandshakeReply, Option<Compressors>), WireError> {
    let header = reply.header();
    if header.op_code == OpCode::Reply {
        let legacy = OpReply::parse(reply)?;
        let Some(hello) = legacy.documents.first() else {
            return Ok((HandshakeReply::AsIs, None));
        };
        let agreed = agreed(hello);
        let shown = match presentation.of(hello) {
            Hello::AsIs => HandshakeReply::AsIs,
            Hello::NotPrimary => HandshakeReply::NotPrimary,
            Hello::Edited(body) => {
                let documents = vec![&*body];
                let edited = OpReply { documents, ..legacy };
                HandshakeReply::Edited(edited.encode(header.request_id, header.response_to)?)
            }
        };
        return Ok((shown, agreed));
    }
    let message = OpMsg::parse_unverified(reply)?;
    let shown = match presentation.of(message.body) {
        Hello::AsIs => HandshakeReply::AsIs,
        Hello::NotPrimary => HandshakeReply::NotPrimary,
        Hello::Edited(body) => HandshakeReply::Edited(rebuilt(reply, message.flags, &body)?),
    };
    Ok((shown, agreed(message.body)))
}

/// The compressors that server and client have in common. mongod omits the list if there are none.
fn agreed(hello: &RawDocument) -> Option<Compressors> {
    Some(compressors(get(hello, COMPRESSION)?).collect())
}

/// The compressors in a `hello`'s list that the proxy supports, in the same order.
fn compressors(list: RawBsonRef<'_>) -> impl Iterator<Item = Compressor> {
    let names = list.as_array().into_iter().flatten().flatten();
    names.filter_map(|name| Compressor::from_name(name.as_str()?))
}

/// The end of a transaction without the recovery token. `None`: it has no token.
pub(super) fn without_recovery_token(frame: &Frame, message: &OpMsg<'_>) -> Result<Option<Frame>, WireError> {
    if get(message.body, RECOVERY_TOKEN).is_none() {
        return Ok(None);
    }
    let body = with_replaced(message.body, &[(RECOVERY_TOKEN, None)]);
    rebuilt(frame, message.flags, &body).map(Some)
}

/// Refuses a mechanism that cannot work through a proxy, with an explanation.
pub(super) fn check_mechanism(command: Command, body: &RawDocument) -> Result<(), CommandError> {
    if matches!(command, Command::Authenticate | Command::SaslStart) && names_x509(body) {
        let message = "MONGODB-X509 does not work through mongoshape: mongod would see the proxy's certificate, not the \
                       client's. Use SCRAM-SHA-256 or SCRAM-SHA-1";
        return Err(CommandError::new(ErrorCode::AuthenticationFailed, message));
    }
    Ok(())
}

/// The message with another body and without a checksum.
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
    // A compressor that the proxy does not support must not be negotiated.
    let offered: Option<RawArrayBuf> =
        get(hello, COMPRESSION).map(|list| compressors(list).map(Compressor::name).collect());
    if let Some(offered) = &offered {
        edits.push((COMPRESSION, Some(RawBsonRef::Array(offered))));
    }
    let speculative = get(hello, SPECULATIVE).and_then(RawBsonRef::as_document);
    if speculative.is_some_and(names_x509) {
        edits.push((SPECULATIVE, None));
    }
    let unchanged = edits.is_empty() || edits == [(COMPRESSION, get(hello, COMPRESSION))];
    (!unchanged).then(|| with_replaced(hello, &edits))
}

fn names_x509(body: &RawDocument) -> bool {
    get(body, "mechanism") == Some(RawBsonRef::String(X509))
}
