//! The one place where a failure becomes a reply.
//!
//! Codes and names are mongod's own (`src/mongo/base/error_codes.yml`), so that drivers and applications treat them as
//! they treat the server's.

use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::arguments::with_replaced;
use super::document::{get, put};
use super::namespace::Namespace;

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

/// The errors of mongod that the proxy itself answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// A value that cannot be.
    BadValue,
    /// A value that cannot be read as what it should be.
    FailedToParse,
    /// Somebody else's.
    Unauthorized,
    /// A field of the wrong type.
    TypeMismatch,
    /// Credentials or a mechanism that cannot be taken.
    AuthenticationFailed,
    /// Nested too deep.
    Overflow,
    /// A batch of no or too many operations.
    InvalidLength,
    /// Not possible in this deployment.
    IllegalOperation,
    /// Bytes that are no BSON.
    InvalidBson,
    /// A collection that is not there.
    NamespaceNotFound,
    /// An index that is not there.
    IndexNotFound,
    /// A path that leads into what has no fields.
    PathNotViable,
    /// Two changes of one path.
    ConflictingUpdateOperators,
    /// A cursor that is not there.
    CursorNotFound,
    /// A field beginning with `$` where none may.
    DollarPrefixedFieldName,
    /// An `_id` of a type that cannot be one.
    InvalidIdField,
    /// Several values where one must be.
    NotSingleValueField,
    /// A change of what cannot change.
    ImmutableField,
    /// An index that cannot be made.
    CannotCreateIndex,
    /// Two of one command's indexes are the same.
    IndexAlreadyExists,
    /// An option that a shaped collection cannot have.
    InvalidOptions,
    /// An index that is there under another name.
    IndexOptionsConflict,
    /// An index with the name of another one.
    IndexKeySpecsConflict,
    /// Part of a value where all of it must be given.
    NotExactValueField,
    /// Too many lost races.
    WriteConflict,
    /// A validator is not met: of a shaped collection, one that freezes it.
    DocumentValidationFailure,
    /// A plan whose collection is gone, or another.
    QueryPlanKilled,
    /// Another collection than the command names.
    CollectionUuidMismatch,
    /// The shape cannot do it.
    CommandNotSupported,
    /// What a filter may not say here.
    QueryFeatureNotAllowed,
    /// A transaction that has ended.
    NoSuchTransaction,
    /// Not possible in a transaction.
    OperationNotSupportedInTransaction,
    /// A command or stage that the client's own `apiStrict` rules out.
    ApiStrict,
    /// A legacy message that MongoDB no longer takes.
    UnsupportedOpQueryCommand,
    /// No primary is there to take it.
    NotWritablePrimary,
    /// A cursor that another command is reading.
    CursorInUse,
    /// A document over 16 MiB.
    BsonObjectTooLarge,
    /// A duplicate key.
    DuplicateKey,
    /// A command without a field it needs.
    MissingField,
    /// A command without `$db`.
    MissingDatabase,
    /// A command with a field it does not have.
    UnknownField,
    /// A negative number where none may be.
    NegativeNumber,
}

impl ErrorCode {
    /// The number, as in a reply's `code`.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::BadValue => 2,
            Self::FailedToParse => 9,
            Self::Unauthorized => 13,
            Self::TypeMismatch => 14,
            Self::Overflow => 15,
            Self::InvalidLength => 16,
            Self::AuthenticationFailed => 18,
            Self::IllegalOperation => 20,
            Self::InvalidBson => 22,
            Self::NamespaceNotFound => 26,
            Self::IndexNotFound => 27,
            Self::PathNotViable => 28,
            Self::ConflictingUpdateOperators => 40,
            Self::CursorNotFound => 43,
            Self::DollarPrefixedFieldName => 52,
            Self::InvalidIdField => 53,
            Self::NotSingleValueField => 54,
            Self::ImmutableField => 66,
            Self::CannotCreateIndex => 67,
            Self::IndexAlreadyExists => 68,
            Self::InvalidOptions => 72,
            Self::IndexOptionsConflict => 85,
            Self::IndexKeySpecsConflict => 86,
            Self::NotExactValueField => 111,
            Self::WriteConflict => 112,
            Self::CommandNotSupported => 115,
            Self::DocumentValidationFailure => 121,
            Self::QueryPlanKilled => 175,
            Self::CollectionUuidMismatch => 361,
            Self::QueryFeatureNotAllowed => 224,
            Self::NoSuchTransaction => 251,
            Self::OperationNotSupportedInTransaction => 263,
            Self::ApiStrict => 323,
            Self::UnsupportedOpQueryCommand => 352,
            Self::NotWritablePrimary => 10107,
            Self::BsonObjectTooLarge => 10334,
            Self::DuplicateKey => 11000,
            Self::CursorInUse => 12051,
            Self::MissingField => 40414,
            Self::MissingDatabase => 40571,
            Self::UnknownField => 40415,
            Self::NegativeNumber => 51024,
        }
    }

    /// The name, as in a reply's `codeName`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BadValue => "BadValue",
            Self::FailedToParse => "FailedToParse",
            Self::Unauthorized => "Unauthorized",
            Self::TypeMismatch => "TypeMismatch",
            Self::Overflow => "Overflow",
            Self::InvalidLength => "InvalidLength",
            Self::AuthenticationFailed => "AuthenticationFailed",
            Self::IllegalOperation => "IllegalOperation",
            Self::InvalidBson => "InvalidBSON",
            Self::NamespaceNotFound => "NamespaceNotFound",
            Self::IndexNotFound => "IndexNotFound",
            Self::PathNotViable => "PathNotViable",
            Self::ConflictingUpdateOperators => "ConflictingUpdateOperators",
            Self::CursorNotFound => "CursorNotFound",
            Self::DollarPrefixedFieldName => "DollarPrefixedFieldName",
            Self::InvalidIdField => "InvalidIdField",
            Self::NotSingleValueField => "NotSingleValueField",
            Self::ImmutableField => "ImmutableField",
            Self::CannotCreateIndex => "CannotCreateIndex",
            Self::IndexAlreadyExists => "IndexAlreadyExists",
            Self::InvalidOptions => "InvalidOptions",
            Self::IndexOptionsConflict => "IndexOptionsConflict",
            Self::IndexKeySpecsConflict => "IndexKeySpecsConflict",
            Self::NotExactValueField => "NotExactValueField",
            Self::WriteConflict => "WriteConflict",
            Self::CommandNotSupported => "CommandNotSupported",
            Self::DocumentValidationFailure => "DocumentValidationFailure",
            Self::QueryPlanKilled => "QueryPlanKilled",
            Self::CollectionUuidMismatch => "CollectionUUIDMismatch",
            Self::QueryFeatureNotAllowed => "QueryFeatureNotAllowed",
            Self::NoSuchTransaction => "NoSuchTransaction",
            Self::OperationNotSupportedInTransaction => "OperationNotSupportedInTransaction",
            Self::ApiStrict => "APIStrictError",
            Self::UnsupportedOpQueryCommand => "UnsupportedOpQueryCommand",
            Self::NotWritablePrimary => "NotWritablePrimary",
            Self::BsonObjectTooLarge => "BSONObjectTooLarge",
            Self::DuplicateKey => "DuplicateKey",
            Self::CursorInUse => "CursorInUse",
            Self::MissingField => "Location40414",
            Self::MissingDatabase => "Location40571",
            Self::UnknownField => "Location40415",
            Self::NegativeNumber => "Location51024",
        }
    }
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

    /// The shape cannot do it: says which collection, which shape, and what is not possible.
    #[must_use]
    pub fn unsupported(namespace: Namespace<'_>, what: &str) -> Self {
        let message = format!("mongoshape stores {namespace} in the bucket pattern: {what} is not supported on it");
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

    /// The failure of a read that a write begins with, as mongod words it for the write itself: a server that is no primary
    /// refuses the two with different codes.
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

    /// mongod's reply to a command that it took for a retryable write: which labels it has is mongod's word, and
    /// [`labelled`](Self::labelled) gives it no other.
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

    /// The same, of a retryable write: with the label by which drivers know that it may be sent again, which mongod gives
    /// only to those of its replies that it takes for one to such a write (`db/error_labels.cpp`).
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

/// Whether a write that failed so may be sent again as it is (Retryable Writes, "Determining Retryable Errors").
#[must_use]
pub fn is_retryable(code: i32) -> bool {
    const CODES: &[i32] = &[6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];
    CODES.contains(&code)
}

/// Gives a reply the label by which drivers know that the retryable write may be sent again, unless it has labels.
pub fn label_retryable(reply: &mut RawDocumentBuf) {
    if get(reply, LABELS).is_none() {
        let labels: RawArrayBuf = [RETRYABLE_WRITE].into_iter().collect();
        put(reply, LABELS, &labels);
    }
}

/// The `codeName` of an error by which the server could not go on: those of [`is_retryable`] and interruptions.
fn name_of_server_error(code: i32) -> Option<&'static str> {
    Some(match code {
        6 => "HostUnreachable",
        7 => "HostNotFound",
        24 => "LockTimeout",
        50 => "MaxTimeMSExpired",
        89 => "NetworkTimeout",
        91 => "ShutdownInProgress",
        112 => "WriteConflict",
        134 => "ReadConcernMajorityNotAvailableYet",
        189 => "PrimarySteppedDown",
        246 => "SnapshotUnavailable",
        251 => "NoSuchTransaction",
        262 => "ExceededTimeLimit",
        9001 => "SocketException",
        10107 => "NotWritablePrimary",
        11600 => "InterruptedAtShutdown",
        11601 => "Interrupted",
        11602 => "InterruptedDueToReplStateChange",
        13435 => "NotPrimaryNoSecondaryOk",
        13436 => "NotPrimaryOrSecondary",
        _ => return None,
    })
}

/// What mongod said of one statement of a write command, or what the proxy says of one item.
#[derive(Clone, Debug)]
pub struct WriteError {
    /// mongod's number for it.
    pub code: i32,
    /// The message.
    pub message: String,
    /// Fields beside `index`, `code` and `errmsg`, such as `keyPattern` and `keyValue`.
    pub detail: RawDocumentBuf,
}

impl WriteError {
    /// An error without detail.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: code.number(),
            message: message.into(),
            detail: RawDocumentBuf::new(),
        }
    }

    /// Whether it says nothing of the statement but that the server could not go on with it: the whole command may be sent
    /// again.
    #[must_use]
    pub fn is_of_server(&self) -> bool {
        name_of_server_error(self.code).is_some()
    }

    /// As the error of the whole command.
    #[must_use]
    pub fn into_command_error(self) -> CommandError {
        let mut reply = RawDocumentBuf::new();
        reply.append(cstr!("ok"), 0.0);
        reply.append(cstr!("errmsg"), self.message);
        reply.append(cstr!("code"), self.code);
        if let Some(name) = name_of_server_error(self.code) {
            reply.append(cstr!("codeName"), name);
        }
        CommandError::Upstream(reply)
    }

    /// Reads an element of `writeErrors`: the statement's index and the error.
    #[must_use]
    pub fn parse(document: &RawDocument) -> Option<(usize, Self)> {
        let index = usize::try_from(document.get_i32("index").ok()?).ok()?;
        let code = document.get_i32("code").ok()?;
        let message = document.get_str("errmsg").unwrap_or_default().to_owned();
        let mut detail = RawDocumentBuf::new();
        for (name, value) in document.iter().flatten() {
            if !["index", "code", "errmsg"].contains(&name.as_str()) {
                detail.append(name, value);
            }
        }
        Some((index, Self { code, message, detail }))
    }

    /// The element of `writeErrors` for the client's document `index`.
    #[must_use]
    pub fn to_document(&self, index: usize) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("index"), i32::try_from(index).unwrap_or(i32::MAX));
        document.append(cstr!("code"), self.code);
        document.append(cstr!("errmsg"), self.message.as_str());
        for (name, value) in self.detail.iter().flatten() {
            document.append(name, value);
        }
        document
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
