//! The one place where a failure becomes a reply.
//!
//! Codes and names are mongod's own (`src/mongo/base/error_codes.yml`), so that drivers and applications
//! treat them as they treat the server's.

mod code;
mod write;

use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocumentBuf, cstr};

use super::arguments::with_replaced;
use super::document::{get, put};
use super::namespace::Namespace;

pub use code::{ErrorCode, is_retryable};
pub use write::WriteError;

/// Where a reply has its labels.
const LABELS: &str = "errorLabels";
/// The label of an error after which a retryable write may be sent again.
const RETRYABLE_WRITE: &str = "RetryableWriteError";
const TRANSIENT_TRANSACTION: &str = "TransientTransactionError";
/// What a server that is no primary says to a read.
const NOT_PRIMARY_NO_SECONDARY_OK: i32 = 13435;

/// A command's failure as the client will read it.
#[derive(Clone, Debug)]
pub enum CommandError {
    /// Made by the proxy.
    Own {
        /// Which of mongod's errors it is.
        code: ErrorCode,
        /// What went wrong, with no document contents in it.
        message: String,
    },
    /// mongod's own reply, passed on as it is.
    Upstream(RawDocumentBuf),
}

impl CommandError {
    /// An error of the proxy's own.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Own {
            code,
            message: message.into(),
        }
    }

    /// The shape cannot do it: says which collection, in which pattern, and what is not possible.
    #[must_use]
    pub fn unsupported(namespace: Namespace<'_>, pattern: &str, what: &str) -> Self {
        let message = format!("mongoshape stores {namespace} in the {pattern} pattern: {what} is not supported on it");
        Self::new(ErrorCode::CommandNotSupported, message)
    }

    /// Bytes that are no BSON.
    #[must_use]
    pub fn invalid_bson(detail: &str) -> Self {
        Self::new(ErrorCode::InvalidBson, format!("malformed BSON in a command: {detail}"))
    }

    /// A message that mongod answers with one of its numbered errors.
    #[must_use]
    pub fn malformed(code: i32, message: &str) -> Self {
        let mut reply = RawDocumentBuf::new();
        reply.append(cstr!("ok"), 0.0);
        reply.append(cstr!("errmsg"), message);
        reply.append(cstr!("code"), code);
        reply.append(cstr!("codeName"), format!("Location{code}"));
        Self::Upstream(reply)
    }

    /// Whether it has this code, whoever made it.
    #[must_use]
    pub fn is(&self, code: ErrorCode) -> bool {
        match self {
            Self::Own { code: own, .. } => *own == code,
            Self::Upstream(reply) => reply.get_i32("code").is_ok_and(|number| number == code.number()),
        }
    }

    /// The failure of a read that a write begins with, as mongod words it for the write itself: a server that
    /// is no primary refuses the two with different codes.
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

    /// What it says.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Own { message, .. } => message,
            Self::Upstream(reply) => reply.get_str("errmsg").unwrap_or_default(),
        }
    }

    /// With the label by which drivers know that the whole transaction may be tried again.
    #[must_use]
    pub fn transient(self) -> Self {
        let mut reply = self.into_reply();
        let labels: RawArrayBuf = [TRANSIENT_TRANSACTION].into_iter().collect();
        put(&mut reply, LABELS, &labels);
        Self::Upstream(reply)
    }

    /// With the label by which drivers know that a retryable write may be sent again, whatever its code.
    #[must_use]
    pub fn retryable(self) -> Self {
        let mut reply = self.into_reply();
        label_retryable(&mut reply);
        Self::Upstream(reply)
    }

    /// mongod's reply to a command that it took for a retryable write: which labels it has is mongod's word,
    /// and [`labelled`](Self::labelled) gives it no other.
    #[must_use]
    pub fn with_labels_of_write(self) -> Self {
        match self {
            Self::Upstream(mut reply) if get(&reply, LABELS).is_none() => {
                put(&mut reply, LABELS, RawArrayBuf::new());
                Self::Upstream(reply)
            }
            other => other,
        }
    }

    /// The same, of a retryable write: with the label by which drivers know that it may be sent again, which
    /// mongod gives only to those of its replies that it takes for one to such a write
    /// (`db/error_labels.cpp`).
    #[must_use]
    pub fn labelled(self) -> Self {
        match self {
            own @ Self::Own { .. } => Self::Upstream(own.into_reply()).labelled(),
            Self::Upstream(reply) if reply.get_array(LABELS).is_ok_and(RawArray::is_empty) => {
                Self::Upstream(with_replaced(&reply, &[(LABELS, None)]))
            }
            Self::Upstream(mut reply) if reply.get_i32("code").is_ok_and(is_retryable) => {
                label_retryable(&mut reply);
                Self::Upstream(reply)
            }
            upstream @ Self::Upstream(_) => upstream,
        }
    }

    /// A field of the wrong type, in mongod's words.
    #[must_use]
    pub fn wrong_type(field: &str, is: &str, expected: &str) -> Self {
        let message = format!("BSON field '{field}' is the wrong type '{is}', expected type '{expected}'");
        Self::new(ErrorCode::TypeMismatch, message)
    }

    /// A field that the command does not have, in mongod's words.
    #[must_use]
    pub fn unknown_field(command: &str, field: &str) -> Self {
        Self::new(
            ErrorCode::UnknownField,
            format!("BSON field '{command}.{field}' is an unknown field."),
        )
    }

    /// The reply that says so.
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

/// Gives a reply the label by which drivers know that the retryable write may be sent again, unless it has
/// labels.
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
    fn a_reply_that_mongod_gave_no_label_as_a_write_gets_none() {
        let error = || CommandError::Upstream(rawdoc! { "ok": 0.0, "code": 11600 });
        let labels = |error: CommandError| get(&error.labelled().into_reply(), LABELS).is_some();
        assert!(labels(error()));
        assert!(!labels(error().with_labels_of_write()));
    }
}
