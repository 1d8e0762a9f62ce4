//! Replies to failed commands. All error replies are made here.
//!
//! Codes and names are mongod's own (`src/mongo/base/error_codes.yml`), so that drivers and
//! applications treat them like the server's.

mod code;
mod write;

use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocumentBuf, cstr};

use super::arguments::with_replaced;
use super::document::{as_flag, get, put};
use super::namespace::Namespace;
use code::{is_resumable, name_of_server_error};

pub use code::{ErrorCode, is_retryable};
pub use write::WriteError;

/// The field for a reply's labels.
const LABELS: &str = "errorLabels";
/// The label of an error after which a retryable write may be retried.
const RETRYABLE_WRITE: &str = "RetryableWriteError";
/// The label of an error after which the whole transaction may be tried again.
pub const TRANSIENT_TRANSACTION: &str = "TransientTransactionError";
/// The error of a read on a server that is not primary.
const NOT_PRIMARY_NO_SECONDARY_OK: i32 = 13435;

/// A command's failure as the client receives it.
#[derive(Clone, Debug)]
pub enum CommandError {
    /// Made by the proxy.
    Own {
        /// The code of mongod's error.
        code: ErrorCode,
        /// The message, without document contents.
        message: String,
    },
    /// mongod's own reply, passed on as it is.
    Upstream(RawDocumentBuf),
}

impl CommandError {
    /// An error of the proxy.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Own {
            code,
            message: message.into(),
        }
    }

    /// A refusal: names the collection, its pattern, and the feature that is not supported.
    #[must_use]
    pub fn unsupported(namespace: Namespace<'_>, pattern: &str, what: &str) -> Self {
        let message = format!("mongoshape stores {namespace} in the {pattern} pattern: {what} is not supported on it");
        Self::new(ErrorCode::CommandNotSupported, message)
    }

    /// The error for malformed BSON.
    #[must_use]
    pub fn invalid_bson(detail: &str) -> Self {
        Self::new(ErrorCode::InvalidBson, format!("malformed BSON in a command: {detail}"))
    }

    /// The error for a malformed message to which mongod replies with one of its numbered errors.
    #[must_use]
    pub fn malformed(code: i32, message: &str) -> Self {
        let mut reply = RawDocumentBuf::new();
        reply.append(cstr!("ok"), 0.0);
        reply.append(cstr!("errmsg"), message);
        reply.append(cstr!("code"), code);
        reply.append(cstr!("codeName"), format!("Location{code}"));
        Self::Upstream(reply)
    }

    /// Whether the error has this code, from the proxy or from mongod.
    #[must_use]
    pub fn is(&self, code: ErrorCode) -> bool {
        match self {
            Self::Own { code: own, .. } => *own == code,
            Self::Upstream(reply) => reply.get_i32("code").is_ok_and(|number| number == code.number()),
        }
    }

    /// Whether mongod reports that it could not continue. It may have executed a part of the command.
    #[must_use]
    pub fn is_of_server(&self) -> bool {
        match self {
            Self::Own { .. } => false,
            Self::Upstream(reply) => reply
                .get_i32("code")
                .is_ok_and(|code| name_of_server_error(code).is_some()),
        }
    }

    /// The error of a read that is the first part of a write, as mongod words it for the write
    /// itself. A server that is not primary returns different codes for reads and writes.
    #[must_use]
    pub fn of_write(self) -> Self {
        let primary = ErrorCode::NotWritablePrimary;
        match self {
            Self::Upstream(reply)
                if reply
                    .get_i32("code")
                    .is_ok_and(|code| code == NOT_PRIMARY_NO_SECONDARY_OK) =>
            {
                let replaced = [
                    ("errmsg", Some(RawBsonRef::String("not primary"))),
                    ("code", Some(RawBsonRef::Int32(primary.number()))),
                    ("codeName", Some(RawBsonRef::String(primary.name()))),
                ];
                Self::Upstream(with_replaced(&reply, &replaced))
            }
            other => other,
        }
    }

    /// The error's message.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Own { message, .. } => message,
            Self::Upstream(reply) => reply.get_str("errmsg").unwrap_or_default(),
        }
    }

    /// Adds the label that lets drivers retry the whole transaction.
    #[must_use]
    pub fn transient(self) -> Self {
        let mut reply = self.into_reply();
        let labels: RawArrayBuf = [TRANSIENT_TRANSACTION].into_iter().collect();
        put(&mut reply, LABELS, &labels);
        Self::Upstream(reply)
    }

    /// Adds the label that keeps drivers from resuming the change stream.
    #[must_use]
    pub fn not_resumable(self) -> Self {
        let mut reply = self.into_reply();
        let labels: RawArrayBuf = ["NonResumableChangeStreamError"].into_iter().collect();
        put(&mut reply, LABELS, &labels);
        Self::Upstream(reply)
    }

    /// The error of a command that is executed for a change stream: adds the label that lets drivers resume
    /// the stream, unless the error has labels. mongod adds it only to errors of commands with
    /// `$changeStream` (`db/error_labels.cpp`).
    #[must_use]
    pub fn resumable(self) -> Self {
        match self {
            Self::Upstream(mut reply)
                if reply.get_i32("code").is_ok_and(is_resumable) && get(&reply, LABELS).is_none() =>
            {
                let labels: RawArrayBuf = ["ResumableChangeStreamError"].into_iter().collect();
                put(&mut reply, LABELS, &labels);
                Self::Upstream(reply)
            }
            other => other,
        }
    }

    /// Adds the label that lets drivers retry the write, whatever its code.
    #[must_use]
    pub fn retryable(self) -> Self {
        let mut reply = self.into_reply();
        label_retryable(&mut reply);
        Self::Upstream(reply)
    }

    /// The error of a retryable write: adds the label that lets drivers retry it. mongod adds the
    /// label only to replies to commands that it treats as retryable writes
    /// (`db/error_labels.cpp`).
    #[must_use]
    pub fn labelled(self) -> Self {
        match self {
            own @ Self::Own { .. } => Self::Upstream(own.into_reply()).labelled(),
            Self::Upstream(mut reply) if reply.get_i32("code").is_ok_and(is_retryable) => {
                label_retryable(&mut reply);
                Self::Upstream(reply)
            }
            upstream @ Self::Upstream(_) => upstream,
        }
    }

    /// mongod's error for a field of the wrong type.
    #[must_use]
    pub fn wrong_type(field: &str, is: &str, expected: &str) -> Self {
        let message = format!("BSON field '{field}' is the wrong type '{is}', expected type '{expected}'");
        Self::new(ErrorCode::TypeMismatch, message)
    }

    /// mongod's error for a field that the command does not have.
    #[must_use]
    pub fn unknown_field(command: &str, field: &str) -> Self {
        Self::new(
            ErrorCode::UnknownField,
            format!("BSON field '{command}.{field}' is an unknown field."),
        )
    }

    /// The reply with this error.
    #[must_use]
    pub fn into_reply(self) -> RawDocumentBuf {
        match self {
            Self::Upstream(reply) => reply,
            Self::Own { code, message } => {
                let mut reply = RawDocumentBuf::new();
                reply.append(cstr!("ok"), 0.0);
                reply.append(cstr!("errmsg"), message);
                reply.append(cstr!("code"), code.number());
                reply.append(cstr!("codeName"), code.name());
                reply
            }
        }
    }
}

/// Records in the reply to a retryable write that mongod has decided about the labels: an error
/// without labels gets an empty list. [`CommandError::labelled`] then adds none. The client's reply
/// does not have the list: [`without_empty_labels`] removes it.
pub fn record_labels(reply: &mut RawDocumentBuf) {
    let succeeded = get(reply, "ok").and_then(as_flag).unwrap_or(false);
    if !succeeded && get(reply, LABELS).is_none() {
        put(reply, LABELS, RawArrayBuf::new());
    }
}

/// The reply without an empty list of labels.
#[must_use]
pub fn without_empty_labels(reply: RawDocumentBuf) -> RawDocumentBuf {
    if reply.get_array(LABELS).is_ok_and(RawArray::is_empty) {
        with_replaced(&reply, &[(LABELS, None)])
    } else {
        reply
    }
}

/// Adds the label that lets drivers retry the write, unless the reply has labels.
pub fn label_retryable(reply: &mut RawDocumentBuf) {
    if get(reply, LABELS).is_none() {
        let labels: RawArrayBuf = [RETRYABLE_WRITE].into_iter().collect();
        put(reply, LABELS, &labels);
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn a_stream_is_resumed_after_errors_of_the_server() {
        let check = |error: RawDocumentBuf, expected: Option<&str>| {
            let reply = CommandError::Upstream(error.clone()).resumable().into_reply();
            let labels = reply.get_array(LABELS).ok();
            let label = labels.and_then(|labels| labels.get_str(0).ok());
            assert_eq!(label, expected, "{error:?}");
        };
        check(rawdoc! { "ok": 0.0, "code": 11602 }, Some("ResumableChangeStreamError"));
        check(rawdoc! { "ok": 0.0, "code": 13388 }, Some("ResumableChangeStreamError"));
        check(rawdoc! { "ok": 0.0, "code": 2 }, None);
        let labelled = rawdoc! { "ok": 0.0, "code": 11602, "errorLabels": ["NonResumableChangeStreamError"] };
        check(labelled, Some("NonResumableChangeStreamError"));
    }

    #[test]
    fn a_reply_that_mongod_gave_no_label_as_a_write_gets_none() {
        let error = || rawdoc! { "ok": 0.0, "code": 11600 };
        let labels = |error: CommandError| get(&without_empty_labels(error.labelled().into_reply()), LABELS).is_some();
        assert!(labels(CommandError::Upstream(error())));
        let mut decided = error();
        record_labels(&mut decided);
        assert!(!labels(CommandError::Upstream(decided)));
        // A reply without an error has no labels.
        let mut reply = rawdoc! { "ok": 1.0, "n": 1 };
        record_labels(&mut reply);
        assert!(get(&reply, LABELS).is_none());
    }
}
