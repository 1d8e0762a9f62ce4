//! mongod's errors, by their numbers and names.

/// The errors of mongod that the proxy itself answers with.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// A value that cannot be.
    BadValue = 2,
    /// A value that cannot be read as what it should be.
    FailedToParse = 9,
    /// Somebody else's.
    Unauthorized = 13,
    /// A field of the wrong type.
    TypeMismatch = 14,
    /// Nested too deep.
    Overflow = 15,
    /// A batch of no or too many operations.
    InvalidLength = 16,
    /// Credentials or a mechanism that cannot be taken.
    AuthenticationFailed = 18,
    /// Not possible in this deployment.
    IllegalOperation = 20,
    /// Bytes that are no BSON.
    InvalidBson = 22,
    /// A collection that is not there.
    NamespaceNotFound = 26,
    /// An index that is not there.
    IndexNotFound = 27,
    /// A path that leads into what has no fields.
    PathNotViable = 28,
    /// Two changes of one path.
    ConflictingUpdateOperators = 40,
    /// A cursor that is not there.
    CursorNotFound = 43,
    /// A field beginning with `$` where none may.
    DollarPrefixedFieldName = 52,
    /// An `_id` of a type that cannot be one.
    InvalidIdField = 53,
    /// Several values where one must be.
    NotSingleValueField = 54,
    /// A part of a `DBRef` without the others.
    InvalidDbRef = 55,
    /// A change of what cannot change.
    ImmutableField = 66,
    /// An index that cannot be made.
    CannotCreateIndex = 67,
    /// Two of one command's indexes are the same.
    IndexAlreadyExists = 68,
    /// An option that a shaped collection cannot have.
    InvalidOptions = 72,
    /// An index that is there under another name.
    IndexOptionsConflict = 85,
    /// An index with the name of another one.
    IndexKeySpecsConflict = 86,
    /// Part of a value where all of it must be given.
    NotExactValueField = 111,
    /// Too many lost races.
    WriteConflict = 112,
    /// The shape cannot do it.
    CommandNotSupported = 115,
    /// A validator is not met: of a shaped collection, one that freezes it.
    DocumentValidationFailure = 121,
    /// No memory is left for it.
    ExceededMemoryLimit = 146,
    /// A plan whose collection is gone, or another.
    QueryPlanKilled = 175,
    /// What a filter may not say here.
    QueryFeatureNotAllowed = 224,
    /// A transaction that has ended.
    NoSuchTransaction = 251,
    /// Not possible in a transaction.
    OperationNotSupportedInTransaction = 263,
    /// A command or stage that the client's own `apiStrict` rules out.
    ApiStrict = 323,
    /// A legacy message that MongoDB no longer takes.
    UnsupportedOpQueryCommand = 352,
    /// Another collection than the command names.
    CollectionUuidMismatch = 361,
    /// No primary is there to take it.
    NotWritablePrimary = 10107,
    /// A document over 16 MiB.
    BsonObjectTooLarge = 10334,
    /// A duplicate key.
    DuplicateKey = 11000,
    /// A cursor that another command is reading.
    CursorInUse = 12051,
    /// A command without a field it needs.
    MissingField = 40414,
    /// A command with a field it does not have.
    UnknownField = 40415,
    /// A command without `$db`.
    MissingDatabase = 40571,
    /// A negative number where none may be.
    NegativeNumber = 51024,
}

impl ErrorCode {
    /// The number, as in a reply's `code`.
    #[must_use]
    pub fn number(self) -> i32 {
        self as i32
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
            Self::InvalidDbRef => "InvalidDBRef",
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
            Self::ExceededMemoryLimit => "ExceededMemoryLimit",
            Self::QueryPlanKilled => "QueryPlanKilled",
            Self::QueryFeatureNotAllowed => "QueryFeatureNotAllowed",
            Self::NoSuchTransaction => "NoSuchTransaction",
            Self::OperationNotSupportedInTransaction => "OperationNotSupportedInTransaction",
            Self::ApiStrict => "APIStrictError",
            Self::UnsupportedOpQueryCommand => "UnsupportedOpQueryCommand",
            Self::CollectionUuidMismatch => "CollectionUUIDMismatch",
            Self::NotWritablePrimary => "NotWritablePrimary",
            Self::BsonObjectTooLarge => "BSONObjectTooLarge",
            Self::DuplicateKey => "DuplicateKey",
            Self::CursorInUse => "CursorInUse",
            Self::MissingField => "Location40414",
            Self::UnknownField => "Location40415",
            Self::MissingDatabase => "Location40571",
            Self::NegativeNumber => "Location51024",
        }
    }
}

/// Whether a write that failed so may be sent again as it is (Retryable Writes, "Determining Retryable
/// Errors").
#[must_use]
pub fn is_retryable(code: i32) -> bool {
    const CODES: &[i32] = &[6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];
    CODES.contains(&code)
}

/// The `codeName` of an error by which the server could not go on: those of [`is_retryable`], interruptions,
/// and a transaction number that is too old.
pub(super) fn name_of_server_error(code: i32) -> Option<&'static str> {
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
        225 => "TransactionTooOld",
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
